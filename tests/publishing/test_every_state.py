"""Every kind of state is old or new after a fault at any call that publishes, rolls back or recovers.

RocksDB never writes the same bytes twice, because its tables contain ids and times. So the tests recognise the new
state by its entries, and by a ``rollback``, which must restore the old state byte by byte.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import inspect

from ..judge.queries import Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL, rotating
from .faults import KILL, Faults, Point, Step, Workshop, errors, faults, kills, publishing_calls
from .stories import BATCHES, LATER, NOW, compact, migrate
from .trees import Tree, end_halfway, is_fenced, tree

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class State:
    """A kind of state that Spark writes, and the options of its compaction, or of its migration."""

    query: Query
    layout: str
    options: tuple[str, ...] = ()
    uncommitted: bool = False
    migrates: bool = False

    def write(self, inputs: Judge) -> Path:
        more = LATER[0] if self.uncommitted else None
        path = inputs.write(self.query, BATCHES, layout=self.layout, uncommitted=more).path
        return end_halfway(path) if self.uncommitted else path

    def compact(self, path: Path) -> list[str]:
        if self.migrates:
            return migrate(path, self.options)
        if self.query.operator != "join_parities":
            return compact(path, *self.options)
        words = ["--ttl", "2h", "--now", f"{stamp(NOW)}Z", "--drop-unmatched", *self.options]
        return ["compact", str(path), *words, "--engine", "local", "--parallelism", "1", "--stopped", "--yes"]


def join(provider: str) -> Query:
    return Query("join_parities", delay_s=36_000, window_s=1800, provider=provider)


ROCKSDB, CHANGELOG = Query(provider="rocksdb"), Query(provider="rocksdb", changelog=True)
STATES = {
    "rocksdb": State(ROCKSDB, "snapshot", ("--rewrite", "full"), uncommitted=True),
    "changelog": State(CHANGELOG, "both", uncommitted=True),
    "join": State(join("hdfs"), "deltas"),
    "tombstones": State(ROCKSDB, "snapshot", ("--rewrite", "tombstones"), uncommitted=True),
    "deltas": State(Query(), "deltas"),
    "join in rocksdb": State(join("rocksdb"), "snapshot"),
    "to rocksdb": State(Query(), "both", ("--provider", "rocksdb"), uncommitted=True, migrates=True),
    "to hdfs": State(CHANGELOG, "both", ("--provider", "hdfs", "--partitions", "3"), migrates=True),
    "partitions in rocksdb": State(CHANGELOG, "both", ("--partitions", "1"), uncommitted=True, migrates=True),
}
SLICE = rotating(list(STATES), 1, "states")


@pytest.fixture(scope="module", params=STATES if FULL else SLICE)
def compaction(request: pytest.FixtureRequest, workshop: Workshop, inputs: Judge) -> Step:
    state = STATES[request.param]
    return workshop.step(f"compact {request.param}", state.write(inputs), state.compact)


@pytest.fixture(scope="module")
def compacted(workshop: Workshop, compaction: Step) -> Path:
    """Return a compacted checkpoint."""
    return workshop.after(compaction.start, compaction.argv)


def entries(checkpoint: Path) -> Any:
    """Return what tells the old and the new state apart: the store, the number of partitions, and the entries."""
    found = inspect(str(checkpoint), entries=1000)
    samples = sorted(found.samples or [], key=repr)
    stores = [store.partitions for _, stores in found.operators for store, _ in stores]
    return found.checkpoint.provider, stores, samples


def check(workshop: Workshop, step: Step, compaction: Step, compacted: Path, fault: Faults) -> None:
    """Assert that ``recover`` leads to the state before or after the compaction, after each fault.

    From the state after it, ``rollback`` must lead to the state before it.
    """
    new, old = entries(compacted), compaction.old
    assert new != entries(compaction.start)

    def judge(step: Step, point: Point) -> None:
        path, _ = workshop.cut(step, point)
        found, fenced = tree(path), is_fenced(path)
        recover = ["recover", str(path), "--format", "json"]
        first, second = workshop.commands.run_all([recover, recover])
        assert first.code == 0, f"recover: {first.err}"
        assert (second.code, second.json["outcome"]) == (0, "nothing")
        assert not is_fenced(path)
        assert fenced or tree(path) == found, "recover changed what was whole"
        if without_new_folders(tree(path), old) != old:
            assert entries(path) == new
            back = workshop.commands.run("rollback", str(path), "--stopped")
            assert back.code == 0, back.err
        assert without_new_folders(tree(path), old) == old
        litter = [str(left) for left in (path / "_ttlsnap").rglob("*") if left.name.endswith(".tmp")]
        litter += [str(left) for left in (path / "_ttlsnap").rglob("scratch")]
        assert not litter
        shutil.rmtree(path.parent)

    workshop.check(step, fault(publishing_calls(step)), judge)


def without_new_folders(found: Tree, old: Tree) -> Tree:
    return {path: content for path, content in found.items() if path in old or content != "a folder"}


def test_tables_are_linked_and_an_uncommitted_snapshot_is_moved(workshop: Workshop, inputs: Judge) -> None:
    # Only RocksDB state is published with these steps, so the tests below must include them.
    state = STATES["rocksdb"]
    step = workshop.step("compact", state.write(inputs), state.compact)
    renamed = [call.path for call in publishing_calls(step) if call.name == "rename"]
    assert {"state/0/0/3.zip", "state/0/0/4.zip"} <= set(renamed)
    assert not any("/SSTs/" in path and path.startswith("state/") for path in renamed)
    linked = [call.path for call in publishing_calls(step) if call.name == "link"]
    assert any("/SSTs/" in path and path.startswith("state/") for path in linked)


@pytest.mark.parametrize("fault", [kills, errors] if FULL else [faults])
def test_an_interrupted_compaction_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, compacted: Path, fault: Faults
) -> None:
    check(workshop, compaction, compaction, compacted, fault)


@pytest.mark.parametrize("fault", [kills, errors] if FULL else [faults])
def test_an_interrupted_rollback_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, compacted: Path, fault: Faults
) -> None:
    step = workshop.step(f"roll back, {compaction.name}", compacted, lambda path: ["rollback", str(path), "--stopped"])
    check(workshop, step, compaction, compacted, fault)


@pytest.mark.parametrize("fault", [kills, errors] if FULL else [faults])
@pytest.mark.parametrize("options", [(), ("--undo",)] if FULL else [()])
def test_an_interrupted_recovery_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, compacted: Path, options: tuple[str, ...], fault: Faults
) -> None:
    into_place = [call for call in publishing_calls(compaction) if (call.to or "").startswith("state/")]
    start, _ = workshop.cut(compaction, Point(into_place[-1], KILL))
    assert is_fenced(start)
    words = " ".join(("recover", *options))
    step = workshop.step(f"{words}, {compaction.name}", start, lambda path: ["recover", str(path), *options])
    check(workshop, step, compaction, compacted, fault)
