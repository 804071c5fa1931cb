"""Rows as lines of text: NDJSON, with a JSON object for each row, or CSV."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.entries.json_text import json_texts
from ttlsnap.errors import UsageError
from ttlsnap.reading.state_table import StateTable
from ttlsnap.schema.fields import distinct_names

_FORMULA = r"^([=+\-@\t\r\n])"
"""The beginning of a cell that a spreadsheet may take for a formula."""
_PLAIN = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_large_string)


class JsonLines:
    """An object for each row, which begins with the name of its table."""

    def begin(self, tables: Sequence[StateTable]) -> bytes:
        """Return what comes before all rows."""
        return b""

    def of(self, table: StateTable, rows: pa.RecordBatch) -> bytes:
        """Return the lines of rows."""
        texts = json_texts(rows.to_struct_array())
        beginning, end = _text(f'{{"table": {json.dumps(table.name)}, '), _text("\n")
        lines = pc.binary_join_element_wise(beginning, pc.utf8_slice_codeunits(texts, 1), end, _text(""))
        # The bytes of all values of a column are adjacent.
        offsets, data = np.frombuffer(lines.buffers()[1], np.int64), lines.buffers()[2]
        return bytes(data[int(offsets[lines.offset]) : int(offsets[lines.offset + len(lines)])])


class CsvLines:
    """A line for each row, with a column for each field of a key or a value; a struct, list or map there is JSON.

    The first line has the names. A null is empty, and a text has quotes. With ``escape_formulas``, each name or text
    that a spreadsheet may take for a formula begins with an apostrophe.
    """

    def __init__(self, *, escape_formulas: bool = False) -> None:
        self._escape_formulas = escape_formulas

    def begin(self, tables: Sequence[StateTable]) -> bytes:
        """Return the line with the names. Raise UsageError for several tables."""
        if len(tables) != 1:
            names = ", ".join(table.name for table in tables)
            raise UsageError(f"CSV can hold one state, and there are {len(tables)}: {names}. Choose one with --table")
        schema = tables[0].schema
        empty_columns = [pa.array([], field.type) for field in schema]
        return self._csv(pa.RecordBatch.from_arrays(empty_columns, schema=schema), header=True)

    def of(self, table: StateTable, rows: pa.RecordBatch) -> bytes:
        """Return the lines of rows."""
        return self._csv(rows, header=False)

    def _csv(self, rows: pa.RecordBatch, *, header: bool) -> bytes:
        from pyarrow import csv

        names, columns = map(list, zip(*_flat(rows), strict=True))
        if self._escape_formulas:
            names = [re.sub(_FORMULA, r"'\1", name) for name in names]
            columns = [_escape_formulas(column) for column in columns]
        stream = io.BytesIO()
        csv.write_csv(pa.table(columns, names=names), stream, csv.WriteOptions(include_header=header))
        return stream.getvalue()


def _escape_formulas(column: pa.Array) -> pa.Array:
    if not pa.types.is_large_string(column.type):
        return column
    return pc.replace_substring_regex(column, _FORMULA, r"'\1")


def _flat(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns with their names; in place of a key or a value, its fields.

    A struct within these is one column, under whatever name the user chose it.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name not in ("key", "value", "map_key"):
            yield name, _plain(column)
            continue
        labels = distinct_names([field.name for field in column.type])
        for label, child in zip(labels, column.flatten(), strict=True):
            yield f"{name}.{label}", _plain(child)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column that CSV can hold: numbers, booleans and texts as they are, all others as text."""
    if any(is_plain(column.type) for is_plain in _PLAIN):
        return column
    texts = json_texts(column)
    # A time, a number of digits or bytes are a text without quotes; a list, a map or a struct is JSON.
    texts = pc.if_else(pc.starts_with(texts, '"'), pc.utf8_slice_codeunits(texts, 1, -1), texts)
    return pc.if_else(pc.is_valid(column), texts, _text(None))


def _text(text: str | None) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())
