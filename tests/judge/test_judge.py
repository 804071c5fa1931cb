"""The judge is right: the model agrees with Spark, and checkpoints have the layout that the test asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ..matrix import FULL
from . import processes
from .inputs import Input
from .layouts import last_batch, layout_of, store_folders
from .model import MODELLED, Model
from .outcomes import Entry, expired
from .processes import JudgeError, SparkFailed, interpreter
from .queries import ENDLESS, OPERATORS, Event, Query
from .spark import Judge

T = 1_700_006_400  # a full hour
H = 3600

# These events have null and non-ASCII keys, a null time, and repeats within and across batches. Some are late, just in
# time, or out of order. Some windows end exactly at a watermark, and one event jumps far ahead.
BATCHES = [
    [Event("a", T, 1), Event("b", T + 60, 2), Event(None, T + 5, 3), Event("a", T, 4), Event("n", None, 5)],
    [Event("a", T + 3 * H, 5), Event("c", T + H, 6), Event("é", T + 2 * H, 7)],
    [
        Event("b", T + 9 * H, 8),
        Event("a", T, 9),
        Event("c", T + 2 * H, 1),
        Event("c", T + 2 * H - 1),
        Event("d", T + 9 * H),
        Event("e", T + 7 * H),
    ],
]
MORE = [
    [
        Event("a", T + 2 * H),
        Event("a", T + 8 * H),
        Event("a", T + 8 * H + 60),
        Event("n", None, 1),
        Event("e", T + 7 * H + 1),
    ],
    [],
    [Event("a", T + 30 * H, 2), Event("q", T + 9 * H, 2), Event(None, T + 29 * H, 1)],
]
LAYOUTS = ("deltas", "snapshot", "both")


# ``write`` also compares with the model. These are the operators that no test of a compaction writes.
SELDOM = ("agg_update_watermark", "dedup_key", "dedup_within")


@pytest.mark.wide
@pytest.mark.parametrize(
    "operator", [name for name in MODELLED if name not in ("visits", *ENDLESS)] if FULL else SELDOM
)
def test_spark_agrees_with_the_model_on_output_and_state(judge: Judge, operator: str) -> None:
    layout = LAYOUTS[MODELLED.index(operator) % len(LAYOUTS)]
    checkpoint = judge.write_with_spark(Input(Query(operator), tuple(map(tuple, BATCHES)), layout))
    assert judge.state(checkpoint) == checkpoint.expected.state() != []
    twin = judge.copy(checkpoint)
    expected = checkpoint.expected.run(MORE)
    same, fresh = judge.together(lambda: judge.restart(checkpoint, MORE), lambda: judge.restart(twin, MORE, fresh=True))
    assert same == fresh == expected
    assert any(batch.rows for batch in expected)
    assert judge.state(checkpoint) == judge.state(twin) == checkpoint.expected.state()


WITHOUT_A_MODEL = {
    "agg_repartitioned",
    *("alarms", "agg_complete", "removals", "agg_two_maxima", "groups", "groups_for_ever"),
    *("dedup_many", "dedup_interval", "dedup_void", "dedup_floats"),
    *("first_rows", "first_rows_deduplicated", "dedup_first_rows"),
    *("agg_namesake", "dedup_alone", "groups_scala", "groups_for_ever_scala", "reminders"),
    *("join", "join_parities", "join_ignoring_case", "join_on_columns", "join_windows", "sessions", "windows_for_ever"),
}


@pytest.mark.wide
@pytest.mark.parametrize("layout", LAYOUTS)
def test_write_produces_the_requested_layout(judge: Judge, layout: str) -> None:
    checkpoint = judge.write_with_spark(Input(Query(partitions=3), tuple(map(tuple, BATCHES)), layout))
    names = {path.name for folder in store_folders(checkpoint.path) for path in folder.iterdir()}
    assert ("3.snapshot" in names) == (layout == "snapshot")
    assert ("1.snapshot" in names) == (layout in ("both", "snapshot"))
    assert len(store_folders(checkpoint.path)) == 3
    assert layout_of(checkpoint.path) == layout


def _checkpoint_of_names(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_the_layout_follows_from_file_names(tmp_path: Path) -> None:
    two = ("commits/0", "commits/1", "commits/.1.crc")
    mixed = _checkpoint_of_names(
        tmp_path / "mixed", *two, "state/0/0/1.delta", "state/0/0/2.delta", "state/0/1/2.snapshot"
    )
    assert layout_of(mixed) == "mixed"
    ahead = _checkpoint_of_names(
        tmp_path / "ahead", *two, "state/0/0/1.snapshot", "state/0/0/2.delta", "state/0/0/3.snapshot"
    )
    assert layout_of(ahead) == "both"
    torn = _checkpoint_of_names(tmp_path / "torn", *two, "state/0/0/2.delta")
    with pytest.raises(ValueError, match=r"no delta \[1\]"):
        layout_of(torn)
    with pytest.raises(ValueError, match="no committed state"):
        layout_of(_checkpoint_of_names(tmp_path / "empty", "metadata"))


def test_a_dropped_entry_behaves_as_if_it_had_never_existed(judge: Judge) -> None:
    # Real Spark gets the same events, without those of the dropped keys.
    dropped = expired("value.max", T + 2 * H)
    model = Model(Query())
    model.run(BATCHES)
    gone = {found.at("key.key") for found in model.state() if dropped(found)}
    assert model.drop(dropped) == len(gone) == 3
    kept_only = [[event for event in events if event.key not in gone] for events in BATCHES]
    checkpoint = judge.write(Query(), kept_only)
    assert judge.state(checkpoint) == model.state()
    assert judge.restart(checkpoint, MORE) == model.run(MORE)


@pytest.mark.wide
def test_a_state_with_all_its_entries_differs_from_the_compacted_model(judge: Judge) -> None:
    checkpoint = judge.write(Query(), BATCHES)
    assert checkpoint.expected.drop(expired("value.max", T + 9 * H)) > 0
    assert judge.state(checkpoint) != checkpoint.expected.state()
    assert judge.restart(checkpoint, MORE) != checkpoint.expected.run(MORE)


def test_expired_is_inclusive_and_spares_nulls() -> None:
    model = Model(Query("agg_update_long"))
    model.run([[Event("at", T), Event("after", T + 1), Event("null", None)]])
    gone: list[Entry] = [found for found in model.state() if expired("value.max", T)(found)]
    assert [found.at("key.key") for found in gone] == ["at"]


@pytest.mark.wide
@pytest.mark.parametrize("operator", ["agg_update", "agg_append"])
def test_a_batch_that_was_never_committed_runs_again(judge: Judge, operator: str) -> None:
    checkpoint = judge.write(Query(operator), BATCHES, layout="both", uncommitted=MORE[0])
    batch = last_batch(checkpoint.path)
    assert (checkpoint.path / "offsets" / str(batch + 1)).exists()
    assert not (checkpoint.path / "commits" / str(batch + 1)).exists()
    assert all((folder / f"{batch + 2}.delta").exists() for folder in store_folders(checkpoint.path))
    assert judge.state(checkpoint) == checkpoint.expected.state()
    again = judge.restart(checkpoint, MORE[2:])
    assert again[0].batch == batch + 1
    assert again == checkpoint.expected.run(MORE[2:])


@pytest.mark.wide
def test_settings_are_pinned_in_the_checkpoint(judge: Judge) -> None:
    query = Query(codec="zstd", partitions=3, row_checksum=True, aggregation_format=1)
    checkpoint = judge.write(query, BATCHES, layout="both")
    pinned = json.loads((checkpoint.path / "offsets" / "0").read_text().splitlines()[1])["conf"]
    assert query.settings().items() - pinned.items() == {
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.streaming.fileSink.log.compactInterval", "10"),
        ("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "1"),
    }
    assert judge.state(checkpoint) == checkpoint.expected.state()
    assert judge.restart(checkpoint, MORE) == checkpoint.expected.run(MORE)


@pytest.mark.wide
def test_operators_without_a_model_run_too(judge: Judge) -> None:
    assert set(OPERATORS) - set(MODELLED) == WITHOUT_A_MODEL
    checkpoint = judge.write(Query("join"), BATCHES[:1], layout="snapshot")
    stores = {f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")}
    assert {found.store for found in judge.state(checkpoint)} == stores
    with pytest.raises(JudgeError, match="no model of join"):
        _ = checkpoint.expected


def test_refusal_returns_sparks_error_and_fails_if_spark_restarts(judge: Judge) -> None:
    checkpoint = judge.write(Query(), BATCHES[:1])
    with pytest.raises(JudgeError, match="Spark went on"):
        judge.refusal(checkpoint, BATCHES[1:])
    fenced = checkpoint.path / "offsets" / str(last_batch(checkpoint.path) + 1)
    fenced.write_text("the words on the fence")
    assert "the words on the fence" in judge.refusal(checkpoint, MORE)
    fenced.unlink()
    with pytest.raises(SparkFailed):
        judge.restart(replace(checkpoint, query=Query("agg_append")), MORE)


@pytest.mark.wide
def test_write_fails_if_spark_and_the_model_differ(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(model: Model, batches: object, crash: bool = False) -> list[object]:
        return []

    monkeypatch.setattr(Model, "run", forgetful)
    with pytest.raises(JudgeError, match="Spark and the model differ"):
        judge.write_with_spark(Input(Query(), (tuple(BATCHES[0]),), "deltas"))


def test_a_spark_version_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTLSNAP_VENVS", str(tmp_path))
    monkeypatch.setattr(processes, "reserved", "")
    with pytest.raises(JudgeError, match="`make venvs`"):
        interpreter("3.5")
    with pytest.raises(JudgeError, match="`make old-venvs`"):
        interpreter("3.1")


_ORPHANAGE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.judge.processes import NEWEST, Server
server = Server(NEWEST, Path(sys.argv[2]))
print(server.ask("process"), flush=True)
os._exit(1)
"""


@pytest.mark.wide
@pytest.mark.spark
def test_a_server_does_not_outlive_its_client(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    told = subprocess.run(
        [sys.executable, "-c", _ORPHANAGE, root, str(tmp_path / "server")], stdout=subprocess.PIPE, text=True
    )
    server = int(told.stdout)
    deadline = time.monotonic() + 20
    while _is_alive(server) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _is_alive(server)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
