"""A batch of rows in one buffer keeps the bytes of each row, for every order, gap and alignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_words

from ..both_ways import both_ways  # noqa: F401

PIECES = [b"first", b"", b"second, longer", b"x" * 300, b"", b"last"]


@pytest.mark.parametrize("gap", [0, 1, 4, 7])
def test_rows_keep_their_order(gap: int, lay_out: Any, payloads_of: Any) -> None:
    assert payloads_of(lay_out(PIECES, gap)) == PIECES


@pytest.mark.parametrize("which", [[5, 3, 0], [2, 2, 2], [3, 2, 3, 0, 0], [], [4], [1, 4]])
def test_rows_may_be_taken_in_any_order_and_twice(which: list[int], lay_out: Any, payloads_of: Any) -> None:
    taken = lay_out(PIECES).take(np.array(which, np.int64))
    assert len(taken) == len(which)
    assert payloads_of(taken) == [PIECES[i] for i in which]


def test_a_mask_keeps_the_order(lay_out: Any, payloads_of: Any) -> None:
    taken = lay_out(PIECES).take(np.array([True, False, True, False, False, True]))
    assert payloads_of(taken) == [PIECES[0], PIECES[2], PIECES[5]]


def test_rows_of_equal_size_keep_their_bytes(lay_out: Any, payloads_of: Any) -> None:
    pieces = [bytes([i]) * 16 for i in range(50)]
    for gap in (0, 4):
        assert payloads_of(lay_out(pieces, gap)) == pieces


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_arrow_values_become_rows_without_a_copy(kind: Any, payloads_of: Any) -> None:
    array = pa.array([b"not", *PIECES, b"these"], kind)[1:-1]
    rows = Rows.from_arrow(array)
    assert payloads_of(rows) == PIECES
    assert rows.data.ctypes.data == array.buffers()[2].address
    assert len(Rows.from_arrow(pa.array([], kind))) == 0


def test_a_null_is_not_a_row() -> None:
    with pytest.raises(CorruptionError, match="row 1: the value is null"):
        Rows.from_arrow(pa.array([b"a", None], pa.large_binary()))


@pytest.mark.parametrize(
    ("start", "size"), [(-1, 4), (0, 11), (11, 0), (8, 3), (0, -1), (2**63 - 1, 8), (8, 2**63 - 1)]
)
def test_rows_outside_the_buffer_are_refused(start: int, size: int) -> None:
    with pytest.raises(CorruptionError, match="row 1: "):
        Rows(np.zeros(10, np.uint8), np.array([0, start]), np.array([10, size]))


def test_a_row_may_end_where_the_buffer_ends() -> None:
    assert len(Rows(np.zeros(10, np.uint8), np.array([0, 10]), np.array([10, 0]))) == 2


@pytest.mark.parametrize("data", [np.zeros(8, np.int8), np.zeros((2, 4), np.uint8), np.zeros(16, np.uint8)[::2]])
def test_the_buffer_must_be_contiguous_bytes(data: Any) -> None:
    with pytest.raises(TypeError, match="uint8"):
        Rows(data, np.zeros(1, np.int64), np.zeros(1, np.int64))


def test_words_of_rows_too_short_for_them_are_corruption(lay_out: Any) -> None:
    rows = lay_out([bytes(24), bytes(16)])
    words, nulls = read_words(rows, 1, 0)
    assert words.tolist() == [0, 0] and not nulls.any()
    with pytest.raises(CorruptionError, match="row 1: 16 bytes have no room"):
        read_words(rows, 2, 0)


@pytest.mark.parametrize("ordinal", [-1, 2])
def test_words_of_a_missing_field_are_an_error(ordinal: int, lay_out: Any) -> None:
    with pytest.raises(UsageError, match="no field"):
        read_words(lay_out([bytes(24)]), 2, ordinal)


def test_no_rows_have_no_words(lay_out: Any) -> None:
    words, nulls = read_words(lay_out([]), 3, 1)
    assert len(words) == len(nulls) == 0
