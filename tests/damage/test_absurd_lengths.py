"""Impossible lengths and counts, and streams that swell, are errors that name the place and need little memory.

The commands run in a process that would run out of memory if it believed a length of 2 GiB.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import lz4.block
import pytest
import xxhash
import zstandard

from ..samples import sample
from . import wreck
from .confined import Confinement
from .conftest import Overtaxes

LZF, LZ4, OLD = "lzf-both-4.2", "agg-deltas-lz4-4.2", "agg-format1-3.5"
KEY = b"\0" * 8 + struct.pack("<q", 16 << 32 | 4) + b"user" + b"\0" * 4
VALUE = b"\0" * 8 + struct.pack("<qqq", 1_700_000_000_000_000, 1, 1)
GOOD = wreck.record(KEY, VALUE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "kind", "ahead"),
    [("none", "4.delta", 0), ("none", "2.snapshot", 3000), ("lz4", "2.snapshot", 0), ("lz4", "4.delta", 3000)],
)
def test_an_absurd_length_in_a_record_is_found_at_its_position(
    refuses_in_little_room: Overtaxes, tmp_path: Path, codec: str, kind: str, ahead: int
) -> None:
    target = wreck.recode(sample(LZF, tmp_path), "lzf", codec)
    path = target / "state/0/0" / kind
    for number in (2**31 - 1, 2**31 - 4, -2, -(2**31), 5, 7 << 20 | 1):
        for place, field in ((0, "key"), (len(KEY) + 4, "value")):
            raw = bytearray(ahead * GOOD + GOOD)
            struct.pack_into(">i", raw, ahead * len(GOOD) + place, number)
            path.write_bytes(wreck.packed(bytes(raw) + wreck.END, codec))
            told = refuses_in_little_room(target, LZF)
            assert str(path) in told
            position = ahead * len(GOOD) + place
            if number == 2**31 - 4:  # a possible length, but the file is shorter
                assert "is truncated" in told
            else:
                assert f"impossible {field} length {number} at decompressed byte {position}" in told


LZ4_HEADER = struct.Struct("<8sBiiI")


def lz4_block(packed: bytes, token: int, size: int, claimed: int | None = None) -> bytes:
    """Return an LZ4 block whose header has any lengths."""
    check = xxhash.xxh32_intdigest(b"\0" * 64, 0x9747B28C) & 0x0FFFFFFF
    return LZ4_HEADER.pack(b"LZ4Block", token, len(packed) if claimed is None else claimed, size, check) + packed


def snappy_block(size: bytes, body: bytes, claimed: int | None = None) -> bytes:
    """Return a snappy stream of one block, whose header has any lengths."""
    block = size + body
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + struct.pack(">i", len(block) if claimed is None else claimed) + block


STREAMS = {
    "lz4 packed 2^31-1": ("lz4", lz4_block(b"abc", 0x25, 64, 2**31 - 1)),
    "lz4 packed negative": ("lz4", lz4_block(b"abc", 0x25, 64, -1)),
    "lz4 size 2^31-1": ("lz4", lz4_block(b"abc", 0x25, 2**31 - 1)),
    "lz4 size 2^31-1 at the highest level": ("lz4", lz4_block(b"abc", 0x2F, 2**31 - 1)),
    "lz4 packed 32 MiB of which 3 bytes are there": ("lz4", lz4_block(b"abc", 0x2F, 32 << 20, 32 << 20)),
    "lz4 size negative": ("lz4", lz4_block(b"abc", 0x25, -64)),
    "lz4 more than it claims": ("lz4", lz4_block(lz4.block.compress(b"\0" * (32 << 20), store_size=False), 0x25, 64)),
    "lz4 less than it claims": ("lz4", lz4_block(lz4.block.compress(b"\0" * 16, store_size=False), 0x2F, 32 << 20)),
    "lz4 stored, less than it claims": ("lz4", lz4_block(b"\0" * 16, 0x15, 64)),
    "snappy block 2^31-1": ("snappy", snappy_block(b"\x08", b"\x1c" + b"\0" * 8, 2**31 - 1)),
    "snappy block negative": ("snappy", snappy_block(b"\x08", b"\x1c" + b"\0" * 8, -5)),
    "snappy size 2^32": ("snappy", snappy_block(b"\xff\xff\xff\xff\x0f", b"\x1c" + b"\0" * 8)),
    "snappy size without an end": ("snappy", snappy_block(b"\xff" * 10, b"\x1c" + b"\0" * 8)),
    "snappy more than it claims": ("snappy", snappy_block(b"\x04", b"\x1c" + b"\0" * 8)),
    "lzf packed 65535": ("lzf", b"ZV\1\xff\xff\xff\xffabc"),
    "lzf more than it claims": ("lzf", b"ZV\1\0\x05\0\x01\0a\xe0\xff\0"),
    "zstd that claims 2^60 bytes": ("zstd", b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\x01\0\0"),
    "zstd with a window of 2 TiB": ("zstd", b"\x28\xb5\x2f\xfd\0\xf8\x01\0\0"),
}


@pytest.mark.parametrize("case", STREAMS)
def test_an_absurd_header_of_a_compressed_stream_is_found(
    refuses_in_little_room: Overtaxes, tmp_path: Path, case: str
) -> None:
    codec, stream = STREAMS[case]
    target = wreck.forget_checksums(sample(LZF, tmp_path))
    wreck.edit_offsets(target, 'codec":"lzf"', f'codec":"{codec}"')
    path = target / "state/0/0/2.snapshot"
    path.write_bytes(stream)
    for name in ("3.delta", "4.delta", "5.delta"):
        for partition in ("0", "1"):
            (target / "state/0" / partition / name).write_bytes(wreck.packed(wreck.END, codec))
    told = refuses_in_little_room(target, LZF)
    assert f"{path}: damaged near byte" in told or f"{path} is truncated" in told


def bomb(raw: bytes, times: int) -> bytes:
    """Return ``raw`` so many times in one zstd stream."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([*(compressor.compress(raw) for _ in range(times)), compressor.flush()])


