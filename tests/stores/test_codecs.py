"""Compressed streams are read back, Spark's files are read, and damage is refused or harmless."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttlsnap.errors import CorruptionError, UnsupportedError, UsageError
from ttlsnap.stores.codec_names import codec_name
from ttlsnap.stores.codecs import Compressor, decompress
from ttlsnap.stores.hdfs.records import read_records

from ..both_ways import both_ways  # noqa: F401
from ..samples import SAMPLES

CODECS = ("lz4", "zstd", "snappy", "lzf", "none")
CHECKED = ("lz4",)  # each block has a checksum
SPARK_FILES = {
    "agg-deltas-lz4-4.2": "lz4",
    "agg-snapshot-zstd-4.1": "zstd",
    "window-append-snappy-4.0": "snappy",
    "lzf-both-4.2": "lzf",
}


def _compress(data: bytes, codec: str, step: int = 1 << 20) -> bytes:
    sink = io.BytesIO()
    stream = Compressor(sink, codec)
    for start in range(0, len(data), step):
        stream.write(data[start : start + step])
    stream.close()
    return sink.getvalue()


def _decompress(data: bytes, codec: str) -> bytes:
    return b"".join(decompress(io.BytesIO(data), codec, "a file"))


def _like_state(size: int) -> bytes:
    """Return bytes that compress about as well as rows, followed by bytes that do not compress."""
    chance = random.Random(size)
    rows = b"".join(struct.pack("<qqq", 0, chance.randrange(1000), i) for i in range(size // 48))
    return rows + chance.randbytes(size - len(rows))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 32_767, 32_768, 32_769, 65_535, 65_536, 200_000, 3_000_000])
def test_written_streams_are_read_back(codec: str, size: int) -> None:
    data = _like_state(size)
    assert _decompress(_compress(data, codec), codec) == data


@given(data=st.binary(max_size=5000).map(lambda b: b * 30), step=st.integers(1, 70_000), codec=st.sampled_from(CODECS))
def test_the_stream_does_not_depend_on_the_size_of_the_writes(data: bytes, step: int, codec: str) -> None:
    step = max(step, len(data) // 50)
    assert _compress(data, codec, step) == _compress(data, codec)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "lzf", "none", "lz4"])
def test_concatenated_streams_are_read_as_one(codec: str) -> None:
    first, second = _like_state(100_000), _like_state(33_333)
    assert _decompress(_compress(first, codec) + _compress(second, codec), codec) == first + second


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_needs_bounded_memory(codec: str) -> None:
    packed = _compress(bytes(50_000_000), codec)
    tracemalloc.start()
    total = sum(len(piece) for piece in decompress(io.BytesIO(packed), codec, "a file"))
    assert total == 50_000_000
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(("name", "codec"), SPARK_FILES.items())
def test_files_that_spark_wrote_are_read_to_their_last_record(name: str, codec: str) -> None:
    files = [p for p in (SAMPLES / name / "state").rglob("*") if p.suffix in (".delta", ".snapshot")]
    assert files
    entries = 0
    for path in files:
        with path.open("rb") as file:
            entries += sum(len(records) for records in read_records(decompress(file, codec, str(path)), str(path)))
    assert entries > 0


@pytest.mark.parametrize(("name", "codec"), SPARK_FILES.items())
def test_reading_with_the_wrong_codec_is_refused(name: str, codec: str) -> None:
    path = max((SAMPLES / name / "state").rglob("*.delta"), key=lambda p: p.stat().st_size)
    data = path.read_bytes()
    for other in set(CODECS) - {codec}:
        with pytest.raises(CorruptionError):
            list(read_records(decompress(io.BytesIO(data), other, "a file"), "a file"))


def _prefix(data: bytes) -> Callable[[bytes], bool]:
    return lambda found: len(found) < len(data) and data.startswith(found)


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_stream_is_refused_or_gives_a_prefix(codec: str) -> None:
    data = _like_state(3_000) + bytes(40_000) + _like_state(900)
    packed = _compress(data, codec)
    is_less = _prefix(data)
    for length in range(len(packed)):
        try:
            found = _decompress(packed[:length], codec)
        except CorruptionError as error:
            assert "a file" in str(error)
        else:
            # The reader of the records then finds no end. Only a missing end mark of lz4 itself is harmless.
            assert is_less(found) or (codec == "lz4" and found == data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_flipped_bit_never_changes_data_if_the_codec_has_checksums(codec: str) -> None:
    data = _like_state(2_000) + bytes(33_000)
    packed = _compress(data, codec)
    chance = random.Random(5)
    for place in range(len(packed)):
        damaged = bytearray(packed)
        damaged[place] ^= 1 << chance.randrange(8)
        try:
            found = _decompress(bytes(damaged), codec)
        except CorruptionError:
            continue
        if codec in CHECKED:
            assert found == data or _prefix(data)(found)


@settings(max_examples=300)
@given(data=st.binary(max_size=300), codec=st.sampled_from(CODECS), at=st.integers(0, 200))
def test_random_bytes_give_data_or_an_error_that_names_the_file(data: bytes, codec: str, at: int) -> None:
    packed = _compress(b"something to begin with" * 3, codec)
    for damaged in (data, packed + data, packed[:at] + data + packed[at:], packed[:at] + data):
        try:
            _decompress(damaged, codec)
        except CorruptionError as error:
            assert "a file: damaged near byte" in str(error)


def _lz4_block(packed: int, size: int, token: int = 0x25) -> bytes:
    return struct.pack("<8sBiiI", b"LZ4Block", token, packed, size, 0) + bytes(100)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        ("lz4", _lz4_block(2**31 - 1, 32_768)),
        ("lz4", _lz4_block(100, 2**31 - 1)),
        ("lz4", _lz4_block(100, -5)),
        ("lz4", _lz4_block(-100, 5)),
        ("lz4", _lz4_block(2**25, 2**25, token=0x2F)),
        ("lz4", _lz4_block(0, 100)),
        ("lz4", _lz4_block(100, 0)),
        ("snappy", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1) + bytes(100)),
        ("snappy", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -7) + bytes(100)),
        ("snappy", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 10) + b"\xff\xff\xff\xff\x0f" + bytes(100)),
        ("snappy", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 10) + b"\xff\xff\xff\xff\xff" + bytes(100)),
        ("lzf", b"ZV\x01\xff\xff\xff\xff" + bytes(100)),
        ("lzf", b"ZV\x02\x00\x05" + bytes(100)),
        # This frame claims a content and a window of a terabyte.
        ("zstd", b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + struct.pack("<Q", 1 << 40) + bytes(100)),
    ],
)
def test_an_absurd_length_is_refused_without_allocating_it(codec: str, data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(CorruptionError):
        _decompress(data, codec)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_codecs_are_found_by_short_name_and_by_class() -> None:
    assert codec_name("LZ4", "here") == codec_name("org.apache.spark.io.LZ4CompressionCodec", "here") == "lz4"
    assert codec_name("org.apache.spark.io.ZStdCompressionCodec", "here") == "zstd"
    with pytest.raises(UnsupportedError, match="'brotli' is unknown; known are lz4, lzf, none, snappy, zstd"):
        codec_name("brotli", "here")


def test_a_small_file_expands_to_a_limit_that_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.BytesIO()
    compressor = Compressor(made, "zstd")
    for _ in range(100):
        compressor.write(bytes(1 << 20))
    compressor.close()

    def read() -> int:
        made.seek(0)
        return sum(len(piece) for piece in decompress(made, "zstd", "4.delta", made.getbuffer().nbytes))

    with pytest.raises(UnsupportedError, match=r"4\.delta: its .* at most 64 MiB, or 1,000 times the size of a file"):
        read()
    monkeypatch.setenv("TTLSNAP_EXPANSION", "1000000")
    assert read() == 100 << 20
    monkeypatch.setenv("TTLSNAP_EXPANSION", "many")
    with pytest.raises(UsageError, match="TTLSNAP_EXPANSION='many' is not a factor"):
        read()
