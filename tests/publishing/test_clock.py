"""The age of a file is measured by the clock that stamped it, regardless of this machine's clock."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.errors import BusyError
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.local import LocalDirectory

from ..samples import SAMPLES, bytes_of

AHEAD_NS = 3_600_000_000_000


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Return a checkpoint with a batch that was planned a moment ago."""
    target = tmp_path / "checkpoint"
    shutil.copytree(SAMPLES / "uncommitted-batch-4.2", target, copy_function=shutil.copy)
    return target


@pytest.fixture
def wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set this machine's clock an hour ahead."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + AHEAD_NS)


def no_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make unnamed files fail, as on NFS."""
    really = os.open

    def opened(path: Any, flags: int, *more: Any, **others: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return really(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", opened)


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_batch_that_has_just_started_is_young(begun: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    before = bytes_of(begun)
    if not unnamed:
        no_unnamed_files(monkeypatch)
    with pytest.raises(BusyError, match=r"batch \d+ was started but .* changed [0-9] s ago"):
        refuse_if_running(Runs.read(LocalDirectory(str(begun))), None)
    assert bytes_of(begun) == before


@pytest.mark.usefixtures("wrong_clock")
def test_a_read_only_check_uses_this_machines_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(*_: Any) -> None:
        raise AssertionError("nothing is to be written")

    target = tmp_path / "committed"
    shutil.copytree(SAMPLES / "rocksdb-4.2", target, copy_function=shutil.copy)
    monkeypatch.setattr(LocalDirectory, "now_ns", written)
    refuse_if_running(Runs.read(LocalDirectory(str(target))), None, only_read=True)
