"""What ``ttlsnap sources`` changed after a batch, which a checkpoint loses if it goes back to that batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ttlsnap.printable import shell_word
from ttlsnap.publishing.history import list_runs
from ttlsnap.publishing.runs import Runs

_ALSO_EARLIER = ("move", "trim")
"""The changes of logs that remain: ``Move`` is also made in earlier entries, and ``Trim`` has no effect on batches."""


def describe_lost_changes(runs: Runs, root: str, batch: int) -> Iterator[str]:
    """Yield in words what the checkpoint ``root`` loses if its state and its positions become those after ``batch``."""
    for run in list_runs(runs):
        # A run changes the positions of its batch, so it is also in that batch.
        if run.kind != "sources" or run.status != "done" or run.batch is None or run.batch <= batch:
            continue
        options = (run.report or {}).get("options", ())
        if names := sorted(set(_names(run.report or {}))):
            yield (
                f"after batch {batch}, ttlsnap sources changed what source {', '.join(names)} reads (run {run.run}, "
                f"after batch {run.batch}). This change is lost. If it is still wanted, do it again before the query "
                f"starts: {' '.join(map(shell_word, ['ttlsnap', 'sources', root, *options]))}"
            )


def _names(report: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the sources whose change an earlier batch does not have."""
    for change in report.get("changes", ()):
        yield change["name"]
    for change in report.get("log_changes", ()):
        if change["changed"] and change.get("change") not in _ALSO_EARLIER:
            yield change["name"]
