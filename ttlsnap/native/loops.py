"""Loops over the bytes of a batch, in C.

Only ``find_outside`` checks whether pieces lie within their buffer; for all others they must. The functions run without
Python's lock.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ttlsnap.native import load_library

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Pieces = tuple[Bytes, Int64s, Int64s]
"""A buffer, and the starts and sizes of pieces in it."""

MORE, ENDED, IMPOSSIBLE = range(3)
"""How ``find_records`` ended: it needs more bytes, found the end mark, or found a length that no record has."""

BLOCK_HEADER = 21
"""Bytes before each block of an LZ4 stream."""

_LEAST_RECORD = 8  # bytes: two lengths


def find_records(data: Bytes) -> tuple[Int64s, Int64s, Int64s, int, int]:
    """Return the starts and sizes (keys, values) of whole records in ``data``, the byte after them, and how it ends."""
    arrays = [np.empty(len(data) // _LEAST_RECORD, np.int64) for _ in range(3)]
    bytes_used, state = ctypes.c_int64(), ctypes.c_int32()
    count = load_library().find_records(
        *_pointers(data), len(data), *_pointers(*arrays), ctypes.byref(bytes_used), ctypes.byref(state)
    )
    start, key_size, value_size = (array[:count] for array in arrays)
    return start, key_size, value_size, bytes_used.value, state.value


def find_outside(start: Int64s, size: Int64s, data_size: int) -> int | None:
    """Return the index of the first piece that does not lie within ``data_size`` bytes; None if all do."""
    start, size = np.ascontiguousarray(start), np.ascontiguousarray(size)
    number: int = load_library().find_outside(*_pointers(start, size), len(start), data_size)
    return None if number < 0 else number


def gather(data: Bytes, start: Int64s, size: Int64s) -> Bytes:
    """Return the pieces of ``data``, one after the other."""
    start, size = np.ascontiguousarray(start), np.ascontiguousarray(size)
    target = np.empty(int(size.sum()), np.uint8)
    load_library().gather(*_pointers(data, start, size), len(start), *_pointers(target))
    return target


def hash_pieces(data: Bytes, start: Int64s, size: Int64s) -> Hashes:
    """Return a hash of the size and the whole words of each piece."""
    start, size = np.ascontiguousarray(start), np.ascontiguousarray(size)
    hashes = np.empty(len(start), np.uint64)
    load_library().hash_pieces(*_pointers(data, start, size), len(start), *_pointers(hashes))
    return hashes


def murmur3_pieces(data: Bytes, start: Int64s, size: Int64s, seeds: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return Spark's Murmur3 of each piece, after a seed for each."""
    start, size = np.ascontiguousarray(start), np.ascontiguousarray(size)
    seeds, hashes = np.ascontiguousarray(seeds), np.empty(len(start), np.uint32)
    load_library().murmur3_pieces(*_pointers(data, start, size), len(start), *_pointers(seeds, hashes))
    return hashes


def find_keys(
    pieces: Pieces, hashes: Hashes, keys: Pieces, key_hashes: Hashes, slots: npt.NDArray[np.int32], shift: int
) -> npt.NDArray[np.bool_]:
    """Return which pieces are equal to one of the keys, bool[n].

    The keys are in the order of their hashes. A hash without its last ``shift`` bits is the number of its slot, and a
    slot has the index of the first key in it, or -1.
    """
    arrays = [np.ascontiguousarray(array) for array in (*pieces, hashes, *keys, key_hashes, slots)]
    has_key = np.empty(len(hashes), np.bool_)
    *places, slots_at = _pointers(*arrays)
    load_library().find_keys(
        *places[:4], len(hashes), *places[4:], len(key_hashes), slots_at, shift, *_pointers(has_key)
    )
    return has_key


def join_checksums(first: Pieces, second: Pieces, *, with_tables: bool = False) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of each first piece and the second piece after it.

    ``with_tables`` is for tests: it computes as processors do that have no instruction for CRC32C.
    """
    pieces = [np.ascontiguousarray(array) for array in (*first, *second)]
    sums = np.empty(len(pieces[1]), np.uint32)
    load_library().join_checksums(*_pointers(*pieces), len(sums), with_tables, *_pointers(sums))
    return sums


def decompress_blocks(data: memoryview, size_limit: int, decompress: int) -> tuple[memoryview, int]:
    """Return the content of whole blocks of an LZ4 stream, ``size_limit`` bytes at most, and the position after them.

    ``decompress`` is the address of ``LZ4_decompress_safe``. Blocks from a damaged or incomplete one on are left.
    """
    target, bytes_used = np.empty(size_limit, np.uint8), ctypes.c_int64()
    source = np.frombuffer(data, np.uint8)
    size = load_library().decompress_blocks(
        *_pointers(source), len(source), *_pointers(target), size_limit, decompress, ctypes.byref(bytes_used)
    )
    return target[:size].data, bytes_used.value


def compress_blocks(data: memoryview, block: int, level: int, memory: int, reset: int, compress: int) -> memoryview:
    """Return ``data`` as blocks of an LZ4 stream.

    ``memory`` is the size of LZ4's own stream (``LZ4_sizeofState``). ``reset`` and ``compress`` are the addresses of
    ``LZ4_resetStream`` and ``LZ4_compress_fast_continue``.
    """
    source = np.frombuffer(data, np.uint8)
    bound = block + block // 255 + 16  # as LZ4_compressBound
    target = np.empty(-(-len(source) // block) * (BLOCK_HEADER + bound), np.uint8)
    stream = np.empty(-(-memory // 8), np.int64)
    size = load_library().compress_blocks(
        *_pointers(source), len(source), block, bound, level, *_pointers(target, stream), reset, compress
    )
    return target[:size].data


def read_entries(
    iterator: int, calls: ctypes.Array[ctypes.c_void_p], buffer_size: int, limit: int
) -> tuple[Pieces, Pieces]:
    """Return keys and values of the next entries of a RocksDB iterator: ``limit``, or about ``buffer_size`` bytes.

    ``calls`` has the addresses of RocksDB's functions: is valid, next, key, value.
    """
    sizes = [np.empty(limit, np.int64) for _ in range(4)]
    needed_size = ctypes.c_int64(buffer_size)
    count = 0
    while not count and needed_size.value:
        data = np.empty(needed_size.value, np.uint8)
        count = load_library().read_entries(
            iterator, calls, *_pointers(data), len(data), limit, *_pointers(*sizes), ctypes.byref(needed_size)
        )
    key_start, key_size, value_start, value_size = (array[:count] for array in sizes)
    return (data, key_start, key_size), (data, value_start, value_size)


def put_entries(writer: int, put: int, keys: Pieces, values: Pieces, error: Any) -> None:
    """Put entries into a RocksDB table with its function ``put``, until that sets ``error``, a pointer to a text."""
    pieces = [np.ascontiguousarray(array) for array in (*keys, *values)]
    load_library().put_entries(writer, put, *_pointers(*pieces), len(pieces[1]), error)


def _pointers(*arrays: npt.NDArray[np.generic]) -> list[int]:
    return [array.ctypes.data for array in arrays]
