"""A query continues on imported state as it would have on its own, with every operator."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ttlsnap import LocalEngine, SparkEngine, export, import_state, open_checkpoint
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.storage.local import LocalDirectory

from ..compaction.stories import BATCHES, WHOLE, settled
from ..judge.processes import VERSIONS
from ..judge.queries import ENDLESS, ONLY_ROCKSDB, Event, Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow
from ..migration.entries import entries_of
from ..migration.twins import emit_the_same
from ..reading.export_queries import EVERYTHING, SLICE
from ..samples import sample

T = 1_700_006_400
FEW = [query for query in SLICE if query.provider == "rocksdb" or query.operator == "sessions"]


def later(rounds: int) -> list[list[Event]]:
    """Return events of old keys and new ones, at later and later times. The first ones match rows that joins keep."""
    hours = (T + 5 * 3600 + n * 1800 for n in range(rounds))
    return [[Event(f"k{i}", T + i * 600 + 30, i + 1) for i in range(18, 24)]] + [
        [Event(f"k{i}", at + i, 10 + i) for i in range(n % 3, 24, 3)] + [Event(f"new{n}", at, n)]
        for n, at in enumerate(hours)
    ]


def opened(path: Path) -> Checkpoint:
    return open_checkpoint(LocalDirectory(str(path.resolve())))


def emptied(exported: Path, to: Path) -> Path:
    """Write the tables of an export without their rows."""
    for folder in exported.iterdir():
        (to / folder.name).mkdir(parents=True)
        schema = pq.read_schema(next(folder.glob("*.parquet")))
        pq.write_table(schema.empty_table(), to / folder.name / "none.parquet")
    return to


@pytest.mark.parametrize(
    "query",
    EVERYTHING if FULL else narrow(FEW),
    ids=lambda q: f"{q.operator}-{q.provider}-{q.join_format}-{q.checkpoint_format}",
)
def test_a_state_that_was_emptied_and_filled_again_continues(judge: Judge, tmp_path: Path, query: Query) -> None:
    layout = "both" if query.operator in ENDLESS else "snapshot"
    whole = query.operator in (*ENDLESS, *ONLY_ROCKSDB) or query.operator.startswith("groups")
    written = judge.write(query, WHOLE if whole else BATCHES, layout=layout)
    settled(written.path)
    twin = judge.copy(written)
    export(str(twin.path), str(tmp_path / "state"))
    before = entries_of(twin.path)
    nothing = emptied(tmp_path / "state", tmp_path / "nothing")
    # Spark cannot run a query with a global limit in a batch without data.
    planned = not any(operator.is_global_limit for operator in opened(twin.path).operators)
    import_state(str(twin.path), str(nothing), mode="replace", stopped=True, planned_batch=planned)
    assert not entries_of(twin.path)
    report = import_state(str(twin.path), str(tmp_path / "state"), stopped=True, planned_batch=planned)
    assert (report.replaced, report.rows > 0) == (0, True)
    after = entries_of(twin.path)
    if query.operator.startswith("join"):  # the numbers of a key's rows have no meaning
        assert sum(after.values()) == sum(before.values())
    else:
        assert after == before
    rows = emit_the_same(judge, written, twin, later(20 if FULL else 6))
    assert rows > 0 or not planned  # a limit that is reached lets no row through


@pytest.mark.wide
@pytest.mark.parametrize(
    ("version", "provider"),
    [*product(VERSIONS, ("hdfs", "rocksdb"))] if FULL else [("3.5", "hdfs"), ("4.3", "rocksdb")],
)
def test_a_new_query_begins_with_the_history_of_another(
    judge: Judge, tmp_path: Path, version: str, provider: str
) -> None:
    """The first batch of the new query has one event of its own. The old query gets it, too."""
    query, first = Query("agg_update", provider=provider), [Event("first", T, 1)]
    old = judge.write(query, [*BATCHES, first], version=version, layout="snapshot")
    new = judge.write(query, [first], version=version, layout="snapshot")
    for each in (old, new):
        settled(each.path)
    export(str(old.path), str(tmp_path / "state"))
    report = import_state(str(new.path), str(tmp_path / "state"), mode="merge", stopped=True)
    assert report.rows == sum(entries_of(old.path).values()) > 20
    assert report.replaced == 1
    assert entries_of(new.path) == entries_of(old.path)
    judge.restart(old, [])
    wanted, found = (judge.restart(each, later(4)) for each in (old, new))
    assert [batch.rows for batch in found if batch.rows] == [batch.rows for batch in wanted if batch.rows] != []


SAMPLES = [
    *("agg-deltas-lz4-4.2", "agg-format1-3.5", "agg-rowchecksum-deletes-4.2", "alarms-4.2", "dedup-watermark-4.2"),
    *("dedup-within-4.2", "join-format4-4.2", "lists-4.2", "rocksdb-4.2", "rocksdb-3.2"),
    *("rocksdb-changelog-3.5", "rocksdb-ids-4.2", "sessions-rocksdb-3.2", "uncommitted-batch-4.2", "visits-4.2"),
]


@pytest.mark.parametrize("engine", ["threads", "spark"])
@pytest.mark.parametrize("name", narrow(SAMPLES, 0, 2, 6, 7, 10, 14))
def test_an_export_is_imported_to_the_same_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, engine: str
) -> None:
    runs_on = LocalEngine(2) if engine == "threads" else SparkEngine(session=request.getfixturevalue("spark"))
    target, twin = sample(name, tmp_path), sample(name, tmp_path / "twin")
    exported = export(str(target), str(tmp_path / "state"))
    report = import_state(str(target), str(tmp_path / "state"), mode="replace", stopped=True, engine=runs_on)
    assert report.rows == sum(exported.rows.values())
    assert report.engine == runs_on.name
    assert entries_of(target) == entries_of(twin)
