"""Reduction of a RocksDB database's MANIFEST, so that the database opens with only some of its tables.

    file      records in blocks of 32 KiB, each after CRC: u32 LE, size: u16 LE, and a byte: whole, first, middle, last
    record    a version edit: (tag: varint, the tag's fields)*
    tag 6     removes a table: level, number
    tag 103   adds a table:    level, number, size, smallest key, largest key, two sequence numbers, (tag, bytes)*, 1

A record at the end removes the other tables.

Source: RocksDB's ``version_edit.cc`` and ``log_format.h``; Spark 3.2 has RocksDB 6.20, Spark 4.2 has 9.8.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from ttlsnap.errors import CorruptionError, UnsupportedError

_NAME = re.compile(r"MANIFEST-[0-9]+")
_BLOCK = 32 << 10
_header = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CRC_DELTA = 0xA282EAD8
_LEAVES, _ARRIVES, _END_OF_TABLE = 6, 103, 1
_NUMBERS = (2, 3, 4, 9, 10, 203)  # log, next file, last sequence, previous log, oldest log, most column families
_COMPARATOR, _CURSOR = 1, 5
_SKIPPED = 1 << 13  # a reader ignores an unknown tag with this bit
_MAX_RECORD = 16 << 20


def keep_tables(folder: Path, tables: Collection[int], kept: Collection[int], where: str) -> None:
    """Remove all ``tables`` but those ``kept`` from the MANIFEST of the database in ``folder``.

    A table is identified by its number. Raises CorruptionError if the MANIFEST is missing or lacks one of the tables.
    Raises UnsupportedError for an edit of an unknown kind.
    """
    manifest_line = (folder / "CURRENT").read_bytes()
    name = manifest_line.strip().decode(errors="replace")
    if not _NAME.fullmatch(name) or not (folder / name).is_file():
        raise CorruptionError(f"{where}: CURRENT names {name[:40]!r}, which is not a MANIFEST in this snapshot")
    with (folder / name).open("r+b") as file:
        levels = _levels(file, [number for number in tables if number not in kept], where)
        edit = b"".join(bytes([_LEAVES]) + _varint(level) + _varint(number) for number, level in levels.items())
        if edit:
            _append(file, edit)


def _levels(file: BinaryIO, numbers: Collection[int], where: str) -> dict[int, int]:
    """Return the level of each table, from the last edit that adds it.

    Raises CorruptionError if the MANIFEST is damaged or lacks one of the tables.
    """
    if not numbers:
        return {}
    levels: dict[int, int] = {}
    # Decoding every edit would take seconds after months of batches, so only edits about these tables are decoded.
    # ``g`` is the byte 103, the tag of an added table, and the next byte is its level.
    about_them = re.compile(b"g[\0-\x3f](?:%s)" % b"|".join(re.escape(_varint(number)) for number in numbers))
    wanted_numbers = frozenset(numbers)
    try:
        for record in _records(file):
            if about_them.search(record):
                levels |= {number: level for level, number in _arrivals(record, where) if number in wanted_numbers}
    except (IndexError, struct.error) as error:
        raise CorruptionError(f"{where}: its MANIFEST is damaged or truncated") from error
    missing_numbers = sorted(wanted_numbers - levels.keys())
    if missing_numbers:
        raise CorruptionError(f"{where}: {missing_numbers[0]:06d}.sst is listed, but the MANIFEST does not have it")
    return levels


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yield every whole record; RocksDB reads the file next and verifies the checksums."""
    gathered_pieces: list[bytes] = []
    while block := file.read(_BLOCK):
        position = 0
        while position + _header.size <= len(block):
            _, size, kind = _header.unpack_from(block, position)
            position += _header.size + size
            if not _WHOLE <= kind <= _LAST or position > len(block):
                return
            if kind in (_WHOLE, _FIRST):
                gathered_pieces = []
            gathered_pieces.append(block[position - size : position])
            if kind in (_WHOLE, _LAST):
                yield b"".join(gathered_pieces)
            elif len(gathered_pieces) * _BLOCK > _MAX_RECORD:
                return


def _arrivals(record: bytes, where: str) -> Iterator[tuple[int, int]]:
    """Yield the level and the number of each table that an edit adds."""
    position = 0

    def number() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte = record[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                return value

    def skip() -> None:
        nonlocal position
        size = number()
        position += size

    while position < len(record):
        tag = number()
        if tag & _SKIPPED or tag == _COMPARATOR:
            skip()
        elif tag in _NUMBERS:
            number()
        elif tag == _CURSOR:
            number()
            skip()
        elif tag == _LEAVES:
            number()
            number()
        elif tag == _ARRIVES:
            yield number(), number()
            number()
            skip()
            skip()
            number()
            number()
            while number() != _END_OF_TABLE:
                skip()
        else:
            raise UnsupportedError(f"{where}: its MANIFEST has an edit with the unknown tag {tag}")


def _append(file: BinaryIO, edit: bytes) -> None:
    position = file.seek(0, 2)
    is_first = True
    while is_first or edit:
        room_in_block = _BLOCK - position % _BLOCK
        # A header is never split between two blocks. The end of the first one is filled with zeros.
        if room_in_block < _header.size:
            position += file.write(bytes(room_in_block))
            continue
        piece, edit = edit[: room_in_block - _header.size], edit[room_in_block - _header.size :]
        kind = (_LAST if not is_first else _WHOLE) if not edit else (_FIRST if is_first else _MIDDLE)
        position += file.write(_header.pack(_masked_crc(bytes([kind]) + piece), len(piece), kind) + piece)
        is_first = False


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    # RocksDB stores CRCs masked, because a CRC over bytes that contain CRCs is weak (``util/crc32c.h``).
    return ((crc >> 15 | crc << 17) + _CRC_DELTA) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    encoded_bytes = bytearray()
    while value > 0x7F:
        encoded_bytes.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded_bytes, value])