@pytest.mark.parametrize("kind", ["5.snapshot", "6.delta"])
@pytest.mark.parametrize("content", ["zeros", "one length", "bytes after the end"])
def test_a_small_file_that_swells_to_a_gigabyte_is_an_error(
    refuses_in_little_room: Overtaxes, tmp_path: Path, kind: str, content: str
) -> None:
    name = "agg-snapshot-zstd-4.1"
    target = wreck.forget_checksums(sample(name, tmp_path))
    if kind == "6.delta":
        for folder in ("offsets", "commits"):
            (target / folder / "5").write_bytes((target / folder / "4").read_bytes())
        for partition in ("0", "1"):
            (target / "state/0" / partition / kind).write_bytes(wreck.packed(wreck.END, "zstd"))
    start = {
        "zeros": b"",
        "one length": struct.pack(">i", 2**31 - 4),
        "bytes after the end": GOOD + wreck.END,
    }[content]
    path = target / "state/0/0" / kind
    path.write_bytes(wreck.packed(start, "zstd") + bomb(b"\0" * (4 << 20), 256))
    assert path.stat().st_size < 1 << 20
    told = refuses_in_little_room(target, name, swells=True)
    # One long record is held in memory, and other content streams through it.
    assert content == "one length" or "out of memory" not in told


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("metadata", "longer than"),
        ("offsets/6", "longer than"),
        ("commits/6", "longer than"),
        ("state/0/_metadata/metadata", "longer than"),
        ("state/0/0/_metadata/schema", "longer than"),
        ("state/0/0/.7.delta.crc", "does not match the size"),
        ("state/0/0/7.delta", "an LZ4 block should begin here"),
    ],
)
def test_a_file_of_terabytes_is_not_read_into_memory(
    refuses_in_little_room: Overtaxes, tmp_path: Path, file: str, says: str
) -> None:
    target = sample(LZ4, tmp_path)
    path = target / file
    if not path.name.endswith(".crc"):
        wreck.forget_checksums(target)
    path.touch()
    os.truncate(path, 1 << 42)
    assert says in refuses_in_little_room(target, LZ4)


def test_an_impossible_count_in_a_schema_file_is_an_error(refuses_in_little_room: Overtaxes, tmp_path: Path) -> None:
    target = wreck.forget_checksums(sample(LZ4, tmp_path))
    path = target / "state/0/0/_metadata/schema"
    empty = '{"type":"struct","fields":[]}'
    for number in (2**31 - 1, -1, -(2**31), 1000):
        count = struct.pack(">i", number)
        for data in (
            wreck.utf("v2") + count + wreck.utf(empty),
            wreck.utf("v2") + struct.pack(">i", 1) + wreck.utf(empty) + count + wreck.utf(empty),
            wreck.utf("v3") + count,
        ):
            path.write_bytes(data)
            assert f"{path}: impossible count {number}" in refuses_in_little_room(target, LZ4)
    path.write_bytes(wreck.utf("v1") + b"\xff\xff{}")
    assert f"{path} is truncated" in refuses_in_little_room(target, LZ4)


