"""Compressed streams of Spark's state files: lz4, zstd, snappy, lzf, none.

    lz4     block*  := "LZ4Block" token:u8 compressed:i32le size:i32le xxh32:u32le data
                    token = method (0x10 stored, 0x20 LZ4) | level, a block holds at most 2^(10+level) bytes;
                    the checksum is that of the decompressed block, seed 0x9747b28c, low 28 bits; size 0 ends it
    zstd    frames, as the reference implementation writes them
    snappy  header  := 82 "SNAPPY" 00 version:i32be compatible:i32be, then (size:i32be, raw snappy block)*
    lzf     chunk*  := "ZV" 00 size:u16be data | "ZV" 01 compressed:u16be size:u16be data
    none    the bytes themselves

``decompress`` yields pieces of bounded size, even if a header claims more, and ends at a bound for all of them.
``Compressor`` writes the same streams. The
formats are those of lz4-java, zstd-jni, snappy-java and compress-lzf, which ``org.apache.spark.io.CompressionCodec``
wraps. They are not the frame formats of the command-line tools. Spark itself has no ``none``. See
``docs/hdfs-state-store.md``.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO, Protocol

import lz4.block
import lzf
import pyarrow as pa
import xxhash
import zstandard

from ttlsnap import native
from ttlsnap.errors import CorruptionError
from ttlsnap.native import loops
from ttlsnap.storage.expansion import Room

MOST_BYTES = 64 << 20
"""The size that a small file may expand to. Real entries reach it only if almost all of their bytes are equal."""
Piece = bytes | memoryview
"""Decompressed bytes."""

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiiI")
_LZ4_STORED, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_SEED = 0x9747B28C
# lz4-java keeps only 28 bits of the checksum (StreamingXXHash32.asChecksum).
_LZ4_CHECK_MASK = 0x0FFFFFFF
_LZ4_LEVEL = 5  # 2^(10+5) = 32 KiB, Spark's default block size
_SNAPPY_HEADER = b"\x82SNAPPY\x00"
_SNAPPY_MAX_BLOCK = 64 << 20
_LZF_MAX_CHUNK = 0xFFFF
_BLOCK = 32 << 10
_READ = _DECOMPRESSED = 1 << 20


def decompress(file: BinaryIO, codec: str, where: str, size: int | None = None) -> Iterator[Piece]:
    """Yield the decompressed content of ``file``, in pieces; ``where`` names the file in errors.

    ``size`` is the size of the file in bytes. Without it, the caller has to stop.

    Raises CorruptionError, with the byte position, if the stream is truncated or damaged, and UnsupportedError if it
    expands to more than ``MOST_BYTES`` and more than a file of its size may.
    """
    pieces = _READERS[codec](_Source(file, where))
    if size is None:
        yield from pieces
        return
    room = Room(size, MOST_BYTES, where, "entries")
    for piece in pieces:
        room.take(len(piece))
        yield piece


class _Source:
    """A file that is read from front to back, with a position for errors; ``buffer`` is what was read ahead."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file, self.where, self.position = file, where, 0
        self.buffer = memoryview(b"")

    def take(self, size: int, content: str) -> memoryview:
        """Return exactly ``size`` bytes; raises CorruptionError if the file ends before."""
        if len(self.buffer) < size:
            self._fill(size)
            if len(self.buffer) < size:
                raise self.damage(f"the file ends in the middle of {content} ({len(self.buffer)} of {size} bytes)")
        piece = self.buffer[:size]
        self.skip(size)
        return piece

    def at_end(self) -> bool:
        if not len(self.buffer):
            self._fill(1)
        return not len(self.buffer)

    def skip(self, size: int) -> None:
        """Skip bytes that are in the buffer."""
        self.buffer = self.buffer[size:]
        self.position += size

    def _fill(self, size: int) -> None:
        # Reading stops at the end of the file, so an absurd length does not allocate memory.
        pieces = [bytes(self.buffer)]
        size_read = len(self.buffer)
        while size_read < size:
            piece = self.file.read(_READ)
            if not piece:
                break
            pieces.append(piece)
            size_read += len(piece)
        self.buffer = memoryview(b"".join(pieces))

    def damage(self, problem: str) -> CorruptionError:
        return CorruptionError(f"{self.where}: damaged near byte {self.position}: {problem}")


