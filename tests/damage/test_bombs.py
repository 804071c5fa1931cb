"""Small streams that unpack to hundreds of millions of empty rows are found early, in little memory and time."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ttlsnap.stores.codecs import Compressor

from ..matrix import narrow
from ..samples import sample
from . import wreck
from .confined import Confinement
from .conftest import Overtaxes

LZF, CHANGELOGS = "lzf-both-4.2", "rocksdb-changelog-3.5"
ROWS = 200_000_000
PIECE = 32_000_000
EMPTY = {
    "records": wreck.record(b"", b""),
    "deletes": wreck.record(b"", None),
    "short keys": wreck.record(bytes(8), b""),
}


def bomb(path: Path, record: bytes, codec: str, rows: int = ROWS) -> None:
    """Write ``rows`` equal records and the end mark, or as many as the codec packs into 2 MB."""
    with path.open("wb") as file:
        compressor = Compressor(file, codec)
        piece = record * (PIECE // len(record))
        while rows > 0 and file.tell() < 2 << 20:
            compressor.write(piece)
            rows -= PIECE // len(record)
        compressor.write(wreck.END)
        compressor.close()


@pytest.mark.parametrize("kind", ["2.snapshot", "4.delta"])
@pytest.mark.parametrize("codec", narrow(["lz4", "zstd", "snappy"]))
@pytest.mark.parametrize("rows", EMPTY)
def test_a_state_file_of_empty_rows_costs_little(
    refuses_in_little_room: Overtaxes, confinement: Confinement, tmp_path: Path, kind: str, codec: str, rows: str
) -> None:
    target = wreck.recode(sample(LZF, tmp_path), "lzf", codec)
    path = target / "state/0/0" / kind
    bomb(path, EMPTY[rows], codec)
    assert str(path.parent) in refuses_in_little_room(target, LZF)
    found = confinement.run("doctor", target, "--format", "json", "--parallelism", "1")
    assert found.code == 1 and found.peak < 64 << 20
    assert str(path) in json.dumps(json.loads(found.out)["problems"])


@pytest.mark.parametrize("record", [EMPTY["records"], b"\1" + EMPTY["records"]], ids=["v1", "v2"])
def test_a_changelog_of_empty_rows_costs_little(
    refuses_in_little_room: Overtaxes, confinement: Confinement, tmp_path: Path, record: bytes
) -> None:
    target = wreck.forget_checksums(sample(CHANGELOGS, tmp_path))
    path = max(target.glob("state/0/0/*.changelog"))
    bomb(path, record, "lz4")
    if len(record) == 9:
        packed = path.read_bytes()
        path.write_bytes(wreck.packed(b"\0\2v2", "lz4") + packed)
    assert str(path) in refuses_in_little_room(target, CHANGELOGS)
    found = confinement.run("doctor", target, "--format", "json", "--parallelism", "1")
    assert found.code == 1 and found.peak < 64 << 20
    assert str(path) in json.dumps(json.loads(found.out)["problems"])


def test_many_records_of_one_key_are_read(confinement: Confinement, tmp_path: Path) -> None:
    target = wreck.recode(sample(LZF, tmp_path), "lzf", "zstd")
    path = target / "state/0/0/4.delta"
    before = _entries(confinement, target)
    raw = wreck.unpacked(path, "zstd")
    (key,) = struct.unpack_from(">i", raw)
    (value,) = struct.unpack_from(">i", raw, 4 + key)
    path.write_bytes(wreck.packed(raw[: 8 + key + value] * 60_000 + raw, "zstd"))
    assert _entries(confinement, target) == before != (0, 0)


def _entries(confinement: Confinement, target: Path) -> tuple[int, int]:
    """Return the number of entries, and the number of those that ``inspect`` shows."""
    shown = json.loads(confinement.run("inspect", target, *wreck.scanning(LZF), "--format", "json").out)
    state = shown["operators"][0]["stores"][0]["states"][0]
    return state["entries"], len(shown["entries"])
