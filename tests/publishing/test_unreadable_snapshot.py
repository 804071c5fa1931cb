"""A published snapshot that Spark cannot read, on real Spark.

From 4.2 on, Spark repairs an unreadable snapshot by itself: it loads an older one and replays the deltas. A single
failed read is enough. With the deltas from before a run, it would continue with the state from before the run, in one
partition or one store, and without a word. So the delta of a rewritten version is not left in place, and Spark fails.
"""

from __future__ import annotations

import pytest

from ..compaction import joins
from ..compaction.stories import BATCHES, MORE, drop_expired, rocksdb, settled, unwanted
from ..judge.processes import NEWEST
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .snapshots import damage, published_snapshots

VERSIONS = ("4.2", "4.3") if FULL else (NEWEST,)
QUERIES = {
    "hdfs": Query("agg_update"),
    "changelogs": rocksdb("agg_update", True),
    **({"changelogs with ids": rocksdb("agg_update", True, 2)} if FULL else {}),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", QUERIES)
def test_spark_fails_and_does_not_fall_back_to_the_state_before_the_run(judge: Judge, name: str, version: str) -> None:
    query = QUERIES[name]
    layout = "deltas" if query.checkpoint_format == 1 else "both"
    written = judge.write(query, BATCHES, layout=layout, version=version)
    settled(written.path)
    drop_expired(written.path, query)
    snapshots = published_snapshots(written)
    assert len(snapshots) == 2
    whole = {path: damage(path) for path in snapshots}
    assert judge.refusal(judge.copy(written), MORE, fresh=True)
    # After the storage works again, the query restarts on the new state.
    for path, content in whole.items():
        path.write_bytes(content)
    model = written.expected
    assert model.drop(unwanted(query)) > 0
    assert judge.restart(written, MORE, fresh=True) == model.run(MORE)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_store_of_a_join_falls_back_alone(judge: Judge, version: str) -> None:
    # The rows of a kept key get new numbers, so an old store beside new ones would give wrong rows.
    written = judge.write(joins.joined(), joins.BATCHES, layout="deltas", version=version)
    settled(written.path)
    assert joins.drop(written.path).totals.dropped > 0
    snapshots = published_snapshots(written)
    assert len({path.parent.name for path in snapshots}) == 4
    for snapshot in snapshots:
        whole = damage(snapshot)
        assert judge.refusal(judge.copy(written), joins.MORE, fresh=True)
        snapshot.write_bytes(whole)
