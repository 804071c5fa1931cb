"""A dry run says that a run would publish only if that run, with the same options, does."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run

from ..compaction.stories import T
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..samples import sample

AGG = "agg-deltas-lz4-4.2"
WEEK = ("--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z")
DONE = "Without --dry-run, ttlsnap publishes this."
NOTHING = "Without --dry-run, ttlsnap would have nothing to change."
REFUSED = "Without --dry-run, ttlsnap would refuse this now. The warnings say why."
READ = "Read the warnings before you repeat it without --dry-run."


def leave(target: Path) -> None:
    """Change nothing."""


def run_query(target: Path) -> None:
    """Let the newest log file look as if the query had just written it."""
    os.utime(target / "offsets" / "6")


def stop_query(target: Path) -> None:
    """Let all files look old."""
    for path in target.rglob("*"):
        os.utime(path, (time.time() - 86_400,) * 2)


def link(target: Path) -> None:
    """Put a link in place of a file that a run would move."""
    (target / "state/0/0/7.delta").rename(target / "state/0/0/here")
    (target / "state/0/0/7.delta").symlink_to("here")


@dataclass(frozen=True)
class Case:
    """A sample, what is done to it, a command, and what its dry run says. ``code`` is the exit code of the run."""

    words: Sequence[str]
    says: str
    code: int
    name: str = AGG
    wreak: Callable[[Path], None] = leave
    has_page: bool = True


CASES = {
    "compact": Case(["compact", "TARGET", *WEEK, "--stopped"], DONE, 0),
    "compact an old one": Case(["compact", "TARGET", *WEEK], DONE, 0, wreak=stop_query),
    "compact a running query": Case(["compact", "TARGET", *WEEK], REFUSED, 4, wreak=run_query),
    "compact nothing": Case(["compact", "TARGET", "--ttl", "99d", *WEEK[2:], "--stopped"], NOTHING, 0),
    "compact everything": Case(["compact", "TARGET", "--ttl", "1s", *WEEK[2:], "--stopped"], READ, 4),
    "compact more than allowed": Case(["compact", "TARGET", *WEEK, "--stopped", "--max-drop", "1%"], READ, 4),
    "compact and keep": Case(["compact", "TARGET", "--transformer", "keep", "--stopped"], NOTHING, 0),
    "compact links": Case(["compact", "TARGET", *WEEK, "--stopped"], "", 4, wreak=link),
    "compact a copy": Case(
        ["compact", "TARGET", *WEEK, "--stopped", "--output", "COPY"],
        "Without --dry-run, ttlsnap writes this to COPY.",
        0,
    ),
    "migrate": Case(["migrate", "TARGET", "--partitions", "3", "--stopped"], DONE, 0, has_page=False),
    "migrate a running query": Case(
        ["migrate", "TARGET", "--partitions", "3"], REFUSED, 4, wreak=run_query, has_page=False
    ),
    "migrate and drop too much": Case(
        ["migrate", "TARGET", "--partitions", "3", "--stopped", "--ttl", "1s", *WEEK[2:]], READ, 4, has_page=False
    ),
    "import": Case(
        ["import", "TARGET", "--from", "ROWS", "--mode", "replace", "--stopped", "--yes"], DONE, 0, has_page=False
    ),
    "import into a running query": Case(
        ["import", "TARGET", "--from", "ROWS", "--mode", "replace"], REFUSED, 4, wreak=run_query, has_page=False
    ),
    "import and replace": Case(
        ["import", "TARGET", "--from", "ROWS", "--mode", "merge", "--stopped"],
        "Without --dry-run, ttlsnap asks before it replaces the entries of 480 keys.",
        4,
        has_page=False,
    ),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state of the sample as tables."""
    folder = tmp_path_factory.mktemp("rows")
    assert run(["export", str(sample(AGG, folder)), "--to", str(folder / "rows")]) == 0
    return folder / "rows"


