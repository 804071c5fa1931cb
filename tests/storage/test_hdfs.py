"""HDFS: locks, runs that die at any change, and owners and modes of files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hdfs_native import Client

from ttlsnap import LocalEngine, compact, export, recover, rollback
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import BusyError, StorageError, TtlsnapError, UsageError
from ttlsnap.storage import hdfs
from ttlsnap.storage.directory import LOCK
from ttlsnap.storage.hdfs import HdfsDirectory
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..matrix import FULL, rotating
from ..samples import sample
from .places import objects_of, upload

pytestmark = pytest.mark.wide  # starts HDFS

HELD = """
import os, sys
from ttlsnap.storage.open import open_directory
with open_directory(sys.argv[1]).lock():
    os._exit(0)
"""


@pytest.fixture
def folder(hdfs: str) -> str:
    return f"{hdfs}/test-{token_hex(6)}"


def require_busy(uri: str, *, shared: bool = False) -> None:
    with (
        pytest.raises(BusyError, match=r"another ttlsnap is working on hdfs://.*; wait until it ends"),
        open_directory(uri).lock(shared=shared),
    ):
        pass


def test_only_one_process_holds_the_lock(folder: str) -> None:
    one, other = open_directory(folder), open_directory(folder)
    with one.lock():
        require_busy(folder)
        require_busy(folder, shared=True)
        one.replace("mine", b"1")
    assert one.list("_ttlsnap") == []
    with other.lock(shared=True), other.lock():
        pass


def test_the_lock_of_a_dead_process_expires(folder: str) -> None:
    subprocess.run([sys.executable, "-c", HELD, folder], check=True)
    require_busy(folder)
    if FULL:  # takes more than a minute
        until = time.monotonic() + 300
        while True:
            try:
                with open_directory(folder).lock():
                    break
            except BusyError:
                assert time.monotonic() < until
                time.sleep(5)


def test_a_process_that_lost_its_lock_changes_nothing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "HELD_S", 0.0)
    files = open_directory(folder)
    with files.lock():
        files.replace("a", b"old")
        until = time.monotonic() + 60
        path = f"/{folder.partition('://')[2].partition('/')[2]}/{LOCK}"
        while not Client(folder.rpartition("/")[0]).recover_lease(path):
            assert time.monotonic() < until
            time.sleep(0.2)
        changes: list[Callable[[], Any]] = [
            lambda: files.replace("a", b"new"),
            lambda: files.rename("a", "b"),
            lambda: files.remove("a"),
            lambda: files.remove_tree("a"),
            lambda: files.remove_folder("b"),
            lambda: files.create("c", b""),
        ]
        for change in changes:
            with pytest.raises(BusyError, match="expired, because"):
                change()
    assert [info.name for info in files.list("")] == ["_ttlsnap", "a"]
    assert files.read("a", 3) == b"old"


def test_unknown_name_nodes_are_errors() -> None:
    with pytest.raises(StorageError, match=r"cannot look at hdfs://nowhere\.invalid:8020/x"):
        open_directory("hdfs://nowhere.invalid:8020/x").stat("")
    with pytest.raises(UsageError, match="this name node is unknown; give its port"):
        open_directory("hdfs://nowhere/x").stat("")


class Killed(BaseException):
    """Stand-in for the death of the process."""


def dying(at: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Raise ``Killed`` at every change from the ``at``-th on. Return the list of the changes so far."""
    seen: list[str] = []

    def counted(name: str) -> None:
        really = getattr(HdfsDirectory, name)

        def change(self: HdfsDirectory, *words: Any, **more: Any) -> Any:
            seen.append(f"{name} {words[-1]}")
            if len(seen) >= at:
                raise Killed
            return really(self, *words, **more)

        monkeypatch.setattr(HdfsDirectory, name, change)

    for name in ("_move", "_upload", "_delete", "mkdirs"):
        counted(name)
    return seen


