"""The positions that ``ttlsnap sources`` set after a batch, which a checkpoint loses if it goes back to that batch.

Changes of the logs of file sources hold for all batches, so they remain.
"""

from __future__ import annotations

from collections.abc import Iterator

from ttlsnap.printable import shell_word
from ttlsnap.publishing.history import list_runs
from ttlsnap.publishing.runs import Runs


def describe_lost_changes(runs: Runs, root: str, batch: int) -> Iterator[str]:
    """Yield in words what the checkpoint ``root`` loses if its state and its positions become those after ``batch``."""
    for run in list_runs(runs):
        if run.kind != "sources" or run.status != "done" or run.batch is None or run.batch < batch:
            continue
        report = run.report or {}
        names, options = sorted(change["name"] for change in report.get("changes", ())), report.get("options", ())
        if names and run.batch == batch:
            yield (
                f"batch {batch} has the positions that ttlsnap sources gave to source {', '.join(names)} after it (run "
                f"{run.run}). They stay: what these sources read again then, they read again once more"
            )
        elif names:
            yield (
                f"after batch {batch}, ttlsnap sources set the position of source {', '.join(names)} (run {run.run}, "
                f"after batch {run.batch}). This change is lost. If it is still wanted, do it again before the query "
                f"starts: {' '.join(map(shell_word, ['ttlsnap', 'sources', root, *options]))}"
            )
