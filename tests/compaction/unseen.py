"""A comparison for operators without a model: after a compaction Spark goes on as if what went had never come.

Two queries run: one sees all events and its state is compacted, the other never sees those that go. From then on both
get the same events, and have to emit the same rows, batch for batch. That is exact where what stays does not depend on
what goes, which the events of a test have to see to.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ttlsnap import CompactionReport, open_checkpoint, rollback
from ttlsnap.consistency import check_links
from ttlsnap.filesystem import open_directory
from ttlsnap.stores import Rewrite

from ..judge.outcomes import after_planned
from ..judge.processes import NEWEST
from ..judge.queries import ENDLESS, Event, Query
from ..judge.spark import Events, Judge
from ..matrix import FULL
from .stories import digest, settled


@dataclass(frozen=True)
class Case:
    """A query, the Spark that wrote its state and the one that goes on, for ``long`` or just long enough to evict."""

    query: Query
    version: str = NEWEST
    again: str = NEWEST
    long: bool = FULL

    def __str__(self) -> str:
        query = self.query
        changelog = "-changelog" if query.changelog else ""
        kind = f"-{query.join_format}-{query.join_type}" if query.operator.startswith("join") else ""
        changelog += "-avro" if any(value == "avro" for _, value in query.conf) else ""
        return f"{self.version}-{query.operator}-{query.provider}{changelog}{kind}"


Compact = Callable[..., CompactionReport]
"""Drops what is to go from the checkpoint at a path; takes ``rewrite`` and ``output``."""


def goes_on(
    judge: Judge,
    case: Case,
    batches: list[Events],
    more: list[Events],
    goes: Callable[[Event], bool],
    drop: Compact,
) -> CompactionReport:
    """Compact in place, as a copy and back again, then compare with the query that never saw the events that go."""
    query, version = case.query, case.version
    unseen: list[Events] = [[event for event in events if not goes(event)] for events in batches]
    layout = "both" if query.provider == "hdfs" or query.changelog else "snapshot"
    kept, never = judge.together(
        lambda: judge.write(query, batches, layout=layout, version=version),
        lambda: judge.write(query, unseen, layout=layout, version=version),
    )
    before = settled(kept.path)
    settled(never.path)
    undone, copied = judge.copy(kept), judge.copy(kept)
    patched: Rewrite = "tombstones"
    drop(undone.path, rewrite=patched)
    assert digest(undone.path) != before
    rollback(str(undone.path), stopped=True)
    assert digest(undone.path) == before
    new = copied.path.with_name(f"{copied.path.name}-new")
    drop(copied.path, rewrite=patched, output=str(new))
    assert digest(copied.path) == before
    shutil.rmtree(copied.path)
    copied = judge.at(copied, new)
    report = drop(kept.path, rewrite="full")
    links = [fits(path) for path in (kept.path, copied.path, never.path)]
    wanted, again = judge.together(
        partial(judge.restart, never, more, version=case.again), partial(judge.restart, kept, more, version=case.again)
    )
    found = [again if query.operator in ENDLESS else after_planned(again)]
    if FULL:  # afterwards: Spark runs no two copies of one query at a time
        found.append(judge.restart(copied, more, version=case.again, fresh=True))
    assert sum(len(batch.rows) for batch in wanted) > len(more)
    assert found == [wanted] * len(found)
    assert [fits(path) for path in (kept.path, copied.path, never.path)] == links
    return report


def fits(path: Path) -> int:
    """How many partitions hold things that hang together, all of which do."""
    return check_links(open_checkpoint(open_directory(str(path))))