@pytest.fixture(autouse=True)
def without_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only --stopped say that a query is stopped."""
    monkeypatch.delenv("TTLSNAP_STOPPED", raising=False)


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_says_what_a_run_does(
    name: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    target = sample(case.name, tmp_path)
    case.wreak(target)
    places = {"TARGET": str(target), "ROWS": str(rows), "COPY": str(tmp_path / "copy")}
    words = [places.get(word, word) for word in case.words]
    page = ["--report", f"html={tmp_path / 'page.html'}"] if case.has_page else []
    dry = run([*words, "--dry-run", *page])
    told = capsys.readouterr()
    if not case.says:
        assert (dry, told.out) == (case.code, "")
        assert not (tmp_path / "page.html").exists()
    else:
        says = case.says.replace("COPY", places["COPY"])
        assert dry == 0 and f"Dry run: nothing was changed. {says}" in told.out
        if case.has_page:
            text = (tmp_path / "page.html").read_text()
            assert says in text and (says == DONE or DONE not in text)
            assert ("A run would be refused now." in text) is (says == REFUSED)
        assert ("Warning:" in told.err) is (says in (REFUSED, READ))
        assert run([*words, "--dry-run", "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["refused"] is (says == REFUSED)
        assert document["destination"] == (places["COPY"] if "COPY" in case.words else None)
    ended = run([*words, "--dry-run", "--exit-code"])
    capsys.readouterr()
    found = run([*words, *(["--engine", "local"] if words[0] != "import" else [])])
    assert ended == found
    assert found == case.code
    assert ("Published as run" in capsys.readouterr().out) is (case.says == DONE)


def test_a_policy_says_what_would_be_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, wreak in (("running", run_query), ("stopped", stop_query)):
        wreak(sample(AGG, tmp_path).rename(tmp_path / name))
    policy = tmp_path / "policy.toml"
    rule = '[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\nnow = "2026-11-21T09:00:00Z"\n'

    def plan(*names: str) -> tuple[str, dict[str, Any], str]:
        policy.write_text("".join(f'[[target]]\npath = "{name}"\n{rule}' for name in names))
        shutil.rmtree(tmp_path / "page.html", ignore_errors=True)
        words = ["maintain", str(policy), "--plan", "--engine", "local"]
        assert run([*words, "--report", f"html={tmp_path / 'page.html'}"]) == 0
        text = capsys.readouterr().out
        assert run([*words, "--format", "json"]) == 0
        return text, json.loads(capsys.readouterr().out), (tmp_path / "page.html").read_text()

    text, document, page = plan("stopped")
    assert "Plan: nothing was changed. Without --plan, ttlsnap does this." in text
    assert document["targets"][0]["refused"] is False and "refused" not in page
    text, document, page = plan("running", "stopped")
    assert (
        'running: a run would skip this target, because of on_busy = "skip": ' in text.replace("\n", " ")
        and "so the query may be running" in text
    )
    assert "Plan: nothing was changed. Read the errors and warnings before you repeat it without --plan." in text
    assert [target["refused"] for target in document["targets"]] == [True, False]
    assert "Of 2 targets, 1 would be refused now; a run would drop" in page


@pytest.mark.parametrize(("on_busy", "code"), [("fail", 4), ("skip", 0)])
def test_a_policy_ends_its_plan_as_a_run_would(on_busy: str, code: int, tmp_path: Path) -> None:
    run_query(sample(AGG, tmp_path))
    policy = tmp_path / "policy.toml"
    rule = '[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\nnow = "2026-11-21T09:00:00Z"\n'
    policy.write_text(f'[[target]]\npath = "{AGG}"\non_busy = "{on_busy}"\n{rule}')
    words = ["maintain", str(policy), "--engine", "local"]
    assert run([*words, "--plan"]) == 0
    assert run([*words, "--plan", "--exit-code"]) == code == run(words)
    policy.write_text('[[target]]\npath = "nothing*"\n')
    assert run([*words, "--plan", "--exit-code"]) == run(words)


def test_the_exit_code_of_several_targets_is_the_highest(tmp_path: Path) -> None:
    running, stopped = (sample(AGG, tmp_path).rename(tmp_path / name) for name in ("running", "stopped"))
    run_query(running)
    stop_query(stopped)
    words = ["compact", "TARGET", *WEEK, "--dry-run", "--exit-code"]
    for targets, code in (([stopped], 0), ([stopped, running], 4), ([running, stopped], 4)):
        assert run([*words[:1], *map(str, targets), *words[2:]]) == code


@pytest.mark.parametrize(
    "words",
    [
        ["compact", "TARGET"],
        ["migrate", "TARGET", "--partitions", "3"],
        ["import", "TARGET", "--from", "x"],
        ["maintain", "policy.toml"],
    ],
    ids=lambda words: words[0],
)
def test_only_a_dry_run_takes_exit_code(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(sample(AGG, tmp_path))
    assert run([target if word == "TARGET" else word for word in words] + ["--exit-code"]) == 2
    assert "--exit-code needs" in capsys.readouterr().err


def test_a_dry_run_says_that_no_batch_can_be_planned(
    inputs: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = inputs.write(Query("dedup_first_rows"), [[Event("k1", T), Event("k2", T)]], version="4.2")
    target = str(written.path)

    capsys.readouterr()
    commands = (
        ["compact", target, "--transformer", "keep", "--stopped"],
        ["migrate", target, "--partitions", "3", "--stopped"],
    )
    for words in commands:
        assert run([*words, "--dry-run"]) == 0
        told = capsys.readouterr()
        assert REFUSED in told.out and "is a global limit" in told.err
        assert run([*words, "--dry-run", "--no-planned-batch"]) == 0
        assert REFUSED not in capsys.readouterr().out
        assert run(words) == 4
