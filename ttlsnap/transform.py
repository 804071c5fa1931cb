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
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ttlsnap.clock import Clock
from ttlsnap.entries import Int64, Mask, StateEntries
from ttlsnap.errors import TransformerError, UsageError
from ttlsnap.fields import distinct_names
from ttlsnap.schema import types as T
from ttlsnap.state import StateDescriptor
from ttlsnap.timestamps import TimestampField


class StateSnapshotTransformer(Protocol):
    """Decides, batch by batch, what becomes of a state's entries. Used by one thread only."""

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        """The entries that stay: ``entries`` itself, or what its methods made of it."""
        ...


class StateSnapshotTransformerFactory(Protocol):
    """Makes transformers. Picklable; may also offer what ``PlansStates`` and ``ChoosesStrategy`` name."""

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """A fresh transformer for one partition of ``state``, or None to leave that state alone.

        Called on the thread that will use the transformer, and once per state while a run is planned.
        """
        ...


@runtime_checkable
class PlansStates(Protocol):
    """A factory that looks at all states before the run: raise UsageError here if the request fits none."""

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> Sequence[str | None]:
        """For each state the reason why it is left alone, for the report; None where it is not.

        ``clock`` is the run's, ``clock.of(state.operator)`` that of an operator.
        """
        ...


@dataclass(frozen=True)
class Cutoff:
    """Just the entries go whose time is at most ``at_us``; one without a time stays.

    ``at_us`` and ``now_us`` are microseconds since the epoch; ``time`` names the clock.
    """

    timestamp: TimestampField
    at_us: int
    now_us: int
    time: str


@runtime_checkable
class StatesCutoff(Protocol):
    """A factory whose transformers do nothing but drop what is older than a moment.

    Where a store can find such entries by itself, it is asked to drop them, and no entry is read: a Delta table is
    told to ``DELETE``.
    """

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        """That moment, None where the state is left alone."""
        ...


@runtime_checkable
class NamesFields(Protocol):
    """A factory whose options name fields of the state."""

    def with_names(self, spelled: Callable[[str], str]) -> StateSnapshotTransformerFactory:
        """The same with each name spelled another way, as ``value.seen`` for the column ``seen``."""
        ...


class CollectionStrategy(StrEnum):
    """How far a list is looked at, in Flink's terms."""

    TRANSFORM_ALL = "TRANSFORM_ALL"
    """Every value."""

    STOP_ON_FIRST_INCLUDED = "STOP_ON_FIRST_INCLUDED"
    """Up to the first value that stays; those behind it stay as they are, whatever a transformer makes of them."""

    @classmethod
    def parse(cls, text: str) -> CollectionStrategy:
        """From an option; raises UsageError."""
        try:
            return cls(str(text).upper())
        except ValueError:
            raise UsageError(f"strategy is {' or '.join(cls)}, not {text!r}") from None


@runtime_checkable
class ChoosesStrategy(Protocol):
    """A factory that says how its transformers look at lists; TRANSFORM_ALL where it does not."""

    @property
    def strategy(self) -> CollectionStrategy: ...


@dataclass(frozen=True)
class TimeSummary:
    """What a transformer saw of the timestamps it judged by, in microseconds since the epoch.

    ``now_us`` is the moment they were compared with; ``nulls`` counts the entries that had none. ``unclosed`` counts
    dropped groups that the watermark had not reached: in append mode Spark had still to emit them. ``time`` names the
    clock: ``event`` or ``processing``. ``unit`` is that of a field that is a number.
    """

    field: str
    now_us: int
    oldest_us: int | None
    newest_us: int | None
    nulls: int
    unclosed: int = 0
    time: str | None = None
    unit: str | None = None


@runtime_checkable
class ReportsTimes(Protocol):
    """A transformer that can say which timestamps it saw."""

    def time_summary(self) -> TimeSummary: ...


@runtime_checkable
class TellsMoments(Protocol):
    """A transformer that can say which moment each entry is judged by."""

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask]:
        """Microseconds since the epoch (int64[n]), and which entries have none (bool[n])."""
        ...


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
    """Runs ``function(key, value)`` on every entry, both decoded to dictionaries; on lists as ``strategy`` says.

    ``function`` must be picklable (a module-level function is). Fields of one name are numbered, as ``inspect`` spells
    them: ``sum#1``, ``sum#2``.
    """

    function: EntryFunction
    strategy: CollectionStrategy = CollectionStrategy.TRANSFORM_ALL

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
        keys, whole = _distinct(entries.key_structs), _distinct(entries.value_structs)
        pairs = zip(keys.to_pylist(), whole.to_pylist(), strict=True)
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
                    try:
                        values.append(_whole(verdict.value, entries.state.value_schema, "value"))
                    except ValueError as error:
                        raise TransformerError(f"key {key!r}: {error}") from error
                case _:
                    raise TransformerError(f"key {key!r}: the function returned {verdict!r}, not Keep, Drop or Replace")
        if values:
            try:
                new = pa.array(values, type=whole.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise TransformerError(f"a new value does not fit {whole.type}: {error}") from error
            entries = entries.replace_values(new, changed)
        return entries.filter(keep)


def _distinct(array: pa.Array) -> pa.Array:
    """The same structs with no name twice in one, so that they have a dictionary each."""
    if not pa.types.is_struct(array.type) or not array.type.num_fields:
        return array
    names = distinct_names([field.name for field in array.type])
    columns = [_distinct(array.field(place)) for place in range(len(names))]
    return pa.StructArray.from_arrays(columns, names, mask=array.is_null() if array.null_count else None)


def _whole(value: Any, kind: T.DataType, where: str) -> Any:
    """``value``, in which every struct has the fields of its type: Arrow would pass over a name it does not know, and
    make a null of one that is missing. Raises ValueError."""
    kind = T.physical(kind)
    match kind, value:
        case T.StructType(), Mapping():
            names = distinct_names(kind.names)
            for name in names:
                if name not in value:
                    raise ValueError(f"the new value has no {where}.{name}; give every field, as {{**value, ...}} does")
            for name in value:
                if name not in names:
                    raise ValueError(f"the new value has a {where}.{name}, which is no field of this state")
            return {
                name: _whole(value[name], field.type, f"{where}.{name}")
                for name, field in zip(names, kind.fields, strict=True)
            }
        case T.ArrayType(), list() | tuple():
            return [_whole(item, kind.element, where) for item in value]
        case T.MapType(), list() | tuple():
            return [(_whole(k, kind.key, where), _whole(v, kind.value, where)) for k, v in value]
    return value
