"""The lease of an object store: one process holds it at a time, and it expires."""

from __future__ import annotations

import json
import time

import pytest

from ttlsnap.errors import BusyError, StorageError, UnsupportedError
from ttlsnap.storage import lease
from ttlsnap.storage.directory import LOCK
from ttlsnap.storage.objects import ObjectDirectory
from ttlsnap.storage.open import open_directory

from .proxy import Proxy, Request

pytestmark = pytest.mark.slow


def test_only_one_process_holds_the_lock(bucket: str) -> None:
    one, other = open_directory(bucket), open_directory(bucket)
    with one.lock():
        with (
            pytest.raises(BusyError, match=r"another ttlsnap is working on .* \(process \d+ on .*\); wait"),
            other.lock(),
        ):
            pass
        with pytest.raises(BusyError, match="another ttlsnap"), other.lock(shared=True):
            pass
    assert one.list("") == []
    with other.lock(shared=True), other.lock():
        pass


def test_the_lease_of_a_dead_process_expires(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 3.0)
    dead = {"host": "elsewhere", "process": 1, "token": "0"}
    files = open_directory(bucket)
    files.replace(LOCK, json.dumps(dead).encode())
    with pytest.raises(BusyError, match=r"process 1 on 'elsewhere'"), files.lock():
        pass
    time.sleep(4.5)
    with files.lock():
        assert json.loads(files.read(LOCK, 4096))["process"] != 1


def test_a_lease_is_renewed_while_the_lock_is_held(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 3.0)
    one, other = open_directory(bucket), open_directory(bucket)
    with one.lock():
        until = time.monotonic() + 6
        while time.monotonic() < until:
            with pytest.raises(BusyError), other.lock():
                pass
            one.replace("mine", b"")


def test_a_process_that_lost_its_lock_changes_nothing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process that was suspended for a while can lose its lock.
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
            with pytest.raises(StorageError, match="its lock expired"):
                work()
    assert [info.name for info in files.list("")] == ["_ttlsnap", "a"]
    assert (files.read("a", 3), files.read(LOCK, 3)) == (b"new", b"{}")


def test_a_lease_that_cannot_be_renewed_expires(proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 2.0)
    files = open_directory(bucket)
    with files.lock():
        proxy.fault = lambda request: "busy" if request.path.endswith("lock") else None
        files.replace("a", b"")
        time.sleep(2)
        with pytest.raises(StorageError, match="its lock expired"):
            files.replace("b", b"")
    proxy.reset()
    assert [info.name for info in files.list("")] == ["_ttlsnap", "a"]


def test_a_lost_answer_is_not_taken_for_another_owner(proxy: Proxy, bucket: str) -> None:
    files = open_directory(bucket)

    def once(request: Request) -> str | None:
        return "unanswered" if request.changes == 1 and request.method == "PUT" else None

    proxy.fault = once
    with files.lock():
        pass
    proxy.seen.clear()
    assert files.create("offsets/5", b"the fence of run 1")
    assert sum(request.method == "PUT" for request in proxy.seen) == 2


@pytest.mark.parametrize("store", ["moto"], indirect=True)  # other servers miss the signed headers
@pytest.mark.parametrize(("fault", "condition"), [("careless", "If-None-Match"), ("forgetful", "If-Match")])
def test_a_store_without_conditional_writes_is_refused(proxy: Proxy, bucket: str, fault: str, condition: str) -> None:
    proxy.fault = lambda request: fault
    files = open_directory(bucket)
    with pytest.raises(UnsupportedError, match=rf"ignores conditional writes \({condition}\)"), files.lock():
        pass
    assert files.list("") == []


@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_store_that_ignores_versions_is_refused_before_a_lock_is_taken_over(
    proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 1.0)
    files = open_directory(bucket)
    files.replace(LOCK, json.dumps({"host": "elsewhere", "process": 1, "token": "0"}).encode())
    time.sleep(2.5)
    proxy.fault = lambda request: "forgetful"
    with pytest.raises(UnsupportedError, match=r"\(If-Match\)"), files.lock():
        pass
    assert files.list("") == []


def test_a_renewal_that_arrives_late_keeps_another_process_out(
    proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other process has seen that the lease has expired. Then the renewal arrives.
    one, other = open_directory(bucket), open_directory(bucket)
    assert isinstance(one, ObjectDirectory) and isinstance(other, ObjectDirectory)
    data = json.dumps({"host": "elsewhere", "process": 1, "token": "0"}).encode().ljust(512)
    first = one.take_lock(data)
    second = one.renew_lock(data, first)
    assert first != second, "the version does not show the renewal"
    with pytest.raises(BusyError, match="has taken over the lock"):
        other.renew_lock(data, first)
    one.release_lock(second)
    assert one.list("") == []


def test_a_release_that_arrives_late_removes_no_other_lock(bucket: str) -> None:
    files = open_directory(bucket)
    assert isinstance(files, ObjectDirectory)
    data = json.dumps({"host": "elsewhere", "process": 1, "token": "0"}).encode().ljust(512)
    first = files.take_lock(data)
    second = files.renew_lock(data, first)
    files.release_lock(first)
    assert [info.name for info in files.list("_ttlsnap")] == ["lock"]
    files.release_lock(second)
    assert files.list("") == []
