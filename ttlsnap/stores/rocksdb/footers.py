"""Footers of SST files, which name the place of the index and have no checksum before format 6.

    footer    checksum type: u8, metaindex, index, zeros to 41 bytes, format version: u32 LE, magic: u64 LE
    handle    offset: varint, size: varint

RocksDB allocates as much memory as a handle says. If there is not enough memory, its exception ends the process. Since
format 6 the footer has a checksum, and other fields.

Source: RocksDB's ``table/format.cc``.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from ttlsnap.errors import CorruptionError

_SIZE = 53
_TRAILER = 5  # bytes after each block: its compression and checksum
_MAGIC = 0x88E241B785F4CFF7
_MOST_BITS = 63
_versions = struct.Struct("<IQ")


def check_footer(table: Path, where: str) -> None:
    """Raise CorruptionError if the blocks that the footer of ``table`` names do not lie within it."""
    with table.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _SIZE))
        footer = file.read(_SIZE)
    if len(footer) < _SIZE:
        raise CorruptionError(f"{where} is damaged: {size} bytes are too small for a table")
    version, magic = _versions.unpack_from(footer, _SIZE - _versions.size)
    if magic != _MAGIC:
        raise CorruptionError(f"{where} is damaged: it does not end like a table")
    if version >= 6:
        return
    position = 1
    for name in ("metaindex", "index"):
        offset, position = _varint(footer, position)
        length, position = _varint(footer, position)
        if offset + length + _TRAILER > size - _SIZE:
            raise CorruptionError(f"{where} is damaged: its footer places the {name} outside the file")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it.

    A number that does not end counts as larger than any file.
    """
    value = 0
    for shift in range(0, _MOST_BITS + 7, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 1 << _MOST_BITS, position
