"""A plain model of the HDFS-backed store, which checks the fast reader on damaged files.

It reads one record after the other into a dictionary, and checks the bytes against every rule of the formats. Bytes
that break a rule raise ``Broken``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import lz4.block
import lzf
import pyarrow as pa
import xxhash
import zstandard


class Broken(Exception):
    """An error: the bytes contradict their format."""


def live_entries(partition: Path, version: int, codec: str, row_checksums: bool = False) -> dict[bytes, bytes]:
    """Return the entries of a partition's version, from the newest snapshot and every delta after it."""
    snapshots = [v for v in range(1, version + 1) if (partition / f"{v}.snapshot").is_file()]
    base = max(snapshots, default=0)
    state: dict[bytes, bytes] = {}
    names = [f"{base}.snapshot"] if base else []
    for name in [*names, *(f"{v}.delta" for v in range(base + 1, version + 1))]:
        path = partition / name
        if not path.is_file():
            raise Broken(f"{name} is missing")
        for key, value in read_records(decompress(path.read_bytes(), codec)):
            if value is None:
                if name.endswith("snapshot"):
                    raise Broken("a delete in a snapshot")
                state.pop(_checked(key, b"") if row_checksums else key, None)
            else:
                state[key] = _checked(value, key) if row_checksums else value
    return state


def _checked(row: bytes, before: bytes) -> bytes:
    if len(row) < 4 or row[:4] != struct.pack("<I", google_crc32c.value(before + row[4:])):
        raise Broken("a row checksum")
    return row[4:]


def read_records(raw: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys of a state file with their values; None for a deleted one. Raise ``Broken`` if it is damaged."""
    place = 0

    def take(size: int) -> bytes:
        nonlocal place
        if size < 0 or size % 4 or place + size > len(raw):
            raise Broken(f"{size} bytes at {place} of {len(raw)}")
        place += size
        return raw[place - size : place]

    def length() -> int:
        (value,) = struct.unpack(">i", take(4))
        return int(value)

    while (key_size := length()) != -1:
        key = take(key_size)
        value_size = length()
        yield key, None if value_size == -1 else take(value_size)
    if place != len(raw):
        raise Broken("bytes after the end")


def decompress(data: bytes, codec: str) -> bytes:
    """Return the content of a compressed file. Raise ``Broken`` if it is damaged."""
    try:
        return b"".join({"lz4": _lz4, "zstd": _zstd, "snappy": _snappy, "lzf": _lzf, "none": _none}[codec](data))
    except (
        struct.error, ValueError, OSError, zstandard.ZstdError, lz4.block.LZ4BlockError, pa.ArrowInvalid
    ) as error:  # fmt: skip
        raise Broken(str(error)) from error


def _need(right: bool) -> None:
    if not right:
        raise Broken("the compressed stream")


def _lz4(data: bytes) -> Iterator[bytes]:
    while data:
        magic, token, packed, size, check = struct.unpack("<8sBiiI", data[:21])
        _need(magic == b"LZ4Block" and token & 0xF0 in (0x10, 0x20) and packed >= 0 and 0 <= size <= 32 << 20)
        _need(size <= 1 << (10 + (token & 15)) and len(data) >= 21 + packed and (packed == 0) == (size == 0))
        block, data = data[21 : 21 + packed], data[21 + packed :]
        if size:
            block = block if token & 0x10 else lz4.block.decompress(block, uncompressed_size=size)
            _need(len(block) == size and xxhash.xxh32_intdigest(block, 0x9747B28C) & 0xFFFFFFF == check)
            yield block


def _zstd(data: bytes) -> Iterator[bytes]:
    yield zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


def _snappy(data: bytes) -> Iterator[bytes]:
    _need(len(data) >= 16 and data[:8] == b"\x82SNAPPY\0")
    data = data[16:]
    while data:
        (packed,) = struct.unpack(">i", data[:4])
        _need(0 < packed <= len(data) - 4)
        block, data = data[4 : 4 + packed], data[4 + packed :]
        size = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(_varint(block)))
        _need(size <= 64 * packed)
        yield pa.Codec("snappy").decompress(block, size, asbytes=True)


def _varint(block: bytes) -> bytes:
    end = next((i for i, byte in enumerate(block[:5]) if byte < 0x80), None)
    _need(end is not None)
    assert end is not None
    return block[: end + 1]


def _lzf(data: bytes) -> Iterator[bytes]:
    while data:
        magic, kind, packed = struct.unpack(">2sBH", data[:5])
        _need(magic == b"ZV" and kind in (0, 1))
        head = 5 + 2 * kind
        _need(len(data) >= head + packed)
        block = data[head : head + packed]
        if kind:
            (size,) = struct.unpack(">H", data[5:7])
            block = lzf.decompress(block, size)
            _need(block is not None and len(block) == size)
        yield block
        data = data[head + packed :]


def _none(data: bytes) -> Iterator[bytes]:
    yield data
