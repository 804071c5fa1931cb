"""How old values become new ones, as plain data, and the work on whole arrays.

A struct gets each of its new columns from an old one, or a constant. So does a struct within a column, at any depth.
Fields are identified by ordinals, because names can occur twice.

``apply`` never loses a value silently. A cast that could change a value is allowed only with ``narrow``; then it counts
the values that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_BITS = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_EXACT = {T.FloatType: 24, T.DoubleType: 53}  # bits of exact whole numbers
_NUMBERS = (*_INTEGERS, T.FloatType, T.DoubleType)
_MAX_DIGITS = 38  # of a decimal
_DIGITS = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}  # decimal digits

_UNSIGNED_DIGITS = 20
_WHOLE_NUMBER = "^(0|-?[1-9][0-9]{0,18})$"


@dataclass(frozen=True)
class Take:
    """An old column, by its ordinal. ``change`` is how its values change; None if they stay as they are."""

    ordinal: int
    change: Change | None = None


@dataclass(frozen=True)
class Constant:
    """One ``value`` for all rows: what PyArrow takes for the column's type, or None for null."""

    value: Any


Column = Take | Constant


@dataclass(frozen=True)
class StructChange:
    """The source of each new field."""

    columns: tuple[Column, ...]


@dataclass(frozen=True)
class ArrayChange:
    """How the elements of an array change."""

    element: Change


@dataclass(frozen=True)
class MapChange:
    """How the values of a map change. Its keys stay as they are."""

    value: Change


@dataclass(frozen=True)
class Cast:
    """A cast to the new type. With ``narrow``, some values may not fit; otherwise, each has its exact equal.

    With ``normalize``, the new values are floats, and become those of ``Normalize``.
    """

    narrow: bool = False
    normalize: bool = False


@dataclass(frozen=True)
class Normalize:
    """Floats as Spark makes them where -0.0 is 0.0 and all NaNs are one: in groups and joins, and from 4.2 on in
    deduplications.
    """


Change = StructChange | ArrayChange | MapChange | Cast | Normalize

Misfits = Callable[[str, int], None]
"""A function that gets the place of a column, and how many of its values do not fit its new type."""


def normalizing(change: Change | None, new_type: T.DataType) -> Change | None:
    """Return a change that also normalizes the floats within the new type; the same if there are none.

    The keys of maps stay.
    """
    match change, T.physical(new_type):
        case None, T.FloatType() | T.DoubleType():
            return Normalize()
        case Cast(narrow), T.FloatType() | T.DoubleType():
            return Cast(narrow, normalize=True)
        case StructChange() | None, T.StructType() as struct_type:
            columns = (
                change.columns if change is not None else tuple(Take(ordinal) for ordinal in range(len(struct_type)))
            )
            pairs = zip(columns, struct_type.fields, strict=True)
            new_columns = tuple(_normalizing_column(column, field.type) for column, field in pairs)
            return change if new_columns == columns else StructChange(new_columns)
        case ArrayChange() | None, T.ArrayType() as array_type:
            element = normalizing(change.element if change is not None else None, array_type.element)
            return None if element is None else ArrayChange(element)
        case MapChange() | None, T.MapType() as map_type:
            value = normalizing(change.value if change is not None else None, map_type.value)
            return None if value is None else MapChange(value)
    return change


def _normalizing_column(column: Column, new_type: T.DataType) -> Column:
    return Take(column.ordinal, normalizing(column.change, new_type)) if isinstance(column, Take) else column


def normalized(values: pa.Array) -> pa.Array:
    """Return floats with 0.0 for -0.0, and one NaN."""
    floats = np.asarray(values.fill_null(0)) + values.type.to_pandas_dtype()(0)
    floats = np.where(np.isnan(floats), floats.dtype.type("nan"), floats)
    return pa.array(floats, values.type, mask=np.asarray(values.is_null()) if values.null_count else None)


