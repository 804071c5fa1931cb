"""Rows that contradict their schema: commands that read the wrong part report it, and others copy it unchanged.

Without checksums, a run reads no more of a row than it needs. ``compact`` checks every row's size against the schema
and reads only the timestamp field. ``inspect --entries`` reads all fields. Fields that no command reads are kept byte
for byte, and Spark will find the fault.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import sample
from . import model, wreck
from .conftest import Refuses, Ttlsnap

LZ4, WINDOW = "agg-deltas-lz4-4.2", "window-append-snappy-4.0"
LATER = 1_900_000_000_000_000  # microseconds: an entry of that time is not expired
VALUE = b"\0" * 8 + struct.pack("<qqq", LATER, 1, 1)


def key(offset: int, size: int, text: bytes) -> bytes:
    """Return a key row of one string, with any offset and size in its word."""
    return b"\0" * 8 + struct.pack("<q", offset << 32 | size) + text


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a copy of the plain sample, without checksum files."""
    return wreck.forget_checksums(sample(LZ4, tmp_path))


def put(target: Path, key: bytes, value: bytes) -> None:
    """Replace the content of the last delta by one entry."""
    path = target / "state/0/0/7.delta"
    path.write_bytes(wreck.packed(wreck.record(key, value) + wreck.END, "lz4"))


@pytest.mark.parametrize(
    ("bad_key", "bad_value", "says"),
    [
        (b"", VALUE, "0 bytes have no room for 8 bytes of null bits and 1 words"),
        (b"\0" * 8, VALUE, "8 bytes have no room for 8 bytes of null bits and 1 words"),
        (key(16, 4, b"user\0\0\0\0"), VALUE[:24], "24 bytes have no room for 8 bytes of null bits and 3 words"),
        (key(16, 4, b"user\0\0\0\0"), b"", "0 bytes have no room"),
        (key(16, 4, b"user"), VALUE, "its size of 20 bytes is not a multiple of 8"),
        (key(16, 4, b"user\0\0\0\0"), VALUE + b"1234", "its size of 36 bytes is not a multiple of 8"),
    ],
)
def test_a_row_of_an_impossible_size_is_an_error(
    refuses: Refuses, target: Path, bad_key: bytes, bad_value: bytes, says: str
) -> None:
    put(target, bad_key, bad_value)
    told = refuses(5, target, "compact", target, *wreck.compacting(LZ4))
    assert says in told
    assert f"{target}/state/0/0, version 7: operator 0 (stateStoreSave), partition 0: row 0: " in told
    if "no room" in says:
        options = ("--entries", "999", "--age", "--timestamp", "value.max")
        assert says in refuses(5, target, "inspect", target, *options)


@pytest.mark.parametrize(
    ("word", "text", "says"),
    [
        ((24, 8), b"user\0\0\0\0", "8 bytes at offset 24 do not lie within"),
        ((16, 9), b"user\0\0\0\0", "9 bytes at offset 16 do not lie within"),
        ((0, 4), b"user\0\0\0\0", "4 bytes at offset 0 do not lie within"),
        ((2**31 - 1, 2**31 - 1), b"user\0\0\0\0", "do not lie within"),
        ((-(2**31), 4), b"user\0\0\0\0", "do not lie within"),
        ((16, 4), b"us\xffr\0\0\0\0", "the string is not UTF-8"),
    ],
)
def test_a_damaged_string_is_copied_by_compact_and_found_by_inspect(
    refuses: Refuses, ttlsnap: Ttlsnap, target: Path, word: tuple[int, int], text: bytes, says: str
) -> None:
    bad = key(*word, text)
    put(target, bad, VALUE)
    told = refuses(5, target, "inspect", target, "--entries", "999")
    assert says in told
    assert f"{target}/state/0/0, version 7: row" in told
    assert "field key" in told
    done = ttlsnap("compact", target, *wreck.compacting(LZ4))
    assert done.code == 0
    assert model.live_entries(target / "state/0/0", 7, "lz4") == {bad: VALUE}
    assert "do not lie" in told or "UTF-8" in told


def test_a_damaged_timestamp_field_is_an_error(refuses: Refuses, tmp_path: Path) -> None:
    target = wreck.forget_checksums(sample(WINDOW, tmp_path))
    path = target / "state/0/0/2.delta"
    raw = bytearray(wreck.unpacked(path, "snappy"))
    # The first key's first word follows 4 bytes of length and 8 of null bits. It has the window's offset and size.
    (word,) = struct.unpack_from("<q", raw, 12)
    assert word & 0xFFFFFFFF == 24
    for bad in (word + (1 << 40), word + 800, 5 << 32 | 24, -1):
        struct.pack_into("<q", raw, 12, bad)
        path.write_bytes(wreck.packed(bytes(raw), "snappy"))
        for name in ("3.delta", "4.delta", "5.delta", "6.delta"):
            (path.parent / name).write_bytes(wreck.packed(wreck.END, "snappy"))
        told = refuses(5, target, "compact", target, *wreck.compacting(WINDOW))
        assert f"{target}/state/0/0, version 6: operator 0 (stateStoreSave), partition 0: row " in told
        assert "field window: the value's" in told
        assert "do not lie within" in told
        assert "do not lie within" in refuses(5, target, "inspect", target, *wreck.scanning(WINDOW))


def test_extreme_timestamps_are_read(ttlsnap: Ttlsnap, target: Path) -> None:
    for moment in (-(2**63), 2**63 - 1, 0):
        put(target, key(16, 4, b"user\0\0\0\0"), b"\0" * 8 + struct.pack("<qqq", moment, 1, 1))
        for output_format in ("text", "json"):
            options = ("--entries", "999", "--age", "--timestamp", "value.max", "--format", output_format)
            assert ttlsnap("inspect", target, *options).code == 0
        report = ttlsnap("compact", target, *wreck.compacting(LZ4), "--dry-run", "--format", "json")
        assert json.loads(report.out)["totals"]["kept"] == (moment > 0)


@pytest.mark.parametrize("extra", [8, 16, 4096])
def test_a_fixed_width_row_longer_than_its_schema_is_an_error(
    refuses: Refuses, capsys: pytest.CaptureFixture[str], target: Path, extra: int
) -> None:
    put(target, key(16, 4, b"user\0\0\0\0"), VALUE + bytes(extra))
    says = f"its size is {32 + extra} bytes, and the 3 fields of its schema take 32"
    assert says in refuses(5, target, "compact", target, *wreck.compacting(LZ4))
    assert says in refuses(5, target, "inspect", target, *wreck.scanning(LZ4))
    assert run(["doctor", str(target), "--format", "json"]) == 1
    assert says in capsys.readouterr().out


def test_a_variable_row_may_have_unused_bytes(ttlsnap: Ttlsnap, target: Path) -> None:
    put(target, key(16, 4, b"user\0\0\0\0") + bytes(8), VALUE)
    assert ttlsnap("inspect", target, *wreck.scanning(LZ4)).code == 0
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0
