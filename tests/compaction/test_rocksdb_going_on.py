"""RocksDB checkpoints after a compaction: transformWithState, more batches with maintenance, interrupted batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ttlsnap import LocalEngine, clock_at, compact, open_checkpoint, plan_compaction, rollback
from ttlsnap.compaction.engine import rename_staged
from ttlsnap.compaction.listener import SilentListener
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.run import Compaction
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.publishing.journal import staged_path
from ttlsnap.publishing.runs import Runs
from ttlsnap.publishing.swap import swap
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import Rewrite, Staging
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.transformers.keep import KeepTransformerFactory

from ..judge.outcomes import expired
from ..judge.queries import Event, stamp
from ..judge.spark import Events, Judge
from ..matrix import FULL
from ..publishing.trees import end_halfway
from .stories import BATCHES, MORE, ROCKSDB_CONF, VISITS, H, T, copies_lists, digest, rocksdb, settled


@pytest.mark.wide
@pytest.mark.parametrize(
    ("changelog", "checkpoint_format", "row_checksum", "layout"),
    [
        (True, 2, True, "both"),
        *(
            [
                (False, 1, False, "snapshot"),
                (True, 1, True, "both"),
                (True, 2, False, "both"),
                (True, 2, True, "snapshot"),
            ]
            if FULL
            else []
        ),
    ],
)
def test_lists_are_copied_unchanged(
    judge: Judge, changelog: bool, checkpoint_format: int, row_checksum: bool, layout: str
) -> None:
    copies_lists(judge, rocksdb("visits", changelog, checkpoint_format, row_checksum), layout)


if FULL:  # each costs a while

    def test_lists_of_the_older_merge_operator_are_copied_unchanged(judge: Judge) -> None:
        conf = ((ROCKSDB_CONF + "mergeOperatorVersion", "1"),)
        copies_lists(judge, replace(rocksdb("visits", True), conf=conf), "both")


@pytest.mark.wide
@pytest.mark.parametrize("rewrite", ["full", "tombstones"] if FULL else ["full"])
def test_a_value_variable_expires_and_the_list_beside_it_stays(judge: Judge, rewrite: Rewrite) -> None:
    checkpoint = judge.write(rocksdb("visits", True), VISITS[:3], layout="both")
    settled(checkpoint.path)
    limit = T + 2 * H
    report = compact(
        str(checkpoint.path),
        [TtlTransformerFactory(StateTtlConfig(2 * H * 1_000_000), "value.seen:s")],
        now=stamp(limit + 2 * H),
        engine=LocalEngine(1),
        rewrite=rewrite,
        stopped=True,
        max_drop=1.0,
    )
    assert report.totals.dropped == checkpoint.expected.drop(expired("value.seen", limit)) > 0
    left = {state.state.state: state.left_alone for state in report.states}
    assert left["last"] is None
    assert "has no field value.seen" in (left["numbers"] or "")
    wanted = checkpoint.expected.run(VISITS[3:])
    assert judge.restart(checkpoint, VISITS[3:], fresh=True) == wanted


def rewrite_everything(target: Path) -> None:
    """Rewrite all partitions as ``compact`` rewrites a changed one, but without a change."""
    checkpoint = open_checkpoint(open_directory(str(target)))
    plan = plan_compaction(checkpoint, [KeepTransformerFactory()], clock_at("checkpoint", checkpoint.batch))
    files = checkpoint.files
    staging = Staging(files, staged_path(plan.run, ""))
    results = []
    for store in plan.stores:
        for partition in store.partitions:
            with (
                partition.open(files, None) as stored,
                stored.writer(staging, "full", {}, {}) as writer,
            ):
                for batch in stored.batches({}):
                    writer.keep(batch)
                written = writer.finish()
            result = PartitionResult(
                store.operator,
                store.store,
                partition.partition,
                staged=written.files,
                superseded=written.superseded,
            )
            task = PartitionTask(
                stores=(partition,),
                factories=(),
                clock=plan.clock,
                staging_root=files.root,
                staged_below=staging.below,
            )
            results.append(rename_staged(task, result))
    run = Compaction(plan, Runs.read(files), CompactOptions(), LocalEngine(1), SilentListener(), None, ())
    run.results = results
    swap(files, run.journal())


# More batches after the compaction.

HOURLY: list[Events] = [
    [Event("a", T + hour * H), Event(f"k{hour}", T + hour * H - 60, hour), Event("b", T + hour * H - 900)]
    for hour in range(16)
]
_RETAIN_TWO = (("spark.sql.streaming.minBatchesToRetain", "2"),)


@pytest.mark.parametrize(
    ("changelog", "checkpoint_format", "rewrite"),
    [(True, 2, "tombstones"), (False, 1, "full"), (False, 1, "tombstones"), (True, 2, "full")] if FULL else [],
)
def test_spark_resumes_for_ten_batches_with_snapshots_and_maintenance(
    judge: Judge, changelog: bool, checkpoint_format: int, rewrite: Rewrite
) -> None:
    query = replace(rocksdb("agg_update", changelog, checkpoint_format), conf=_RETAIN_TWO)
    checkpoint = judge.write(query, HOURLY[:5], layout="both" if changelog else "snapshot")
    settled(checkpoint.path)
    limit = T + 2 * H
    report = compact(
        str(checkpoint.path),
        [TtlTransformerFactory(StateTtlConfig(H * 1_000_000), "value.max")],
        now=stamp(limit + H),
        engine=LocalEngine(1),
        rewrite=rewrite,
        stopped=True,
        max_drop=1.0,
    )
    assert report.totals.dropped == checkpoint.expected.drop(expired("value.max", limit)) > 0
    model = checkpoint.expected
    for more in (HOURLY[5:10], HOURLY[10:15], HOURLY[15:]):
        assert judge.restart(checkpoint, more, fresh=more is HOURLY[10:15], snapshot=True) == model.run(more)
    settled(checkpoint.path)
    assert judge.state(checkpoint) == model.state()
    zips = {path.name.partition("_")[0] for path in checkpoint.path.glob("state/0/0/*.zip")}
    assert "1.zip" not in zips, "maintenance has cleaned up behind the query"


@pytest.mark.parametrize(
    ("changelog", "checkpoint_format"), [(False, 1), (True, 1), (True, 2)] if FULL else [(False, 1), (True, 2)]
)
def test_an_interrupted_batch_runs_again(judge: Judge, changelog: bool, checkpoint_format: int) -> None:
    query = rocksdb("agg_update", changelog, checkpoint_format)
    checkpoint = judge.write(query, BATCHES, layout="both" if changelog else "snapshot", uncommitted=MORE[0])
    before = settled(end_halfway(checkpoint.path))
    copied = judge.copy(checkpoint)
    for each in (checkpoint, copied):
        report = compact(
            str(each.path),
            [TtlTransformerFactory(StateTtlConfig(2 * H * 1_000_000), "value.max")],
            now=stamp(T + 4 * H),
            engine=LocalEngine(1),
            stopped=True,
            max_drop=1.0,
        )
        assert report.totals.dropped > 0
    rollback(str(copied.path), stopped=True)
    assert digest(copied.path) == before
    assert report.totals.dropped == checkpoint.expected.drop(expired("value.max", T + 2 * H))
    for each in (checkpoint, copied):
        wanted = each.expected.run(MORE[1:])
        assert judge.restart(each, MORE[1:], fresh=True) == wanted
        assert judge.state(each) == each.expected.state()