def _read_lz4(source: _Source) -> Iterator[Piece]:
    calls = find_lz4() if native.is_available() else None
    while not source.at_end():
        if calls is not None:
            piece, bytes_used = loops.decompress_blocks(source.buffer, _DECOMPRESSED, calls.decompress)
            source.skip(bytes_used)
            if bytes_used:
                yield piece
                continue
        magic, token, packed_size, size, check = _LZ4_HEADER.unpack(
            source.take(_LZ4_HEADER.size, "an LZ4 block header")
        )
        method, limit = token & 0xF0, 1 << (10 + (token & 0x0F))
        if magic != _LZ4_MAGIC or method not in (_LZ4_STORED, _LZ4_COMPRESSED):
            raise source.damage("an LZ4 block should begin here")
        # LZ4 makes a block that it cannot compress larger by at most this (LZ4_compressBound).
        if (
            not 0 <= size <= limit
            or not 0 <= packed_size <= limit + limit // 255 + 16
            or (size == 0) != (packed_size == 0)
        ):
            raise source.damage(f"an LZ4 block claims {packed_size} bytes for {size} bytes; its limit is {limit}")
        if size == 0:
            continue  # the end mark; another stream may follow
        data = source.take(packed_size, "an LZ4 block")
        if method == _LZ4_STORED:
            block = bytes(data)
        else:
            try:
                block = lz4.block.decompress(data, uncompressed_size=size)
            except lz4.block.LZ4BlockError as error:
                raise source.damage(f"an LZ4 block does not decompress ({error})") from error
        if len(block) != size or xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_CHECK_MASK != check:
            raise source.damage("the checksum of an LZ4 block does not match")
        yield block


@dataclass(frozen=True)
class Lz4:
    """The functions of LZ4 by which the package lz4 works, and the size of LZ4's stream."""

    decompress: int
    memory: int
    reset: int
    compress: int


@cache
def find_lz4() -> Lz4 | None:
    """Return the functions of LZ4 that the package lz4 contains; None if it does not export them."""
    try:
        library = ctypes.CDLL(lz4.block._block.__file__)
        functions = library.LZ4_decompress_safe, library.LZ4_resetStream, library.LZ4_compress_fast_continue
        memory: int = library.LZ4_sizeofState()
    except (AttributeError, OSError):
        return None
    decompress, reset, compress = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return Lz4(decompress, memory, reset, compress)


def _read_zstd(source: _Source) -> Iterator[bytes]:
    # By default the package stops after the first frame, and the entries of the others would be missing.
    reader = zstandard.ZstdDecompressor().stream_reader(source.file, read_size=_READ, read_across_frames=True)
    while True:
        try:
            piece = reader.read(_READ)
        except zstandard.ZstdError as error:
            raise source.damage(f"the zstd stream does not decompress ({error})") from error
        if not piece:
            return
        source.position = source.file.tell()
        yield piece


def _read_snappy(source: _Source) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    header = bytes(source.take(16, "the snappy header"))
    if not header.startswith(_SNAPPY_HEADER):
        raise source.damage("this is not a snappy stream")
    while not source.at_end():
        prefix = bytes(source.take(4, "a snappy block's size"))
        # Read as a size, the header's first bytes are negative, so no block begins like this.
        if prefix == _SNAPPY_HEADER[:4]:  # another stream follows
            source.take(12, "the snappy header")
            continue
        (packed_size,) = struct.unpack(">i", prefix)
        if not 0 < packed_size <= _SNAPPY_MAX_BLOCK:
            raise source.damage(f"a snappy block claims {packed_size} bytes")
        data = source.take(packed_size, "a snappy block")
        size = _snappy_size(data)
        # Snappy never expands a byte to more than 64.
        if size is None or size > 64 * packed_size:
            raise source.damage("a snappy block claims an impossible size")
        try:
            yield codec.decompress(data, size, asbytes=True)
        except (OSError, pa.ArrowInvalid) as error:
            raise source.damage(f"a snappy block does not decompress ({error})") from error


