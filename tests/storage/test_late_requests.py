"""One request of a run arrives late: after another process has finished, undone or rolled back the run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from ttlsnap import recover

from ..matrix import FULL, rotating
from ..samples import sample
from .late import (
    Late,
    Run,
    compacted,
    copy_to,
    count_changes,
    expire,
    migrated,
    rolled_back,
    run_with_late_request,
    settle,
)
from .places import objects_of, upload
from .proxy import CHANGING, Proxy

KINDS: dict[str, tuple[str, Run]] = {
    "compact": ("agg-deltas-lz4-4.2", compacted),
    "compact rocksdb": ("rocksdb-4.2", compacted),
    "migrate": ("agg-deltas-lz4-4.2", migrated),
}


def decisive(proxy: Proxy) -> list[int]:
    """Return the places of the requests of a compaction that can do most harm, among those that a proxy has seen."""
    changes = [request for request in proxy.seen if request.method in CHANGING]

    def first(method: str, part: str) -> int:
        return next(r.changes for r in changes if r.method == method and part in r.path and "staged" not in r.path)

    return [
        first("POST", "/backup/state/"),  # an old file is copied to the backup
        first("PUT", "/checkpoint/state/"),  # the mark is copied over an old file, or a new file into its place
        first("DELETE", "/checkpoint/state/"),
        max(r.changes for r in changes if "/checkpoint/offsets/" in r.path),  # the planned batch
    ]


def test_a_decisive_request_that_arrives_after_an_undo_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    first = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/first")
    old = objects_of(first)
    uri = copy_to(first, f"{bucket}/checkpoint")
    count_changes(proxy, partial(compacted, uri))
    for at in decisive(proxy):
        copy_to(first, uri)
        request = run_with_late_request(proxy, Late(at, "ends"), partial(compacted, uri))
        expire(uri)
        recover(uri, prefer_undo=True)
        assert objects_of(uri) == old, request
        proxy.deliver()
        assert settle(uri) == old, request


def chosen(changes: int, what: str) -> Sequence[int]:
    return rotating(range(1, changes + 1), 4, f"late requests of a {what}")


@pytest.mark.wide
@pytest.mark.parametrize("undo", [False, True], ids=["finish", "undo"])
@pytest.mark.parametrize("kind", KINDS if FULL else ["compact"])
def test_a_request_that_arrives_after_recover_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str, undo: bool
) -> None:
    name, run = KINDS[kind]
    first = upload(sample(name, tmp_path), f"{bucket}/first")
    old = objects_of(first)
    counted = copy_to(first, f"{bucket}/counted")
    changes = count_changes(proxy, partial(run, counted))
    wrong = []
    for at in chosen(changes, f"{kind} {undo}"):
        uri = copy_to(first, f"{bucket}/checkpoint")
        request = run_with_late_request(proxy, Late(at, "ends"), partial(run, uri))
        expire(uri)
        recover(uri, prefer_undo=undo)
        left = objects_of(uri)
        proxy.deliver()
        if settle(uri) != left:
            wrong.append((at, request, "recover"))
        elif left != old:
            rolled_back(uri)
            if objects_of(uri) != old:
                wrong.append((at, request, "rollback"))
    assert not wrong, wrong


@pytest.mark.wide
@pytest.mark.parametrize("undo", [False, True], ids=["finish", "undo"])
@pytest.mark.parametrize("kind", KINDS if FULL else ["compact"])
def test_a_request_of_a_rollback_that_arrives_after_recover_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str, undo: bool
) -> None:
    name, run = KINDS[kind]
    first = upload(sample(name, tmp_path), f"{bucket}/first")
    old = objects_of(first)
    run(first)
    new = objects_of(first)
    counted = copy_to(first, f"{bucket}/counted")
    changes = count_changes(proxy, partial(rolled_back, counted))
    wrong = []
    for at in chosen(changes, f"rollback of {kind} {undo}"):
        uri = copy_to(first, f"{bucket}/checkpoint")
        request = run_with_late_request(proxy, Late(at, "ends"), partial(rolled_back, uri))
        expire(uri)
        recover(uri, prefer_undo=undo)
        left = objects_of(uri)
        proxy.deliver()
        if settle(uri) != left or left not in (old, new):
            wrong.append((at, request))
    assert not wrong, wrong


@pytest.mark.wide
@pytest.mark.parametrize("then", ["repeats", "fails"])
@pytest.mark.parametrize("kind", KINDS if FULL else ["compact"])
def test_a_request_that_arrives_after_a_rollback_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str, then: Literal["repeats", "fails"]
) -> None:
    # The run repeats the request and succeeds, or undoes everything.
    name, run = KINDS[kind]
    first = upload(sample(name, tmp_path), f"{bucket}/first")
    old = objects_of(first)
    counted = copy_to(first, f"{bucket}/counted")
    changes = count_changes(proxy, partial(run, counted))
    wrong = []
    for at in chosen(changes, f"{kind} {then}"):
        uri = copy_to(first, f"{bucket}/checkpoint")
        request = run_with_late_request(proxy, Late(at, then), partial(run, uri))
        expire(uri)
        recover(uri)
        if objects_of(uri) != old:
            rolled_back(uri)
        proxy.deliver()
        if settle(uri) != old:
            wrong.append((at, request))
    assert not wrong, wrong
