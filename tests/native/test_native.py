"""The library in C: it is there, can be switched off, and computes what the array code computes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zlib

import google_crc32c
import numpy as np
import pytest

from ttlsnap import native
from ttlsnap.native import loops
from ttlsnap.stores import codecs
from ttlsnap.stores.hdfs import key_index
from ttlsnap.unsaferow import murmur3
from ttlsnap.unsaferow.rows import Rows

pytestmark = pytest.mark.skipif(not native.is_available(), reason="ttlsnap was installed without a C compiler")


def _rows(count: int) -> Rows:
    chance = np.random.default_rng(5)
    return Rows.of([chance.bytes(int(size)) for size in chance.integers(0, 400, count)])


@pytest.mark.parametrize("with_tables", [False, True])
def test_checksums_are_those_of_the_crc_package(with_tables: bool) -> None:
    keys, values = _rows(300), _rows(300).take(np.arange(300)[::-1])
    found = loops.join_checksums(
        (keys.data, keys.start, keys.size), (values.data, values.start, values.size), with_tables=with_tables
    )
    pieces = zip(keys.to_arrow().to_pylist(), values.to_arrow().to_pylist(), strict=True)
    assert found.tolist() == [google_crc32c.value(key + value) for key, value in pieces]


def test_hashes_are_those_of_the_array_code(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _rows(300)
    hashes = key_index.hash_rows(rows)
    monkeypatch.setattr(native, "is_available", lambda: False)
    assert hashes.tolist() == key_index.hash_rows(rows).tolist()
    assert len(set(hashes.tolist())) > 250


def test_murmur3_is_that_of_the_array_code(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _rows(300).take(np.arange(299, -1, -1))
    seeds = np.random.default_rng(7).integers(0, 2**32, 300, np.uint32)
    hashes = murmur3.hash_bytes(rows, seeds)
    monkeypatch.setattr(native, "is_available", lambda: False)
    assert hashes.tolist() == murmur3.hash_bytes(rows, seeds).tolist()
    assert len(set(hashes.tolist())) > 250


@pytest.mark.parametrize("noise", [0, 1, 9, 256])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000, 32 << 10, (32 << 10) + 1, 200_003])
def test_lz4_streams_are_those_of_the_array_code(monkeypatch: pytest.MonkeyPatch, size: int, noise: int) -> None:
    data = (np.random.default_rng(size).integers(0, 256, size) % (noise + 1)).astype(np.uint8).tobytes()
    assert codecs.find_lz4() is not None
    streams = []
    for in_c in (True, False):
        monkeypatch.setattr(native, "is_available", lambda in_c=in_c: in_c)
        sink = io.BytesIO()
        stream = codecs.Compressor(sink, "lz4")
        stream.write(data)
        stream.close()
        streams.append(sink.getvalue())
        found = [b"".join(codecs.decompress(io.BytesIO(written), "lz4", "a file")) for written in streams]
        assert found == [data] * len(streams)
    assert streams[0] == streams[1]


def test_a_block_that_ends_later_is_left() -> None:
    data = np.random.default_rng(3).bytes(70_000)
    sink = io.BytesIO()
    stream = codecs.Compressor(sink, "lz4")
    stream.write(data)
    stream.close()
    whole, lz4 = sink.getvalue(), codecs.find_lz4()
    assert lz4 is not None
    blocks = [at for at in range(len(whole)) if whole.startswith(b"LZ4Block", at)]
    assert len(blocks) == 4  # the last one is the end mark
    for size in [0, 20, *(end + some for end in blocks[1:] for some in (-1, 0, 1)), len(whole)]:
        # The bytes after the part are those of the block.
        content, used = loops.decompress_blocks(memoryview(whole)[:size], 1 << 20, lz4.decompress)
        assert used == max(at for at in blocks if at <= size)
        assert bytes(content) == data[: len(content)]
    assert len(content) == len(data)


@pytest.mark.parametrize("spread", [0, 1])
def test_keys_are_found_by_all_of_their_bytes(spread: int) -> None:
    keys = Rows.of([b"", b"a", b"ab", b"abc", b"abcdefgh", b"abcdefghi", b"b" * 100])
    asked = Rows.of([b"ab", b"abcd", b"", b"x", b"b" * 99, b"b" * 100, b"a", b"abcdefghj"])
    shift = 60
    # With a spread of 0, all hashes are equal.
    mine, theirs = (loops.hash_pieces(rows.data, rows.start, rows.size) * np.uint64(spread) for rows in (keys, asked))
    order = np.argsort(mine, kind="stable")
    keys, mine = keys.take(order), mine[order]
    slots = np.full(1 << (64 - shift), -1, np.int32)
    slots[mine[::-1] >> np.uint64(shift)] = np.arange(len(mine))[::-1]
    pieces = [(rows.data, rows.start, rows.size) for rows in (asked, keys)]
    found = loops.find_keys(pieces[0], theirs, pieces[1], mine, slots, shift)
    assert found.tolist() == [True, False, True, False, False, True, True, False]


@pytest.mark.parametrize("step", [1, 7, 512])
def test_the_first_wrong_crc_is_found(step: int) -> None:
    data = np.random.default_rng(step).bytes(5000)
    good = b"".join(zlib.crc32(data[at : at + step]).to_bytes(4, "big") for at in range(0, len(data), step))
    assert native.find_wrong_crc(data, step, good) is None
    for piece in (0, 3, len(good) // 4 - 1):
        wrong = bytearray(good)
        wrong[4 * piece + 1] ^= 1
        wrong[-1] ^= 4
        assert native.find_wrong_crc(data, step, bytes(wrong)) == piece
    with pytest.raises(ValueError, match="one CRC for each piece"):
        native.find_wrong_crc(data, step, good[:-4])


@pytest.mark.parametrize("setting", ["0", "1"])
def test_a_setting_switches_it_off(setting: str) -> None:
    code = "from ttlsnap import native; print(native.is_available())"
    env = {**os.environ, native.SETTING: setting}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(setting == "1")


@pytest.mark.parametrize("place", [0, 1, 299])
@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, -1), (1 << 40, 1), (0, 1 << 40), ((1 << 63) - 1, 1)])
def test_the_first_piece_outside_its_buffer_is_found(place: int, start: int, size: int) -> None:
    rows = _rows(300)
    starts, sizes = rows.start.copy(), rows.size.copy()
    assert loops.find_outside(starts, sizes, len(rows.data)) is None
    for later in (place, 299):
        starts[later], sizes[later] = start, size
    assert loops.find_outside(starts, sizes, len(rows.data)) == place
    assert loops.find_outside(np.array([5]), np.array([3]), 8) is None
    assert loops.find_outside(np.array([5]), np.array([4]), 8) == 0