@pytest.mark.parametrize("number", ["2147483647", "-1", "0", "1.5", "1" + 30 * "0", "9" * 5000, "true", '"2"', "null"])
def test_an_absurd_number_of_partitions_is_refused(
    refuses_in_little_room: Overtaxes, tmp_path: Path, number: str
) -> None:
    target = sample(LZ4, tmp_path)
    wreck.edit(target / "state/0/_metadata/metadata", '"numPartitions":2', f'"numPartitions":{number}')
    assert "state/0/_metadata/metadata: not the operator metadata" in refuses_in_little_room(target, LZ4)


@pytest.mark.parametrize("number", ["99999999999", "1048577", "3", "1"])
def test_without_metadata_partitions_must_match_the_pinned_setting(
    refuses_in_little_room: Overtaxes, tmp_path: Path, number: str
) -> None:
    target = sample(OLD, tmp_path)
    wreck.edit_offsets(target, 'shuffle.partitions":"2"', f'shuffle.partitions":"{number}"')
    assert "partition" in refuses_in_little_room(target, OLD)


def test_a_huge_batch_number_is_not_counted_up_to(refuses_in_little_room: Overtaxes, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    for folder in ("offsets", "commits"):
        (target / folder / "6").rename(target / folder / "999999999999999999")
    assert "7.delta is missing" not in (told := refuses_in_little_room(target, LZ4))
    assert "8.delta is missing: version 1000000000000000000 needs every delta" in told


DOCTOR = ("--format", "json", "--parallelism", "1")


@pytest.mark.parametrize("number", ["2147483648", "50000000", "1048577", "0", "1" + 17 * "0", "9" * 30, "9" * 5000])
@pytest.mark.parametrize("name", [LZ4, OLD])
def test_an_absurd_number_of_shuffle_partitions_is_refused(
    refuses_in_little_room: Overtaxes, confinement: Confinement, tmp_path: Path, name: str, number: str
) -> None:
    target = sample(name, tmp_path)
    wreck.edit_offsets(target, 'shuffle.partitions":"2"', f'shuffle.partitions":"{number}"')
    told = refuses_in_little_room(target, name)
    assert "offsets/" in told and "spark.sql.shuffle.partitions" in told and len(told) < 2000
    found = confinement.run("doctor", target, *DOCTOR)
    assert found.code == 1 and found.peak < 64 << 20
    assert "spark.sql.shuffle.partitions" in found.out


def test_a_huge_partition_count_of_an_older_batch_costs_little(confinement: Confinement, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    for batch in range(5):
        wreck.edit(target / f"offsets/{batch}", 'shuffle.partitions":"2"', 'shuffle.partitions":"1048576"')
    found = confinement.run("doctor", target, *DOCTOR)
    assert found.code == 1 and found.peak < 64 << 20
    restorable = {version["version"]: version["restorable"] for version in json.loads(found.out)["versions"]}
    assert restorable == {1: False, 2: False, 3: False, 4: False, 5: None, 6: True, 7: True}


@pytest.mark.parametrize("number", ["-1", "2", "1000000000", "1" + 30 * "0", "true", "1.0"])
def test_an_absurd_number_of_prefix_columns_is_refused(
    refuses_in_little_room: Overtaxes, tmp_path: Path, number: str
) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    wreck.edit(target / "state/0/_metadata/metadata", '"numColsPrefixKey":0', f'"numColsPrefixKey":{number}')
    told = refuses_in_little_room(target, "rocksdb-4.2")
    assert f"{target}/state/0/_metadata/metadata: " in told and "numColsPrefixKey" in told


def test_a_block_size_of_gigabytes_in_a_checksum_file_is_refused(
    refuses_in_little_room: Overtaxes, tmp_path: Path
) -> None:
    target = sample(LZ4, tmp_path)
    path = target / "state/0/0/7.delta"
    for step in (2**31 - 1, 1 << 30):
        wreck.seal(path, step)
        assert f"{path.with_name('.7.delta.crc')}: it has a checksum for each {step:,} bytes" in refuses_in_little_room(
            target, LZ4
        )
    with path.with_name(".7.delta.crc").open("r+b") as file:
        file.write(b"crc\0" + struct.pack(">i", 1))
        file.truncate(1 << 40)
    assert ".7.delta.crc does not match the size" in refuses_in_little_room(target, LZ4)


@pytest.mark.parametrize("step", [1, 7, 4096, 1 << 20, 1 << 24])
def test_other_block_sizes_are_read(confinement: Confinement, tmp_path: Path, step: int) -> None:
    target = sample(LZ4, tmp_path)
    path = target / "state/0/0/7.delta"
    wreck.seal(path, step)
    assert confinement.run("inspect", target, *wreck.scanning(LZ4)).code == 0
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    told = confinement.run("inspect", target, *wreck.scanning(LZ4))
    assert told.code == 5 and "do not match the checksum in state/0/0/.7.delta.crc" in told.err
