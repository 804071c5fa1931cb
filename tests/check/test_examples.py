"""The action, the hook of pre-commit and the job of GitLab: they call commands that exist, and do what they say.

Their shell code runs in a repository of its own, with the real ``ttlsnap check``. ``ttlsnap contract`` of a query would
need a JVM. So the real command only parses its options, and a contract made before is copied to the output.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer.main

from ttlsnap.cli.app import app
from ttlsnap.contract import contract_of_checkpoint

from ..new_query.contracts import JOIN, column, contract, left
from ..samples import SAMPLES
from .yaml_subset import load

ROOT = Path(__file__).parents[2]
TTLSNAP = """#!/bin/sh
if [ "$1" = contract ]; then
    for argument in "$@"; do printf '%s\\n' "$argument"; done > "$LOG"
    while [ "$1" != --output ]; do shift; done
    cp "$MADE" "$2"
    exit
fi
exec "$PYTHON" -c 'from ttlsnap.cli import main; main()' "$@"
"""
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then printf '%s\\n' "$@" > "$LOG.pip"; exit; fi
exec "$PYTHON" "$@"
"""


class Repository:
    """A clone with one contract, which a branch changes."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.root, self.log = folder / "origin", folder / "clone", folder / "log"
        self.contract = self.root / "jobs" / "a.state.json"
        self.made = folder / "made.json"
        tools = folder / "tools"
        tools.mkdir()
        for name, script in (("ttlsnap", TTLSNAP), ("python", PYTHON)):
            (tools / name).write_text(script)
            (tools / name).chmod(0o755)
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("GITHUB_", "CI_", "GIT_", "PRE_COMMIT"))
            },
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "LOG": str(self.log),
            "MADE": str(self.made),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self.git("init", "--quiet", "--initial-branch=main", str(self.origin), within=folder)
        (self.origin / "jobs").mkdir()
        (self.origin / "jobs" / "a.state.json").write_text(self.text())
        self.git("add", ".", within=self.origin)
        self.git("commit", "--quiet", "-m", "old", within=self.origin)
        self.git("clone", "--quiet", str(self.origin), str(self.root), within=folder)
        self.base = self.git("rev-parse", "HEAD")
        self.git("checkout", "--quiet", "-b", "change")

    def git(self, *arguments: str, within: Path | None = None) -> str:
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=within or self.root, env=self.environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    @staticmethod
    def text(*, without: int = 0) -> str:
        """Return the contract without the first columns of its key."""
        document: dict[str, Any] = contract_of_checkpoint(str(SAMPLES / "agg-deltas-lz4-4.2")).to_json()
        del document["operators"][0]["stores"][0]["states"][0]["key"][:without]
        return json.dumps(document, indent=2) + "\n"

    def change(self, *, to: str, committed: bool = True) -> None:
        """Change the contract that the query makes, and commit it if asked to."""
        self.made.write_text(to)
        if committed:
            self.contract.write_text(to)
            self.git("commit", "--quiet", "--allow-empty", "-am", "new")

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        whole = {**self.environment, **environment}
        return subprocess.run(command, cwd=self.root, env=whole, capture_output=True, text=True, check=False)

    def contract_options(self) -> dict[str, Any]:
        """Return the options of the call of ``ttlsnap contract``, parsed by the command itself."""
        group: Any = typer.main.get_command(app)
        _, *arguments = self.log.read_text().splitlines()
        parsed: dict[str, Any] = group.commands["contract"].make_context("contract", arguments).params
        # Typer before 0.29 converts paths and lists later.
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in parsed.items()}
        return {name: value for name, value in plain.items() if value}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def example(name: str) -> Any:
    return load((ROOT / name).read_text())


# GitHub


class Runner:
    """A runner of the steps of the composite action, with the variables that GitHub sets."""

    def __init__(self, repository: Repository, **given: str) -> None:
        self.repository, self.action = repository, example("action.yml")
        inputs = {name: spec.get("default", "") for name, spec in self.action["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in (inputs | given).items()}
        self.temp = repository.root.parent / "runner"
        self.temp.mkdir()
        self.values = {**values, "runner.temp": str(self.temp), "github.event.pull_request.base.sha": repository.base}
        self.output, self.summary = self.temp / "output", self.temp / "summary"
        event = self.temp / "event.json"
        event.write_text(json.dumps({"pull_request": {"base": {"sha": repository.base}}}))
        self.variables = {
            "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_BASE_REF": "main",
            "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(event), "GITHUB_HEAD_REF": "change",
            "GITHUB_OUTPUT": str(self.output), "GITHUB_REF": "refs/pull/1/merge", "GITHUB_REPOSITORY": "owner/jobs",
            "GITHUB_SHA": repository.git("rev-parse", "HEAD"), "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_WORKSPACE": str(repository.root), "RUNNER_OS": "Linux", "RUNNER_TEMP": str(self.temp),
        }  # fmt: skip

    def run(self) -> tuple[dict[str, int], str]:
        """Run the steps. Return the exit codes of those that ran, by name, and the whole output."""
        codes: dict[str, int] = {}
        printed = ""
        for step in self.action["runs"]["steps"]:
            assert step["shell"] == "bash"
            if not self._wanted(step.get("if"), codes):
                continue
            environment = {name: self._filled(value) for name, value in step["env"].items()}
            assert "${{" not in step["run"], "a script gets values from outside only by the environment"
            command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
            done = self.repository.run(*command, **self.variables, **environment)
            codes[step["name"]] = done.returncode
            printed += done.stdout + done.stderr
        return codes, printed

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of the action."""
        written = dict(line.split("=") for line in self.output.read_text().splitlines())
        references = {name: spec["value"] for name, spec in self.action["outputs"].items()}
        assert references == {name: f"${{{{ steps.check.outputs.{name} }}}}" for name in written}
        return written

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([^}]+) \}\}", lambda match: self.values[match[1]], text)

    @staticmethod
    def _wanted(condition: str | None, codes: dict[str, int]) -> bool:
        if condition is None:
            return not any(codes.values())
        assert condition == "${{ !cancelled() && steps.new.outcome == 'success' }}"
        return codes.get("Write the contract of the changed query") == 0


