"""Small streams that unpack to gigabytes or hundreds of millions of rows are found early, in little memory and time."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from ttlsnap.stores.codecs import Compressor

from ..matrix import narrow
from ..samples import bytes_of, sample
from . import wreck
from .confined import Confinement
from .conftest import Overtaxes

pytestmark = pytest.mark.slow

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


BIG: dict[str, Callable[[], Iterable[bytes]]] = {
    # One record of 400 MB, and many different keys of 16 kB.
    "a value": lambda: [struct.pack(">i", 16) + bytes(16) + struct.pack(">i", 400 << 20), *[bytes(4 << 20)] * 100],
    "keys": lambda: (wreck.record(_long_key(n), bytes(32)) for n in range(25_000)),
}


def _long_key(number: int) -> bytes:
    """Return a row with one text of 16 kB."""
    return bytes(8) + struct.pack("<qq", 16 << 32 | 16 << 10, number) + bytes((16 << 10) - 8)


def big(path: Path, pieces: Iterable[bytes], head: bytes = b"", end: bytes = wreck.END) -> None:
    """Write a zstd stream of these pieces, and the end mark."""
    with path.open("wb") as file:
        compressor = Compressor(file, "zstd")
        for piece in [head, *pieces, end]:
            compressor.write(piece)
        compressor.close()
    assert path.stat().st_size < 1 << 20


@pytest.fixture(scope="module")
def larger() -> Iterator[Confinement]:
    """Yield a process with room for a few copies of what a small file may expand to."""
    confined = Confinement(room=1 << 30)
    yield confined
    confined.close()


def _refused(confinement: Confinement, target: Path, name: str, path: Path, rows: str) -> None:
    before = bytes_of(target)
    for command, options in (("compact", wreck.compacting(name)), ("inspect", wreck.scanning(name))):
        found = confinement.run(command, target, *options)
        assert (found.code, found.out) == (3, ""), found.err
        assert found.peak < 400 << 20
        assert f"{path}: its" in found.err and "bytes of entries" in found.err, found
        assert "raise that factor with the variable TTLSNAP_EXPANSION" in found.err
    assert bytes_of(target) == before
    found = confinement.run("doctor", target, "--format", "json", "--parallelism", "1")
    problems = json.loads(found.out)["problems"]
    assert str(path) in json.dumps(problems)
    # Spark may read the file, so nobody should give up a batch because of a limit. The many keys do not fit the schema.
    limit_only = (3, {"unsupported"})
    assert ((found.code, {problem["code"] for problem in problems}) == limit_only) == (rows == "a value")


@pytest.mark.parametrize("kind", ["2.snapshot", "4.delta"])
@pytest.mark.parametrize("rows", BIG)
def test_a_state_file_expands_to_a_limit(larger: Confinement, tmp_path: Path, kind: str, rows: str) -> None:
    target = wreck.recode(sample(LZF, tmp_path), "lzf", "zstd")
    path = target / "state/0/0" / kind
    big(path, BIG[rows]())
    _refused(larger, target, LZF, path, rows)


def test_a_changelog_expands_to_a_limit(larger: Confinement, tmp_path: Path) -> None:
    target = wreck.recode(wreck.forget_checksums(sample(CHANGELOGS, tmp_path)), "lz4", "zstd")
    path = max(target.glob("state/0/0/*.changelog"))
    big(path, BIG["a value"]())
    _refused(larger, target, CHANGELOGS, path, "a value")


def test_the_keys_of_all_deltas_share_a_limit(larger: Confinement, tmp_path: Path) -> None:
    target = wreck.recode(sample(LZF, tmp_path), "lzf", "zstd")
    for number in (4, 5):
        pieces = (wreck.record(_long_key(n), bytes(32)) for n in range(2500))
        big(target / f"state/0/0/{number}.delta", pieces)
    found = larger.run("compact", target, *wreck.compacting(LZF))
    assert found.code == 3 and "the deltas of a partition: its" in found.err and "bytes of keys" in found.err, found.err


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