def _snappy_size(data: memoryview) -> int | None:
    """Return the size at the beginning of a raw snappy block, or None if it does not end.

    It has seven bits per byte, the low ones first, in five bytes at most.
    """
    size = 0
    for shift, byte in zip(range(0, 35, 7), data, strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
    return None


def _read_lzf(source: _Source) -> Iterator[bytes]:
    while not source.at_end():
        magic, kind, packed_size = struct.unpack(">2sBH", source.take(5, "an LZF chunk header"))
        if magic != b"ZV" or kind not in (0, 1):
            raise source.damage("an LZF chunk should begin here")
        if kind == 0:
            yield bytes(source.take(packed_size, "an LZF chunk"))
            continue
        (size,) = struct.unpack(">H", source.take(2, "an LZF chunk header"))
        try:
            block = lzf.decompress(bytes(source.take(packed_size, "an LZF chunk")), size)
        except ValueError as error:
            raise source.damage(f"an LZF chunk does not decompress ({error})") from error
        if block is None or len(block) != size:
            raise source.damage("an LZF chunk does not decompress to its size")
        yield block


def _read_none(source: _Source) -> Iterator[bytes]:
    while piece := source.file.read(_READ):
        source.position += len(piece)
        yield piece


_READERS: dict[str, Callable[[_Source], Iterator[Piece]]] = {
    "lz4": _read_lz4,
    "zstd": _read_zstd,
    "snappy": _read_snappy,
    "lzf": _read_lzf,
    "none": _read_none,
}


class ByteSink(Protocol):
    """Anything that compressed bytes can be written to."""

    def write(self, data: Piece, /) -> object: ...


class Compressor:
    """Writer of one compressed stream to ``sink``; ``close`` ends the stream and leaves ``sink`` open."""

    def __init__(self, sink: ByteSink, codec: str) -> None:
        self._sink = sink
        # Level 1 is Spark's default (``spark.io.compression.zstd.level``). Spark reads every level.
        self._zstd = zstandard.ZstdCompressor(level=1).compressobj() if codec == "zstd" else None
        self._snappy = pa.Codec("snappy")
        self._pack = {
            "lz4": self._lz4,
            "snappy": self._snappy_block,
            "lzf": self._lzf,
            "zstd": self._zstd_piece,
            "none": self._plain,
        }[codec]
        self._lz4_calls = find_lz4() if codec == "lz4" and native.is_available() else None
        self._codec = codec
        self._uncompressed = b""
        if codec == "snappy":
            sink.write(_SNAPPY_HEADER + struct.pack(">ii", 1, 1))

    def write(self, data: memoryview | bytes) -> None:
        """Compress ``data``. Whole blocks are written at once, and the rest waits for more data."""
        view = memoryview(data).cast("B")
        start = 0
        if self._uncompressed:
            start = min(_BLOCK - len(self._uncompressed), len(view))
            self._uncompressed += bytes(view[:start])
            if len(self._uncompressed) < _BLOCK:
                return
            self._pack(memoryview(self._uncompressed))
            self._uncompressed = b""
        end_of_blocks = start + (len(view) - start) // _BLOCK * _BLOCK
        if self._lz4_calls is not None and end_of_blocks > start:
            calls = self._lz4_calls
            self._sink.write(
                loops.compress_blocks(
                    view[start:end_of_blocks], _BLOCK, _LZ4_LEVEL, calls.memory, calls.reset, calls.compress
                )
            )
        else:
            for position in range(start, end_of_blocks, _BLOCK):
                self._pack(view[position : position + _BLOCK])
        self._uncompressed = bytes(view[end_of_blocks:])

    def close(self) -> None:
        """Write the waiting data and the end of the stream."""
        if self._uncompressed:
            self._pack(memoryview(self._uncompressed))
            self._uncompressed = b""
        if self._codec == "lz4":
            self._sink.write(_LZ4_HEADER.pack(_LZ4_MAGIC, _LZ4_STORED | _LZ4_LEVEL, 0, 0, 0))
        elif self._zstd is not None:
            self._sink.write(self._zstd.flush())

    def _lz4(self, block: memoryview) -> None:
        packed_block: bytes = lz4.block.compress(block, store_size=False)
        check = xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_CHECK_MASK
        method = _LZ4_COMPRESSED
        if len(packed_block) >= len(block):
            method, packed_block = _LZ4_STORED, bytes(block)
        self._sink.write(
            _LZ4_HEADER.pack(_LZ4_MAGIC, method | _LZ4_LEVEL, len(packed_block), len(block), check) + packed_block
        )

    def _snappy_block(self, block: memoryview) -> None:
        packed_block = self._snappy.compress(block, asbytes=True)
        self._sink.write(struct.pack(">i", len(packed_block)) + packed_block)

    def _lzf(self, block: memoryview) -> None:
        data = bytes(block)
        packed_block = lzf.compress(data) if len(data) > 16 else None
        # The header of a compressed chunk is two bytes longer.
        if packed_block is None or len(packed_block) + 2 >= len(data):
            self._sink.write(b"ZV" + struct.pack(">BH", 0, len(data)) + data)
        else:
            self._sink.write(b"ZV" + struct.pack(">BHH", 1, len(packed_block), len(data)) + packed_block)

    def _zstd_piece(self, block: memoryview) -> None:
        assert self._zstd is not None
        self._sink.write(self._zstd.compress(block))

    def _plain(self, block: memoryview) -> None:
        self._sink.write(bytes(block))
