"""The examples for build servers: they are YAML, call commands that exist, and do what their comments say.

Their shell code runs in a repository of its own, with the real ``ttlsnap check``. ``ttlsnap contract`` of a query would
need a JVM. So the real command only parses its options, and a contract made before is copied to the output.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer.main

from ttlsnap.cli.app import app
from ttlsnap.contract import contract_of_checkpoint

from ..samples import SAMPLES
from .yaml_subset import load

EXAMPLES = Path(__file__).parents[2] / "examples"
HOOK = EXAMPLES / "pre-commit" / "check-staged-contracts.sh"
TTLSNAP = """#!/bin/sh
if [ "$1" = contract ]; then
    for argument in "$@"; do printf '%s\\n' "$argument"; done > "$LOG"
    while [ "$1" != --output ]; do shift; done
    cp "$MADE" "$2"
    exit
fi
exec "$PYTHON" -c 'from ttlsnap.cli import main; main()' "$@"
"""


class Repository:
    """A clone with one contract, which a branch changes."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.root, self.log = folder / "origin", folder / "clone", folder / "log"
        self.contract = self.root / "jobs" / "a.state.json"
        self.made = folder / "made.json"
        tools = folder / "tools"
        tools.mkdir()
        (tools / "ttlsnap").write_text(TTLSNAP)
        (tools / "ttlsnap").chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "GIT_"))},
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
        contract: dict[str, Any] = contract_of_checkpoint(str(SAMPLES / "agg-deltas-lz4-4.2")).to_json()
        del contract["operators"][0]["stores"][0]["states"][0]["key"][:without]
        return json.dumps(contract, indent=2) + "\n"

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
    return load((EXAMPLES / name).read_text())


# GitHub


class Runner:
    """A runner of the steps of a composite action, with as much of GitHub as this action needs."""

    def __init__(self, repository: Repository, **given: str) -> None:
        self.repository, self.action = repository, example("github-action/action.yml")
        inputs = {name: spec.get("default", "") for name, spec in self.action["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in (inputs | given).items()}
        self.temp = repository.root.parent / "runner"
        self.temp.mkdir()
        self.values = {**values, "runner.temp": str(self.temp), "github.event.pull_request.base.sha": repository.base}
        self.output, self.summary = self.temp / "output", self.temp / "summary"

    def run(self) -> tuple[dict[str, int], str]:
        """Run the steps. Return the exit codes of those that ran, by name, and the whole output."""
        codes: dict[str, int] = {}
        printed = ""
        for step in self.action["runs"]["steps"]:
            assert step["shell"] == "bash"
            if step["name"] == "Install ttlsnap" or not self._wanted(step.get("if"), codes):
                continue
            environment = {name: self._filled(value) for name, value in step["env"].items()}
            assert "${{" not in step["run"], "what comes from outside goes by the environment"
            done = self.repository.run(
                "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"], **environment,
                GITHUB_OUTPUT=str(self.output), GITHUB_STEP_SUMMARY=str(self.summary),
                GITHUB_WORKSPACE=str(self.repository.root),
            )  # fmt: skip
            codes[step["name"]] = done.returncode
            printed += done.stdout + done.stderr
        return codes, printed

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([^}]+) \}\}", lambda match: self.values[match[1]], text)

    def _wanted(self, condition: str | None, codes: dict[str, int]) -> bool:
        if condition is None or "found" in condition:
            found = condition is None or "found=true" in (self.output.read_text() if self.output.exists() else "")
            return found and not any(codes.values())
        assert condition == "${{ !cancelled() && steps.new.outcome == 'success' }}"
        return codes.get("The contract of the changed query") == 0


def action(repository: Repository, contract: str = "jobs/a.state.json", **given: str) -> Runner:
    return Runner(repository, query="jobs.sessions:build", contract=contract, **given)


def test_the_action_passes_an_unchanged_contract(repository: Repository) -> None:
    repository.change(to=repository.text())
    runner = action(
        repository, schema="jobs/events.ddl\nusers=jobs/users.ddl\n", conf="spark.sql.shuffle.partitions=64"
    )
    codes, printed = runner.run()
    assert len(codes) == 4
    assert set(codes.values()) == {0}, printed
    assert runner.summary.read_text().startswith("## ttlsnap check: as_is")
    options = repository.contract_options()
    assert str(options.pop("output")) == "jobs/a.state.json"
    assert options == {
        "target": "jobs.sessions:build",
        "schema": ["jobs/events.ddl", "users=jobs/users.ddl"],
        "conf": ["spark.sql.shuffle.partitions=64"],
    }


