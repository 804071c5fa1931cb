"""Spills: each new partition gets its entries in their order, wherever the blocks wait."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap.engines import spill
from ttlsnap.engines.spill import Room, Spills
from ttlsnap.unsaferow.rows import Rows

PARTITIONS = 5


@pytest.mark.parametrize("room", [0, 3000, 1 << 20])
@pytest.mark.parametrize("block", [1, 700, 1 << 20])
def test_every_partition_gets_its_entries_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, block: int
) -> None:
    monkeypatch.setattr(spill, "BLOCK_BYTES", block)
    random, spills = np.random.default_rng(7), Spills(tmp_path, Room(room))
    expected: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
    for name in ("some", "others"):
        with spills.write(name, PARTITIONS) as writer:
            for count in (1, 0, 40, 7, 40):
                keys, values = ([random.bytes(int(size)) for size in random.integers(0, 30, count)] for _ in range(2))
                places = random.integers(0, PARTITIONS - 1, count)  # the last one gets nothing
                for place, *entry in zip(places.tolist(), keys, values, strict=True):
                    expected.setdefault((name, place), []).append((entry[0], entry[1]))
                writer.add(rows_of(keys), rows_of(values), places)
            writer.finish()
        assert writer.entries.tolist() == [len(expected.get((name, place), [])) for place in range(PARTITIONS)]
    for name in ("some", "others"):
        for place in range(PARTITIONS):
            entries = [
                entry
                for keys, values in spills.read(name, place, PARTITIONS)
                for entry in zip(keys.to_arrow().to_pylist(), values.to_arrow().to_pylist(), strict=True)
            ]
            assert entries == expected.get((name, place), [])
    written = sum(file.stat().st_size for file in tmp_path.glob("*.data"))
    assert (written == 0) == (room == 1 << 20)


def rows_of(texts: list[bytes]) -> Rows:
    return Rows.from_arrow(pa.array(texts, pa.binary()))