def compacted(uri: str) -> CompactionReport:
    ttl = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
    return compact(uri, [ttl], engine=LocalEngine(1), stopped=True, max_drop=1.0)


def test_recover_succeeds_after_a_death_at_any_change(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), folder)
    old = objects_of(uri)
    with monkeypatch.context() as patched:
        seen = dying(10**6, patched)
        compacted(uri)
    changes, new = len(seen), objects_of(uri)
    assert new != old
    rollback(uri, stopped=True)
    assert objects_of(uri) == old
    outcomes = set()
    assert "offsets/7" in new.keys() - old.keys()  # the planned batch, one of the last changes
    for at in rotating(
        range(1, changes + 1), 4, "changes of a compaction", pinned=lambda at: not 1 < at <= changes - 3
    ):
        with monkeypatch.context() as patched, pytest.raises((Killed, StorageError)):
            dying(at, patched)
            compacted(uri)
        outcomes.add(recover(uri).outcome)
        found = objects_of(uri)
        assert found in (old, new), seen[:at]
        if found == new:
            rollback(uri, stopped=True)
            assert objects_of(uri) == old
        with pytest.raises(TtlsnapError):  # no run is left to roll back
            rollback(uri, stopped=True)
    assert outcomes == {"nothing", "finished"} or outcomes == {"nothing", "finished", "undone"}


def walk(client: Client, path: str) -> dict[str, tuple[bool, tuple[str, str, int]]]:
    """Return, for a path and all paths below it, whether it is a folder, and its owner, group and mode."""
    status = client.get_file_info(path)
    found = {path: (status.isdir, (status.owner, status.group, status.permission))}
    if status.isdir:
        for inner in client.list_status(path):
            found |= walk(client, inner.path)
    return found


def given(uri: str, folders: int, files: int) -> tuple[Client, str]:
    """Give a checkpoint to another user, with these modes. Return a client of the superuser, and the path."""
    server, _, place = uri.partition("://")[2].partition("/")
    client, path = Client(f"hdfs://{server}"), f"/{place}"
    for name, (is_dir, _) in walk(client, path).items():
        client.set_owner(name, "alice", "team")
        client.set_permission(name, folders if is_dir else files)
    return client, path


def test_new_files_get_owner_group_and_mode_of_the_old_ones(folder: str, tmp_path: Path) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), folder)
    client, path = given(uri, 0o750, 0o640)
    wanted = {(True, ("alice", "team", 0o750)), (False, ("alice", "team", 0o640))}
    assert compacted(uri).published
    assert set(walk(client, path).values()) == wanted
    rollback(uri, stopped=True)
    assert set(walk(client, path).values()) == wanted


def test_an_export_makes_its_folder_with_the_access_of_the_checkpoint(folder: str, tmp_path: Path) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{folder}/checkpoint")
    client, path = given(uri, 0o750, 0o640)
    export(uri, f"{folder}/made/exported")
    found = walk(client, f"{path.rpartition('/')[0]}/made/exported")
    assert set(found.values()) == {(True, ("alice", "team", 0o750)), (False, ("alice", "team", 0o640))}


AS_BOB = """
import sys
from ttlsnap import LocalEngine, compact
from ttlsnap.errors import RefusedError
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

factory = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
try:
    compact(sys.argv[1], [factory], engine=LocalEngine(1), stopped=True)
except RefusedError as error:
    print(error)
"""


def test_a_user_who_may_not_set_owners_is_refused(folder: str, tmp_path: Path) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), folder)
    client, path = given(uri, 0o777, 0o666)
    before = walk(client, path)
    command = [sys.executable, "-c", AS_BOB, uri]
    told = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "HADOOP_USER_NAME": "bob"}
    ).stdout
    assert "belong to alice (group team), and this process may not give new files to them" in told, told
    assert "Run ttlsnap as alice" in told
    assert walk(client, path) == before
