"""``ttlsnap inspect --sizes`` as a command: its texts, its document, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from ttlsnap import inspect
from ttlsnap.cli.app import run
from ttlsnap.cli.sizes import show_sizes

from ..samples import SAMPLES, sample

AGG, JOIN, GROUPS = (str(SAMPLES / name) for name in ("agg-deltas-lz4-4.2", "join-4.2", "groups-3.1"))
RULE = ["--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z"]


def test_the_document_has_the_parts_of_a_plot(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", AGG, "--sizes", *RULE, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)["sizes"]
    assert (document["complete"], document["share_read"], document["rule"]) == (True, 1.0, "ttl 7d by value.max")
    (state,) = document["states"]
    freed = {"entries": 369, "bytes": 369 * 64, "estimated_entries": 369, "estimated_bytes": 369 * 64}
    assert state["would_free"] == {**freed, "left_alone": None, "followers": []}
    assert sum(part["entries"] for part in state["partitions"]) == state["entries"] == 480
    assert sum(part["bytes"] for part in state["partitions"]) == state["bytes"] == 480 * 64
    assert state["ages"]["cutoff_seconds"] == 7 * 86_400
    assert sum(bucket["entries"] for bucket in state["ages"]["buckets"]) == 480
    assert state["largest"][0]["key"] == {"key": "user-0034"}
    assert [point["batch"] for point in document["growth"]["batches"]] == list(range(7))
    assert document["growth"]["batches"][-1]["at"] == "2026-11-21T08:49:33.766Z"


def test_the_text_answers_all_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", AGG, "--sizes", *RULE, "--age", "--entries", "1"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for wanted in (
        "0.default 480 15.4 kB 15.4 kB 30.7 kB 100 % 1.02",
        "0.default 1 245 15.7 kB 10.2 kB",
        "0.default key size 32 B 32 B 32 B 32 B",
        "0.default age 12d 23d 27d 28d",
        '0.default 0 32 B 32 B {"key": "user-0034"}',
        "What ttl 7d by value.max would drop",
        "0.default 369 77 % 23.6 kB 77 %",
        "6 2026-11-21T08:49:33.766Z 480 19.6 kB 92 B",
        "age of value.max at 2026-11-21T09:00:00.000Z:",
    ):
        assert wanted in lines
    assert any(line.startswith("0.default[0] {") for line in lines)


def test_each_side_of_a_join_has_its_own_field(capsys: pytest.CaptureFixture[str]) -> None:
    fields = ["--timestamp", "left:value.at", "--timestamp", "right:value.then"]
    for more in (["--ttl", "1h", "--time", "event"], []):
        command = ["inspect", JOIN, "--sizes", *fields, *more, "--now", "2026-11-30T00:00:00Z", "--format", "json"]
        assert run(command) == 0
        states = json.loads(capsys.readouterr().out)["sizes"]["states"]
        assert [state["ages"] and state["ages"]["timestamp"] for state in states] == [
            None, "value.at", None, "value.then",
        ]  # fmt: skip


def test_a_sample_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", AGG, "--sizes", "--sample", "1kB"]) == 0
    text = capsys.readouterr().out
    assert "Sizes: a sample, 1 of 2 partitions with" in text and "--sample all reads everything" in text
    assert "~" in next(line for line in text.splitlines() if line.startswith("0.default"))
    assert run(["inspect", AGG, "--sizes", "--sample", "all"]) == 0
    assert "Sizes: all partitions were read" in capsys.readouterr().out


@pytest.mark.parametrize("width", [200, 80, 62])
def test_a_narrow_terminal_has_fewer_columns(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = inspect(AGG, sizes=True).sizes
    assert sizes is not None
    out = Console(width=width, soft_wrap=True, highlight=False, markup=False)
    show_sizes(out, sizes)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if line.startswith("0.default") and "no ages" not in line) <= width
    assert ("largest / median" in lines[2]) == (width > 62)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ttl", "7d"], "--ttl needs --sizes"),
        (["--sample", "1GB"], "--sample needs --sizes"),
        (["--timestamp", "value.max"], "--timestamp needs --age or --sizes"),
        (["--time", "event"], "--time needs --age or --sizes"),
        (
            ["--sizes", "--age", "--sample", "1kB", "--timestamp", "value.max"],
            "--age counts all entries; omit --sample",
        ),
        (["--sizes", "--sample", "many"], "'many' is not a size"),
        (["--sizes", "--ttl", "7d"], "Spark stores no timestamp for stateStoreSave; name one with --timestamp"),
        (["--sizes", "--timestamp", "value.nothing"], "no state has the field value.nothing"),
        (["--sizes", "--timestamp", "value.count"], "value.count is a number; name its unit"),
        (
            ["--sizes", "--timestamp", "value.count:sec"],
            "value.count is a number, and 'sec' is not a unit; name its unit",
        ),
        (
            ["--age", "--timestamp", "value.max", "--timestamp", "value.at"],
            "--timestamp value.at: no state has the field value.at",
        ),
        (["--sizes", "--ttl", "soon", "--timestamp", "value.max"], "'soon' is not a duration"),
        (["--sizes", "--state", "nothing"], "has nothing that matches"),
    ],
)
def test_mistakes_are_usage_errors(capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    assert run(["inspect", AGG, *options]) == 2
    said = capsys.readouterr()
    assert words in said.err and not said.out


def test_a_state_without_a_clock_has_sizes_and_no_ages(capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / "dedup-columns-rocksdb-3.2")
    assert run(["inspect", target, "--sizes", "--format", "json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)["sizes"]["states"]
    assert state["entries"] > 0 and state["ages"] is None
    assert state["no_ages"].startswith("no ages: ")


@pytest.mark.parametrize(
    ("options", "side", "reason"),
    [
        (["left:value.at"], "right", "no --timestamp names the right side"),
        (["right:value.then"], "left", "no --timestamp names the left side"),
        (["value.at"], "right", "there is no field value.at; Spark stores value.then here"),
    ],
)
def test_a_side_without_ages_says_why(
    capsys: pytest.CaptureFixture[str], options: list[str], side: str, reason: str
) -> None:
    names = [word for name in options for word in ("--timestamp", name)]
    assert run(["inspect", JOIN, "--sizes", *names, "--format", "json"]) == 0
    states = json.loads(capsys.readouterr().out)["sizes"]["states"]
    (state,) = (state for state in states if state["store"] == f"{side}-keyWithIndexToValue")
    assert state["no_ages"] == f"no ages: {reason}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("limit-3.1", "the count of a global limit is never changed"), ("no-schema-3.0", "has no state schema")],
)
def test_states_that_a_rule_leaves_alone_are_named(capsys: pytest.CaptureFixture[str], name: str, reason: str) -> None:
    assert run(["inspect", str(SAMPLES / name), "--sizes", "--ttl", "1h"]) == 0
    text = capsys.readouterr().out
    assert "ttl 1h after the time that Spark stores would drop nothing" in text
    assert reason in text.partition("not changed: 0.default: ")[2]


def test_damage_is_an_error_that_names_the_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    delta = target / "state/0/1/3.delta"
    delta.write_bytes(delta.read_bytes()[:-40])
    (delta.parent / ".3.delta.crc").unlink()
    assert run(["inspect", str(target), "--sizes"]) == 5
    said = capsys.readouterr()
    assert "state/0/1/3.delta" in said.err and not said.out


def test_a_table_has_no_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "_delta_log").mkdir()
    assert run(["inspect", str(tmp_path), "--sizes"]) == 2
    assert "--sizes is for checkpoints" in capsys.readouterr().err
