"""Spark takes each folder with a number for a partition, so none stays without files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap import migrate, rollback

from ..samples import bytes_of, sample, without_own


@pytest.mark.parametrize("partitions", [1, 5])
def test_only_partitions_with_files_have_folders(tmp_path: Path, partitions: int) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    migrate(str(target), partitions=partitions, stopped=True)
    assert {path.name for path in (target / "state/0").iterdir()} == {"_metadata", *map(str, range(partitions))}
    rollback(str(target), stopped=True)
    assert without_own(bytes_of(target)) == before
