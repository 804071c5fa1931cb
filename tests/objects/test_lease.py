"""Who may change what is in an object store: one at a time, and nobody for ever."""

from __future__ import annotations

import json
import time

import pytest

from ttlsnap import lease
from ttlsnap.errors import BusyError, StorageError, UnsupportedError
from ttlsnap.filesystem import LOCK, open_directory

from .proxy import Proxy, Request


def test_one_at_a_time(bucket: str) -> None:
    one, other = open_directory(bucket), open_directory(bucket)
    with one.lock():
        with (
            pytest.raises(BusyError, match=r"another ttlsnap is at work on .* \(process \d+ on .*\); wait"),
            other.lock(),
        ):
            pass
        with pytest.raises(BusyError, match="another ttlsnap"), other.lock(shared=True):
            pass
    assert one.list("") == []
    with other.lock(shared=True), other.lock():
        pass


def test_what_a_process_that_died_has_left_runs_out(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 3.0)
    dead = {"host": "elsewhere", "process": 1, "token": "0"}
    files = open_directory(bucket)
    files.replace(LOCK, json.dumps(dead).encode())
    with pytest.raises(BusyError, match=r"process 1 on 'elsewhere'"), files.lock():
        pass
    time.sleep(4.5)
    with files.lock():
        assert json.loads(files.read(LOCK, 4096))["process"] != 1


def test_a_lock_that_is_held_does_not_run_out(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 3.0)
    one, other = open_directory(bucket), open_directory(bucket)
    with one.lock():
        until = time.monotonic() + 6
        while time.monotonic() < until:
            with pytest.raises(BusyError), other.lock():
                pass
            one.replace("mine", b"")


def test_who_has_lost_his_lock_changes_nothing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a process that was stopped for a while."""
    monkeypatch.setattr(lease, "LEASE", 1.5)
    files = open_directory(bucket)
    files.replace("a", b"old")
    with files.lock():
        files.replace("a", b"new")
        thief = open_directory(bucket)
        thief.replace(LOCK, b"{}")
        time.sleep(1)
        for work in (
            lambda: files.replace("a", b"newer"),
            lambda: files.rename("a", "b"),
            lambda: files.remove("a"),
            lambda: files.create("c", b""),
            lambda: files.remove_tree(""),
        ):
            with pytest.raises(StorageError, match="its lock could not be renewed"):
                work()
    assert [info.name for info in files.list("")] == ["_ttlsnap", "a"]
    assert (files.read("a", 3), files.read(LOCK, 3)) == (b"new", b"{}")


def test_a_lock_that_cannot_be_renewed_ends_with_its_time(
    proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 2.0)
    files = open_directory(bucket)
    with files.lock():
        proxy.fault = lambda request: "busy" if request.path.endswith("lock") else None
        files.replace("a", b"")
        time.sleep(2)
        with pytest.raises(StorageError, match="its lock could not be renewed"):
            files.replace("b", b"")
    proxy.reset()
    assert [info.name for info in files.list("")] == ["_ttlsnap", "a"]


def test_an_answer_that_was_lost_is_no_other_owner(proxy: Proxy, bucket: str) -> None:
    files = open_directory(bucket)

    def once(request: Request) -> str | None:
        return "unanswered" if request.changes == 1 and request.method == "PUT" else None

    proxy.fault = once
    with files.lock():
        pass
    proxy.seen.clear()
    assert files.create("offsets/5", b"the fence of run 1")
    assert sum(request.method == "PUT" for request in proxy.seen) == 2


@pytest.mark.parametrize("store", ["moto"], indirect=True)  # others find that what was signed is not there
def test_a_store_without_conditions_is_refused(proxy: Proxy, bucket: str) -> None:
    proxy.fault = lambda request: "careless"
    files = open_directory(bucket)
    with pytest.raises(UnsupportedError, match="takes no notice of conditional writes"), files.lock():
        pass
    assert files.list("") == []
