"""``inspect`` counts a small state, and shows which fields hold a time and what a TTL would drop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap.pages.words import describe_next
from ttlsnap.reading import inspect as reading

from ..cli.running import Ttlsnap
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..samples import SAMPLES, sample

FIELDS = {
    "agg-deltas-lz4-4.2": ["default value.max"],
    "rocksdb-4.2": ["default value.max"],
    "dedup-within-4.2": ["default value.expiresAtMicros:us"],
    "window-append-snappy-4.0": ["default key.window.start", "default key.window.end"],
    "groups-3.1": ["default value.groupState.seen:s", "default value.timeoutTimestamp:ms"],
    "lists-4.2": ["all value.seen:s", "recent value.ttlExpirationMs:ms"],
}

CHOOSE = (
    "Next, if one of these fields is the time of the last event of an entry: ttlsnap compact {} --ttl 7d --timestamp "
    "FIELD --dry-run. Otherwise: --timestamp @written takes the time at which an entry was last written."
)


def states_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [state for operator in document["operators"] for store in operator["stores"] for state in store["states"]]


def times_in(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the times of all states, by the state and the field."""
    return {
        f"{state['name']} {times['timestamp']}": times
        for state in states_in(document)
        for times in state.get("times", ())
    }


@pytest.mark.parametrize("name", FIELDS)
def test_each_number_is_what_a_dry_run_drops(ttlsnap: Ttlsnap, name: str) -> None:
    path = SAMPLES / name
    found = times_in(ttlsnap("inspect", path, "--format", "json").json)
    assert list(found) == FIELDS[name]
    for place, times in found.items():
        state, field = place.split()
        rule = ("--ttl", "7d", "--timestamp", field, "--state", state, "--max-drop", "100%")
        run = ttlsnap("compact", path, *rule, "--dry-run", "--engine", "local", "--format", "json")
        (counted,) = [one for one in run.json["stores"] if one["state"] == state]
        assert (times["entries"], times["would_drop"]) == (counted["entries"], counted["dropped"])
        for fact in ("oldest", "newest", "time"):
            assert times[fact] == counted[fact]


def test_the_next_command_runs_and_drops_what_was_shown(ttlsnap: Ttlsnap) -> None:
    text = ttlsnap("inspect", SAMPLES / "agg-deltas-lz4-4.2").out
    assert "value.max    processing  2026-10-23 23:10  2026-11-21 08:00    369 of 480 (77 %)" in text
    words = text.splitlines()[-1].removeprefix("Next: ttlsnap ").split()
    assert "would drop 369 of 480 entries" in ttlsnap(*words).out


def times(name: str, would_drop: int = 3, **more: int) -> dict[str, Any]:
    return {"timestamp": name, "entries": 10, "null": 0, "unlikely": 0, "would_drop": would_drop, **more}


@pytest.mark.parametrize(
    ("last", "counts", "words"),
    [
        ([times("value.at")], [times("value.at")], "Next: ttlsnap compact {} --ttl 7d --timestamp value.at --dry-run"),
        (
            [times("key.id:s", 9), times("value.at")],
            [times("value.at#2"), times("value.end", unlikely=10)],
            "Next: ttlsnap compact {} --ttl 7d --timestamp 'value.at#2' --timestamp value.at --dry-run",
        ),
        (
            [times("value.seen:s")],
            [times("key.day")],
            "Next, if key.day and value.seen:s are the times of an entry: "
            "ttlsnap compact {} --ttl 7d --timestamp key.day --timestamp value.seen:s --dry-run",
        ),
        (
            [times("value.at", null=6)],
            [],
            "Next, if value.at is the time of an entry: ttlsnap compact {} --ttl 7d --timestamp value.at --dry-run",
        ),
        ([times("value.at"), times("value.born", 9)], [], CHOOSE),
        ([times("value.seen:s"), times("value.born:s")], [], CHOOSE),
        ([times("value.first_at"), times("value.last:s", 1)], [], CHOOSE),
        ([times("key.id:s")], [], CHOOSE),
        ([times("value.at")], [times("key.id:ns")], CHOOSE),
        ([], [], "No field holds a time. --timestamp @written takes the time at which an entry was last written."),
    ],
    ids=lambda value: ", ".join(found["timestamp"] for found in value) if isinstance(value, list) else "",
)
def test_the_next_command_names_times_that_are_certain_or_says_that_it_guesses(
    ttlsnap: Ttlsnap, last: list[dict[str, Any]], counts: list[dict[str, Any]], words: str
) -> None:
    document = ttlsnap("inspect", SAMPLES / "alarms-4.2", "--format", "json").json
    for state in states_in(document):
        found = {"last": last, "counts": counts}.get(state["name"], [])
        state["times"], state["fields"] = found, [{"name": each["timestamp"].partition(":")[0]} for each in found]
        state["fields"] = state["fields"] or [{"name": "value.other"}]
    assert describe_next(document) == words.format(SAMPLES / "alarms-4.2")


