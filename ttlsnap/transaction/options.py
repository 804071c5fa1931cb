"""The options of every run that writes new state."""

from __future__ import annotations

from dataclasses import dataclass

from ttlsnap.checkpoint.checkpoint import Schemas


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run that writes new state.

    ``schemas`` describe states whose checkpoint records none. A ``dry_run`` changes nothing. ``output`` is the place of
    a new checkpoint; the source then stays as it is. ``scratch`` is a local folder for the work.

    ``stopped`` states that the query is stopped, even if its logs do not show it. Without ``planned_batch`` the run
    does not plan the batch that stops a query that was idle during the run.
    """

    schemas: Schemas | None = None
    dry_run: bool = False
    output: str | None = None
    scratch: str | None = None
    stopped: bool = False
    planned_batch: bool = True
