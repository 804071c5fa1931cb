"""The interfaces of transformers, which decide what is kept, rewritten and dropped.

A ``StateSnapshotTransformer`` receives batches of entries and answers with entries. The same object means that all are
kept, a filtered one that some are dropped, and replaced values that some are rewritten. A factory creates one
transformer for each partition and state, on the thread that uses it. A transformer is never shared, so it may hold
buffers. The Spark engine sends factories to other processes, so they must be picklable.

``EntryTransformerFactory`` adapts a function of one entry, ``(key, value) -> Keep | Drop | Replace(value)``. It is
slower by two orders of magnitude, and often fast enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ttlsnap.clock import Clock
from ttlsnap.entries.batch import Int64, Mask, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import TimestampField
from ttlsnap.errors import USERS_ERRORS, TransformerError, UsageError
from ttlsnap.quoting import quote
from ttlsnap.schema import types as T
from ttlsnap.schema.fields import distinct_names
from ttlsnap.transform.exact import find_inexact
from ttlsnap.user_code import place_of_error


class StateSnapshotTransformer(Protocol):
    """A transformer of a state's entries, batch by batch. Only one thread uses it."""

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        """Return the entries to keep: ``entries`` itself, or the result of its methods."""
        ...


class StateSnapshotTransformerFactory(Protocol):
    """A picklable factory of transformers. It can also have other members of ``TransformerFactory``."""

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """Return a new transformer for one partition of ``state``, or None to leave the state unchanged.

        It is called on the thread that uses the transformer, and once for each state while a run is planned.
        """
        ...


@dataclass(frozen=True)
class Cutoff:
    """The rule that drops exactly the entries whose time is at most ``at_us``; an entry without a time is kept.

    ``at_us`` and ``now_us`` are microseconds since the epoch; ``time`` names the clock.
    """

    timestamp: TimestampField
    at_us: int
    now_us: int
    time: str


class CollectionStrategy(StrEnum):
    """How many values of a list a transformer sees, in Flink's terms."""

    TRANSFORM_ALL = "TRANSFORM_ALL"
    """Every value."""

    STOP_ON_FIRST_INCLUDED = "STOP_ON_FIRST_INCLUDED"
    """The values up to the first one that is kept; the values after it are kept, too."""

    @classmethod
    def parse(cls, text: str) -> CollectionStrategy:
        """Parse an option. Raise UsageError for an unknown strategy."""
        try:
            return cls(str(text).upper())
        except ValueError:
            raise UsageError(f"strategy is {' or '.join(cls)}, not {text!r}") from None


@dataclass(frozen=True)
class TimeSummary:
    """The timestamps by which a transformer decided, in microseconds since the epoch.

    ``now_us`` is the time with which they were compared. ``nulls`` counts the entries without a timestamp. ``unclosed``
    counts dropped groups that the watermark had not reached: in append mode, Spark would still have emitted them.
    ``time`` names the clock, ``event`` or ``processing``. ``unit`` is the unit of a field that is a number.
    ``cutoff_us`` is the last time that has expired; None if other entries of the state are treated in another way.
    ``older`` entries were written before ``older_than_us``, where the known history begins, and count as written then.
    ``event_us`` is the other current time, of event time, if nobody chose the clock; None if there is no doubt.
    """

    field: str
    now_us: int
    oldest_us: int | None
    newest_us: int | None
    nulls: int
    unclosed: int = 0
    time: str | None = None
    unit: str | None = None
    cutoff_us: int | None = None
    older: int = 0
    older_than_us: int | None = None
    event_us: int | None = None