COMMITTED = "Compare the committed contract with that of the query"


def action(repository: Repository, contract: str = "jobs/a.state.json", **given: str) -> Runner:
    return Runner(repository, query="jobs.sessions:build", contract=contract, **given)


def test_the_action_passes_an_unchanged_contract(repository: Repository) -> None:
    repository.change(to=repository.text())
    runner = action(
        repository, schema="jobs/events.ddl\nusers=jobs/users.ddl\n", conf="spark.sql.shuffle.partitions=64"
    )
    codes, printed = runner.run()
    assert len(codes) == 5
    assert set(codes.values()) == {0}, printed
    assert Path(f"{repository.log}.pip").read_text().splitlines()[-1] == str(ROOT)
    assert runner.summary.read_text().startswith("## ttlsnap check: as_is")
    options = repository.contract_options()
    assert str(options.pop("output")) == "jobs/a.state.json"
    assert options == {
        "target": "jobs.sessions:build",
        "schema": ["jobs/events.ddl", "users=jobs/users.ddl"],
        "conf": ["spark.sql.shuffle.partitions=64"],
    }


def test_the_action_passes_a_query_like_that_of_the_tutorial(repository: Repository) -> None:
    repository.change(to=repository.text())
    page = (ROOT / "docs/getting-started.md").read_text()
    (block,) = re.findall(r"```yaml\n(# The version.*?)```", page, re.DOTALL)
    _, step = load(block)
    given = {**step["with"], "contract": "jobs/a.state.json"}
    codes, printed = Runner(repository, **given, **{"properties-file": "jobs/spark.conf"}).run()
    assert set(codes.values()) == {0}, printed
    options = repository.contract_options()
    assert str(options.pop("properties_file")) == "jobs/spark.conf"
    assert str(options.pop("output")) == "jobs/a.state.json"
    assert options == {
        "target": "visits:build",
        "schema": ["user STRING, at TIMESTAMP"],
        "conf": ["spark.sql.shuffle.partitions=4", "spark.sql.session.timeZone=UTC"],
        "output_mode": "update",
    }


