"""Stale snapshots (see ``stores.stale``) of a checkpoint: warnings where it is read, refusals where it is rewritten.

A listing has the times of files, so every command that reads the state warns of doubtful snapshots. A command that
writes new state compares them, and refuses if one is stale: it would make the withdrawn state permanent.
"""

from __future__ import annotations

from ttlsnap.checkpoint import Checkpoint, Logs
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.errors import RefusedError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.hidden_batches import find_hidden_batches
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.stale import DoubtfulSnapshot, find_doubtful, find_early, judge_snapshots


def published_files(runs: Runs, logs: Logs) -> frozenset[str]:
    """Return the files that recent runs have published. The deltas beside such snapshots have another state."""
    done_journals = (journal for journal in runs.recent(logs) if journal.status == "done" and journal.has_new_state)
    return frozenset(facts.path for journal in done_journals for facts in journal.published)


def warn_of_doubtful_snapshots(checkpoint: Checkpoint, runs: Runs | None = None) -> list[str]:
    """Return a warning if Spark would load a snapshot that is older than the delta of its version, or that is early.

    Without ``runs``, their journals are read if they are needed.
    """
    listing = list_activity(checkpoint.files)
    early_warnings = warn_of_early_snapshots(checkpoint.files, checkpoint.logs, listing, runs)
    doubtful_snapshots = _find_doubtful(checkpoint, listing, runs)
    if not doubtful_snapshots:
        return early_warnings
    first_snapshot = doubtful_snapshots[0]
    return [
        *early_warnings,
        f"{checkpoint.target}/{first_snapshot} (such files: {len(doubtful_snapshots)}). If batch "
        f"{first_snapshot.version - 1} was withdrawn and ran again, this snapshot has the withdrawn state, and Spark "
        f"loads it when the query restarts. To compare them, run: ttlsnap doctor {shell_word(checkpoint.target)}",
    ]


def warn_of_early_snapshots(
    files: Directory, logs: Logs, listing: Listing | None = None, runs: Runs | None = None
) -> list[str]:
    """Return a warning if there are snapshots of versions that no batch has begun.

    ``listing`` has the files of the state, if they are known already; ``runs``, too, may be known.
    """
    newest_begun = max([*logs.offsets[-1:], *logs.commits[-1:]], default=None)
    early_paths = find_early(listing or list_activity(files), newest_begun) if newest_begun is not None else []
    if early_paths:  # a rollback moves those of ttlsnap's own runs away
        hidden = {path for hidden in find_hidden_batches(runs or Runs.read(files), logs) for path in hidden.files}
        early_paths = [path for path in early_paths if path not in hidden]
    if not early_paths:
        return []
    return [
        f"{files.root}/{early_paths[0]} (such files: {len(early_paths)}) has the state after a batch that was "
        f"withdrawn: the newest batch that has begun is {newest_begun}. Spark will load this snapshot after a later "
        "restart, and lose what the batch writes when it runs again. Before you restart the query, run: ttlsnap doctor "
        f"{shell_word(files.root)} --fix stale-snapshot --stopped"
    ]


def refuse_stale_snapshots(checkpoint: Checkpoint, listing: Listing, runs: Runs) -> list[str]:
    """Raise RefusedError if a snapshot has the state of a withdrawn batch. ``listing`` has the files of the state.

    Return a warning for each that cannot be judged, because older files are gone. Raise CorruptionError or
    UnsupportedError if a doubtful snapshot cannot be read.
    """
    doubtful_snapshots, warnings = _find_doubtful(checkpoint, listing, runs), list[str]()
    if not doubtful_snapshots:
        return warnings
    from ttlsnap.stores.open import open_state_store  # it needs Arrow and NumPy, and nearly no checkpoint needs it here

    state_store, trusted_paths = open_state_store(checkpoint), published_files(runs, checkpoint.logs)
    for snapshot in doubtful_snapshots:
        verdict = judge_snapshots(checkpoint.files, state_store, snapshot.folder, checkpoint.version, trusted_paths)
        if snapshot in verdict.stale:
            raise RefusedError(
                f"{checkpoint.target}/{snapshot.explain()}. Nothing was changed. Stop the query, and run: ttlsnap "
                f"doctor {shell_word(checkpoint.target)} --fix stale-snapshot --stopped"
            )
        if snapshot in verdict.unknown:
            warnings.append(f"{checkpoint.target}/{snapshot}, and the older files do not exist any more")
    return warnings


def _find_doubtful(checkpoint: Checkpoint, listing: Listing, runs: Runs | None) -> list[DoubtfulSnapshot]:
    doubtful_snapshots = find_doubtful(listing, checkpoint.version)
    trusted_paths = published_files(runs or Runs.read(checkpoint.files), checkpoint.logs) if doubtful_snapshots else ()
    return [snapshot for snapshot in doubtful_snapshots if snapshot.path not in trusted_paths]
