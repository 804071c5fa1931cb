"""Fields that contain a time: find one by its name, and read it as microseconds since the epoch.

Timestamps, dates (midnight UTC) and ``timestamp_ntz`` (taken as UTC) need no unit. A number needs one in its name:
``value.seen:ms``. Of each entry, only one 8-byte word and the words that lead to it are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttlsnap.clock import MAX_INT64, MIN_INT64
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import SIDES, StateDescriptor
from ttlsnap.errors import UsageError
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema import types as T
from ttlsnap.schema.fields import Field, all_fields
from ttlsnap.suggestions import did_you_mean

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": -1_000}
_DAY = 86_400_000_000
_INTEGERS: dict[type[T.DataType], type[np.signedinteger]] = {
    T.ByteType: np.int8,
    T.ShortType: np.int16,
    T.IntegerType: np.int32,
    T.LongType: np.int64,
}
_NO_TIMEOUT = -1
WRITTEN = "@written"
"""The name of the time at which an entry was last written."""

_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)


@dataclass(frozen=True)
class TimestampField:
    """A field that contains a time, and the factor to microseconds; a negative factor divides."""

    field: Field
    scale: int
    width: type[np.signedinteger] = np.int64

    @property
    def unit(self) -> str | None:
        """The unit of a number; None if the field's type is a time."""
        if isinstance(self.field.type, _TIMES):
            return None
        return next(unit for unit, scale in UNITS.items() if scale == self.scale)

    def read(self, entries: StateEntries) -> tuple[Int64, Mask]:
        """Return microseconds since the epoch (int64[n], clipped to its range), and which are null (bool[n])."""
        words, nulls = entries.words(self.field)
        raw = words if self.width is np.int64 else words.astype(self.width).astype(np.int64)
        if entries.state.timeout is not None and self.field.name == split_unit(entries.state.timeout)[0]:
            nulls = nulls | (raw == _NO_TIMEOUT)
        if self.scale == 1:
            return raw, nulls
        if self.scale < 0:
            # Round up to the next microsecond, so that no entry expires too early.
            return raw // -self.scale + (raw % -self.scale != 0), nulls
        smallest, largest = -(MAX_INT64 // self.scale), MAX_INT64 // self.scale
        scaled_values = np.clip(raw, smallest, largest) * self.scale
        return np.where(raw > largest, MAX_INT64, np.where(raw < smallest, MIN_INT64, scaled_values)), nulls


@dataclass(frozen=True)
class WrittenField(TimestampField):
    """The time at which an entry was last written. No field contains it; see ``ttlsnap.written``."""

    def read(self, entries: StateEntries) -> tuple[Int64, Mask]:
        """See ``TimestampField.read``; every entry has such a time."""
        return entries.written[0], np.zeros(len(entries), np.bool_)


def split_side(name: str) -> tuple[str | None, str]:
    """Return the side of a join that a name is for, None for all, and the name of the field."""
    side, _, field_name = name.partition(":")
    return (side, field_name) if side in SIDES else (None, name)


def name_for(state: StateDescriptor, names: tuple[str, ...]) -> str | None:
    """Return the field that holds the time of a state: one of ``names``, or the one that Spark stores.

    A name can be for one side of a join, as in ``left:value.at``. Of several other names, each is for the states that
    have the field. None if there is no name for this state. Raise UsageError if there are several.
    """
    if not names:
        return state.stored_timestamp
    names_of_state = _names_of(state, names)
    if len(names_of_state) < 2:
        return names_of_state[0] if names_of_state else None
    fitting_names = [name for name in names_of_state if has_time(state, name)]
    if len(fitting_names) > 1:
        raise UsageError(
            f"--timestamp is {' and '.join(fitting_names)}, and {state} has both; a state can have one time, and each "
            "side of a join one. Name one of them, or write a policy with a rule for each state"
        )
    return fitting_names[0] if fitting_names else None


def _names_of(state: StateDescriptor, names: tuple[str, ...]) -> list[str]:
    """Return the names for the side of a join that a state is on; if there are none, those for no side."""
    sides_and_names = [split_side(name) for name in dict.fromkeys(names)]
    return [name for side, name in sides_and_names if side == state.side and side] or [
        name for side, name in sides_and_names if not side
    ]


def split_unit(name: str) -> tuple[str, str | None]:
    """Return the field's name and the unit of ``value.seen:ms``, None without one. A quoted colon names no unit."""
    path, colon, unit = name.rpartition(":")
    return (path, unit) if colon and "`" not in unit else (name, None)


def timestamp_field(state: StateDescriptor, name: str) -> TimestampField:
    """Return the field of ``state`` with the name ``value.last_seen`` or ``value.seen:ms``.

    Raise UsageError if it is missing, is not a time, or is a number without a unit.
    """
    if name == WRITTEN:
        return WrittenField(Field("key", (), WRITTEN, T.TimestampType()), 1)
    path, unit = split_unit(name)
    field = state.field(path)
    if field is None:
        raise UsageError(quotes_nothing(f"{state} has no field {list_fields(path, [state])}"))
    kind = type(field.type)
    if kind in _TIMES:
        if unit is not None:
            raise UsageError(f"{path} is a {field.type.simple_string}, which has no unit; omit {unit!r}")
        return TimestampField(field, _DAY, np.int32) if kind is T.DateType else TimestampField(field, 1)
    if kind in _INTEGERS:
        if unit not in UNITS:
            wrong_unit = "" if unit is None else f", and {unit!r} is not a unit"
            raise UsageError(
                f"{path} is a number{wrong_unit}; name its unit: {path}:s, {path}:ms, {path}:us or {path}:ns"
            )
        return TimestampField(field, UNITS[unit], _INTEGERS[kind])
    raise UsageError(
        f"{path} is a {field.type.simple_string}, which is not a time. Its state has these fields:\n"
        + field_listing([state])
    )


def has_time(state: StateDescriptor, name: str) -> bool:
    """Return whether a state has the field with this name and unit, or its entries have such a time."""
    return name == WRITTEN or state.field(split_unit(name)[0]) is not None


def explain_unnamed(state: StateDescriptor, names: tuple[str, ...]) -> str:
    """Return why ``name_for`` returns None for a state although the user gave ``names``."""
    if names_of_state := _names_of(state, names):
        fields = ", ".join(split_unit(name)[0] for name in names_of_state)
        return f"{state} has none of the fields {fields}"
    return f"no --timestamp names the {state.side} side" if state.side else "every --timestamp names a side of a join"


def require_fields(states: Sequence[StateDescriptor], names: Sequence[str]) -> None:
    """Raise UsageError if no state, or none of the side of a join that a name is for, has a named field."""
    for name in names:
        side, field = split_side(name)
        if not any(has_time(state, field) for state in states if side in (None, state.side)):
            where = "no state" if side is None else f"no state of a {side} side"
            listing = list_fields(split_unit(field)[0], states)
            raise UsageError(quotes_nothing(f"--timestamp {name}: {where} has the field {listing}"))


def list_fields(name: str, states: Sequence[StateDescriptor]) -> str:
    """Return the end of a message about an unknown field: its name, the names that are like it, and all fields."""
    return f"{name}{did_you_mean(name, field_names(states))}.\nIts fields are:\n{field_listing(states)}"


def field_names(states: Sequence[StateDescriptor]) -> list[str]:
    """Return the names of the fields of all ``states``, each once."""
    fields = [field for state in states for field in all_fields(state.key_schema, state.value_schema)]
    return list(dict.fromkeys(field.name for field in fields))


def field_listing(states: Sequence[StateDescriptor]) -> str:
    """Return the fields with their types, one line for each state, for messages."""
    lines = []
    for state in states:
        fields = all_fields(state.key_schema, state.value_schema)
        field_texts = [f"{field.name} ({field.type.simple_string})" for field in fields]
        lines.append(f"  {state}: {', '.join(field_texts)}")
    return "\n".join(lines)
