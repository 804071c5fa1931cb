"""The comparison of a migrated checkpoint with its twin, which was not migrated, in rounds of some batches."""

from __future__ import annotations

from collections.abc import Sequence

from ..judge.queries import Query
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import FULL

A_ROUND = 7 if FULL else 2  # batches
COMPLETE = ("agg_all", "agg_complete")


def emit_the_same(judge: Judge, twin: Checkpoint, migrated: Checkpoint, batches: Sequence[Events]) -> int:
    """Restart both queries, which must emit the same rows. Return the number of rows."""
    wanted, found = (judge.restart(each, list(batches)) for each in (twin, migrated))
    if is_complete(migrated.query):
        found = found[1:]  # every batch emits the whole state, also the planned batch, which has no data
    rows = [batch.rows for batch in found if batch.rows]
    assert rows == [batch.rows for batch in wanted if batch.rows]
    return sum(map(len, rows))


def is_complete(query: Query) -> bool:
    """Return whether every batch of a query emits the whole state."""
    return query.operator in COMPLETE
