"""Missing permissions: the error names the path (exit code 5), and no run is left half done.

Root may read and write everything, so the commands run in a process that has dropped root's rights.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..samples import bytes_of, sample
from . import wreck
from .confined import Confinement
from .conftest import Outcome

LZ4 = "agg-deltas-lz4-4.2"
NOBODY = 65534

Denied = Callable[..., Outcome]


@pytest.fixture(scope="module")
def nobody() -> Iterator[Confinement]:
    """Yield a process that is not root."""
    confined = Confinement(user=NOBODY)
    yield confined
    confined.close()


@pytest.fixture
def denied(nobody: Confinement, tmp_path: Path) -> Iterator[Denied]:
    """Yield a function that runs a command line as the sample's owner, with only the rights of the file modes."""

    def invoke(*arguments: str | Path) -> Outcome:
        outcome = Outcome(*nobody.run(*arguments)[:3])
        assert outcome.is_clear(), outcome
        return outcome

    # Other users must be able to enter the folders above, also while another process runs tests below them.
    for folder in (tmp_path, *tmp_path.parents):
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    yield invoke
    for path in tmp_path.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def owned(target: Path, folders: int, files: int) -> Path:
    """Give a sample to the other user, with these modes."""
    for path in [*target.rglob("*"), target]:
        if os.getuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        path.chmod(folders if path.is_dir() else files)
    return target


@pytest.mark.slow
def test_a_read_only_checkpoint_can_be_inspected_but_not_compacted(denied: Denied, tmp_path: Path) -> None:
    target = owned(sample(LZ4, tmp_path), 0o555, 0o444)
    before = bytes_of(target)
    assert denied("inspect", target, *wreck.scanning(LZ4)).code == 0
    assert denied("compact", target, *wreck.compacting(LZ4), "--dry-run").code == 0
    refused = denied("compact", target, *wreck.compacting(LZ4))
    assert (refused.code, "Permission denied" in refused.err, str(target) in refused.err) == (5, True, True)
    refused = denied("compact", target, *wreck.compacting(LZ4), "--output", tmp_path / "copy")
    assert (refused.code, "Permission denied" in refused.err, str(tmp_path) in refused.err) == (5, True, True)
    assert bytes_of(target) == before
    assert [p.name for p in tmp_path.iterdir()] == [LZ4]


@pytest.mark.parametrize("folder", ["state/0/1", "offsets"])
def test_a_folder_that_cannot_be_written_undoes_the_run(denied: Denied, tmp_path: Path, folder: str) -> None:
    target = owned(sample(LZ4, tmp_path), 0o755, 0o644)
    (target / folder).chmod(0o555)
    before = bytes_of(target)
    refused = denied("compact", target, *wreck.compacting(LZ4))
    assert (refused.code, "Permission denied" in refused.err, str(target) in refused.err) == (5, True, True), refused
    after = bytes_of(target)
    assert {path: digest for path, digest in after.items() if not path.startswith("_ttlsnap")} == before
    (target / folder).chmod(0o755)
    assert denied("compact", target, *wreck.compacting(LZ4)).code == 0


@pytest.mark.parametrize(
    "name", ["state/0/0/3.delta", "state/0/0/.3.delta.crc", "offsets/6", "state/0/1", "state", "."]
)
def test_unreadable_files_and_folders_are_named(denied: Denied, tmp_path: Path, name: str) -> None:
    target = owned(sample(LZ4, tmp_path), 0o755, 0o644)
    before = bytes_of(target)
    (target / name).chmod(0)
    for command in (("compact", *wreck.compacting(LZ4)), ("inspect", *wreck.scanning(LZ4))):
        refused = denied(command[0], target, *command[1:])
        assert (refused.code, "Permission denied" in refused.err) == (5, True), refused
        assert str(target / name) in refused.err
    (target / name).chmod(0o755 if (target / name).is_dir() else 0o644)
    assert bytes_of(target) == before
