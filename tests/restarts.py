"""The different restarts of real Spark that a run of the tests has passed, so that their number does not fall unseen.

A restart counts when ttlsnap has changed the checkpoint. It is different if the command, the operator, the state store,
the layout, or one of the versions that wrote and restarted it is different.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from .judge.spark import Checkpoint


class Restart(NamedTuple):
    """One kind of restart."""

    command: str
    operator: str
    store: str
    layout: str
    written: str
    by: str


passed: set[Restart] = set()
_running: list[Restart] = []


def note(checkpoint: Checkpoint, version: str) -> None:
    """Note that the running test restarted a query on this checkpoint, in this version of Spark."""
    command = _command(checkpoint.path)
    if command:
        query = checkpoint.query
        store = query.provider if query.provider == "hdfs" else f"rocksdb-{query.changelog:d}{query.checkpoint_format}"
        _running.append(Restart(command, query.operator, store, checkpoint.layout, checkpoint.version, version))


def settle(*, has_passed: bool) -> None:
    """Count what the test noted, or forget it if the test failed."""
    if has_passed:
        passed.update(_running)
    _running.clear()


def _command(checkpoint: Path) -> str:
    """Return the kind of the last run of ttlsnap on a checkpoint, or nothing. A copy has no journal."""
    journals = [json.loads(path.read_text()) for path in checkpoint.glob("_ttlsnap/runs/*/journal.json")]
    if journals:
        return str(max(journals, key=lambda journal: journal["number"])["kind"])
    return "copy" if (checkpoint / "_ttlsnap").exists() else ""
