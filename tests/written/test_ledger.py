"""A ledger is a file in a checkpoint: it is read only if it can be as large as it says."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from ttlsnap.errors import CorruptionError
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.written.arrow_stream import expanded_size
from ttlsnap.written.ledger import Hashes, Ledger, LedgerFacts, read_ledger

PATH = "_ttlsnap/written/0/0/default/default.ledger"
FACTS = LedgerFacts(5, "digest", 1_700_000_000_000, "query", "run", 1)
ROWS = 70_001


def ledger(hashes: Hashes) -> bytes:
    """Return a ledger of keys that one batch wrote."""
    return Ledger(FACTS, hashes, np.full(len(hashes), FACTS.time_ms), np.zeros(len(hashes), np.bool_)).to_bytes(PATH)


def real() -> bytes:
    return ledger(np.sort(np.random.default_rng(1).integers(0, 1 << 63, ROWS).astype(np.uint64)))


def changed(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a ledger whose Arrow stream is changed, with the checksum of the new one."""
    line, _, rest = data.partition(b"\n")
    head, rest = json.loads(line), change(rest)
    assert head.pop("format") == 1 and head.pop("checksum")
    text = json.dumps([PATH, head], sort_keys=True).encode() + b"\n" + rest
    return json.dumps({"format": 1, **head, "checksum": xxhash.xxh3_128_hexdigest(text)}).encode() + b"\n" + rest


def read(folder: Path, data: bytes) -> Ledger | None:
    files = LocalDirectory(str(folder))
    files.mkdirs(PATH.rpartition("/")[0])
    files.replace(PATH, data)
    return read_ledger(files, PATH)


@pytest.mark.parametrize("rows", [0, 1, ROWS])
def test_a_ledger_is_read_as_it_was_written(tmp_path: Path, rows: int) -> None:
    hashes = np.arange(rows, dtype=np.uint64)
    found = read(tmp_path, ledger(hashes))
    assert found is not None and found.facts == FACTS
    assert np.array_equal(found.hashes, hashes) and np.array_equal(found.times_ms, np.full(rows, FACTS.time_ms))
    assert read(tmp_path, changed(real(), bytes)) is not None


def test_the_size_of_a_stream_is_that_of_its_columns() -> None:
    rest = pa.py_buffer(real().partition(b"\n")[2])
    assert expanded_size(rest) == pa.ipc.open_stream(rest).read_all().nbytes == 16 * ROWS + (ROWS + 7) // 8


def _replace(old: int, new: int) -> Callable[[bytes], bytes]:
    def change(rest: bytes) -> bytes:
        assert struct.pack("<q", old) in rest
        return rest.replace(struct.pack("<q", old), struct.pack("<q", new))

    return change


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: ledger(np.zeros(40_000_000, np.uint64)), r"its [\d,]+ bytes expand to 645,000,000"),
        # Arrow would reserve what a buffer says, and believe how many rows there are.
        (lambda: changed(real(), _replace(8 * ROWS, 1 << 45)), r"expand to [\d,]+"),
        (lambda: changed(real(), _replace(8 * ROWS, -2)), "a buffer has a negative size"),
        (lambda: changed(real(), _replace(ROWS, 1 << 40)), "."),
    ],
    ids=["a bomb", "a size", "a negative size", "rows"],
)
def test_a_ledger_that_is_larger_than_its_keys_is_damage(
    tmp_path: Path, data: Callable[[], bytes], reason: str
) -> None:
    content = data()
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptionError, match=rf"is not a ledger that ttlsnap wrote \(.*{reason}.*Remove the folder"):
        read(tmp_path, content)
    assert pa.total_allocated_bytes() - before < 1 << 24
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def test_a_damaged_stream_is_an_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    good = ledger(np.arange(50, dtype=np.uint64))
    for _ in range(200):

        def damage(rest: bytes) -> bytes:
            place = int(rng.integers(len(rest)))
            return rest[:place] + rng.bytes(int(rng.integers(1, 9))) + rest[place + 4 :]

        try:
            read(tmp_path, changed(good, damage))
        except CorruptionError:
            continue
