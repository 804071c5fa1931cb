"""What would stop a run in the middle of publishing is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap import export, open_checkpoint
from ttlsnap.errors import RefusedError
from ttlsnap.publishing.preflight import refuse_immovable, refuse_planned_batch
from ttlsnap.publishing.reading import refuse_shared_folders
from ttlsnap.storage.local import LocalDirectory

from ..samples import SAMPLES, sample


def test_no_batch_is_planned_that_spark_cannot_run() -> None:
    with pytest.raises(RefusedError, match=r"operator 0 is a global limit.* Nothing was changed.*no-planned-batch"):
        refuse_planned_batch(open_checkpoint(LocalDirectory(str(SAMPLES / "limit-3.1"))))
    with pytest.raises(RefusedError, match=r"offsets/4 does not have the number of partitions.*no-planned-batch"):
        refuse_planned_batch(open_checkpoint(LocalDirectory(str(SAMPLES / "offsets-v2-4.2"))))
    for name in ("agg-deltas-lz4-4.2", "dedup-columns-3.1", "join-outer-3.1"):
        refuse_planned_batch(open_checkpoint(LocalDirectory(str(SAMPLES / name))))


def test_two_partitions_in_one_folder_are_refused(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    folders = ["state/0/0", "state/0/1"]
    refuse_shared_folders(LocalDirectory(str(target)), folders)
    (target / "state/0/1").rename(target / "state/0/old")
    (target / "state/0/1").symlink_to("0")
    with pytest.raises(RefusedError, match="are the same folder, but two partitions"):
        refuse_shared_folders(LocalDirectory(str(target)), folders)
    with pytest.raises(RefusedError, match="are the same folder, but two partitions"):
        export(str(target), str(tmp_path / "state.ndjson"))


def test_a_link_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    paths = ["state/0/0/6.delta", "state/0/0/7.delta", "offsets/7"]
    refuse_immovable(LocalDirectory(str(target)), paths)
    (target / "state/0/0/7.delta").rename(target / "state/0/0/here")
    (target / "state/0/0/7.delta").symlink_to("here")
    with pytest.raises(RefusedError, match=r"state/0/0/7\.delta is a symbolic link"):
        refuse_immovable(LocalDirectory(str(target)), paths)