def test_a_field_that_is_no_time_in_another_state_is_not_in_the_next_command(ttlsnap: Ttlsnap) -> None:
    document = ttlsnap("inspect", SAMPLES / "alarms-4.2", "--format", "json").json
    for state in states_in(document):
        state["times"], state["fields"] = [], [{"name": "value.at"}]
        if state["name"] == "last":
            state["times"] = [times("value.at")]
    assert describe_next(document) is None


def test_each_state_has_its_own_timestamp(ttlsnap: Ttlsnap) -> None:
    path = SAMPLES / "visits-4.2"
    rule = ("--ttl", "7d", "--timestamp", "value.seen:s", "--timestamp", "value.number:s")
    run = ttlsnap("compact", path, *rule, "--max-drop", "100%", "--dry-run", "--format", "json")
    timestamps = {state["state"]: state["timestamp"] for state in run.json["stores"] if state["role"] == "primary"}
    assert timestamps == {"last": "value.seen", "numbers": "value.number"}


def test_the_total_says_how_many_states_are_not_in_it(ttlsnap: Ttlsnap) -> None:
    rule = ("--ttl", "7d", "--timestamp", "value.seen:s", "--dry-run")
    assert "; 1 other state not looked at\n" in ttlsnap("compact", SAMPLES / "visits-4.2", *rule).out


def test_a_large_state_is_read_only_with_an_option(ttlsnap: Ttlsnap, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SAMPLES / "agg-deltas-lz4-4.2"
    monkeypatch.setattr(reading, "CHEAP", 100)
    run = ttlsnap("inspect", path)
    assert "would drop" not in run.out
    words = run.out.splitlines()[-1].removeprefix("Next: ttlsnap ").partition(" (")[0].split()
    assert "369 of 480 (77 %)" in ttlsnap(*words).out
    assert times_in(ttlsnap("inspect", path, "--age", "--timestamp", "value.max", "--format", "json").json) == {}


def test_a_number_is_a_time_only_in_one_unit_and_in_all_partitions(ttlsnap: Ttlsnap) -> None:
    # The counts and sums beside the times are never offered, and no time is offered in a second unit.
    fields = [field for name in FIELDS for field in FIELDS[name]]
    assert not [field for field in fields if "count" in field or "sum" in field or field.endswith("ns")]


def test_damage_in_a_state_file_is_a_warning(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    path = sample("agg-deltas-lz4-4.2", tmp_path)
    (path / "state/0/0/5.delta").write_bytes(b"no delta")
    run = ttlsnap("inspect", path, "--format", "json")
    assert run.code == 0
    assert [state["entries"] for state in states_in(run.json)] == [None]
    (warning,) = run.json["warnings"]
    assert warning.startswith("The entries were not read: ")
    assert "5.delta" in warning


def test_two_partitions_in_one_folder_are_not_counted_twice(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    path = sample("agg-deltas-lz4-4.2", tmp_path)
    (path / "state/0/1").rename(tmp_path / "elsewhere")
    (path / "state/0/1").symlink_to("0")
    run = ttlsnap("inspect", path, "--format", "json")
    assert [state["entries"] for state in states_in(run.json)] == [None]
    (warning,) = run.json["warnings"]
    assert "are the same folder, but two partitions" in warning


def test_nothing_is_proposed_for_the_state_of_a_limit(ttlsnap: Ttlsnap) -> None:
    assert ttlsnap("inspect", SAMPLES / "limit-3.1").out.splitlines()[-1].split() == ["value.value", "bigint"]


def test_a_state_without_a_time_leads_to_written(ttlsnap: Ttlsnap, inputs: Judge) -> None:
    written = inputs.write(Query("dedup_key"), [[Event("a", 1, 1)]])
    assert ttlsnap("inspect", written.path).out.splitlines()[-1] == (
        "No field holds a time. --timestamp @written takes the time at which an entry was last written."
    )