def is_wider(old_type: T.DataType, new_type: T.DataType) -> bool:
    """Return whether Spark casts every value of ``old_type`` to ``new_type`` without loss."""
    old_type, new_type = T.physical(old_type), T.physical(new_type)
    match old_type, new_type:
        case T.DecimalType(), T.DecimalType():
            return (
                new_type.scale >= old_type.scale
                and new_type.precision - new_type.scale >= old_type.precision - old_type.scale
            )
        case _, T.DecimalType() if isinstance(old_type, _INTEGERS):
            return new_type.precision - new_type.scale >= _DIGITS[type(old_type)]
        case T.FloatType(), T.DoubleType():
            return True
        case _, T.FloatType() | T.DoubleType() if isinstance(old_type, _INTEGERS):
            return _BITS[type(old_type)] <= _EXACT[type(new_type)] + 1
        case T.DateType(), T.TimestampNTZType():
            return True
        case _, T.StringType():
            return isinstance(old_type, (*_INTEGERS, T.BooleanType)) and new_type == T.StringType()
    return (
        isinstance(old_type, _INTEGERS)
        and isinstance(new_type, _INTEGERS)
        and _BITS[type(old_type)] < _BITS[type(new_type)]
    )


def is_narrower(old_type: T.DataType, new_type: T.DataType) -> bool:
    """Return whether some values of ``old_type`` have their exact equal in ``new_type``, and others do not."""
    old_type, new_type = T.physical(old_type), T.physical(new_type)
    match old_type, new_type:
        case T.DecimalType(), T.DecimalType():
            return old_type != new_type
        case T.DecimalType(), _:
            return isinstance(new_type, _INTEGERS) and old_type.scale + _DIGITS[T.LongType] <= _MAX_DIGITS
        case _, T.DecimalType():
            return isinstance(old_type, _INTEGERS) and not is_wider(old_type, new_type)
        case T.StringType(), _:
            return old_type == T.StringType() and isinstance(new_type, _INTEGERS)
    return isinstance(old_type, _NUMBERS) and isinstance(new_type, _NUMBERS) and old_type != new_type


def apply(
    values: pa.StructArray, change: StructChange, new_schema: T.StructType, side: str, misfits: Misfits
) -> pa.StructArray:
    """Return structs that ``ttlsnap.unsaferow.encode`` takes for rows of ``new_schema``, one for each of ``values``.

    ``side`` is ``key`` or ``value``; the places for ``misfits`` begin with it. A value that does not fit becomes null.
    """
    return _structs(values, change, new_schema, side, misfits)


def _structs(
    values: pa.StructArray, change: StructChange, new_schema: T.StructType, place: str, misfits: Misfits
) -> pa.StructArray:
    children = []
    for column, field in zip(change.columns, new_schema.fields, strict=True):
        child_place = f"{place}.{field.name}"
        if not field.nullable and isinstance(column, Take) and values.field(column.ordinal).null_count:
            lost_count = values.field(column.ordinal).filter(values.is_valid()).null_count
            if lost_count:
                misfits(child_place, lost_count)
        children.append(_column(values, column, field.type, child_place, misfits))
    nulls = pc.is_null(values) if values.null_count else None
    if not children:
        return pa.Array.from_buffers(pa.struct([]), len(values), [None], children=[])
    return pa.StructArray.from_arrays(children, names=new_schema.names, mask=nulls)


def _column(values: pa.StructArray, column: Column, new_type: T.DataType, place: str, misfits: Misfits) -> pa.Array:
    match column:
        case Constant(value):
            return pa.repeat(pa.scalar(value, arrow_type(new_type)), len(values))
        case Take(ordinal, None):
            return values.field(ordinal)
        case Take(ordinal, change):
            assert change is not None
            return _changed(values.field(ordinal), change, new_type, place, misfits)
    raise AssertionError(column)