class Transformer:
    """A transformer with all that ttlsnap may ask of it. By default, it does not decide by a time, and sees everything.

    ``ttlsnap.transform.adapters`` makes one of a transformer that has only some of these methods.
    """

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        """See ``StateSnapshotTransformer``."""
        raise NotImplementedError

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask] | None:
        """Return the time by which it decides about each entry; None if it uses no time.

        The times are microseconds since the epoch (int64[n]), with the entries that have no time (bool[n]).
        """
        return None

    def time_summary(self) -> TimeSummary | None:
        """Return the timestamps that it has seen; None if it uses no time."""
        return None

    def unclosed(self, gone: StateEntries) -> Mask:
        """Return which of these dropped entries Spark has not closed (bool[n]), so that their result is lost."""
        return np.zeros(len(gone), np.bool_)

    def sees(self, entries: StateEntries) -> Mask:
        """Return which entries it decides about (bool[n]); it keeps the others."""
        return np.ones(len(entries), np.bool_)

    @property
    def decides(self) -> Transformer:
        """The transformer that decides about the entries that this one ``sees``."""
        return self


class TransformerFactory:
    """A picklable factory with all that ttlsnap may ask of it.

    ``ttlsnap.transform.adapters`` makes one of a factory that has only some of these members.
    """

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
        """See ``StateSnapshotTransformerFactory``."""
        raise NotImplementedError

    def plan(self, states: Sequence[StateDescriptor], clock: Clock) -> Sequence[str | None]:
        """Return for each state why it is left unchanged, for the report, or None.

        It sees all states before the run, and raises UsageError if its options match none of them. ``clock`` is the
        run's clock, and ``clock.of(state.operator)`` that of an operator.
        """
        return [None] * len(states)

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff | None:
        """Return the cutoff if its transformers only drop the entries of ``state`` that are older than a given time.

        A store that can find such entries itself drops them, and no entry is read: a Delta table runs a ``DELETE``.
        """
        return None

    def with_names(self, spelled: Callable[[str], str]) -> TransformerFactory:
        """Return the same factory with other names for fields, such as ``value.seen`` for the column ``seen``."""
        return self

    def describe(self) -> str:
        """Return the rule in a few words, such as ``ttl 7d by value.max``. By default, it is the name of the class."""
        return name_class(self.written_as)

    @property
    def written_as(self) -> type:
        """The class that its author wrote."""
        return type(self)

    @property
    def strategy(self) -> CollectionStrategy:
        """Which values of a list its transformers see."""
        return CollectionStrategy.TRANSFORM_ALL

    @property
    def uses_written_times(self) -> bool:
        """Whether its transformers read ``StateEntries.written``."""
        return False

    @property
    def rotation_us(self) -> int | None:
        """The time between rotations of its buckets, in microseconds; None if its current time is that of the clock."""
        return None


def name_class(kind: type) -> str:
    """Return the name of a class with its module, as ``--transformer`` takes it."""
    return f"{kind.__module__}:{kind.__qualname__}"


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
class EntryTransformerFactory(TransformerFactory):
    """The factory of transformers that call ``function(key, value)`` for every entry, with dictionaries.

    ``strategy`` applies to lists. ``function`` must be picklable, as a function of a module is. Several fields of one
    name are numbered, as in ``inspect``: ``sum#1``, ``sum#2``.
    """

    function: EntryFunction
    strategy: CollectionStrategy = CollectionStrategy.TRANSFORM_ALL

    def describe(self) -> str:
        """Return the function's name, with its module."""
        module, name = getattr(self.function, "__module__", None), getattr(self.function, "__qualname__", None)
        return f"{module}:{name}" if name else repr(self.function)

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer:
        """Return a transformer for any state."""
        return _EntryTransformer(self.function)


