"""Decoding of UnsafeRows to Arrow, a whole batch at once, one column or all of them.

``decode_column(rows, schema, path)``  one field, however deep in nested structs
``decode_words(rows, schema, path)``   the same for a field of fixed width: its raw words and its nulls
``decode(rows, schema)``               all fields, as a struct array

Method: a struct gives each field its ``Cells``, one for each value that is not null. A cell has the value itself, or a
word that points to a piece. A piece is a text, a number, or again a row, an array or a map. Python loops over fields
and levels, never over rows or values.

Dangers: rows are untrusted. A CorruptionError names the row if a value is not within the row or array that holds it, or
if text is not UTF-8. Null bits after the last field are ignored, as in Spark. A null in a field that should not be
nullable is returned as null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow import decode_containers as containers
from ttlsnap.unsaferow import decode_values as values
from ttlsnap.unsaferow.cells import Cells
from ttlsnap.unsaferow.check import Trail, check_sizes
from ttlsnap.unsaferow.decimals import wide_decimals
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.layout import WORD, bitset_bytes, fixed_bytes
from ttlsnap.unsaferow.nulls import spread
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import null_bits


def decode_column(rows: Rows, schema: T.StructType, path: Sequence[int]) -> pa.Array:
    """Return one field of every row: n values, null where the field or a struct around it is null.

    ``path`` has the field's ordinals from the outside in. Raises UsageError if there is no such field, and
    CorruptionError if the rows are damaged along ``path``.
    """
    nulls, cells, data_type = _follow(rows, schema, path)
    column = decode_cells(data_type, cells)
    return column if nulls is None else spread(column, nulls)


def decode_words(rows: Rows, schema: T.StructType, path: Sequence[int]) -> tuple[Int64s, Mask]:
    """Return a fixed-width field's raw words, int64[n], and where it or a struct around it is null, bool[n].

    The word of a null is 0. Raises as ``decode_column`` does.
    """
    nulls, cells, _ = _follow(rows, schema, path)
    words: Int64s = cells.values("<i8").view(np.int64)
    if nulls is None:
        return words, np.zeros(len(rows), np.bool_)
    spread_words = np.zeros(len(rows), np.int64)
    spread_words[~nulls] = words
    return spread_words, nulls


def _follow(rows: Rows, schema: T.StructType, path: Sequence[int]) -> tuple[Mask | None, Cells, T.DataType]:
    """Return where the field at ``path`` is null over all rows (None: nowhere), its cells elsewhere, and its type."""
    if not path:
        raise UsageError("the path to a column has at least one ordinal")
    struct, inner_rows, trail = schema, rows, Trail()
    nulls: Mask | None = None  # over all rows: where the field or a struct around it is null
    for depth, ordinal in enumerate(path):
        if not 0 <= ordinal < len(struct):
            raise UsageError(f"there is no field {ordinal} in {struct.simple_string}, path {list(path)}")
        check_sizes(inner_rows, len(struct), trail)
        inner_nulls, cells = _cells(inner_rows, struct, ordinal, trail)
        nulls = _combine(nulls, inner_nulls)
        field_type = T.physical(struct.fields[ordinal].type)
        if depth == len(path) - 1:
            return nulls, cells, field_type
        if not isinstance(field_type, T.StructType):
            raise UsageError(f"path {list(path)} goes on into a {field_type.simple_string}")
        struct, inner_rows, trail = field_type, cells.pieces(), cells.trail
    raise AssertionError("unreachable: the last ordinal returns")


def decode(rows: Rows, schema: T.StructType) -> pa.StructArray:
    """Return all fields of every row as n structs without nulls; raises CorruptionError if the rows are damaged."""
    return _structs(rows, schema, Trail())


def decode_cells(data_type: T.DataType, cells: Cells) -> pa.Array:
    """Return the values of cells; none of them is null."""
    data_type = T.physical(data_type)
    trail = cells.trail
    if T.is_fixed_width(data_type):
        return values.from_numpy(cells.values(values.dtype_of(data_type)), data_type, trail)
    pieces = cells.pieces()
    match data_type:
        case T.StringType() | T.CharType() | T.VarcharType():
            return values.text(pieces, trail)
        case T.BinaryType():
            return pieces.to_arrow()
        case T.DecimalType():
            return wide_decimals(pieces, data_type, trail)
        case T.CalendarIntervalType():
            return values.intervals(pieces, trail)
        case T.VariantType():
            return values.variants(pieces, trail)
        case T.StructType():
            return _structs(pieces, data_type, trail)
        case T.ArrayType():
            return containers.arrays(pieces, data_type, trail, decode_cells)
        case T.MapType():
            return containers.maps(pieces, data_type, trail, decode_cells)
    raise UnsupportedError(f"no known layout for {data_type.simple_string!r}")


def _structs(rows: Rows, struct: T.StructType, trail: Trail) -> pa.StructArray:
    check_sizes(rows, len(struct), trail)
    columns = []
    for ordinal, field in enumerate(struct):
        nulls, cells = _cells(rows, struct, ordinal, trail)
        column = decode_cells(field.type, cells)
        columns.append(column if nulls is None else spread(column, nulls))
    return pa.Array.from_buffers(arrow_type(struct), len(rows), [None], children=columns)


def _cells(rows: Rows, struct: T.StructType, ordinal: int, trail: Trail) -> tuple[Mask | None, Cells]:
    """Return where field ``ordinal`` is null (None: nowhere), and its cells elsewhere."""
    nulls = null_bits(rows, ordinal)
    name = struct.fields[ordinal].name
    live_places: Int64s | None = None
    if nulls.any():
        live_places = np.flatnonzero(~nulls)
        rows = rows.take(live_places)
    word_places = rows.start + (bitset_bytes(len(struct)) + WORD * ordinal)
    fixed_size = np.broadcast_to(np.int64(fixed_bytes(len(struct))), len(rows))
    cells = Cells(rows.data, word_places, rows.start, rows.size, fixed_size, trail.step(name, live_places))
    return (None if live_places is None else nulls), cells


def _combine(nulls: Mask | None, inner_nulls: Mask | None) -> Mask | None:
    """Return the nulls of all rows; ``inner_nulls`` has those of the rows where ``nulls`` is false."""
    if nulls is None or inner_nulls is None:
        return inner_nulls if nulls is None else nulls
    combined = nulls.copy()
    combined[~nulls] = inner_nulls
    return combined
