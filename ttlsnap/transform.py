"""What a transformer is: the contract between the engine and whoever decides what to keep.

A ``StateSnapshotTransformer`` sees batches of entries and answers with entries: the same object means all are
kept, a filtered one that some are dropped, replaced values that some are rewritten. One is made for each
partition and state by a factory, on the thread that uses it, and is never shared: it may hold scratch buffers.
Factories cross process borders, so they are picklable.

``EntryTransformerFactory`` adapts a function of one entry, ``(key, value) -> Keep | Drop | Replace(value)``. It
is slower by two orders of magnitude, and often fast enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ttlsnap.clock import Clock
from ttlsnap.entries import StateEntries
from ttlsnap.errors import TransformerError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.state import StateDescriptor


class StateSnapshotTransformer(Protocol):
    """Decides, batch by batch, what becomes of a state's entries. Used by one thread only."""

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        """The entries that stay: ``entries`` itself, or what its methods made of it."""
        ...


class StateSnapshotTransformerFactory(Protocol):
    """Makes transformers. Picklable; may also offer what ``PlansStates`` and ``ReportsTimes`` name."""

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """A fresh transformer for one partition of ``state``, or None to leave that state alone.

        Called on the thread that will use the transformer, and once per state while a run is planned.
        """
        ...


@runtime_checkable
class PlansStates(Protocol):
    """A factory that looks at all states before the run: raise UsageError here if the request fits none."""

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> Sequence[str | None]:
        """For each state the reason why it is left alone, for the report; None where it is not."""
        ...


@dataclass(frozen=True)
class TimeSummary:
    """What a transformer saw of the timestamps it judged by, in microseconds since the epoch.

    ``now_us`` is the moment they were compared with; ``nulls`` counts the entries that had none. ``unclosed`` counts
    dropped groups that the watermark had not reached: in append mode Spark had still to emit them.
    """

    field: str
    now_us: int
    oldest_us: int | None
    newest_us: int | None
    nulls: int
    unclosed: int = 0


@runtime_checkable
class ReportsTimes(Protocol):
    """A transformer that can say which timestamps it saw."""

    def time_summary(self) -> TimeSummary: ...


@dataclass(frozen=True)
class Keep:
    """Keep the entry as it is."""


@dataclass(frozen=True)
class Drop:
    """Drop the entry."""


@dataclass(frozen=True)
class Replace:
    """Give the entry a new value: a mapping with every field of the value schema."""

    value: Mapping[str, Any]


Verdict = Keep | Drop | Replace
EntryFunction = Callable[[dict[str, Any], dict[str, Any]], Verdict]


@dataclass(frozen=True)
class EntryTransformerFactory:
    """Runs ``function(key, value)`` on every entry, both decoded to dictionaries.

    ``function`` must be picklable (a module-level function is). Field names that occur twice in a schema cannot
    be told apart in a dictionary: write a batch transformer for such states.
    """

    function: EntryFunction

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """A transformer for any state."""
        return _EntryTransformer(self.function)


class _EntryTransformer:
    def __init__(self, function: EntryFunction) -> None:
        self._function = function

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        keep = np.ones(len(entries), np.bool_)
        changed = np.zeros(len(entries), np.bool_)
        values = []
        pairs = zip(entries.key_structs.to_pylist(), entries.value_structs.to_pylist(), strict=True)
        for i, (key, value) in enumerate(pairs):
            try:
                verdict = self._function(key, value)
            except Exception as error:
                raise TransformerError(f"key {key!r}: {type(error).__name__}: {error}") from error
            match verdict:
                case Keep():
                    pass
                case Drop():
                    keep[i] = False
                case Replace():
                    changed[i] = True
                    values.append(dict(verdict.value))
                case _:
                    raise TransformerError(f"key {key!r}: the function returned {verdict!r}, not Keep, Drop or Replace")
        if values:
            new = pa.array(values, type=arrow_type(entries.state.value_schema))
            entries = entries.replace_values(new, changed)
        return entries.filter(keep)