class _EntryTransformer(Transformer):
    def __init__(self, function: EntryFunction) -> None:
        self._function = function

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        keep = np.ones(len(entries), np.bool_)
        changed = np.zeros(len(entries), np.bool_)
        values = []
        keys, structs = _distinct(entries.key_structs), _distinct(entries.value_structs)
        pairs = zip(keys.to_pylist(), structs.to_pylist(), strict=True)
        for index, (key, value) in enumerate(pairs):
            try:
                verdict = self._function(key, value)
            except USERS_ERRORS as error:
                raise TransformerError(describe_failure(key, error)) from error
            match verdict:
                case Keep():
                    pass
                case Drop():
                    keep[index] = False
                case Replace():
                    changed[index] = True
                    try:
                        values.append(require_whole(verdict.value, entries.state.value_schema, "value"))
                    except ValueError as error:
                        raise TransformerError("key " + quote(repr(key)) + ": " + quote(error)) from error
                case _:
                    message = "key " + quote(repr(key)) + ": the function returned " + quote(repr(verdict))
                    raise TransformerError(message + "; return Keep, Drop or Replace")
        if values:
            try:
                new = pa.array(values, type=structs.type)
            except _MISFITS as error:
                changed_keys = compress(keys.to_pylist(), changed)
                raise TransformerError(_find_misfit(changed_keys, values, structs.type)) from error
            require_exact(values, new)
            entries = entries.replace_values(new, changed)
        return entries.filter(keep)


_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for a value of another type."""


def _find_misfit(keys: Iterable[Any], values: Sequence[Any], kind: pa.DataType) -> str:
    """Return in words which of the values does not fit its type, and why."""
    for key, value in zip(keys, values, strict=True):
        try:
            pa.array([value], type=kind)
        except _MISFITS as error:
            return "key " + quote(repr(key)) + f": the new value does not fit {kind}: " + quote(error)
    return f"the new values do not fit {kind}"


def describe_failure(key: object, error: BaseException) -> str:
    """Return in words that a function of the user's raised an error for the entry with this key."""
    return "key " + quote(repr(key)) + f": {type(error).__name__}{place_of_error(error)}: " + quote(error)


def require_exact(values: Sequence[Any], new: pa.Array) -> None:
    """Raise TransformerError if a value would be stored as another one."""
    for value, stored_value in zip(values, new.to_pylist(), strict=True):
        description = find_inexact(value, stored_value, "value")
        if description is not None:
            raise TransformerError(
                "a new value does not fit the field: " + description + ". Convert it in the function"
            )


def as_dictionaries(structs: pa.StructArray) -> list[dict[str, Any]]:
    """Return structs as dictionaries. Several fields of one name are numbered."""
    dictionaries: list[dict[str, Any]] = _distinct(structs).to_pylist()
    return dictionaries


def _distinct(array: pa.Array) -> pa.Array:
    """Return the same structs with unique field names, so that each can be a dictionary."""
    if not pa.types.is_struct(array.type) or not array.type.num_fields:
        return array
    names = distinct_names([field.name for field in array.type])
    columns = [_distinct(array.field(place)) for place in range(len(names))]
    return pa.StructArray.from_arrays(columns, names, mask=array.is_null() if array.null_count else None)


def require_whole(value: Any, kind: T.DataType, path: str) -> Any:
    """Return ``value`` if every struct in it has exactly the fields of its type; otherwise raise ValueError.

    Arrow would ignore unknown names, and use null for missing ones."""
    kind = T.physical(kind)
    match kind, value:
        case T.StructType(), Mapping():
            names = distinct_names(kind.names)
            for name in names:
                if name not in value:
                    raise ValueError(f"the new value lacks {path}.{name}; give every field, as {{**value, ...}} does")
            for name in value:
                if name not in names:
                    raise ValueError(f"the new value has {path}.{name}, which is not a field of this state")
            return {
                name: require_whole(value[name], field.type, f"{path}.{name}")
                for name, field in zip(names, kind.fields, strict=True)
            }
        case T.ArrayType(), list() | tuple():
            return [require_whole(item, kind.element, path) for item in value]
        case T.MapType(), list() | tuple():
            return [
                (require_whole(map_key, kind.key, path), require_whole(map_value, kind.value, path))
                for map_key, map_value in value
            ]
    return value
