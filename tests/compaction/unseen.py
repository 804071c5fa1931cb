"""A comparison for operators without a model: after a compaction Spark continues as if dropped events had never come.

Two queries run. One sees all events and its state is compacted. The other never sees the events that are dropped. Then
both get the same events, and must emit the same rows in each batch. A test must choose its events so that kept state
does not depend on dropped events.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ttlsnap import CompactionReport, open_checkpoint, rollback
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import Rewrite

from ..consistency import check_links
from ..judge.outcomes import after_planned
from ..judge.processes import NEWEST
from ..judge.queries import ENDLESS, Event, Query
from ..judge.spark import Events, Judge
from ..matrix import FULL
from .stories import digest, settled


@dataclass(frozen=True)
class Case:
    """A query, the Spark that wrote its state, and the one that restarts it.

    With ``long`` it restarts for all later batches, and otherwise for just enough to evict state.
    """

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
"""A function that compacts the checkpoint at a path, with the options ``rewrite`` and ``output``."""


def goes_on(
    judge: Judge,
    case: Case,
    batches: list[Events],
    more: list[Events],
    goes: Callable[[Event], bool],
    drop: Compact,
) -> CompactionReport:
    """Compact in place, into a copy, and with a rollback. Compare with the query that never saw the dropped events."""
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
    if FULL:  # afterwards, because Spark runs only one copy of a query at a time
        found.append(judge.restart(copied, more, version=case.again, fresh=True))
    assert sum(len(batch.rows) for batch in wanted) > len(more)
    assert found == [wanted] * len(found)
    assert [fits(path) for path in (kept.path, copied.path, never.path)] == links
    return report


def fits(path: Path) -> int:
    """Return the number of partitions whose links were checked and are right."""
    return check_links(open_checkpoint(open_directory(str(path))))
