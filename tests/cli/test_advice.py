"""The options that an error proposes: the command works with them, and drops nothing that Spark still needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ..compaction.stories import BATCHES
from ..judge.queries import Event, Query
from ..judge.spark import Events, Judge
from ..publishing.publishers import drop_some
from ..publishing.trees import copy, newest
from ..samples import sample
from .running import Ttlsnap

IN_2099 = [Event("wrong", 4_071_000_000, 1)]
DRY = ("--dry-run", "--format", "json")

CASES: dict[str, tuple[Query, list[Events], str, str]] = {
    "behind a join": (Query("join_windows"), BATCHES, "--ttl 1h", r"--operator [0-9]+"),
    "a watermark in the future": (
        Query("agg_update_watermark"),
        [*BATCHES, IN_2099],
        "--ttl 10000d --timestamp value.max --time event",
        r"--now \S+",
    ),
    "complete mode": (Query("agg_complete"), BATCHES, "", r"--ttl DURATION --timestamp \S+"),
}
"""The query, its batches, the options of a command that is refused, and the options that the error proposes."""


@pytest.mark.parametrize("case", CASES)
def test_what_an_error_proposes_works_and_loses_nothing(
    inputs: Judge, tmp_path: Path, ttlsnap: Ttlsnap, case: str
) -> None:
    query, batches, options, proposed = CASES[case]
    target = copy(inputs.write(query, batches).path, tmp_path / "checkpoint")
    refused = ttlsnap("compact", target, *shlex.split(options), "--yes")
    assert refused.code != 0
    advice = re.search(proposed, refused.err)
    assert advice is not None, refused.err
    words = shlex.split(advice[0].replace("DURATION", "1h"))
    tried = ttlsnap("compact", target, *shlex.split(options), *words, *DRY)
    assert tried.code == 0, tried.err
    assert not tried.json["refused"], tried.json["warnings"]
    totals = tried.json["totals"]
    assert totals["dropped"] < totals["entries"]
    for state in tried.json["stores"]:
        assert (state["unclosed"], state["unmatched_dropped"]) == (0, 0)


@pytest.mark.parametrize("options", ["--ttl 1h --operator 0", "--ttl 1h --timestamp key.window.end"])
def test_behind_a_join_no_other_clock_is_proposed(inputs: Judge, ttlsnap: Ttlsnap, options: str) -> None:
    """In processing time, every window has expired. No file shows which of them the query has emitted."""
    target = inputs.write(Query("join_windows"), BATCHES).path
    refused = ttlsnap("compact", target, *shlex.split(options), *DRY)
    assert refused.code == 2
    assert "--time processing" not in refused.err and "--now TIME" in refused.err


def torn(target: Path) -> None:
    (target / "offsets/4").write_bytes(b"")


def set_back(target: Path) -> None:
    batch = newest(target / "commits")
    drop_some(target, stopped=True)
    for log in (target / f"commits/{batch}", target / f"offsets/{batch}", target / f"offsets/{batch + 1}"):
        log.unlink()


@pytest.mark.parametrize(
    ("name", "happens", "problem"),
    [("uncommitted-batch-4.2", torn, "torn-offset"), ("agg-deltas-lz4-4.2", set_back, "hidden-batch")],
)
def test_what_doctor_proposes_works_after_a_batch_has_begun(
    tmp_path: Path,
    ttlsnap: Ttlsnap,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    happens: Callable[[Path], None],
    problem: str,
) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    target = sample(name, tmp_path)
    happens(target)
    found = next(
        one for one in ttlsnap("doctor", target, "--format", "json").json["problems"] if one["code"] == problem
    )
    command = re.search(r"ttlsnap ((?:doctor|rollback) \S+ .*?--stopped)", found["fix"])
    assert command is not None, found["fix"]
    done = ttlsnap(*shlex.split(command[1]))
    assert done.code == 0, done.err
    assert problem not in {one["code"] for one in ttlsnap("doctor", target, "--format", "json").json["problems"]}


def test_a_policy_selects_the_operator_that_the_error_names(inputs: Judge, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = copy(inputs.write(Query("join_windows"), BATCHES).path, tmp_path / "checkpoint")
    policy = tmp_path / "policy.toml"
    rule = f'[[target]]\npath = "{target}"\n[[target.rule]]\nttl = "1h"\n'
    policy.write_text(rule)
    (result,) = ttlsnap("maintain", policy, "--plan", "--format", "json").json["targets"]
    named = re.search(r"--operator ([0-9]+) \(in a policy: operator\)", result["error"])
    assert named is not None
    policy.write_text(f"{rule}operator = {named[1]}\n")
    (result,) = ttlsnap("maintain", policy, "--plan", "--format", "json").json["targets"]
    assert result["status"] == "planned"
