"""The options of a compaction, with the same names everywhere: command line, policy, library and engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.compaction.drop_limit import check_limit
from ttlsnap.compaction.incremental import Parts
from ttlsnap.errors import UsageError
from ttlsnap.expired.receivers import ExpiredCallback
from ttlsnap.operators.registry import AnyOf, Selection, TimerPolicy
from ttlsnap.stores.protocols import Rewrite, RewriteChoice


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """The options of a compaction. Raise UsageError for invalid values.

    ``now`` is ``checkpoint``, ``wall`` or an ISO 8601 time. ``selection`` limits the run to some states. ``schemas``
    describe states whose checkpoint records none. A ``dry_run`` changes nothing.

    ``output`` is the place of a new checkpoint; the source then stays as it is.

    ``rewrite`` and ``scratch`` are for RocksDB. ``rewrite`` says how a partition is written; a number is the share of
    its entries, from 0.0 to 1.0, up to which changes are written over the old files. ``scratch`` is a local folder for
    the work.

    ``drop_unmatched`` also drops rows of a join that have not matched yet. ``timers`` "follow" drops the timers of
    a key with the last of its state.

    ``stopped`` states that the query is stopped, even if its logs do not show it. Without ``planned_batch`` the run
    does not plan the batch that stops a query that was idle during the run (see ``docs/publishing.md``).

    ``max_drop`` is the share of a state's entries, from 0.0 to 1.0, that may be dropped when the listener asks nobody
    (see ``Listener``). Without it a run refuses only to drop all of them, and 1.0 allows that.

    ``parts`` name the states in which a run visits only some partitions, and the next run others.

    ``expired_to`` receives the dropped entries: a folder, ``delta:`` and the path of a Delta table, or a callback (see
    ``ttlsnap.expired``). ``show`` is how many dropped and rewritten entries the report contains.
    """

    now: str = "checkpoint"
    selection: Selection | AnyOf | None = None
    schemas: Schemas | None = None
    dry_run: bool = False
    output: str | None = None
    rewrite: RewriteChoice = "auto"
    scratch: str | None = None
    drop_unmatched: bool = False
    timers: TimerPolicy = "keep"
    stopped: bool = False
    planned_batch: bool = True
    max_drop: float | None = None
    parts: Parts = ()
    expired_to: str | ExpiredCallback | None = None
    show: int = 0

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown value, or for values that exclude each other."""
        rewrites = get_args(Rewrite)
        if self.rewrite not in rewrites and not (isinstance(self.rewrite, float) and 0 <= self.rewrite <= 1):
            raise UsageError(
                f"rewrite is {self.rewrite!r}; use one of {', '.join(rewrites)}, or a share from 0.0 to 1.0"
            )
        if self.timers not in get_args(TimerPolicy):
            raise UsageError(f"timers is {self.timers!r}; use one of {', '.join(get_args(TimerPolicy))}")
        check_limit(self.max_drop)
        if self.output is not None and self.visits_some_partitions:
            raise UsageError("incremental cleanup cannot write to output: a new checkpoint needs all partitions")

    @property
    def visits_some_partitions(self) -> bool:
        """Whether an incremental rule limits the partitions that the run visits."""
        return any(part is not None for _, part in self.parts)
