"""HDFS: one request of a run arrives late, after another process has finished, undone or rolled back the run."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hdfs_native import Client

from ttlsnap import recover
from ttlsnap.errors import TtlsnapError
from ttlsnap.storage import hdfs as storage

from ..matrix import rotating
from .late import KINDS, Run, compacted, rolled_back
from .places import objects_of, upload

pytestmark = pytest.mark.wide  # starts HDFS

CHANGES = ("rename", "delete", "mkdirs", "create", "set_permission", "set_owner")
# Hadoop's clients write checksums beside files, and those of object stores do not.
CASES = [(kind, has_checksums) for kind in KINDS for has_checksums in (False, True)]
SOME = pytest.mark.parametrize(("kind", "has_checksums"), rotating(CASES, 1, "late changes on HDFS"))


class Network:
    """The connections of one process to the name node: one change arrives late, and the following ones never.

    It is the ``at``-th change of those whose words match the pattern ``like``.
    """

    def __init__(self, at: int, like: str = "") -> None:
        self.at, self.like, self.changes, self.words = at, re.compile(like), 0, ""
        self.held: Callable[[], Any] | None = None
        self._lock = threading.Lock()

    def deliver(self) -> None:
        """Let the late change arrive. A run can end before it."""
        if self.held is None:
            return
        with contextlib.suppress(Exception):  # the name node may refuse it
            made = self.held()
            if made is not None:
                made.close()

    def client(self, url: str) -> Any:
        """Return a client whose requests go through this network."""
        network, real = self, Client(url)

        class Held:
            def __getattr__(self, name: str) -> Any:
                work = getattr(real, name)
                if name not in CHANGES:
                    return work
                return lambda *words, **more: network.send(f"{name} {words[:2]}", lambda: work(*words, **more))

        return Held()

    def send(self, words: str, change: Callable[[], Any]) -> Any:
        with self._lock:
            self.changes += self.changes >= self.at or self.like.match(words) is not None
            number = self.changes
        if number == self.at:
            self.held, self.words = change, words
        if number >= self.at:
            raise ConnectionError("the name node does not answer")
        return change()


@pytest.fixture
def folder(hdfs: str) -> str:
    return f"{hdfs}/test-{token_hex(6)}"


def through(network: Network, uri: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on a checkpoint, with the network between the run and the name node."""
    with monkeypatch.context() as patched, contextlib.suppress(TtlsnapError):
        patched.setattr(storage, "Client", network.client)
        storage.client_of_process.cache_clear()
        run(uri)
    storage.client_of_process.cache_clear()


def checkpoint_of(kind: str, has_checksums: bool, tmp_path: Path) -> Path:
    """Return a local copy of the checkpoint of a kind, with or without the checksums that Hadoop writes."""
    path = KINDS[kind].checkpoint(tmp_path)
    checksums = list(path.rglob(".*.crc"))
    assert checksums
    for checksum in checksums if not has_checksums else ():
        checksum.unlink()
    return path


def test_a_late_rename_of_an_old_file_is_refused_after_an_undo(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = upload(checkpoint_of("compact", False, tmp_path), folder)
    old, network = objects_of(uri), Network(2, r"rename .*/backup/state/")
    through(network, uri, compacted, monkeypatch)
    assert recover(uri, prefer_undo=True).outcome == "undone"
    assert objects_of(uri) == old
    network.deliver()
    assert network.words and objects_of(uri) == old, network.words


def chosen(changes: int, most: int, what: str) -> Sequence[int]:
    return rotating(range(1, changes + 1), most, f"late changes of a {what} on HDFS")


@pytest.mark.parametrize("undo", [False, True], ids=["finish", "undo"])
@SOME
def test_a_change_that_arrives_after_recover_changes_nothing(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, has_checksums: bool, undo: bool
) -> None:
    local, run = checkpoint_of(kind, has_checksums, tmp_path), KINDS[kind].run
    counted = Network(10**9)
    through(counted, upload(local, f"{folder}/counted"), run, monkeypatch)
    wrong = []
    for at in chosen(counted.changes, 5, f"{kind} {has_checksums} {undo}"):
        uri = upload(local, f"{folder}/{at}")
        old, network = objects_of(uri), Network(at)
        through(network, uri, run, monkeypatch)
        recover(uri, prefer_undo=undo)
        left = objects_of(uri)
        network.deliver()
        if objects_of(uri) != left:
            wrong.append((at, network.words, "recover"))
        recover(uri)
        if left != old:
            rolled_back(uri)
            if objects_of(uri) != old:
                wrong.append((at, network.words, "rollback"))
    assert not wrong, wrong


@pytest.mark.parametrize("undo", [False, True], ids=["finish", "undo"])
@SOME
def test_a_change_of_a_rollback_that_arrives_after_recover_changes_nothing(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, has_checksums: bool, undo: bool
) -> None:
    local, run = checkpoint_of(kind, has_checksums, tmp_path), KINDS[kind].run
    counted = Network(10**9)
    uri = upload(local, f"{folder}/counted")
    run(uri)
    through(counted, uri, rolled_back, monkeypatch)
    wrong = []
    for at in chosen(counted.changes, 4, f"rollback of {kind} {has_checksums} {undo}"):
        uri, network = upload(local, f"{folder}/{at}"), Network(at)
        old = objects_of(uri)
        run(uri)
        new = objects_of(uri)
        through(network, uri, rolled_back, monkeypatch)
        recover(uri, prefer_undo=undo)
        left = objects_of(uri)
        network.deliver()
        if objects_of(uri) != left or left not in (old, new):
            wrong.append((at, network.words))
    assert not wrong, wrong