def test_the_action_compares_with_the_base_and_annotates_the_contract(repository: Repository) -> None:
    repository.change(to=repository.text(without=1))
    runner = action(repository)
    codes, printed = runner.run()
    assert codes["Check"] == 1
    assert codes["The committed contract is that of the query"] == 0
    assert re.search(r"^::error file=jobs/a.state.json,line=\d+,title=incompatible", printed, re.MULTILINE)
    assert ElementTree.parse(runner.temp / "ttlsnap-check.xml").getroot().get("failures") != "0"
    assert json.loads((runner.temp / "ttlsnap-check.sarif").read_text())["runs"][0]["results"]
    outputs = dict(line.split("=") for line in runner.output.read_text().splitlines())
    assert outputs["junit"] == str(runner.temp / "ttlsnap-check.xml")


def test_the_action_fails_on_an_uncommitted_contract(repository: Repository) -> None:
    repository.change(to=repository.text() + "\n", committed=False)
    codes, printed = action(repository).run()
    assert (codes["Check"], codes["The committed contract is that of the query"]) == (0, 1)
    assert "::error::jobs/a.state.json is not that of the query" in printed


def test_the_action_does_not_check_a_new_contract(repository: Repository) -> None:
    repository.change(to=repository.text())
    codes, printed = action(repository, contract="jobs/b.state.json").run()
    assert "Check" not in codes
    assert "::notice::jobs/b.state.json is new" in printed
    assert codes["The committed contract is that of the query"] == 1, "it is not committed yet"


def test_the_action_fails_without_a_base(repository: Repository) -> None:
    repository.change(to=repository.text())
    repository.base = ""
    codes, printed = action(repository).run()
    assert codes == {"The contract of the branch": 2}
    assert "::error::" in printed


# GitLab


@pytest.mark.parametrize(("without", "code"), [(0, 0), (1, 1)])
def test_the_gitlab_job_fails_with_the_check_and_keeps_its_report(
    repository: Repository, without: int, code: int
) -> None:
    repository.change(to=repository.text(without=without))
    job = example("gitlab/.gitlab-ci.yml")["state-contract"]
    variables = {**job["variables"], "CONTRACT": "jobs/a.state.json", "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base}
    done = repository.run("bash", "-e", "-c", "\n".join(job["script"]), **variables)
    assert done.returncode == code, done.stderr
    report = job["artifacts"]["reports"]["junit"]
    assert job["artifacts"]["when"] == "always"
    assert (ElementTree.parse(repository.root / report).getroot().get("failures") == "0") is (code == 0)
    assert repository.contract_options()["target"] == "jobs.sessions:build"


def test_the_gitlab_job_lets_a_new_contract_pass(repository: Repository) -> None:
    job = example("gitlab/.gitlab-ci.yml")["state-contract"]
    variables = {**job["variables"], "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base}
    done = repository.run("bash", "-e", "-c", "\n".join(job["script"]), **variables)
    assert (done.returncode, done.stdout) == (0, "jobs/sessions.state.json is new\n")


# pre-commit


def test_the_hook_runs_the_script_beside_it() -> None:
    (hook,) = example("pre-commit/.pre-commit-hooks.yaml")
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert hook["language"] == "script"
    assert (EXAMPLES / "pre-commit" / hook["entry"]) == HOOK
    assert os.access(HOOK, os.X_OK)
    assert re.search(hook["files"], "jobs/a.state.json")
    assert not re.search(hook["files"], "jobs/astate.json")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("jobs/a.state.json", 1),
        ("jobs/new.state.json", 0),
        ("jobs/new.state.json jobs/a.state.json jobs/new.state.json", 1),
        ("'with space.state.json'", 0),
        ("--format json -- jobs/a.state.json", 1),
        ("--nonsense -- jobs/a.state.json", 2),
        ("--fail-on incompatible --", 0),
        ("", 0),
    ],
)
def test_the_hook_compares_with_the_last_commit(repository: Repository, arguments: str, code: int) -> None:
    (repository.root / "with space.state.json").write_text(repository.text())
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "more")
    repository.contract.write_text(repository.text(without=1))
    (repository.root / "jobs" / "new.state.json").write_text("{}")
    done = repository.run(str(HOOK), *shlex.split(arguments))
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("{") is ("json --" in arguments)
    assert ("verdict" in done.stdout) is (code == 1 or "space" in arguments)


def test_the_hook_lets_a_first_commit_pass(repository: Repository) -> None:
    repository.git("update-ref", "-d", "HEAD")
    assert repository.run(str(HOOK), "jobs/a.state.json").returncode == 0


# The reader of these tests


@pytest.mark.parametrize(
    "text",
    ["a: b: c", "a: [b]", "a:\n", "a: b\na: c", "a: b\n  c: d", "a: 'b", "- a\nb: c", "a: yes", "a:\tb", "a: b # c"],
)
def test_ambiguous_yaml_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        load(text)
