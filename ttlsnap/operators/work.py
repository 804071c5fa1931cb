"""The start of the work on linked entries in one partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ttlsnap.operators.followers import VariablesOfKeys
from ttlsnap.operators.join import IndexedSide, TimedSide
from ttlsnap.operators.join_rows import IndexedRows, TimedRows
from ttlsnap.operators.links import Link, LinkWork
from ttlsnap.operators.timers import TimersOfKeys
from ttlsnap.operators.transform_with_state import Followers, Timers, Variable
from ttlsnap.operators.variables import VariableElements

_WORK: dict[type, Callable[[Any, str], LinkWork]] = {
    IndexedSide: IndexedRows,
    TimedSide: TimedRows,
    Followers: VariablesOfKeys,
    Timers: TimersOfKeys,
    Variable: VariableElements,
}


def begin_work(link: Link, where: str) -> LinkWork:
    """Begin the work on a link in one partition; ``where`` names the partition in errors."""
    return _WORK[type(link)](link, where)
