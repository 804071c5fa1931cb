"""Every way of publishing, for tests of what a checkpoint must be like."""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ttlsnap import LocalEngine, StateDescriptor, compact, doctor, export, import_state, migrate, rollback
from ttlsnap.clock import Clock
from ttlsnap.entries.batch import RowEntries

from .trees import newest


class DropsAFifth:
    """A factory whose transformers drop one of five shares of the keys."""

    def __init__(self, share: int) -> None:
        self.share = share

    def create(self, state: StateDescriptor, clock: Clock) -> Any:
        return self

    def filter_or_transform(self, entries: RowEntries) -> Any:
        return entries.filter(np.array([zlib.crc32(key) % 5 != self.share for key in entries.keys.to_list()], np.bool_))


def age(checkpoint: Path, seconds: float) -> None:
    """Make every file this old."""
    then = time.time() - seconds
    for path in checkpoint.rglob("*"):
        if path.is_file():
            with contextlib.suppress(FileNotFoundError):  # a query may be running
                os.utime(path, (then, then))


def remove_plan(checkpoint: Path) -> None:
    """Remove the batch that a run has planned, if there is one: ``--no-planned-batch`` plans none."""
    batch = newest(checkpoint / "commits") + 1
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "offsets" / name).unlink(missing_ok=True)


def drop_some(target: Path, *, stopped: bool) -> None:
    for share in range(5):
        report = compact(str(target), [DropsAFifth(share)], max_drop=1.0, engine=LocalEngine(1), stopped=stopped)
        if report.published:
            return
    raise AssertionError("nothing is left to drop")


def repartition(target: Path, *, stopped: bool) -> None:
    partitions = len([path for path in (target / "state/0").iterdir() if path.name.isdigit()])
    assert migrate(str(target), partitions=partitions + 1, stopped=stopped).published


def replace_all(target: Path, *, stopped: bool) -> None:
    rows = target.with_name(f"{target.name}-{time.monotonic_ns()}")
    export(str(target), str(rows))
    assert import_state(str(target), str(rows), mode="replace", stopped=stopped).published


def roll_back(target: Path, *, stopped: bool) -> None:
    rollback(str(target), stopped=stopped)


def tear_offsets(target: Path) -> None:
    (target / "offsets" / str(newest(target / "offsets") + 1)).write_bytes(b"")


def repair(target: Path, *, stopped: bool) -> None:
    doctor(str(target), fix=["torn-offset"], stopped=stopped)


PUBLISHERS: dict[str, Callable[..., None]] = {
    "compact": drop_some,
    "migrate": repartition,
    "import": replace_all,
    "rollback": roll_back,
}
