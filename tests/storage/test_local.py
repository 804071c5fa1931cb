"""A folder on a disk: what is written is on the disk, and only the owner of the lock changes it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.errors import BusyError, StorageError
from ttlsnap.storage import lease
from ttlsnap.storage.directory import LOCK, OWN
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.local_lock import LocalLock
from ttlsnap.storage.unsynced import Unsynced

Seen = list[tuple[str, str, int]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Return the syncs and renames of this process: what, which file, and how many bytes it has."""
    found: Seen = []
    sync, rename = os.fsync, os.rename

    def watched_sync(descriptor: int) -> None:
        found.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size))
        sync(descriptor)

    def watched_rename(source: Any, target: Any) -> None:
        found.append(("rename", str(source), Path(source).stat().st_size))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "rename", watched_rename)
    return found


def test_a_written_file_is_synced_with_all_its_bytes(tmp_path: Path, seen: Seen) -> None:
    with LocalDirectory(str(tmp_path)).writer("a") as file:
        file.write(b"x" * 100_000)
        file.write(b"y")
    assert seen == [("sync", f"{tmp_path}/a", 100_001)]


def test_files_that_are_synced_together_are_on_the_disk_when_the_block_ends(tmp_path: Path, seen: Seen) -> None:
    files, sizes = (
        LocalDirectory(str(tmp_path)),
        {"large": 2 << 20} | {f"small {number}": number for number in range(300)},
    )
    with Unsynced() as later:
        for name, size in sizes.items():
            with files.writer(name, later) as file:
                file.write(bytes(size))
        assert len(seen) > 150, "only so many files are open at the same time"
    assert sorted(seen) == sorted(("sync", f"{tmp_path}/{name}", size) for name, size in sizes.items())
    assert open_files(tmp_path) == []


def test_the_files_that_wait_are_limited_for_the_whole_process(tmp_path: Path) -> None:
    files = LocalDirectory(str(tmp_path))
    with Unsynced() as first, Unsynced() as second:
        for number in range(200):
            for later in (first, second):
                with files.writer(f"{number}", later) as file:
                    file.write(b"1")
            assert 0 < len(open_files(tmp_path)) <= 128
    assert open_files(tmp_path) == []
    with Unsynced() as later:  # all of the room is free again
        for number in range(100):
            with files.writer(f"{number}", later):
                pass
        assert len(open_files(tmp_path)) == 100


def test_an_error_of_the_disk_names_the_file_that_was_to_be_synced_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, sync = LocalDirectory(str(tmp_path)), os.fsync

    def fail(descriptor: int) -> None:
        if os.fstat(descriptor).st_size == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=f"^cannot write {tmp_path}/2: Input/output error$"), Unsynced() as later:
        for size in range(4):
            with files.writer(str(size), later) as file:
                file.write(bytes(size))
    assert open_files(tmp_path) == []


def test_after_another_error_files_are_closed_and_not_synced(tmp_path: Path, seen: Seen) -> None:
    with pytest.raises(ZeroDivisionError), Unsynced() as later:
        with LocalDirectory(str(tmp_path)).writer("a", later) as file:
            file.write(b"1")
        assert open_files(tmp_path) == [f"{tmp_path}/a"]
        raise ZeroDivisionError
    assert (seen, open_files(tmp_path)) == ([], [])


def open_files(folder: Path) -> list[str]:
    """Return the files below a folder that this process has open."""
    links = Path("/proc/self/fd").iterdir()
    return sorted(name for name in (os.path.realpath(link) for link in links) if name.startswith(str(folder)))


def test_a_replaced_file_is_synced_before_it_has_its_name_and_the_name_after_it(tmp_path: Path, seen: Seen) -> None:
    files = LocalDirectory(str(tmp_path))
    files.mkdirs("folder")
    seen.clear()
    files.replace("folder/a", b"12345")
    (written, first, size), (renamed, source, _), (synced, folder, _) = seen
    assert (written, size, renamed, synced) == ("sync", 5, "rename", "sync")
    assert first == source != f"{tmp_path}/folder/a"
    assert folder == f"{tmp_path}/folder"


def test_a_created_file_is_synced_before_it_has_its_name_and_the_name_after_it(tmp_path: Path, seen: Seen) -> None:
    files = LocalDirectory(str(tmp_path))
    files.mkdirs("_ttlsnap")
    files.mkdirs("offsets")
    seen.clear()
    assert files.create("offsets/7", b"fence")
    assert [(what, size) for what, _, size in seen[:1]] == [("sync", 5)]
    assert seen[-1][:2] == ("sync", f"{tmp_path}/offsets")
    assert not files.create("offsets/7", b"another")
    assert files.read("offsets/7", 9) == b"fence"


MAKE_FOLDER = """
import os, sys
from ttlsnap.storage.local import LocalDirectory
files = LocalDirectory(sys.argv[1])
sys.stdin.readline()
files.mkdirs("_ttlsnap/runs")
print(os.stat(files.locate("_ttlsnap/runs")).st_ino)
"""


def test_a_new_folder_does_not_replace_the_one_that_another_process_has_just_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalDirectory(str(tmp_path))
    files.mkdirs(OWN)
    rename = Path.rename
    command = [sys.executable, "-c", MAKE_FOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:

        def late_rename(source: Path, target: Path) -> Path:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(1)  # it ends only if nothing keeps it from making the folder now
            return rename(source, target)

        monkeypatch.setattr(Path, "rename", late_rename)
        files.mkdirs(f"{OWN}/runs")
        found_by_other, _ = other.communicate()
    assert int(found_by_other) == (tmp_path / OWN / "runs").stat().st_ino
    assert not list((tmp_path / OWN).glob(".*"))


def test_a_lock_that_another_owner_has_taken_over_is_not_renewed(tmp_path: Path) -> None:
    files = LocalDirectory(str(tmp_path))
    lock, data = LocalLock(files, OWN), b'{"host": "here", "process": 1}'
    files.mkdirs(OWN)
    mine = lock.take_lock(data)
    assert lock.renew_lock(data, mine) == mine
    (tmp_path / mine).write_bytes(b'{"host": "elsewhere", "process": 1}')
    with pytest.raises(BusyError, match="another ttlsnap has taken over the lock"):
        lock.renew_lock(data, mine)
    (tmp_path / mine).unlink()
    with pytest.raises(BusyError, match="another ttlsnap has taken over the lock"):
        lock.renew_lock(data, mine)


def test_a_lock_file_of_another_machine_holds_until_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LocalDirectory(str(tmp_path))
    files.mkdirs("_ttlsnap")
    theirs = tmp_path / f"{LOCK}.{'0' * 16}"
    theirs.write_text('{"host": "elsewhere", "process": 1}')
    with pytest.raises(BusyError, match="process 1 on 'elsewhere'"), files.lock():
        pass
    old = time.time() - lease.LEASE - 10
    os.utime(theirs, (old, old))
    with files.lock():
        assert not theirs.exists()
