"""The reader finds the same records as a simple loop, for all record sizes and windows."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap.errors import CorruptionError
from ttlsnap.stores.hdfs.records import WINDOW, read_records

from ..both_ways import both_ways  # noqa: F401
from .plain import END, Put, record, state_file


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _read(data: bytes, window: int = WINDOW, piece: int = 1 << 15) -> list[Put]:
    found: list[Put] = []
    for records in read_records(_pieces(data, piece), "a file", window):
        raw = records.data.tobytes()
        for key_at, key_size, value_at, value_size, end in zip(
            records.key_start.tolist(),
            records.key_size.tolist(),
            records.value_start.tolist(),
            records.value_size.tolist(),
            records.end.tolist(),
            strict=True,
        ):
            value = None if value_size == -1 else raw[value_at : value_at + value_size]
            assert end == value_at + max(value_size, 0)
            found.append((raw[key_at : key_at + key_size], value))
    return found


def _rows(unit: int, most: int = 12) -> st.SearchStrategy[bytes]:
    return st.integers(0, most).flatmap(lambda n: st.binary(min_size=n * unit, max_size=n * unit))


def _puts(unit: int) -> st.SearchStrategy[list[Put]]:
    ragged = st.lists(st.tuples(_rows(unit), st.none() | _rows(unit)), max_size=60)
    run = st.tuples(st.tuples(_rows(unit), st.none() | _rows(unit)), st.integers(1, 200)).map(lambda r: [r[0]] * r[1])
    return st.lists(ragged | run, max_size=6).map(lambda parts: [put for part in parts for put in part])


@given(puts=_puts(4) | _puts(8), window=st.integers(1, 4000), piece=st.integers(1, 3000))
def test_records_are_found_with_every_window_size(puts: list[Put], window: int, piece: int) -> None:
    assert _read(state_file(puts), window, piece) == puts


def test_records_of_eight_byte_sizes_are_found_in_large_blocks() -> None:
    uniform: list[Put] = [(struct.pack("<QQ", 0, i), struct.pack("<QQ", 0, -i % 7)) for i in range(50_000)]
    ragged: list[Put] = [(bytes(8 * (1 + i % 5)), None if i % 11 == 0 else bytes(8 * (i % 7))) for i in range(50_000)]
    mixed = uniform[:10_000] + ragged[:10_000] + uniform[:30] + [ragged[0]] + uniform[:70]
    for puts in (uniform, ragged, mixed):
        assert _read(state_file(puts)) == puts


def test_records_of_four_byte_sizes_are_found_in_large_blocks() -> None:
    puts: list[Put] = [(bytes(8), bytes(4 + 8 * (i % 3))) for i in range(40_000)]
    assert _read(state_file(puts)) == puts


@pytest.mark.parametrize("puts", [[(bytes(8), bytes(16))] * 5, [(bytes(8 * n), bytes(4 * n)) for n in range(6)]])
def test_a_window_may_end_at_every_position(puts: list[Put]) -> None:
    data = state_file(puts)
    for window in range(1, len(data) + 2):
        for piece in (1, 3, 4, 7, 64):
            assert _read(data, window, piece) == puts


def test_a_record_may_be_larger_than_the_window() -> None:
    puts: list[Put] = [(b"k" * 8, b"v" * 8), (b"K" * 80_000, b"V" * 300_000), (b"k" * 8, None)]
    assert _read(state_file(puts), window=100, piece=32) == puts


def test_a_file_with_only_an_end_mark_has_no_records() -> None:
    assert _read(END) == []


@pytest.mark.parametrize("window", [8, 64, WINDOW])
def test_a_file_truncated_anywhere_is_damage(window: int) -> None:
    data = state_file([(bytes(8), bytes(16)), (bytes(16), None), (bytes(8), bytes(8))])
    for length in range(len(data)):
        with pytest.raises(CorruptionError, match=f"truncated: it ends at decompressed byte {length} "):
            _read(data[:length], window)


@pytest.mark.parametrize("window", [8, 64, WINDOW])
@pytest.mark.parametrize("more", [b"\0", END, record(bytes(8), bytes(8)), bytes(100_000)])
def test_bytes_after_the_end_are_damage(window: int, more: bytes) -> None:
    data = state_file([(bytes(8), bytes(16))] * 3)
    with pytest.raises(CorruptionError, match="bytes follow the end mark at"):
        _read(data + more, window)


@pytest.mark.parametrize("window", [8, 64, WINDOW])
@pytest.mark.parametrize("length", [-2, -(2**31), 1, 2, 7, 9])
@pytest.mark.parametrize("before", [0, 3, 200])
def test_impossible_lengths_are_reported_with_their_position(before: int, length: int, window: int) -> None:
    start = state_file([(bytes(8), bytes(16))] * before)[: -len(END)]
    bad_key = start + struct.pack(">i", length) + bytes(64) + END
    with pytest.raises(CorruptionError, match=f"impossible key length {length} at decompressed byte {len(start)}$"):
        _read(bad_key, window)
    bad_value = start + struct.pack(">i", 8) + bytes(8) + struct.pack(">i", length) + bytes(64) + END
    with pytest.raises(
        CorruptionError, match=f"impossible value length {length} at decompressed byte {len(start) + 12}$"
    ):
        _read(bad_value, window)


@pytest.mark.parametrize("key", [True, False])
def test_a_length_beyond_the_end_is_refused_without_allocating_it(key: bool) -> None:
    huge = struct.pack(">i", 2**31 - 8)
    data = record(bytes(8), bytes(8)) + (huge if key else struct.pack(">i", 8) + bytes(8) + huge) + bytes(1000)
    tracemalloc.start()
    with pytest.raises(CorruptionError, match="is truncated"):
        _read(data)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def _agrees(data: bytes, window: int) -> None:
    wanted = _loop(data)
    if wanted is not None:
        assert _read(data, window) == wanted
        return
    with pytest.raises(CorruptionError):
        _read(data, window)


@given(st.binary(max_size=400), st.integers(1, 200))
def test_random_bytes_are_read_like_a_loop_or_refused(data: bytes, window: int) -> None:
    _agrees(data, window)


@given(_puts(4), st.integers(0, 2**32), st.integers(-3, 40), st.integers(1, 500))
def test_a_changed_length_is_read_like_a_loop_or_refused(puts: list[Put], place: int, number: int, window: int) -> None:
    data = bytearray(state_file(puts))
    at = place % (len(data) // 4) * 4
    data[at : at + 4] = struct.pack(">i", number)
    _agrees(bytes(data), window)


def _loop(data: bytes) -> list[Put] | None:
    """Return the records, or None if the bytes are not a complete file."""
    found: list[Put] = []
    position = 0

    def number() -> int | None:
        nonlocal position
        position += 4
        return int.from_bytes(data[position - 4 : position], signed=True) if position <= len(data) else None

    while (key_size := number()) != -1:
        if key_size is None or key_size < 0 or key_size % 4:
            return None
        key = data[position : position + key_size]
        position += key_size
        value_size = number()
        if value_size is None or value_size < -1 or (value_size > 0 and value_size % 4):
            return None
        value = None if value_size == -1 else data[position : position + value_size]
        position += max(value_size, 0)
        if position > len(data):
            return None
        found.append((key, value))
    return found if position == len(data) else None
