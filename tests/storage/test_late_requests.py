"""One request of a run arrives late: after another process has finished, undone or rolled back the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from ttlsnap import recover

from ..matrix import rotating
from ..samples import sample
from .late import (
    KINDS,
    Late,
    compacted,
    copy_to,
    count_changes,
    expire,
    rolled_back,
    run_with_late_request,
    settle,
    some_kinds,
)
from .places import objects_of, upload
from .proxy import Proxy, Request

# The server that knows all conditions. docs/object-stores.md says what protects where one is missing.
pytestmark = [pytest.mark.parametrize("store", ["moto"], indirect=True), pytest.mark.slow]
# Unconditional, each of them would damage a checkpoint that another process has brought back to the old state.
DECISIVE = {
    "an old file is deleted": Late(lambda r: r.method == "DELETE" and "/checkpoint/state/" in r.path, "ends"),
    "the batch is planned": Late(lambda r: r.method == "PUT" and "/checkpoint/offsets/" in r.path, "ends", skipped=1),
}


def test_a_decisive_request_that_arrives_after_an_undo_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    first = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/first")
    old, uri = objects_of(first), f"{bucket}/checkpoint"
    for what, which in DECISIVE.items():
        copy_to(first, uri)
        assert run_with_late_request(proxy, which, partial(compacted, uri)), what
        expire(uri)
        assert recover(uri, prefer_undo=True).outcome == "undone", what
        assert objects_of(uri) == old, what
        proxy.deliver()
        assert settle(uri) == old, what


def test_a_fence_that_arrives_after_its_run_was_undone_is_removed(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    old = objects_of(uri)
    fence = Late(lambda r: r.method == "PUT" and "/checkpoint/offsets/" in r.path, "fails")
    assert run_with_late_request(proxy, fence, partial(compacted, uri))
    assert objects_of(uri) == old
    proxy.deliver()
    assert objects_of(uri) != old
    assert recover(uri).outcome == "undone"
    assert objects_of(uri) == old


@pytest.mark.parametrize("kind", rotating(["compact", "compact rocksdb"], 1, "late journals"))
def test_a_journal_that_arrives_after_its_run_was_discarded_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str
) -> None:
    uri = upload(KINDS[kind].checkpoint(tmp_path), f"{bucket}/checkpoint")
    old = objects_of(uri)
    journal = Late(lambda r: r.method == "PUT" and r.path.endswith("/journal.json"), "ends")
    assert run_with_late_request(proxy, journal, partial(KINDS[kind].run, uri))
    expire(uri)
    assert recover(uri).outcome == "nothing"
    proxy.deliver()
    assert recover(uri).outcome == "undone"
    assert objects_of(uri) == old
    KINDS[kind].run(uri)
    rolled_back(uri)
    assert objects_of(uri) == old


def number(at: int) -> Callable[[Request], bool]:
    """Return a function that finds the change with a number."""
    return lambda request: request.changes == at


def chosen(changes: int, what: str) -> Sequence[int]:
    return rotating(range(1, changes + 1), 4, f"late requests of a {what}")


@pytest.mark.wide
@pytest.mark.parametrize("undo", rotating([False, True], 1, "recover"), ids=lambda undo: "undo" if undo else "finish")
@pytest.mark.parametrize("kind", some_kinds("S3"))
def test_a_request_that_arrives_after_recover_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str, undo: bool
) -> None:
    run = KINDS[kind].run
    first = upload(KINDS[kind].checkpoint(tmp_path), f"{bucket}/first")
    old = objects_of(first)
    counted = copy_to(first, f"{bucket}/counted")
    changes = count_changes(proxy, partial(run, counted))
    wrong = []
    for at in chosen(changes, f"{kind} {undo}"):
        uri = copy_to(first, f"{bucket}/checkpoint")
        request = run_with_late_request(proxy, Late(number(at), "ends"), partial(run, uri))
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
@pytest.mark.parametrize("undo", rotating([False, True], 1, "rollback"), ids=lambda undo: "undo" if undo else "finish")
@pytest.mark.parametrize("kind", some_kinds("S3"))
def test_a_request_of_a_rollback_that_arrives_after_recover_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str, undo: bool
) -> None:
    run = KINDS[kind].run
    first = upload(KINDS[kind].checkpoint(tmp_path), f"{bucket}/first")
    old = objects_of(first)
    run(first)
    new = objects_of(first)
    counted = copy_to(first, f"{bucket}/counted")
    changes = count_changes(proxy, partial(rolled_back, counted))
    wrong = []
    for at in chosen(changes, f"rollback of {kind} {undo}"):
        uri = copy_to(first, f"{bucket}/checkpoint")
        request = run_with_late_request(proxy, Late(number(at), "ends"), partial(rolled_back, uri))
        expire(uri)
        recover(uri, prefer_undo=undo)
        left = objects_of(uri)
        proxy.deliver()
        if settle(uri) != left or left not in (old, new):
            wrong.append((at, request))
    assert not wrong, wrong


@pytest.mark.wide
@pytest.mark.parametrize("then", rotating(["repeats", "fails"], 1, "late rollback"))
@pytest.mark.parametrize("kind", some_kinds("S3"))
def test_a_request_that_arrives_after_a_rollback_changes_nothing(
    proxy: Proxy, bucket: str, tmp_path: Path, kind: str, then: Literal["repeats", "fails"]
) -> None:
    # The run repeats the request and succeeds, or undoes everything.
    run = KINDS[kind].run
    first = upload(KINDS[kind].checkpoint(tmp_path), f"{bucket}/first")
    old = objects_of(first)
    counted = copy_to(first, f"{bucket}/counted")
    changes = count_changes(proxy, partial(run, counted))
    wrong = []
    for at in chosen(changes, f"{kind} {then}"):
        uri = copy_to(first, f"{bucket}/checkpoint")
        request = run_with_late_request(proxy, Late(number(at), then), partial(run, uri))
        expire(uri)
        recover(uri)
        if objects_of(uri) != old:
            rolled_back(uri)
        proxy.deliver()
        if settle(uri) != old:
            wrong.append((at, request))
    assert not wrong, wrong
