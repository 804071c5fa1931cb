"""The positions that ``ttlsnap sources`` set after a batch, which a checkpoint may lose if it goes back to that batch.

Changes of the logs of file sources hold for all batches, so they remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ttlsnap.printable import shell_word
from ttlsnap.publishing.history import list_runs
from ttlsnap.publishing.runs import Runs


def describe_lost_changes(runs: Runs, root: str, batch: int, positions: Mapping[str, Any]) -> Iterator[str]:
    """Yield in words what the checkpoint ``root`` loses if its state becomes that after ``batch``.

    ``positions`` are those that its sources get, by their names.
    """
    done_runs = [run for run in list_runs(runs) if run.kind == "sources" and run.status == "done"]
    later_runs = [(run.batch, run) for run in done_runs if run.batch is not None and run.batch >= batch]
    last_runs = {(number, change["name"]): run.run for number, run in later_runs for change in _changes(run.report)}
    for number, run in later_runs:
        # Another run after the same batch may have replaced a change.
        changes = {
            change["name"]: change for change in _changes(run.report) if last_runs[number, change["name"]] == run.run
        }
        kept = sorted(
            name for name, change in changes.items() if number == batch and positions.get(name) == change["after"]
        )
        lost = sorted(changes.keys() - {*kept})
        if kept:
            yield (
                f"the position that ttlsnap sources gave to source {', '.join(kept)} after batch {batch} stays (run "
                f"{run.run}): the query goes on from there again"
            )
        if lost:
            options = (run.report or {}).get("options", ())
            yield (
                f"after batch {batch}, ttlsnap sources set the position of source {', '.join(lost)} (run {run.run}, "
                f"after batch {number}). This change is lost. If it is still wanted, do it again before the query "
                f"starts: {' '.join(map(shell_word, ['ttlsnap', 'sources', root, *options]))}"
            )


def _changes(report: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = (report or {}).get("changes", [])
    return changes
