"""Checksum files beside the files of a checkpoint, verified before a file is used.

    .name.crc  "crc" 00, bytes per sum:i32be, CRC32:u32be of each such piece          Hadoop, local disks
    name.crc   {"algorithm":"CRC32C","value":i32,"mainFileSize":n,...}                Spark 4.1

A file without a checksum file is not verified. A wrong or stale checksum file makes Spark fail, so it is damage here,
too.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

import google_crc32c

from ttlsnap import native
from ttlsnap.checkpoint import layout
from ttlsnap.errors import ChecksumError, CorruptionError, UnsupportedError
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.storage.directory import Directory

_MAGIC = b"crc\0"
_head = struct.Struct(">4si")
_PIECE = 1 << 20
_MAX_STEP = 16 << 20  # bytes per checksum; Hadoop's default is 512


def open_checked(files: Directory, path: str) -> BinaryIO:
    """Open ``path`` after verifying its checksum files, if there are any.

    Raises CorruptionError naming the checksum file and the position; ChecksumError if only Spark's does not match.
    """
    _verify(files, path)
    return files.open(path)


def read_checked(files: Directory, path: str, limit: int) -> bytes:
    """Return the content of a small file, verified like ``open_checked``.

    Raises StorageError if it is longer than ``limit`` bytes.
    """
    _verify(files, path)
    return files.read(path, limit)


def _verify(files: Directory, path: str) -> None:
    info = files.stat(path)
    if info is None:
        raise CorruptionError(f"{files.root}/{path} is missing")
    hadoop, spark = layout.checksum_files(path)
    if (sums := files.stat(hadoop)) is not None:
        _verify_hadoop(files, path, hadoop, sums.size, info.size)
    if files.stat(spark) is not None:
        _verify_spark(files, path, spark, info.size)


def _verify_hadoop(files: Directory, path: str, checksum_path: str, checksum_size: int, size: int) -> None:
    where = f"{files.root}/{checksum_path}"
    with files.open(checksum_path) as sums, files.open(path) as file:
        head = sums.read(_head.size)
        if len(head) < _head.size or not head.startswith(_MAGIC):
            raise CorruptionError(f"{where} is not a Hadoop checksum file; remove it if {path} is known to be good")
        _, step = _head.unpack(head)
        # The last piece may be shorter, and has a sum, too.
        if step <= 0 or checksum_size != _head.size + 4 * -(-size // step):
            raise CorruptionError(
                f"{where} does not match the size of {path} ({size} bytes): one of the two is stale or truncated"
            )
        if step > _MAX_STEP:
            raise CorruptionError(f"{where}: it has a checksum for each {step:,} bytes, which Hadoop does not write")
        start, piece_size = 0, max(1, _PIECE // step) * step
        while piece := file.read(piece_size):
            wrong = _first_wrong(piece, step, sums.read(4 * -(-len(piece) // step)))
            if wrong is not None:
                first = start + wrong * step
                span = f"bytes {first} to {min(size, first + step)}"
                raise CorruptionError(
                    quotes_nothing(f"{files.root}/{path}: {span} do not match the checksum in {checksum_path}")
                )
            start += len(piece)


def _first_wrong(data: bytes, step: int, expected: bytes) -> int | None:
    """Return the index of the first piece of ``step`` bytes whose CRC32 is not the expected one, or None."""
    count = -(-len(data) // step)
    if native.is_available() and len(expected) == 4 * count:
        return native.find_wrong_crc(data, step, expected)
    view = memoryview(data)
    found = [zlib.crc32(view[at : at + step]) for at in range(0, len(data), step)]
    if expected == struct.pack(f">{count}I", *found):
        return None
    pieces = (expected[at : at + 4] for at in range(0, 4 * count, 4))
    same = [piece == one.to_bytes(4, "big") for one, piece in zip(found, pieces, strict=True)]
    return same.index(False)


def _verify_spark(files: Directory, path: str, checksum_path: str, size: int) -> None:
    where = f"{files.root}/{checksum_path}"
    try:
        # On a local disk, Spark's checksum file has a checksum file of Hadoop's itself: ``.name.crc.crc``.
        document = parse_json(read_checked(files, checksum_path, 1 << 20))
        algorithm, value, expected = document["algorithm"], int(document["value"]), document["mainFileSize"]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise CorruptionError(f"{where} is not a checksum file that Spark wrote ({error!r})") from error
    if algorithm != "CRC32C":
        raise UnsupportedError(f"{where}: the checksum algorithm {algorithm!r} is unknown (known: CRC32C)")
    found = 0
    with files.open(path) as file:
        while piece := file.read(_PIECE):
            found = google_crc32c.extend(found, piece)
    # Spark writes the CRC as a signed int.
    if expected != size or value & 0xFFFFFFFF != found:
        words = (
            f"{files.root}/{path} does not match the checksum in {checksum_path}. ttlsnap doctor shows whether only "
            "the checksum is wrong"
        )
        raise ChecksumError(quotes_nothing(words), path, checksum_path)
