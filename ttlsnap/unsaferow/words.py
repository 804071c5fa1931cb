"""One 8-byte word of every row, and which of them are null: all that a TTL needs.

Rule: the word of field i begins ``bitset + 8 * i`` bytes into the row. Its null bit is bit ``i % 64`` of the word at
``i / 64 * 8``. A value narrower than a word is in its low bytes (little-endian). An int of -1 is therefore
``0x00000000ffffffff``, and must be narrowed before it is compared.

Speed: about 15 ns for each row, for any size and alignment.
"""

from __future__ import annotations

import numpy as np

from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.unsaferow.check import check_sizes
from ttlsnap.unsaferow.gather import Int64s, Mask, interleave, read_at
from ttlsnap.unsaferow.layout import WORD, bitset_bytes, fixed_bytes
from ttlsnap.unsaferow.rows import Rows


def read_words(rows: Rows, num_fields: int, ordinal: int) -> tuple[Int64s, Mask]:
    """Return the raw words of field ``ordinal``, int64[n], and where it is null, bool[n].

    The word of a null may have any value, mostly 0. Raises CorruptionError if a row is too short for ``num_fields``
    fields, and UsageError if there is no such ordinal.
    """
    if not 0 <= ordinal < num_fields:
        raise UsageError(f"there is no field {ordinal} in rows of {num_fields} fields")
    check_sizes(rows, num_fields)
    words = read_at(rows.data, rows.start + (bitset_bytes(num_fields) + WORD * ordinal), "<i8")
    return words, null_bits(rows, ordinal)


def read_numbers(rows: Rows, num_fields: int, ordinal: int) -> Int64s:
    """Return field ``ordinal``, a bigint that is never null, as int64[n]; raises CorruptionError if it is null."""
    words, nulls = read_words(rows, num_fields, ordinal)
    if nulls.any():
        raise CorruptionError(f"row {int(np.argmax(nulls))}: a number is null")
    return words


def long_rows(numbers: Int64s) -> Rows:
    """Return rows of one long each, none of them null."""
    size = fixed_bytes(1)
    words = np.zeros((len(numbers), size // WORD), "<i8")
    words[:, -1] = numbers
    start = np.arange(len(numbers), dtype=np.int64) * size
    return Rows(words.view(np.uint8).ravel(), start, np.full(len(numbers), size, np.int64))


def struct_rows(rows: Rows, num_fields: int, ordinal: int) -> Rows:
    """Return field ``ordinal`` of every row, a struct that is not null, as rows, without copying their bytes.

    Raises CorruptionError if one does not lie within the rows' buffer.
    """
    words = read_words(rows, num_fields, ordinal)[0]
    return Rows(rows.data, rows.start + (words >> 32), words & 0xFFFFFFFF)


def rows_of_structs(structs: Rows, numbers: Int64s | None = None) -> Rows:
    """Return rows with a struct each, which is not null, and then a long if there are ``numbers``.

    The sizes of ``structs`` are multiples of a word, as those of all UnsafeRows are.
    """
    count = 1 if numbers is None else 2
    heads = np.zeros((len(structs), fixed_bytes(count) // WORD), "<i8")
    heads[:, 1] = fixed_bytes(count) << 32 | structs.size
    if numbers is not None:
        heads[:, 2] = numbers
    place = np.arange(len(structs), dtype=np.int64) * fixed_bytes(count)
    head_bytes = (heads.view(np.uint8).ravel(), place, fixed_bytes(count))
    return Rows(*interleave(head_bytes, (structs.data, structs.start, structs.size)))


def null_rows(count: int) -> Rows:
    """Return rows of one null each."""
    row = np.zeros(fixed_bytes(1), np.uint8)
    row[0] = 1
    return Rows(row, np.zeros(count, np.int64), np.full(count, len(row), np.int64))


def null_bits(rows: Rows, ordinal: int) -> Mask:
    """Return where field ``ordinal`` is null, bool[n]; the caller has checked the sizes of the rows."""
    bits = read_at(rows.data, rows.start + ordinal // 8, "u1")
    nulls: Mask = (bits & np.uint8(1 << ordinal % 8)) != 0
    return nulls