def test_the_action_passes_a_script(repository: Repository) -> None:
    repository.change(to=repository.text())
    given = {
        "script": "jobs/visits.py",
        "arguments": "--in\nold visits",
        "query-name": "visits",
        "contract": "jobs/a.state.json",
    }
    codes, printed = Runner(repository, **given).run()
    assert set(codes.values()) == {0}, printed
    options = repository.contract_options()
    assert [str(options.pop(name)) for name in ("script", "output")] == ["jobs/visits.py", "jobs/a.state.json"]
    assert options == {"arguments": ["--in", "old visits"], "query": "visits"}


@pytest.mark.parametrize(("strict", "code"), [("false", 0), ("true", 3), ("yes", 2)])
def test_the_action_can_be_strict(repository: Repository, strict: str, code: int) -> None:
    repository.change(to=repository.text())
    codes, printed = action(repository, strict=strict).run()
    assert codes["Check"] == code
    assert ("strict is yes; write true or false" in printed) is (code == 2)


def test_workflows_in_the_pages_use_inputs_of_the_action() -> None:
    inputs = example("action.yml")["inputs"].keys()
    for page in ("docs/check.md", "docs/getting-started.md", "action.yml"):
        (step,) = re.findall(r"uses: OWNER/ttlsnap@[^\n]*\n(.*?)(?:```|\n#\n)", (ROOT / page).read_text(), re.DOTALL)
        names = re.findall(r"^[# ]+([\w-]+):", step, re.MULTILINE)
        assert names[:2] == ["with", "query"]
        assert "conf: spark.sql.session.timeZone=UTC" in step or "      spark.sql.session.timeZone=UTC" in step
        assert set(names[1:]) <= inputs


def test_the_action_compares_with_the_base_and_annotates_the_contract(repository: Repository) -> None:
    repository.change(to=repository.text(without=1))
    runner = action(repository)
    codes, printed = runner.run()
    assert codes["Check"] == 1
    assert codes[COMMITTED] == 0
    assert re.search(r"^::error file=jobs/a.state.json,line=\d+,title=incompatible", printed, re.MULTILINE)
    assert ElementTree.parse(runner.temp / "ttlsnap-check.xml").getroot().get("failures") != "0"
    assert json.loads((runner.temp / "ttlsnap-check.sarif").read_text())["runs"][0]["results"]
    assert runner.outputs == {
        kind: f"{runner.temp}/ttlsnap-check.{end}" for kind, end in (("junit", "xml"), ("sarif", "sarif"))
    }


def test_the_action_fails_on_an_uncommitted_contract(repository: Repository) -> None:
    repository.change(to=repository.text() + "\n", committed=False)
    codes, printed = action(repository).run()
    assert (codes["Check"], codes[COMMITTED]) == (0, 1)
    assert "::error::jobs/a.state.json is not the contract of the query" in printed


def test_the_action_passes_a_new_contract(repository: Repository) -> None:
    repository.change(to=repository.text())
    runner = action(repository, contract="jobs/b.state.json")
    codes, printed = runner.run()
    assert codes["Check"] == 0
    assert f"jobs/b.state.json is new: {repository.base} has no contract" in printed
    assert not runner.output.exists()
    assert codes[COMMITTED] == 1, "it is not committed yet"


@pytest.mark.parametrize("contract", ["jobs/b.state.json", "link/a.state.json"])
def test_the_action_fails_on_a_contract_that_git_does_not_have(repository: Repository, contract: str) -> None:
    (repository.root / ".gitignore").write_text("*.state.json\n")
    (repository.root / "link").symlink_to("jobs")
    repository.git("add", ".gitignore", "link")
    repository.change(to=repository.text())
    codes, printed = action(repository, contract=contract).run()
    assert (codes["Check"], codes[COMMITTED]) == (0, 1)
    assert f"::error::{contract} is not committed; commit it" in printed


