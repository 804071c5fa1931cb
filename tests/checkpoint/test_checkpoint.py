"""The logs and files of a checkpoint are read as Spark reads them, and damage is an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ttlsnap import open_checkpoint
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.checkpoint.logs import FENCE_MARK, plan_next, read_logs
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.local import LocalDirectory

from ..both_ways import both_ways  # noqa: F401  a fixture
from ..samples import SAMPLES, sample

AGG = "agg-deltas-lz4-4.2"


def test_a_byte_that_differs_from_hadoops_checksum_is_damage(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    path = target / "state/0/0/3.delta"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"bytes 512 to 1024 do not match the checksum in .*/\.3\.delta\.crc"):
        open_checked(LocalDirectory(str(target)), "state/0/0/3.delta")
    open_checked(LocalDirectory(str(target)), "state/0/0/2.delta").close()


def test_a_fence_is_not_a_batch(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    before = read_logs(LocalDirectory(str(target)))
    (target / "offsets/7").write_text(f"{FENCE_MARK}: a run was interrupted\n")
    found = read_logs(LocalDirectory(str(target)))
    assert (found.offsets, found.commits) == (before.offsets, before.commits) == (tuple(range(7)),) * 2
    assert (before.fence, found.fence) == (None, f"{FENCE_MARK}: a run was interrupted")


def test_a_planned_batch_has_the_watermark_that_the_commit_names(tmp_path: Path) -> None:
    target = sample("window-append-snappy-4.0", tmp_path)
    files = LocalDirectory(str(target))
    last = read_logs(files).commits[-1]
    (target / f"commits/{last}").unlink()
    # Batch 4 ran with a watermark, and its commit names a later one.
    batch = open_checkpoint(files).batch
    assert (batch.id, batch.next_watermark_ms) == (last - 1, 1_794_902_400_000)
    _, planned, *sources = plan_next(files, batch).splitlines()
    metadata = json.loads(planned)
    assert metadata["batchWatermarkMs"] == batch.next_watermark_ms != batch.watermark_ms
    assert metadata["batchTimestampMs"] == batch.timestamp_ms
    assert sources == (target / f"offsets/{last - 1}").read_text().splitlines()[2:]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_missing_partition_is_damage(tmp_path: Path, lost: int) -> None:
    target = sample(AGG, tmp_path)
    count = len(open_checkpoint(LocalDirectory(str(SAMPLES / AGG))).operators[0].stores[0].partitions)
    shutil.rmtree(target / f"state/0/{lost}")
    words = f"{count} partitions expected, {count - 1} found; partition {lost} is the first wrong one"
    with pytest.raises(CorruptionError, match=words):
        open_checkpoint(LocalDirectory(str(target)))
