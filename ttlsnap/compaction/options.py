"""The options of a compaction, with the same names everywhere: command line, policy, library and engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ttlsnap.archives.receivers import ExpiredCallback
from ttlsnap.clock import Moment
from ttlsnap.compaction.drop_limit import check_limit
from ttlsnap.compaction.incremental import Parts
from ttlsnap.errors import UsageError
from ttlsnap.operators.registry import AnyOf, FollowPolicy, Selection
from ttlsnap.stores.protocols import Rewrite, RewriteChoice
from ttlsnap.transaction.options import RunOptions


@dataclass(frozen=True, kw_only=True)
class ExpiryOptions:
    """What may be dropped from a checkpoint or a table, and the archive for it. Raise UsageError for invalid values.

    ``now`` is ``checkpoint``, ``wall`` or an ISO 8601 time.

    ``max_drop`` is the share of a state's entries, from 0.0 to 1.0, that may be dropped when the listener asks nobody
    (see ``Listener``). Without it a run refuses only to drop all of them, and 1.0 allows that.

    ``expired_to`` receives the dropped entries: a folder, ``delta:`` and the path of a Delta table, or a callback (see
    ``ttlsnap.archives``).
    """

    now: Moment = "checkpoint"
    max_drop: float | None = None
    expired_to: str | ExpiredCallback | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown value."""
        check_limit(self.max_drop)


@dataclass(frozen=True, kw_only=True)
class DropOptions(RunOptions, ExpiryOptions):
    """The options of a run that may drop entries of a checkpoint. Raise UsageError for invalid values.

    ``selection`` limits the run to some states. ``drop_unmatched`` also drops rows of a join that have not matched yet.
    ``timers`` "follow" drops the timers of a key with the last of its state. ``variables`` "follow" drops its variables
    that no rule sees, with the last of its entries that a rule sees.
    """

    selection: Selection | AnyOf | None = None
    drop_unmatched: bool = False
    timers: FollowPolicy = "keep"
    variables: FollowPolicy = "keep"

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown value."""
        super().__post_init__()
        policies = get_args(FollowPolicy)
        for name, value in (("timers", self.timers), ("variables", self.variables)):
            if value not in policies:
                raise UsageError(f"{name} is {value!r}; use one of {', '.join(policies)}")


@dataclass(frozen=True, kw_only=True)
class CompactOptions(DropOptions):
    """The options of a compaction. Raise UsageError for invalid values.

    ``rewrite`` is for RocksDB, and says how a partition is written; a number is the share of its entries, from 0.0 to
    1.0, up to which changes are written over the old files.

    ``parts`` name the states in which a run visits only some partitions, and the next run others.

    ``show`` is how many dropped and rewritten entries the report contains. ``ages`` counts the entries of each state by
    age.
    """

    rewrite: RewriteChoice = "auto"
    parts: Parts = ()
    show: int = 0
    ages: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown value, or for values that exclude each other."""
        super().__post_init__()
        rewrites = get_args(Rewrite)
        if self.rewrite not in rewrites and not (isinstance(self.rewrite, float) and 0 <= self.rewrite <= 1):
            raise UsageError(
                f"rewrite is {self.rewrite!r}; use one of {', '.join(rewrites)}, or a share from 0.0 to 1.0"
            )
        if self.output is not None and self.visits_some_partitions:
            raise UsageError("incremental cleanup cannot write to output: a new checkpoint needs all partitions")

    @property
    def visits_some_partitions(self) -> bool:
        """Whether an incremental rule limits the partitions that the run visits."""
        return any(part is not None for _, part in self.parts)
