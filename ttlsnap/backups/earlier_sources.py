"""What ``ttlsnap sources`` changed after a batch, and a checkpoint may lose if it goes back to that batch.

``rewind`` keeps the changes of logs and of names, because they are made in all retained batches. A copy from before
such a change does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ttlsnap.printable import shell_word
from ttlsnap.publishing.history import HistoryEntry, list_runs
from ttlsnap.publishing.runs import Runs


def describe_lost_changes(
    runs: Runs, root: str, batch: int, positions: Mapping[str, Any], made_at: str | None = None
) -> Iterator[str]:
    """Yield in words what the checkpoint ``root`` loses if its state becomes that after ``batch``.

    ``positions`` are those that its sources get, by their names. They come from a copy that was made at ``made_at``, in
    ISO 8601, or from the checkpoint itself (None).
    """
    done_runs = [run for run in list_runs(runs) if run.kind == "sources" and run.status == "done"]
    later_runs = [run for run in done_runs if run.batch is not None and run.batch >= batch]
    last_runs = {(run.batch, change["name"]): run.run for run in later_runs for change in _changes(run)}
    for number, run in enumerate(later_runs):
        names = _new_names(later_runs[number + 1 :]) if made_at is None else {}
        # Another run after the same batch may have replaced a change.
        positions_set = {
            names.get(change["name"], change["name"]): change["after"]
            for change in _changes(run)
            if last_runs[run.batch, change["name"]] == run.run
        }
        kept = sorted(
            name for name, after in positions_set.items() if run.batch == batch and positions.get(name) == after
        )
        lost = sorted(positions_set.keys() - {*kept})
        command = " ".join(map(shell_word, ["ttlsnap", "sources", root, *_options(run, names)]))
        again = f"If it is still wanted, do it again before the query starts: {command}"
        if kept:
            yield (
                f"the position that ttlsnap sources gave to source {', '.join(kept)} after batch {batch} stays (run "
                f"{run.run}): the query goes on from there again"
            )
        if lost:
            yield (
                f"after batch {batch}, ttlsnap sources set the position of source {', '.join(lost)} (run {run.run}, "
                f"after batch {run.batch}). This change is lost. {again}"
            )
        if made_at is not None and not _changes(run) and run.run >= made_at.replace("-", "").replace(":", ""):
            yield (
                f"run {run.run} of ttlsnap sources has changed the names of sources, or what they have recorded. It is "
                "newer than the copy, so the change is lost, and the query may read files again. " + again
            )


def _changes(run: HistoryEntry) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = (run.report or {}).get("changes", [])
    return changes


def _new_names(runs: Sequence[HistoryEntry]) -> dict[str, str]:
    """Return the last name of each source by the one that it had before the runs."""
    names: dict[str, str] = {}
    for run in runs:
        renamed = {one["name"]: one["new_name"] for one in (run.report or {}).get("new_names", ())}
        names = {**renamed, **{old: renamed.get(name, name) for old, name in names.items()}}
    return names


def _options(run: HistoryEntry, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the options of a run with the names that its sources have now."""
    for before, option in pairwise(["", *(run.report or {}).get("options", ())]):
        name, separator, rest = option.partition("=")
        if before == "--set":
            yield names.get(option, option)
        elif before == "--table":
            yield f"{names.get(name, name)}{separator}{rest}"
        else:
            yield option
