"""Checksum files beside the files of a checkpoint, verified before a file is used.

    .name.crc  "crc" 00, bytes per sum:i32be, CRC32:u32be of each such piece          Hadoop, local disks
    name.crc   {"algorithm":"CRC32C","value":i32,"mainFileSize":n,...}                Spark 4.1

A file without a checksum file is not verified. A wrong or stale checksum file makes Spark fail, so it is damage here,
too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
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
    verify(files, path)
    return files.open(path)


def read_checked(files: Directory, path: str, limit: int) -> bytes:
    """Return the content of a small file, verified like ``open_checked``.

    Raises StorageError if it is longer than ``limit`` bytes.
    """
    verify(files, path)
    return files.read(path, limit)


def verify(files: Directory, path: str) -> None:
    """Compare a file with its checksum files, as ``open_checked`` does."""
    info = files.stat(path)
    if info is None:
        raise CorruptionError(f"{files.root}/{path} is missing")
    checksums = [name for name in layout.checksum_files(path) if files.stat(name) is not None]
    if not checksums:
        return
    with files.open(path) as file:
        for _ in verified(files, path, info.size, checksums, iter(partial(file.read, _PIECE), b"")):
            pass


def verified(
    files: Directory, path: str, size: int, checksums: Collection[str], pieces: Iterable[bytes]
) -> Iterator[bytes]:
    """Yield the pieces of a file of ``size`` bytes, and compare them with its checksum files, which are ``checksums``.

    Raises as ``open_checked``, before the end at the latest.
    """
    hadoop_checksum, spark_checksum = layout.checksum_files(path)
    with ExitStack() as stack:
        sums: list[_HadoopSums | _SparkSum] = []
        if hadoop_checksum in checksums:
            checksum_size = files.stat(hadoop_checksum)
            file = stack.enter_context(files.open(hadoop_checksum))
            sums.append(
                _HadoopSums(files, path, hadoop_checksum, file, checksum_size.size if checksum_size else 0, size)
            )
        if spark_checksum in checksums:
            sums.append(_SparkSum(files, path, spark_checksum, size))
        for piece in pieces:
            for sum_of_file in sums:
                sum_of_file.add(piece)
            yield piece
        for sum_of_file in sums:
            sum_of_file.end()


class _HadoopSums:
    """The checksums of Hadoop of the pieces of a file; ``checksum_file`` has those that are right."""

    def __init__(
        self, files: Directory, path: str, checksum_path: str, checksum_file: BinaryIO, checksum_size: int, size: int
    ) -> None:
        where = f"{files.root}/{checksum_path}"
        head = checksum_file.read(_head.size)
        if len(head) < _head.size or not head.startswith(_MAGIC):
            raise CorruptionError(f"{where} is not a Hadoop checksum file; remove it if {path} is known to be good")
        _, step = _head.unpack(head)
        # The last piece may be shorter, and has a sum, too.
        if step <= 0 or checksum_size != _head.size + 4 * -(-size // step):
            raise CorruptionError(
                f"{files.root}/{path} ({size} bytes) is truncated or replaced, or its checksum file is stale: "
                f"{checksum_path} does not match the size"
            )
        if step > _MAX_STEP:
            raise CorruptionError(f"{where}: it has a checksum for each {step:,} bytes, which Hadoop does not write")
        self._where, self._checksum_path, self._file = f"{files.root}/{path}", checksum_path, checksum_file
        self._step, self._size, self._start, self._rest = step, size, 0, b""

    def add(self, piece: bytes) -> None:
        data = self._rest + piece if self._rest else piece
        whole = len(data) - len(data) % self._step
        self._rest = data[whole:]
        self._compare(data[:whole] if self._rest else data)

    def end(self) -> None:
        self._compare(self._rest)

    def _compare(self, data: bytes) -> None:
        if not data:
            return
        wrong_index = _first_wrong(data, self._step, self._file.read(4 * -(-len(data) // self._step)))
        if wrong_index is not None:
            wrong_start = self._start + wrong_index * self._step
            span = f"bytes {wrong_start} to {min(self._size, wrong_start + self._step)}"
            raise CorruptionError(
                quotes_nothing(f"{self._where}: {span} do not match the checksum in {self._checksum_path}")
            )
        self._start += len(data)


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


class _SparkSum:
    """The checksum of Spark of a whole file."""

    def __init__(self, files: Directory, path: str, checksum_path: str, size: int) -> None:
        where = f"{files.root}/{checksum_path}"
        try:
            # On a local disk, Spark's checksum file has a checksum file of Hadoop's itself: ``.name.crc.crc``.
            document = parse_json(read_checked(files, checksum_path, 1 << 20))
            algorithm, self._expected, expected_size = (
                document["algorithm"],
                int(document["value"]),
                document["mainFileSize"],
            )
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise CorruptionError(f"{where} is not a checksum file that Spark wrote ({error!r})") from error
        if algorithm != "CRC32C":
            raise UnsupportedError(f"{where}: the checksum algorithm {algorithm!r} is unknown (known: CRC32C)")
        self._where, self._path, self._checksum_path = f"{files.root}/{path}", path, checksum_path
        self._has_right_size, self._checksum = expected_size == size, 0

    def add(self, piece: bytes) -> None:
        self._checksum = google_crc32c.extend(self._checksum, piece)

    def end(self) -> None:
        # Spark writes the CRC as a signed int.
        if not self._has_right_size or self._expected & 0xFFFFFFFF != self._checksum:
            message = (
                f"{self._where} does not match the checksum in {self._checksum_path}. ttlsnap doctor shows whether "
                "only the checksum is wrong"
            )
            raise ChecksumError(quotes_nothing(message), self._path, self._checksum_path)
