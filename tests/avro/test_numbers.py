"""Varints at the edges of every length, and bytes that are not valid varints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttlsnap.avro import pieces
from ttlsnap.avro.cursor import Cursor
from ttlsnap.errors import CorruptionError
from ttlsnap.unsaferow.rows import Rows

from . import plain

_EDGES = [sign * (1 << bits) + off for bits in range(64) for sign in (-1, 1) for off in (-1, 0, 1)]
EDGES = sorted({edge for edge in _EDGES if -(2**63) <= edge < 2**63})
_NUMBERS = st.lists(st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30)


@settings(deadline=None)
@given(_NUMBERS)
def test_varints_equal_those_of_the_plain_writer(values: list[int]) -> None:
    written = pieces.numbers(np.array(values, np.int64), None, union=False)
    assert [bytes(piece) for piece in written.to_arrow().to_pylist()] == [plain.number(value) for value in values]
    numbers, after = Cursor.of(written).read_longs()
    assert numbers.tolist() == values
    assert (after.at == after.end).all()


def test_varints_in_a_union_have_its_byte_in_front() -> None:
    values = np.array(EDGES, np.int64)
    nulls = np.arange(len(values)) % 5 == 0
    written = pieces.numbers(values, nulls, union=True)
    expected = [b"\0" if null else b"\x02" + plain.number(n) for n, null in zip(EDGES, nulls, strict=True)]
    assert [bytes(piece) for piece in written.to_arrow().to_pylist()] == expected


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("8000", "a number of 2 bytes that needs fewer"),
        ("ffffffffffffffff7f80", None),
        ("80808080808080808000", "a number of 10 bytes that needs fewer"),
        ("ffffffffffffff8000", "a number of 9 bytes that needs fewer"),
        ("ffffffffffffffffff02", "a number of more than 64 bits"),
        ("ffffffffffffffffffff01", "a number of more than 64 bits"),
        ("80", "it is truncated within a number"),
        ("", "it is truncated within a number"),
        ("ffffffffffffffffff", "it is truncated within a number"),
    ],
)
def test_invalid_varints_are_errors(piece: str, message: str | None) -> None:
    # The row after it would complete a truncated number.
    rows = Rows.of([b"\0", bytes.fromhex(piece), b"\1\1\1"])
    if message is None:
        Cursor.of(rows).read_longs()
        return
    with pytest.raises(CorruptionError, match=f"row 1: {message}"):
        Cursor.of(rows).read_longs()


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1])
def test_an_int_of_more_than_32_bits_is_an_error(number: int) -> None:
    with pytest.raises(CorruptionError, match=f"row 0: {number} is no 32-bit number"):
        Cursor.of(Rows.of([plain.number(number)])).read_ints()
