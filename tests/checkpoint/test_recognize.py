"""What is a checkpoint, and what only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap.checkpoint.layout import folder_of_ttlsnap
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.errors import NotACheckpointError
from ttlsnap.storage.local import LocalDirectory

from ..samples import sample

RUN = "20261127T010203Z-0123456789ab"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (f"ck/_ttlsnap/runs/{RUN}/backup", "a backup of .*/ck. Name that checkpoint"),
        (f"copy.{RUN}.ttlsnap", "an unfinished copy"),
    ],
)
def test_a_folder_of_ttlsnap_is_no_checkpoint(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    made = sample("rocksdb-4.2", tmp_path).rename(tmp_path / place)
    with pytest.raises(NotACheckpointError, match=says):
        require_checkpoint(LocalDirectory(str(made)))


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a/_ttlsnap/runs/x", "/a/_ttlsnap"),
        ("s3://bucket/a/_ttlsnap", "s3://bucket/a/_ttlsnap"),
        (f"/a/b.{RUN}.ttlsnap/state", f"/a/b.{RUN}.ttlsnap"),
        ("/a/_ttlsnap_too", None),
        ("/a/b.ttlsnap", None),
        (f"/a/.{RUN}.ttlsnap", None),
    ],
)
def test_folders_of_ttlsnap_are_known_by_their_names(path: str, folder: str | None) -> None:
    assert folder_of_ttlsnap(path) == folder
