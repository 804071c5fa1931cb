"""Runs with one request that arrives late: after another process has taken over."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ttlsnap import compact, doctor, export, import_state, migrate, recover, rollback
from ttlsnap.errors import TtlsnapError
from ttlsnap.schema.units import parse_duration
from ttlsnap.storage.directory import LOCK
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..matrix import rotating
from ..publishing.publishers import tear_offsets
from ..samples import sample
from .places import objects_of
from .proxy import CHANGING, Fault, Proxy, Request

Run = Callable[[str], Any]
Objects = dict[str, str]


def compacted(uri: str, ttl: str = "7d") -> Any:
    """Compact a checkpoint, and drop something."""
    rule = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), "value.max")
    report = compact(uri, [rule], stopped=True, max_drop=1.0)
    assert report.totals.dropped
    return report


def migrated(uri: str) -> Any:
    """Migrate a checkpoint to another number of partitions, which moves logs, too."""
    return migrate(uri, partitions=3, stopped=True)


def imported(uri: str) -> Any:
    """Replace the entries of a checkpoint with themselves."""
    with tempfile.TemporaryDirectory() as folder:
        rows = f"{folder}/rows"
        export(uri, rows)
        return import_state(uri, rows, mode="replace", stopped=True)


def repaired(uri: str) -> Any:
    """Move a torn offset away."""
    return doctor(uri, fix=["torn-offset"], stopped=True)


def rolled_back(uri: str) -> Any:
    """Roll the last run back."""
    return rollback(uri, stopped=True)


class Kind(NamedTuple):
    """A kind of run, the sample that it changes, and what is done to the sample before."""

    sample: str
    run: Run
    damage: Callable[[Path], None] = lambda path: None

    def checkpoint(self, folder: Path) -> Path:
        """Return the checkpoint in ``folder`` as it is before the run."""
        made = sample(self.sample, folder)
        self.damage(made)
        return made


KINDS = {
    "compact": Kind("agg-deltas-lz4-4.2", compacted),
    "compact rocksdb": Kind("rocksdb-4.2", partial(compacted, ttl="1d")),
    "migrate": Kind("agg-deltas-lz4-4.2", migrated),
    "import": Kind("agg-deltas-lz4-4.2", imported),
    "repair": Kind("agg-deltas-lz4-4.2", repaired, tear_offsets),
}


def some_kinds(what: str) -> Sequence[str]:
    """Return the kinds of runs to test."""
    return rotating(list(KINDS), 1, f"late requests on {what}")


class Late(NamedTuple):
    """The request that arrives late: the first change for which ``is_it`` returns True, after ``skipped`` others.

    The client then ``repeats`` it and succeeds, ``fails`` with this request only, or ``ends`` because the connection
    stays broken.
    """

    is_it: Callable[[Request], bool]
    then: Literal["repeats", "fails", "ends"]
    skipped: int = 0


def late(proxy: Proxy, which: Late) -> Fault:
    """Return a fault that holds a request back until ``proxy.deliver``."""
    lock, found, skipped = threading.Lock(), list[Request](), list[Request]()

    def fault(request: Request) -> str | None:
        with lock:
            if not found and request.method in CHANGING and which.is_it(request):
                (found if len(skipped) == which.skipped else skipped).append(request)
                if found:
                    return "late"
        if not found or which.then == "repeats":
            return None
        is_same = (request.method, request.path) == (found[0].method, found[0].path)
        return "lost" if which.then == "ends" or is_same else None

    return fault


def count_changes(proxy: Proxy, run: Callable[[], Any]) -> int:
    """Return the number of changing requests of a run."""
    proxy.reset()
    run()
    return sum(request.method in CHANGING for request in proxy.seen)


def run_with_late_request(proxy: Proxy, which: Late, run: Callable[[], Any]) -> str:
    """Run, and hold one request back. Return its method and path."""
    proxy.reset()
    proxy.held.clear()
    proxy.fault = late(proxy, which)
    with contextlib.suppress(TtlsnapError):
        run()
    proxy.reset()
    # A run can end with fewer requests than the one that was counted.
    return " ".join(proxy.held[0][:2]) if proxy.held else ""


def expire(uri: str) -> None:
    """Remove the lock of a process that has ended, if it left one, as if its lease had expired."""
    open_directory(uri).remove(LOCK)


def settle(uri: str) -> Objects:
    """Return the objects of a checkpoint, without the lock and the fence of an ended run, which ``recover`` removes."""
    expire(uri)
    recover(uri)
    return objects_of(uri)


def copy_to(source: str, target: str) -> str:
    """Copy a checkpoint with its runs. Return the target."""
    old, new = open_directory(source), open_directory(target)
    new.remove_tree("")

    def copy(folder: str) -> None:
        for info in old.list(folder):
            path = f"{folder}/{info.name}".lstrip("/")
            if info.is_dir:
                copy(path)
            else:
                with old.open(path) as file:
                    new.replace(path, file.read())

    copy("")
    return target