def test_the_action_fails_without_a_base(repository: Repository) -> None:
    repository.change(to=repository.text())
    repository.base = ""
    codes, printed = action(repository).run()
    assert codes == {"Install ttlsnap": 0, "Fetch the base of the pull request": 2}
    assert "::error::" in printed


def test_the_action_installs_the_named_package(repository: Repository) -> None:
    repository.change(to=repository.text())
    action(repository, package="ttlsnap==0.3.0").run()
    assert Path(f"{repository.log}.pip").read_text().splitlines()[-1] == "ttlsnap==0.3.0"


# GitLab


@pytest.mark.parametrize(("without", "code"), [(0, 0), (1, 1)])
def test_the_gitlab_job_fails_with_the_check_and_keeps_its_report(
    repository: Repository, without: int, code: int
) -> None:
    repository.change(to=repository.text(without=without))
    job = example("examples/gitlab/gitlab-ci.yml")["state-contract"]
    variables = {**job["variables"], "CONTRACT": "jobs/a.state.json", "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base}
    variables["OUTPUT_MODE"] = "update"
    done = repository.run("bash", "-e", "-c", "\n".join(job["script"]), **variables)
    assert done.returncode == code, done.stderr
    report = job["artifacts"]["reports"]["junit"]
    assert job["artifacts"]["when"] == "always"
    assert (ElementTree.parse(repository.root / report).getroot().get("failures") == "0") is (code == 0)
    options = repository.contract_options()
    assert (options["target"], options["conf"]) == ("jobs.sessions:build", ["spark.sql.session.timeZone=UTC"])
    assert options["output_mode"] == "update"


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_gitlab_job_lets_a_new_contract_pass_if_it_is_committed(repository: Repository, is_committed: bool) -> None:
    job = example("examples/gitlab/gitlab-ci.yml")["state-contract"]
    if is_committed:
        (repository.root / "jobs" / "sessions.state.json").write_text(repository.text())
        repository.git("add", ".")
    repository.change(to=repository.text())
    variables = {**job["variables"], "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base}
    done = repository.run("bash", "-e", "-c", "\n".join(job["script"]), **variables)
    assert (done.returncode == 0) is is_committed, done.stderr
    assert "jobs/sessions.state.json is new" in done.stderr
    assert "output_mode" not in repository.contract_options()


# pre-commit


def hook_words() -> list[str]:
    (hook,) = example(".pre-commit-hooks.yaml")
    assert hook["language"] == "python"
    assert re.search(hook["files"], "jobs/a.state.json")
    assert not re.search(hook["files"], "jobs/astate.json")
    return shlex.split(hook["entry"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("jobs/a.state.json", 1),
        ("jobs/new.state.json", 0),
        ("jobs/new.state.json jobs/a.state.json jobs/new.state.json", 1),
        ("'with space.state.json'", 0),
        ("--format json jobs/a.state.json", 1),
        ("--nonsense jobs/a.state.json", 2),
        ("--strict --fail-on incompatible 'with space.state.json'", 3),
    ],
)
def test_the_hook_compares_with_the_last_commit(repository: Repository, arguments: str, code: int) -> None:
    (repository.root / "with space.state.json").write_text(repository.text())
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "more")
    repository.contract.write_text(repository.text(without=1))
    (repository.root / "jobs" / "new.state.json").write_text(repository.text())
    done = repository.run(*hook_words(), *shlex.split(arguments))
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("[\n  {") is ("--format json" in arguments)
    assert ("verdict" in done.stdout) is (code in (1, 3) or "space" in arguments)


def test_the_hook_compares_with_the_commit_from_which_pre_commit_starts(repository: Repository) -> None:
    repository.change(to=repository.text(without=1))
    words = [*hook_words(), "jobs/a.state.json"]
    assert repository.run(*words).returncode == 0
    done = repository.run(*words, PRE_COMMIT_FROM_REF="main", PRE_COMMIT_TO_REF="HEAD")
    assert done.returncode == 1
    assert "main:./jobs/a.state.json -> jobs/a.state.json" in done.stdout


def test_the_hook_lets_a_first_commit_pass(repository: Repository) -> None:
    repository.git("update-ref", "-d", "HEAD")
    done = repository.run(*hook_words(), "jobs/a.state.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "jobs/a.state.json is new: the repository has no contract to compare it with\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--base", "0123456789", "jobs/a.state.json"), "git finds no commit 0123456789"),
        (("--base", "--output=x", "jobs/a.state.json"), "--base --output=x is not a commit"),
        (("jobs/a.state.json",), "check needs OLD and NEW, and got 1 name. With"),
        (("a", "b", "c"), "check needs OLD and NEW, and got 3 names"),
        (("--base", "HEAD", "jobs/b.state.json"), "jobs/b.state.json does not exist"),
        (("--base", "HEAD", "a", "b", "--report", "junit=x.xml"), "are for one comparison"),
        (("--base", "HEAD", "a", "b", "--format", "sarif"), "are for one comparison"),
    ],
)
def test_mistakes_in_a_comparison_with_a_commit_are_errors(
    repository: Repository, words: tuple[str, ...], told: str
) -> None:
    done = repository.run("ttlsnap", "check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_base_needs_a_repository(repository: Repository) -> None:
    repository.made.write_text(repository.text())
    done = repository.run("ttlsnap", "check", "--base", "HEAD", str(repository.made))
    assert done.returncode == 2
    assert "git finds no repository with the folder" in done.stderr


@pytest.mark.slow
def test_the_migration_reads_the_contract_from_the_commit(repository: Repository) -> None:
    target = shutil.copytree(SAMPLES / JOIN, repository.root.parent / "target")
    repository.change(to=json.dumps(contract(target, lambda document: None)))
    repository.contract.write_text(
        json.dumps(contract(target, lambda document: left(document).append(column("extra", "integer", nullable=False))))
    )
    done = repository.run("ttlsnap", "check", "--base", "HEAD", "jobs/a.state.json")
    found = re.search(r"^next: (.*)", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    # The command still works after the commit that changes the contract, so it does not name HEAD.
    assert re.search(r"--from <\(git show [0-9a-f]{40}:\./jobs/a\.state\.json\)", found[1])
    command = f"{found[1].replace('CHECKPOINT', str(target)).replace('LITERAL', '0')} --stopped --engine local"
    migrated = repository.run("bash", "-c", command)
    assert migrated.returncode == 0, migrated.stderr
    assert repository.run("ttlsnap", "check", str(target), "jobs/a.state.json").returncode == 0


@pytest.mark.wide
def test_pre_commit_runs_the_hook_of_a_clone(repository: Repository, tmp_path: Path) -> None:
    """``pre-commit try-repo`` installs ttlsnap from a clone, and runs its hook."""
    clone = tmp_path / "ttlsnap"
    repository.git("clone", "--quiet", "--no-local", str(ROOT), str(clone), within=tmp_path)
    repository.contract.write_text(repository.text(without=1))
    repository.git("add", ".")
    words = ("-m", "pre_commit", "try-repo", str(clone), "ttlsnap-check", "--files", "jobs/a.state.json")
    done = repository.run(sys.executable, *words, PRE_COMMIT_HOME=str(tmp_path / "home"), PYTHONPATH="")
    assert done.returncode == 1, done.stderr
    assert "incompatible[key-removed]" in done.stdout
    assert "HEAD:./jobs/a.state.json -> jobs/a.state.json" in done.stdout


# The reader of these tests


@pytest.mark.parametrize(
    "text",
    ["a: b: c", "a: [b]", "a:\n", "a: b\na: c", "a: b\n  c: d", "a: 'b", "- a\nb: c", "a: yes", "a:\tb", "a: b # c"],
)
def test_ambiguous_yaml_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        load(text)
