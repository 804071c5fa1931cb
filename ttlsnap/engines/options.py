"""The options of every function that reads state, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttlsnap.checkpoint.checkpoint import Schemas
    from ttlsnap.engines.progress import WorkListener
    from ttlsnap.operators.registry import AnyOf, Selection


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of a function that reads state with threads of this process.

    ``selection`` limits it to some states. ``schemas`` describe states whose checkpoint records none. ``parallelism``
    is how many partitions are read at the same time, by default as many as there are cores. The ``listener`` follows
    the work.
    """

    selection: Selection | AnyOf | None = None
    schemas: Schemas | None = None
    parallelism: int | None = None
    listener: WorkListener | None = None
