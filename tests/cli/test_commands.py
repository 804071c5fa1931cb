"""The command line as users and scripts see it: names, JSON keys, exit codes, messages."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from ..samples import COMPACTABLE, ROCKSDB, SAMPLES, bytes_of, sample
from .running import Ttlsnap

# The local engine, and no check for a running query, because no query uses a fresh copy.
QUICK = ("--engine", "local", "--parallelism", "1", "--stopped", "--max-drop", "100%")
SEVEN_DAYS = ("--ttl", "7d", "--timestamp", "value.max")
SEEN = ("--ttl", "7d", "--timestamp", "value.seen:s")


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_inspect_has_the_promised_keys_for_every_sample(ttlsnap: Ttlsnap, name: str) -> None:
    found = ttlsnap("inspect", str(SAMPLES / name), "--format", "json").json
    promised = {
        "target", "kind", "query_id", "spark_version", "batch", "watermark_ms", "batch_timestamp_ms", "fence",
        "operators",
    }  # fmt: skip
    assert promised <= found.keys()
    assert found["kind"] == "checkpoint"
    for operator in found["operators"]:
        assert {"id", "name", "provider", "partitions", "stores"} <= operator.keys()
        assert operator["partitions"] > 0
        for store in operator["stores"]:
            assert {"name", "states"} <= store.keys()
            for state in store["states"]:
                assert {
                    "name",
                    "type",
                    "role",
                    "key_schema",
                    "value_schema",
                    "timestamp",
                    "entries",
                    "bytes",
                } <= state.keys()


@pytest.mark.parametrize("name", sorted(COMPACTABLE))
def test_inspect_shows_decoded_entries_and_counts_them_by_age(ttlsnap: Ttlsnap, name: str) -> None:
    arguments = ("inspect", str(SAMPLES / name), "--format", "json", "--timestamp", COMPACTABLE[name], "--now", "wall")
    found = ttlsnap(*arguments, "--entries", "3", "--age").json
    states = found["operators"][0]["stores"][0]["states"]
    (state,) = [state for state in states if "age" in state]
    age = state["age"]
    counted = age["future"] + sum(b["entries"] for b in age["buckets"]) + age["older"] + age["null"]
    assert counted == state["entries"] > 0
    mine = [entry for entry in found["entries"] if entry["state"] == state["name"]]
    assert len(mine) == min(3, state["entries"])
    for entry in mine:
        assert {"operator", "store", "state", "partition", "key", "value"} <= entry.keys()
        assert entry["key"]["key"] is None or isinstance(entry["key"]["key"], str)


def test_inspect_shows_any_retained_batch(ttlsnap: Ttlsnap) -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    counts = []
    for batch in range(6):
        found = ttlsnap(
            "inspect", target, "--batch", str(batch), "--age", "--timestamp", "value.max", "--format", "json"
        ).json
        assert found["batch"] == batch
        counts.append(found["operators"][0]["stores"][0]["states"][0]["entries"])
    assert counts == sorted(set(counts)), "users only ever come"
    refused = ttlsnap("inspect", target, "--batch", "99")
    assert (refused.code, "there are 0 to 6" in refused.err) == (2, True)


def test_a_checkpoint_without_schemas_shows_raw_bytes_and_accepts_a_schema(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = str(sample("no-schema-3.0", tmp_path))
    raw = ttlsnap("inspect", target, "--entries", "1", "--age", "--format", "json").json
    assert bytes.fromhex(raw["entries"][0]["key"])
    assert raw["operators"][0]["stores"][0]["states"][0]["entries"] > 0
    refused = ttlsnap("compact", target, "--ttl", "1h", "--timestamp", "value.max", *QUICK)
    assert refused.code == 3
    assert "--schema 0.default=" in refused.err
    schema = ("--schema", "0.default='key STRING | max TIMESTAMP, count BIGINT NOT NULL, sum BIGINT'")
    shown = ttlsnap("inspect", target, "--entries", "1", "--format", "json", *schema).json
    assert shown["entries"][0]["value"].keys() == {"max", "count", "sum"}
    done = ttlsnap("compact", target, "--ttl", "1h", "--timestamp", "value.max", "--now", "wall", *QUICK, *schema)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    "schema",
    [
        "0.default='key STRING | max TIMESTAMP, count BIGINT'",
        "0.default='key STRING | max TIMESTAMP, count BIGINT, sum BIGINT, more BIGINT'",
        "0.default='key STRING | max STRING, count BIGINT, sum BIGINT'",
        "0.default='key BIGINT | max TIMESTAMP, count BIGINT, sum BIGINT'",
    ],
)
def test_a_schema_that_does_not_fit_the_bytes_is_refused(ttlsnap: Ttlsnap, tmp_path: Path, schema: str) -> None:
    target = sample("no-schema-3.0", tmp_path)
    before = bytes_of(target)
    arguments = ("--ttl", "1h", "--timestamp", "value.count:us", "--now", "wall", "--schema", schema)
    refused = ttlsnap("compact", str(target), *arguments, *QUICK)
    assert refused.code == 2
    assert "does not describe the bytes" in refused.err
    assert bytes_of(target) == before


def test_compact_has_the_promised_keys_and_history_stores_them(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    report = ttlsnap("compact", target, *SEVEN_DAYS, "--time", "event", *QUICK, "--format", "json").json
    assert {"run", "target", "kind", "dry_run", "engine", "now", "now_source", "totals", "stores", "output",
            "backup", "seconds"} <= report.keys()  # fmt: skip
    counts = {"entries", "kept", "dropped", "rewritten", "bytes_before", "bytes_after"}
    assert counts <= report["totals"].keys()
    assert report["totals"]["dropped"] > 0 < report["totals"]["kept"]
    assert report["totals"]["bytes_after"] < report["totals"]["bytes_before"]
    for store in report["stores"]:
        assert counts | {"operator", "store", "state", "role", "timestamp", "oldest", "newest"} <= store.keys()
    assert Path(report["backup"]).is_dir()
    (entry,) = ttlsnap("history", target, "--format", "json").json["runs"]
    assert (entry["run"], entry["status"]) == (report["run"], "done")
    assert {**entry["report"], "seconds": None} == {**report, "seconds": None}


@pytest.mark.parametrize("name", sorted(COMPACTABLE))
def test_a_dry_run_reports_what_the_real_one_does_and_writes_nothing(
    ttlsnap: Ttlsnap, tmp_path: Path, name: str
) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)
    arguments = ("compact", str(target), "--ttl", "1s", "--timestamp", COMPACTABLE[name], "--format", "json", *QUICK)
    stores = ttlsnap(*arguments, "--dry-run", "--now", "wall").json["stores"]
    now = ("--now", next(store["newest"] for store in stores if store["newest"]).replace("Z", ""))
    dry = ttlsnap(*arguments, *now, "--dry-run").json
    assert bytes_of(target) == before
    real = ttlsnap(*arguments, *now).json
    if name in ROCKSDB:
        for one, other in zip((dry["totals"], *dry["stores"]), (real["totals"], *real["stores"]), strict=True):
            bytes_after = one.pop("bytes_after"), other.pop("bytes_after")
            assert bytes_after == (None, None) or abs(bytes_after[0] - bytes_after[1]) < 50
    assert (dry["totals"], dry["stores"]) == (real["totals"], real["stores"])
    assert (dry["dry_run"], real["dry_run"]) == (True, False)
    assert 0 < real["totals"]["kept"] < real["totals"]["entries"]
    assert ttlsnap("rollback", str(target)).code == 0
    kept = {path: digest for path, digest in bytes_of(target).items() if not path.startswith("_ttlsnap")}
    kept = {path: digest for path, digest in kept.items() if path in before or not path.endswith("/SSTs")}
    assert kept == before


def test_a_second_run_changes_nothing(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    assert ttlsnap("compact", str(target), *SEVEN_DAYS, "--time", "event", *QUICK).code == 0
    before = bytes_of(target)
    again = ttlsnap("compact", str(target), *SEVEN_DAYS, "--time", "event", *QUICK)
    assert (again.code, "Nothing was changed" in again.out) == (0, True)
    assert bytes_of(target) == before


def test_several_targets_have_an_array_and_the_worst_exit_code(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    good, bad = sample("agg-deltas-lz4-4.2", tmp_path), sample("no-schema-3.0", tmp_path)
    done = ttlsnap("compact", str(bad), str(good), *SEVEN_DAYS, "--time", "event", *QUICK, "--format", "json")
    assert done.code == 3
    first, second = done.json
    assert "no state schema" in first["error"]
    assert second["totals"]["dropped"] > 0


REFUSED = [
    ("visits-4.2", (*SEVEN_DAYS, "--state", "numbers"), 2, "value.number (bigint)"),
    ("visits-4.2", (*SEVEN_DAYS, "--state", "$rowCounter_numbers"), 2, "is derived from other entries"),
    ("visits-4.2", ("--ttl", "7d", "--timestamp", "value.seen:s", "--timers", "follow"), 2, "has timers"),
    ("join-4.2", SEVEN_DAYS, 2, "value.left_value (bigint)"),
    ("join-4.2", (*SEVEN_DAYS, "--store", "left-keyToNumValues"), 2, "is derived"),
    ("join-4.2", ("--ttl", "1h", "--timestamp", "left:value.at", "--timestamp", "right:value.at"), 2, "right:value.at"),
    ("join-4.2", ("--ttl", "1h", "--timestamp", "value.at", "--timestamp", "value.them"), 2, "did you mean value.then"),
    ("alarms-4.2", (*SEEN, "--timestamp", "key.userKey.seen:s"), 2, "value.seen:s and key.userKey.seen:s, and"),
    ("alarms-4.2", ("--ttl", "7d", "--timestamp", "value.sen"), 2, "no state has the field value.sen (did you mean"),
    ("visits-4.2", (*SEEN, "--time", "event"), 2, "Compare with the time of the last batch: --time processing"),
    ("agg-deltas-lz4-4.2", ("--ttl", "7d", "--timestamp", "value.nope"), 2, "value.max (timestamp)"),
    ("agg-deltas-lz4-4.2", ("--ttl", "7d", "--timestamp", "value.count"), 2, "value.count:ms"),
    ("agg-deltas-lz4-4.2", ("--ttl", "7d", "--timestamp", "value.count:weeks"), 2, "value.count:ms"),
    ("agg-deltas-lz4-4.2", ("--ttl", "7d", "--timestamp", "value.max:ms"), 2, "which has no unit; omit"),
    (
        "agg-deltas-lz4-4.2", ("--ttl", "7d", "--timestamp", "key.key"), 2,
        "which is not a time. Its state has these fields:\n  operator 0",
    ),
    ("agg-deltas-lz4-4.2", ("--ttl", "7d", "--timestamp", "max"), 2, "begin with 'key.' or 'value.'"),
    ("agg-deltas-lz4-4.2", ("--ttl", "7d"), 2, "--timestamp"),
    ("agg-deltas-lz4-4.2", ("--timestamp", "value.max"), 2, "--timestamp needs --ttl"),
    ("agg-deltas-lz4-4.2", ("--ttl", "0s", "--timestamp", "value.max"), 2, "positive"),
    ("agg-deltas-lz4-4.2", ("--ttl", "-7d", "--timestamp", "value.max"), 2, "not a duration"),
    ("agg-deltas-lz4-4.2", ("--ttl", "999999999999d", "--timestamp", "value.max"), 2, "292,000 years"),
    ("agg-deltas-lz4-4.2", (*SEVEN_DAYS, "--now", "noon"), 2, "ISO 8601"),
    ("agg-deltas-lz4-4.2", (*SEVEN_DAYS, "--operator", "7"), 2, "it has 0.default"),
    ("agg-deltas-lz4-4.2", (*SEVEN_DAYS, "--schema", "0.default='k INT | v INT'"), 2, "already records its schema"),
    ("agg-deltas-lz4-4.2", (*SEVEN_DAYS, "--schema", "nonsense"), 2, "--schema"),
    ("agg-deltas-lz4-4.2", ("--transformer", "nope"), 2, "installed: keep, ttl"),
    ("agg-deltas-lz4-4.2", ("--transformer", "no_such_module:f"), 2, "cannot be loaded"),
    ("agg-deltas-lz4-4.2", ("--transformer", "keep", "--set", "a=1"), 2, "no options; remove 'a'"),
    ("agg-deltas-lz4-4.2", ("--set", "a=1", "--transformer", "keep"), 2, "before any --transformer"),
    ("agg-deltas-lz4-4.2", ("--transformer", "math:pi"), 2, "not a factory"),
    ("agg-deltas-lz4-4.2", ("--old-ttl", "7d"), 2, "Use it with --ttl"),
    ("agg-deltas-lz4-4.2", (*SEVEN_DAYS, "--old-ttl", "7d"), 2, "without --timestamp"),
    ("join-4.2", ("--ttl", "1d", "--old-ttl", "7d"), 2, "not a moment of writing plus a ttl"),
    ("window-append-snappy-4.0", ("--ttl", "1d", "--old-ttl", "7d"), 2, "not a moment of writing plus a ttl"),
    ("agg-format1-3.5", (*SEVEN_DAYS, "--time", "event"), 2, "no watermark"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "code", "words"), REFUSED)
def test_a_refused_compaction_is_explained_and_changes_nothing(
    ttlsnap: Ttlsnap, tmp_path: Path, name: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)
    refused = ttlsnap("compact", str(target), *arguments, *QUICK)
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.startswith("Error: ")
    assert words in refused.err
    assert "Traceback" not in refused.err
    assert bytes_of(target) == before


@pytest.mark.parametrize("command", ["inspect", "compact", "recover", "rollback", "history"])
def test_a_target_that_is_not_a_checkpoint_is_refused(ttlsnap: Ttlsnap, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for target in ("missing", "empty", "file"):
        refused = ttlsnap(command, str(tmp_path / target))
        assert refused.code == 2, refused
        assert str(tmp_path / target) in refused.err
    assert ttlsnap(command, "ftp://name/checkpoint").code == 3
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}


def test_a_checkpoint_without_commits_is_refused(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    for commit in (target / "commits").iterdir():
        commit.unlink()
    refused = ttlsnap("compact", str(target), *SEVEN_DAYS, *QUICK)
    assert (refused.code, "the commit log is missing" in refused.err) == (2, True)


def test_dropped_results_ahead_of_the_watermark_are_counted(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = str(sample("window-append-snappy-4.0", tmp_path))
    at_the_watermark = ttlsnap("compact", target, "--dry-run", *QUICK, "--format", "json").json
    assert (at_the_watermark["totals"]["dropped"], at_the_watermark["stores"][0]["unclosed"]) == (0, 0)
    later = ttlsnap("compact", target, "--now", "2027-01-01", "--dry-run", *QUICK, "--format", "json").json
    assert later["stores"][0]["unclosed"] == later["totals"]["dropped"] == later["totals"]["entries"] > 0
    shown = ttlsnap("compact", target, "--now", "2027-01-01", "--dry-run", *QUICK).out
    assert "are ahead of the watermark" in shown
    assert "every entry is dropped" in shown


def test_settings_belong_to_the_transformer_before_them(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    ttl = ("--transformer", "ttl", "--set", "ttl=7d", "--set=timestamp=value.max", "--set", "time=event")
    named = ttlsnap("compact", target, "--transformer", "keep", *ttl, "--dry-run", *QUICK, "--format", "json").json
    plain = ttlsnap("compact", target, *SEVEN_DAYS, "--time", "event", "--dry-run", *QUICK, "--format", "json").json
    assert named["totals"] == plain["totals"]
    assert named["totals"]["dropped"] > 0


def test_transformers_are_listed_with_their_options(ttlsnap: Ttlsnap) -> None:
    listed = {info["name"]: info for info in ttlsnap("transformers", "--format", "json").json}
    assert {"ttl", "keep"} <= listed.keys()
    assert "timestamp" in listed["ttl"]["options"]


def test_pruning_removes_the_backup_and_prevents_a_rollback(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = str(sample("agg-snapshot-zstd-4.1", tmp_path))
    rule = ("--ttl", "1h", "--timestamp", "value.max", "--now", "wall", "--expired-to", str(tmp_path / "archive"))
    report = ttlsnap("compact", target, *rule, *QUICK, "--format", "json")
    assert report.json["totals"]["dropped"] > 0
    run = report.json["run"]
    undo = f"ttlsnap rollback {target} --stopped --expired-to {tmp_path / 'archive'}\n"
    assert f"To undo run {run}: {undo}" in ttlsnap("history", target).out
    pruned = ttlsnap("history", target, "--prune", "--yes", "--format", "json").json
    assert (pruned["pruned"], pruned["runs"][0]["backup"], pruned["undoable"]) == ([run], False, None)
    assert "To undo" not in ttlsnap("history", target).out
    refused = ttlsnap("rollback", target)
    assert (refused.code, "was removed, so the run cannot be rolled back" in refused.err) == (4, True)


def test_the_help_has_examples(ttlsnap: Ttlsnap) -> None:
    assert "[[target]]" in ttlsnap("maintain", "--help")[1]
    top, compact = ttlsnap("--help"), ttlsnap("compact", "--help")
    assert (top.code, compact.code) == (0, 0)
    assert "Exit codes" in top.out
    assert "--dry-run" in compact.out
    assert "Examples" in compact.out
    assert ttlsnap().code == 2
    assert ttlsnap("compact").code == 2
    assert ttlsnap("--version").out.startswith("ttlsnap ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("migrate", "ck", "--partitions", "zero"), "it is not a whole number."),
        (("migrate", "ck", "--partitions", "0"), "it must be at least 1."),
        (("compact", "ck", "--format", "yaml"), "'yaml' is not one of"),
    ],
)
def test_a_wrong_value_of_an_option_is_explained_for_people(
    ttlsnap: Ttlsnap, words: tuple[str, ...], told: str
) -> None:
    refused = ttlsnap(*words)
    assert (refused.code, refused.out) == (2, "")
    assert f"Invalid value for '{words[2]}': {told}" in " ".join(refused.err.replace("│", " ").split())


def test_a_question_tells_to_stop_the_query_unless_it_is_stopped(
    ttlsnap: Ttlsnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    monkeypatch.delenv("TTLSNAP_STOPPED")
    for path in target.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # so old that no batch can be running
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    for command in (("compact",), ("migrate", "--partitions", "3")):
        for stopped, question_end in (((), "? Stop the query first."), (("--stopped",), "?")):
            words = (command[0], target, *command[1:], *SEVEN_DAYS, "--engine", "local", *stopped)
            assert ttlsnap(*words).code == 0
            assert asked.pop().endswith(question_end)


def test_larger_files_after_a_run_are_explained(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("rocksdb-changelog-3.5", tmp_path)
    rule = ("--ttl", "1d", "--timestamp", "value.max", "--now", "2027-01-01", "--max-drop", "100%", "--dry-run")
    note = "operator 0: the new files are larger than the old ones. A rewritten partition has at least one table"
    assert note in ttlsnap("compact", target, *rule).out
    assert "the new files are larger" not in ttlsnap("compact", sample("rocksdb-4.2", tmp_path), *rule).out


@pytest.mark.parametrize("agrees", [True, False])
def test_a_run_is_published_only_if_its_user_agrees(
    ttlsnap: Ttlsnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    asked: list[str] = []

    def answer(question: str, **_: object) -> bool:
        asked.append(question)
        return agrees

    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", answer)
    outcome = ttlsnap("compact", target, *SEVEN_DAYS, *QUICK)
    assert outcome.code == 0
    assert "Total: would drop 369 of 480 entries" in outcome.out and "Dry run" not in outcome.out
    assert asked == [f"Drop 369 of 480 entries (77 %) from {target}?"]
    assert (bytes_of(target) != before) == agrees
    outcome = ttlsnap("migrate", target, "--partitions", "3", *SEVEN_DAYS, "--stopped")
    assert f"Total: would drop {0 if agrees else 369}" in outcome.out and "were dropped" not in outcome.out
