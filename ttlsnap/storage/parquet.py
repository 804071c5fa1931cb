"""Parquet files, in batches whose memory is known before they are decoded.

A few kilobytes of Parquet can mean gigabytes: a page decompresses to a thousand times its size, a million rows refer to
one text of a dictionary, and a few bytes say that a value is repeated. So

* the dictionaries of texts are read first. Their longest text says how many rows can be decoded at once.
* UnsupportedError is raised for a file that needs more than ``FREE_BYTES``, and more than ``expansion()`` times its
  own size: for its number of rows, before a row group is decompressed, before its lists are read, and when the texts
  of the rows need more.

Source: apache/parquet-format, ``Encodings.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.errors import UnsupportedError
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.expansion import ADVICE, expansion, limit

FREE_BYTES = 1 << 30
BATCH_BYTES = 16 << 20
"""The size of a batch whose rows are like the average of the file."""
MOST_BYTES = 128 << 20
"""The texts of dictionaries that a batch can have, unless one row has more."""
_MOST_ROWS, _FEWEST_ROWS = 1 << 18, 1 << 10
_WIDTH = 8  # bytes of a value that is not a text; few are wider
_TEXTS = "BYTE_ARRAY"
_BY_PREFIX = "DELTA_BYTE_ARRAY"  # each text may repeat all of the one before it
_BY_DICTIONARY = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})


class ParquetRows:
    """The rows of a Parquet file of ``size`` bytes. ``where`` names it in errors.

    ``free`` is what a small file may need, by default ``FREE_BYTES``.
    """

    def __init__(self, stream: BinaryIO, size: int, where: str, allowed_size: int | None = None) -> None:
        from pyarrow.parquet import ParquetFile  # a slow import: it also imports pandas, if installed

        # Spark writes INT96, which as nanoseconds would hold no more than 292 years.
        self._open = partial(ParquetFile, coerce_int96_timestamp_unit="us")
        self._file = self._open(stream)
        self.metadata: Any = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow
        self._stream, self._where, self._size = stream, where, size
        self._allowed_size = FREE_BYTES if allowed_size is None else allowed_size
        self._size_limit = limit(size, self._allowed_size)

    def batches(self, columns: Sequence[str] | None = None, *, constants: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns or all. The caller adds ``constants`` bytes to each row."""
        texts, batch_rows = 0, min(self._rows_at_once(columns), max(MOST_BYTES // (constants + 1), 1))
        for batch in self._file.iter_batches(batch_rows, columns=columns):
            texts += sum(_size_of_texts(column) for column in batch.columns) + constants * batch.num_rows
            if texts > self._size_limit:
                raise self._refusal("rows", texts)
            yield batch

    def _rows_at_once(self, columns: Sequence[str] | None) -> int:
        """Return the number of rows to decode at once. Raise UnsupportedError if one alone may need too much."""
        groups = [self.metadata.row_group(number) for number in range(self.metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        rows = sum(group.num_rows for group in groups)
        if rows * _WIDTH > self._size_limit:
            raise self._refusal("rows", rows * _WIDTH)
        row_limit = min(max(BATCH_BYTES * rows // max(size, 1), _FEWEST_ROWS), _MOST_ROWS)
        for number in range(len(groups)):
            row_limit = min(row_limit, self._rows_of(number, columns))
        return int(row_limit)

    def _rows_of(self, number: int, columns: Sequence[str] | None) -> int:
        group = self.metadata.row_group(number)
        chunks = [(column, group.column(column)) for column in range(group.num_columns)]
        if (unpacked_size := sum(chunk.total_uncompressed_size for _, chunk in chunks)) > self._size_limit:
            raise self._refusal("a row group", unpacked_size)
        of_a_row = 1
        for column, chunk in chunks:
            path = chunk.path_in_schema
            if columns is not None and not any(f"{path}.".startswith(f"{name}.") for name in columns):
                continue
            is_nested = self.metadata.schema.column(column).max_repetition_level > 0
            if is_nested:
                self._check_nested(chunk, _WIDTH)
            longest = self._longest_text(number, chunk)
            if is_nested:  # a batch may have all of them
                self._check_nested(chunk, longest)
            else:
                of_a_row += longest
        return max(MOST_BYTES // of_a_row, 1)

    def _check_nested(self, chunk: Any, width: int) -> None:
        if (needed_size := chunk.num_values * width) > self._size_limit:
            raise self._refusal(f"lists or maps in the column {chunk.path_in_schema}", needed_size)

    def _longest_text(self, group: int, chunk: Any) -> int:
        """Return the most bytes that a value of a column takes beyond those in its pages; 0 if it takes none."""
        if chunk.physical_type != _TEXTS:
            return 0
        if _BY_PREFIX in chunk.encodings:
            return int(chunk.total_uncompressed_size)
        if not _BY_DICTIONARY.intersection(chunk.encodings):
            return 0
        path = chunk.path_in_schema
        # Arrow decodes a whole dictionary with the first row.
        file = self._open(self._stream, metadata=self.metadata, read_dictionary=[path])
        row = next(file.iter_batches(1, row_groups=[group], columns=[path]), None)
        return 0 if row is None else max(map(_longest, row.columns))

    def _refusal(self, content: str, needed_size: int) -> UnsupportedError:
        return UnsupportedError(
            f"{self._where}: its {self._size:,} bytes have {content} of up to {needed_size:,} bytes. ttlsnap reads at "
            f"most {self._allowed_size >> 20:,} MiB, or {expansion():,} times the size of a Parquet file. {ADVICE}, or "
            "write it again as several files, with smaller row groups, and without dictionaries"
        )


def size_of(files: Directory, path: str) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    info = files.stat(path)
    return 0 if info is None else info.size


def _size_of_texts(column: pa.Array) -> int:
    """Return the bytes of a column of texts or nested values; 0 for numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return 0 if pa.types.is_primitive(column.type) else int(column.nbytes)


def _longest(column: pa.Array) -> int:
    """Return the size of the longest text in the dictionaries of a column, in bytes."""
    if pa.types.is_dictionary(column.type):
        return pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if pa.types.is_struct(column.type):
        return max(map(_longest, column.flatten()), default=0)
    if pa.types.is_map(column.type):
        return max(_longest(column.keys), _longest(column.items))
    return _longest(column.values) if pa.types.is_nested(column.type) else 0
