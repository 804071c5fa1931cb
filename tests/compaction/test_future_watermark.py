"""One event with a wrong time moves the watermark into the future. It is then not the clock of a TTL."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ttlsnap.checkpoint import MicroBatch
from ttlsnap.checkpoint.logs import find_future_watermark

from ..cli.running import Ttlsnap
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..publishing.trees import copy, tree
from ..samples import sample
from .stories import BATCHES

IN_2099 = 4_071_000_000
MOVED = [*BATCHES, [Event("wrong", IN_2099, 1)]]
"""After the last one, Spark runs a batch without data, with the new watermark."""
RULE = ("--ttl", "10000d", "--timestamp", "value.max", "--time", "event")
"""Nothing is as old as that, except compared with a time in 2099."""
SHOWN = r"offsets/4: the watermark 2099-01-02T.*Z \(batchWatermarkMs\) is [0-9,]+ days ahead of the time of the batch"


@pytest.fixture
def moved(inputs: Judge, tmp_path: Path) -> Path:
    """Return a checkpoint whose last batch ran with a watermark of 2099."""
    written = inputs.write(Query("agg_update_watermark"), MOVED)
    return copy(written.path, tmp_path / "checkpoint")


@pytest.mark.parametrize("command", [("compact",), ("migrate", "--partitions", "3")], ids=lambda words: words[0])
def test_it_is_refused_and_the_time_that_the_error_names_loses_nothing(
    moved: Path, ttlsnap: Ttlsnap, command: tuple[str, ...]
) -> None:
    before = tree(moved)
    words = [command[0], moved, *command[1:], *RULE, "--yes"]
    refused = ttlsnap(*words)
    assert refused.code == 4
    assert re.search(SHOWN, " ".join(refused.err.split())), refused.err
    assert tree(moved) == before
    advice = re.search(r"--now (\S+)", refused.err)
    assert advice is not None
    done = ttlsnap(*words, "--now", advice[1], "--format", "json")
    assert (done.code, done.json["totals"]["dropped"]) == (0, 0)


def test_a_policy_is_refused_until_its_rule_names_a_time(moved: Path, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    policy = tmp_path / "policy.toml"
    target = f'[[target]]\npath = "{moved}"\nstopped = true\n'
    rule = '[[target.rule]]\nttl = "10000d"\ntimestamp = "value.max"\ntime = "event"\n'
    policy.write_text(target + rule)
    answer = ttlsnap("maintain", policy, "--format", "json")
    (result,) = answer.json["targets"]
    assert (answer.code, result["status"]) == (4, "refused")
    advice = re.search(r"--now (\S+) \(in a policy: now\)", result["error"])
    assert advice is not None
    policy.write_text(f'{target}{rule}now = "{advice[1]}"\n')
    (result,) = ttlsnap("maintain", policy, "--format", "json").json["targets"]
    assert result["status"] == "nothing"


def test_a_dry_run_says_that_a_run_is_refused(moved: Path, ttlsnap: Ttlsnap) -> None:
    answer = ttlsnap("compact", moved, *RULE, "--dry-run", "--format", "json")
    assert (answer.code, answer.json["refused"]) == (0, True)
    assert answer.json["totals"]["dropped"] > 25
    assert re.search(f"a run would be refused now: .*{SHOWN}", answer.json["warnings"][0])


def test_processing_time_is_not_concerned(moved: Path, ttlsnap: Ttlsnap) -> None:
    answer = ttlsnap("compact", moved, "--ttl", "10000d", "--timestamp", "value.max", "--yes", "--format", "json")
    assert (answer.code, answer.json["totals"]["dropped"]) == (0, 0)


def test_commands_that_only_read_use_it(moved: Path, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    ages = ("--timestamp", "value.max", "--time", "event")
    assert ttlsnap("inspect", moved, "--age", *ages).code == 0
    assert ttlsnap("explain", moved, "--key", '"k1"', *RULE).code == 0
    assert ttlsnap("export", moved, "--to", tmp_path / "rows", *ages).code == 0


def test_inspect_and_doctor_show_it(moved: Path, ttlsnap: Ttlsnap) -> None:
    (warning,) = ttlsnap("inspect", moved, "--format", "json").json["warnings"]
    assert re.search(SHOWN, warning) and "--now" in warning
    answer = ttlsnap("doctor", moved, "--format", "json")
    (problem,) = answer.json["problems"]
    assert (answer.code, problem["code"], problem["severity"]) == (0, "future-watermark", "note")
    assert re.search(SHOWN, problem["message"])
    assert (
        ttlsnap("doctor", sample("window-append-snappy-4.0", moved.parent), "--format", "json").json["problems"] == []
    )


def test_the_commit_log_shows_it_before_a_batch_has_run_with_it() -> None:
    batch = MicroBatch(3, 5_000, 5_000, IN_2099 * 1000)
    path, words = find_future_watermark(batch) or ("", "")
    assert path == "commits/3" and "(nextBatchWatermarkMs)" in words
    assert find_future_watermark(replace(batch, next_watermark_ms=6_000)) is None