def _changed(values: pa.Array, change: Change, new_type: T.DataType, place: str, misfits: Misfits) -> pa.Array:
    new_type = T.physical(new_type)
    match change, new_type:
        case StructChange(), T.StructType():
            return _structs(values, change, new_type, place, misfits)
        case ArrayChange(), T.ArrayType():
            children = [_changed(values.values, change.element, new_type.element, f"{place}.element", misfits)]
            kind = pa.large_list(children[0].type)
        case MapChange(), T.MapType():
            map_values = _changed(values.items, change.value, new_type.value, f"{place}.value", misfits)
            kind = pa.map_(values.keys.type, map_values.type)
            children = [pa.StructArray.from_arrays([values.keys, map_values], names=["key", "value"])]
        case Normalize(), _:
            return normalized(values)
        case Cast(narrow, normalize), _:
            cast_values = _cast(values, arrow_type(new_type), narrow=narrow)
            if cast_values.null_count > values.null_count:
                misfits(place, cast_values.null_count - values.null_count)
            return normalized(cast_values) if normalize else cast_values
        case _:
            raise AssertionError(f"{place}: {change} does not give {new_type.simple_string}")
    # The offsets and nulls of the containers stay.
    return pa.Array.from_buffers(
        kind, len(values), values.buffers()[:2], values.null_count, values.offset, children=children
    )


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values in another type. Those without an exact equal become null.

    The types are both numbers, times, texts or bytes.
    """
    if pa.types.is_unsigned_integer(values.type):
        # Above the maximum of a bigint, a cast would be a negative number.
        values = pc.cast(values, pa.decimal128(_UNSIGNED_DIGITS, 0))
    if not (pa.types.is_floating(values.type) and pa.types.is_floating(kind)):
        # Between other types, Arrow itself refuses a cast that loses something.
        try:
            return pc.cast(values, kind)
        except pa.ArrowInvalid:
            pass
    return _cast(values, kind, narrow=True)


def _cast(values: pa.Array, kind: pa.DataType, *, narrow: bool) -> pa.Array:
    """Return the values in another type. Those without an exact equal become null."""
    if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):
        values = pc.cast(values, pa.decimal128(_DIGITS[T.LongType], 0))
    if not narrow:
        return pc.cast(values, kind)
    if pa.types.is_large_string(values.type):
        # The text that Spark makes of a number, of at most so many digits that a decimal has it.
        values = pc.if_else(pc.match_substring_regex(values, _WHOLE_NUMBER), values, pa.scalar(None, values.type))
        values = pc.cast(values, pa.decimal128(_DIGITS[T.LongType], 0))
    if pa.types.is_decimal(values.type) and pa.types.is_integer(kind):
        scale = values.type.scale
        cast_values = pc.cast(pc.cast(values, pa.decimal128(_MAX_DIGITS, scale)), kind, safe=False)
        cast_back = pc.cast(
            pc.cast(cast_values, pa.decimal128(_DIGITS[T.LongType], 0)), pa.decimal128(_MAX_DIGITS, scale)
        )
        return pc.if_else(pc.equal(cast_back, values), cast_values, pa.scalar(None, kind))
    cast_values = pc.cast(values, kind, safe=False)
    is_exact = pc.equal(pc.cast(cast_values, values.type, safe=False), values)
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):
        is_exact = pc.or_(is_exact, pc.is_nan(values))
    elif pa.types.is_floating(values.type) or pa.types.is_floating(kind):
        # Outside this range, a cast to bigint has no defined result.
        floats = values if pa.types.is_floating(values.type) else cast_values
        is_exact = pc.and_(is_exact, pc.and_(pc.greater_equal(floats, -(2.0**63)), pc.less(floats, 2.0**63)))
    elif pa.types.is_decimal(kind) and kind.precision - kind.scale < values.type.precision - values.type.scale:
        bound = pa.scalar(Decimal(10) ** (kind.precision - kind.scale), values.type)
        is_exact = pc.and_(is_exact, pc.and_(pc.less(values, bound), pc.greater(values, pc.negate(bound))))
    return pc.if_else(is_exact, cast_values, pa.scalar(None, kind))
