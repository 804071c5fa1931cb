"""An object store that fails: at every changing request, and at random requests."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import compact, recover, rollback
from ttlsnap.errors import StorageError, TtlsnapError
from ttlsnap.schema.units import parse_duration
from ttlsnap.storage.directory import LOCK
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..matrix import FULL, rotating, seed
from ..samples import sample
from .late import KINDS, count_changes, expire
from .places import objects_of, upload
from .proxy import CHANGING, Proxy, Request

pytestmark = pytest.mark.slow


def compacted(uri: str) -> Any:
    ttl = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
    return compact(uri, [ttl], stopped=True, max_drop=1.0)


def cut(proxy: Proxy, last: int, answered: bool) -> None:
    """Lose all requests from the change ``last`` on. Unless ``answered``, this change is made without an answer."""

    def fault(request: Request) -> str | None:
        if request.changes == last and request.method in CHANGING and not answered:
            return "unanswered"
        return "lost" if request.changes >= last else None

    proxy.reset()
    proxy.fault = fault


@pytest.fixture
def changes(proxy: Proxy, bucket: str, tmp_path: Path) -> int:
    """Return the number of changing requests in a compaction."""
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path / "counted"), f"{bucket}/counted")
    proxy.seen.clear()
    compacted(uri)
    return sum(request.method in CHANGING for request in proxy.seen)


def places(changes: int) -> Sequence[tuple[int, bool]]:
    every = [(number, arrived) for number in range(1, changes + 1) for arrived in (False, True)]
    # The first one leaves the old state. The last ones write the planned batch and end the run.
    return rotating(every, 8, "requests of a compaction", pinned=lambda at: not 1 < at[0] <= changes - 3)


@pytest.mark.wide
def test_recover_succeeds_after_a_death_at_any_request(proxy: Proxy, bucket: str, tmp_path: Path, changes: int) -> None:
    local = sample("agg-deltas-lz4-4.2", tmp_path)
    uri = f"{bucket}/checkpoint"
    old = objects_of(upload(local, uri))
    compacted(uri)
    new = objects_of(uri)
    assert "offsets/7" in new.keys() - old.keys()  # the planned batch
    ends = []
    for number, arrived in places(changes):
        open_directory(uri).remove_tree("")
        upload(local, uri)
        cut(proxy, number, not arrived)
        with contextlib.suppress(TtlsnapError):
            compacted(uri)
        proxy.reset()
        open_directory(uri).remove(LOCK)  # as if the lease had expired
        found = objects_of(uri)
        fenced = any(name.startswith("offsets/") and name not in old for name in found)
        assert fenced or found in (old, new), (number, arrived)
        recover(uri)
        found = objects_of(uri)
        ends.append("old" if found == old else "new" if found == new else "neither")
        assert ends[-1] != "neither", (number, arrived)
        if ends[-1] == "old":
            compacted(uri)
            assert objects_of(uri) == new, (number, arrived)
        rollback(uri, stopped=True)
        assert objects_of(uri) == old, (number, arrived)
    assert {"old", "new"} == set(ends)


def die_at(proxy: Proxy, is_last: Callable[[Request], bool], run: Callable[[], object]) -> bool:
    """Let a process die: the first change for which ``is_last`` returns True and all later requests are lost.

    Return whether there was such a change.
    """
    lock, died = threading.Lock(), threading.Event()

    def fault(request: Request) -> str | None:
        with lock:
            if request.method in CHANGING and is_last(request):
                died.set()
        return "lost" if died.is_set() else None

    proxy.reset()
    proxy.fault = fault
    with contextlib.suppress(TtlsnapError):
        run()
    proxy.reset()
    return died.is_set()


def from_change(number: int) -> Callable[[Request], bool]:
    """Return whether a change has this number, or a later one."""
    return lambda request: request.changes >= number


def after(number: int, words: str) -> Callable[[Request], bool]:
    """Return whether a change follows ``number`` others whose paths have these words."""
    counts = itertools.count()
    return lambda request: words in request.path and next(counts) == number


def test_recover_repeats_the_takeover_in_which_it_died(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    # A new name for a folder means a copy of each file, so a recover that dies leaves its files in two folders.
    uri, local = f"{bucket}/checkpoint", KINDS["compact"].checkpoint(tmp_path)
    old = objects_of(upload(local, uri))
    # The journal is written when the run begins, and closed when the planned batch is in place.
    assert die_at(proxy, after(1, "/journal.json"), lambda: KINDS["compact"].run(uri))
    expire(uri)
    assert die_at(proxy, after(2, "/backup-2/"), lambda: recover(uri))
    expire(uri)
    files = open_directory(uri)
    (run,) = files.list("_ttlsnap/runs")
    assert {"backup", "backup-2"} <= {info.name for info in files.list(f"_ttlsnap/runs/{run.name}")}
    assert recover(uri).outcome == "finished"
    rollback(uri, stopped=True)
    assert objects_of(uri) == old


@pytest.mark.wide
@pytest.mark.parametrize("kind", rotating(list(KINDS), 1, "deaths of recover"))
def test_recover_succeeds_after_it_died_at_any_request(proxy: Proxy, bucket: str, tmp_path: Path, kind: str) -> None:
    uri, local = f"{bucket}/checkpoint", KINDS[kind].checkpoint(tmp_path)
    old = objects_of(upload(local, uri))
    whole = count_changes(proxy, lambda: KINDS[kind].run(uri))
    # A run can end with fewer requests than the one that was counted, which may have renewed its lease once more.
    last = rotating(range(whole // 2, whole - 1), 1, f"deaths of {kind}")[0]

    def interrupt() -> None:
        open_directory(uri).remove_tree("")
        upload(local, uri)
        assert die_at(proxy, from_change(last), lambda: KINDS[kind].run(uri))
        expire(uri)

    interrupt()
    deaths = range(1, count_changes(proxy, lambda: recover(uri)) + 1)
    died = False
    for death in rotating(deaths, 2, f"requests of recover after {last}"):
        interrupt()
        died |= die_at(proxy, from_change(death), lambda: recover(uri))
        expire(uri)
        ended = recover(uri).outcome
        if objects_of(uri) != old:
            rollback(uri, stopped=True)
        assert objects_of(uri) == old, (last, death, ended)
    assert died


def test_a_list_succeeds_after_four_truncated_answers(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    files = open_directory(uri)
    expected = [info.name for info in files.list("state/0/0")]
    proxy.reset()
    proxy.fault = lambda request: "half answer" if len(proxy.seen) <= 4 else None
    assert [info.name for info in files.list("state/0/0")] == expected
    assert len(proxy.seen) == 5
    proxy.reset()
    proxy.fault = lambda request: "half answer" if len(proxy.seen) <= 5 else None
    with pytest.raises(StorageError, match="cannot list"):
        files.list("state/0/0")


@pytest.mark.wide
@pytest.mark.parametrize("series", range(10) if FULL else [seed()])
def test_random_faults_do_not_change_the_result(proxy: Proxy, bucket: str, tmp_path: Path, series: int | str) -> None:
    local = sample("agg-deltas-lz4-4.2", tmp_path)
    uri, other = upload(local, f"{bucket}/checkpoint"), upload(local, f"{bucket}/other")
    old = objects_of(uri)
    compacted(other)
    chance = random.Random(series)
    faults = ["lost", "unanswered", "half", "half answer", "slow", "busy"]
    deck: list[str] = []  # so that each fault comes
    met: set[str] = set()
    failed: set[tuple[str, str]] = set()  # the requests that failed and were not repeated yet

    def fault(request: Request) -> str | None:
        # No request fails twice in a row, so that the client does not give up.
        if (this := (request.method, request.path)) in failed:
            failed.remove(this)
            return None
        kind = None
        if chance.random() < 0.2:
            failed.add(this)
            if not deck:
                deck.extend(chance.sample(faults, len(faults)))
            kind = deck.pop()
        met.add(kind or "")
        return kind

    proxy.fault = fault
    compacted(uri)
    proxy.reset()
    assert met >= {*faults, ""}
    assert objects_of(uri) == objects_of(other)
    proxy.fault = fault
    rollback(uri, stopped=True)
    proxy.reset()
    assert objects_of(uri) == old


def test_a_run_is_undone_if_the_store_forbids_a_write(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    old = objects_of(uri)
    moved: list[str] = []

    def fault(request: Request) -> str | None:
        if request.method in ("PUT", "POST") and "/checkpoint/state/" in request.path:
            moved.append(request.path)
            return "forbidden" if len(moved) == 2 else None
        return None

    proxy.fault = fault
    with pytest.raises(StorageError, match=r"cannot rename .*\nThe run was undone"):
        compacted(uri)
    proxy.reset()
    assert len(moved) > 1
    assert objects_of(uri) == old
