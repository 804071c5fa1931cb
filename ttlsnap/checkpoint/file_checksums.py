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
    hadoop_checksum, spark_checksum = layout.checksum_files(path)
    if (hadoop_info := files.stat(hadoop_checksum)) is not None:
        _verify_hadoop(files, path, hadoop_checksum, hadoop_info.size, info.size)
    if files.stat(spark_checksum) is not None:
        _verify_spark(files, path, spark_checksum, info.size)


def _verify_hadoop(files: Directory, path: str, checksum_path: str, checksum_size: int, size: int) -> None:
    where = f"{files.root}/{checksum_path}"
    with files.open(checksum_path) as checksum_file, files.open(path) as file:
        head = checksum_file.read(_head.size)
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
            wrong_index = _first_wrong(piece, step, checksum_file.read(4 * -(-len(piece) // step)))
            if wrong_index is not None:
                wrong_start = start + wrong_index * step
                span = f"bytes {wrong_start} to {min(size, wrong_start + step)}"
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
    checksums = [zlib.crc32(view[start : start + step]) for start in range(0, len(data), step)]
    if expected == struct.pack(f">{count}I", *checksums):
        return None
    expected_checksums = (expected[start : start + 4] for start in range(0, 4 * count, 4))
    are_right = [
        expected_checksum == checksum.to_bytes(4, "big")
        for checksum, expected_checksum in zip(checksums, expected_checksums, strict=True)
    ]
    return are_right.index(False)


def _verify_spark(files: Directory, path: str, checksum_path: str, size: int) -> None:
    where = f"{files.root}/{checksum_path}"
    try:
        # On a local disk, Spark's checksum file has a checksum file of Hadoop's itself: ``.name.crc.crc``.
        document = parse_json(read_checked(files, checksum_path, 1 << 20))
        algorithm, expected_checksum, expected_size = (
            document["algorithm"],
            int(document["value"]),
            document["mainFileSize"],
        )
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise CorruptionError(f"{where} is not a checksum file that Spark wrote ({error!r})") from error
    if algorithm != "CRC32C":
        raise UnsupportedError(f"{where}: the checksum algorithm {algorithm!r} is unknown (known: CRC32C)")
    checksum = 0
    with files.open(path) as file:
        while piece := file.read(_PIECE):
            checksum = google_crc32c.extend(checksum, piece)
    # Spark writes the CRC as a signed int.
    if expected_size != size or expected_checksum & 0xFFFFFFFF != checksum:
        message = (
            f"{files.root}/{path} does not match the checksum in {checksum_path}. ttlsnap doctor shows whether only "
            "the checksum is wrong"
        )
        raise ChecksumError(quotes_nothing(message), path, checksum_path)
