"""The rollback of the last run: restore the files that it replaced, byte for byte.

A rollback is a run with its own journal and fence, so ``recover`` works for it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ttlsnap.archives.places import AllowedPlaces, Confirm
from ttlsnap.archives.receivers import ExpiredCallback
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.checkpoint import open_checkpoint, query_id
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.checkpoint.logs import Logs, read_logs
from ttlsnap.checkpoint.starting import describe_obstacles
from ttlsnap.documents import Result
from ttlsnap.errors import (
    CorruptionError,
    RefusedError,
    TtlsnapError,
    UnsupportedError,
    explain_errors,
)
from ttlsnap.keywords import public
from ttlsnap.printable import shell_word
from ttlsnap.publishing.archives import allowed_places, record_take_back, take_back_if_allowed
from ttlsnap.publishing.fence import fence_file, has_its_batch
from ttlsnap.publishing.in_progress import refuse_uncommitted
from ttlsnap.publishing.journal import (
    FileFacts,
    FileMove,
    Journal,
    facts_of,
    find_backup,
    is_later,
    is_same,
)
from ttlsnap.publishing.late_logs import find_late_logs
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.moves import find_rewritten, plan_backup, remove_if_nothing
from ttlsnap.publishing.runs import Runs, new_run_id, open_existing, refuse_if_interrupted
from ttlsnap.publishing.stale_snapshots import warn_of_early_snapshots
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.trees import find_existing, stat_files
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.transaction.steps import Run, WorkPlace, change_in_place


@dataclass(frozen=True)
class RollbackReport(Result):
    """The result of ``rollback``.

    ``run`` is the run of the rollback. ``undone`` and ``kind`` are the run that it rolled back and that run's kind.
    ``restored`` is the number of restored files. ``set_back_to`` is the last committed batch if the run's batch was set
    back, and otherwise None. ``nothing_left`` says that there was nothing of a checkpoint before the run: only a
    restore can make one from nothing.
    """

    target: str
    run: str
    undone: str
    restored: int
    warnings: tuple[str, ...] = ()
    kind: str = "compact"
    set_back_to: int | None = None
    nothing_left: bool = False


@public
def rollback(
    target: str,
    *,
    stopped: bool = False,
    expired_to: str | ExpiredCallback | None = None,
    confirm: Confirm | None = None,
) -> RollbackReport:
    """Restore the files that the last published run replaced, byte for byte.

    The entries that the run has delivered are removed from ``expired_to`` if they are there. ``confirm`` decides about
    another place that the checkpoint names. Otherwise they stay there, and a warning says so.

    Raise RefusedError if a newer batch is committed, or if the query seems to be running (see ``compact``). Raise it
    also if there is no such run, or if its backup was removed.
    """
    files = open_existing(target)
    places = allowed_places(target, expired_to, confirm)
    with files.lock():
        runs = refuse_if_interrupted(files)
        run = Rollback(runs, places)
        refuse_if_running(runs, query_id(files), stopped=stopped)
        change_in_place(run)
        outcome = f"Run {run.undone.run} is rolled back (as run {run.id})."
        with explain_errors(outcome):
            _remove_empty_folders(files, run.undone)
            run.nothing_left = remove_if_nothing(files, run.undone)
        run.warnings += take_back_if_allowed(files, run.undone.run, places)
        with explain_errors(outcome):
            if run.nothing_left:
                return run.report
            logs = read_logs(files)
            run.warnings += [*describe_obstacles(files, logs), *warn_of_early_snapshots(files, logs, runs=run.runs)]
        return run.report


class Rollback(Run):
    """A run that undoes the last published one, ``undone``. ``nothing_left`` is as in the report."""

    nothing_left = False

    def __init__(self, runs: Runs, places: AllowedPlaces) -> None:
        files = runs.files
        self.undone = _find_last(runs)
        super().__init__(runs, new_run_id(), list_activity(files))
        self._places, self._logs = places, read_logs(files)
        self._last_committed = _refuse_moved_on(files, self.undone, self._logs)
        self._planning_journal = runs.find_planning(self._logs)
        self._moves_back = _find_old_files(files, self.undone, self._last_committed)
        self._digests = _identify(files, self.undone, self._moves_back)

    def stage(self, place: WorkPlace) -> None:
        """Do nothing: the old files are in the backup of the run."""

    def is_wanted(self) -> bool:
        return True

    def journal(self) -> Journal:
        files, last_run, moves_back = self.files, self.undone, self._moves_back
        moves = _plan_moves(files, last_run, self.id, moves_back, self._last_committed)
        # A planned batch that Spark has begun to run stays and is run again. The sink may already have its number.
        has_planned = self._planning_journal is not None and self._planning_journal.run == last_run.run
        is_ours = has_planned and not _has_later_state(files, self.before, last_run)
        # Sources got other names when a batch had written its state, and it still has its rows.
        is_unchanged = last_run.kind == "sources" and not _has_later_state(files, self.before, last_run)
        if self._last_committed == last_run.batch and not is_unchanged:
            advice = "Start the query: it can only continue with the new state"
            refuse_uncommitted(files, self._logs, self.before, advice)
        if last_run.replaces_logs and not is_ours:
            _refuse_begun(files, last_run, self._logs, self.before)
        infos = stat_files(files, [move.source for move in moves_back])
        record_take_back(files, last_run.run, self.id, self._places)
        return Journal(
            run=self.id,
            number=self.runs.next_number,
            kind="rollback",
            batch=last_run.batch,
            fence=last_run.fence if is_ours else fence_file(self._logs, moves),
            moves=tuple(moves),
            status="open",
            undoes=last_run.run,
            logs=_logs_after(files, last_run, moves_back),
            kept_logs=last_run.kept_logs,
            replaces=last_run.planned if is_ours else None,
            published=tuple(
                FileFacts(
                    move_back.target,
                    infos[move_back.source].size,
                    infos[move_back.source].mtime_ns,
                    self._digests.get(move_back.target),
                )
                for move_back in moves_back
            ),
        )

    def check_again(self) -> None:
        # A restore replaced everything, perhaps a damaged checkpoint, so the old state needs nothing but its backup.
        if self.undone.kind == "restore":
            return
        if self.undone.has_new_state and self._last_committed == self.undone.batch:
            _require_loadable(self.files)

    @property
    def report(self) -> RollbackReport:
        """The report of the published rollback."""
        last_run, last_committed = self.undone, self._last_committed
        return RollbackReport(
            self.files.root,
            self.id,
            last_run.run,
            len(self._moves_back),
            tuple(self.warnings),
            last_run.kind,
            last_committed if last_committed < last_run.batch else None,
            self.nothing_left,
        )


def undoable_run(runs: Runs) -> str | None:
    """Return the run that ``rollback`` can undo as long as its backup exists; None if there is none.

    If the logs are damaged, it is the last run: after they are repaired, ``rollback`` may be possible.
    """
    files = runs.files
    try:
        last_run = _find_last(runs)
    except RefusedError:
        return None
    try:
        _find_old_files(files, last_run, _refuse_moved_on(files, last_run, read_logs(files)))
    except RefusedError:
        return None
    except TtlsnapError:
        pass
    return last_run.run


def _find_last(runs: Runs) -> Journal:
    """Return the last published run. Raise RefusedError if there is none, or if it is a rollback."""
    last_run = next((journal for journal in reversed(runs.journals) if journal.status == "done"), None)
    if last_run is None or last_run.kind == "rollback":
        if last_run is not None:
            explanation = f": the last run, {last_run.run}, is a rollback itself"
        elif any(map(partial(_made_copy, runs), runs.ids)):
            explanation = (
                ": this checkpoint is a copy. Use the original, which the run that made the copy did not change"
            )
        else:
            explanation = ""
        raise RefusedError(f"{runs.files.root}: there is no run to roll back{explanation}")
    return last_run


def _made_copy(runs: Runs, run: str) -> bool:
    """Return whether a run has made this checkpoint as a copy."""
    try:
        return runs.report_of_copy(run) is not None
    except CorruptionError:
        return False


def _find_old_files(files: Directory, last_run: Journal, last_committed: int) -> list[FileMove]:
    """Return the moves of the replaced files from the backup to their places. Raise RefusedError if one is missing."""
    kept_moves = [
        move for move in last_run.to_backup if not _is_withdrawn(files, move.source, last_run.batch, last_committed)
    ]
    lost_paths = [path for path in last_run.preserved if files.stat(path) is None]
    backup_folder = find_backup(files, last_run.run)
    moves_back = [
        *(FileMove(kept_move.target, kept_move.source) for kept_move in kept_moves),
        *(FileMove(f"{backup_folder}/{lost_path}", lost_path) for lost_path in lost_paths),
    ]
    if len(find_existing(files, [move.source for move in moves_back])) < len(moves_back):
        raise RefusedError(
            f"{files.root}: the backup of run {last_run.run} was removed, so the run cannot be rolled back"
        )
    return moves_back


def _identify(files: Directory, last_run: Journal, moves_back: Sequence[FileMove]) -> dict[str, str | None]:
    """Return the digests of the old files, by their places. Raise RefusedError if one is not the replaced file."""
    facts_by_path = {facts.path: facts for facts in last_run.replaced}
    moves = [move for move in moves_back if move.target in facts_by_path]
    infos = stat_files(files, [move.source for move in moves])

    def is_unchanged(move: FileMove) -> bool:
        return is_same(files, replace(facts_by_path[move.target], path=move.source), infos.get(move.source))

    changed_paths = [
        move.source
        for move, move_is_unchanged in zip(moves, each(files, is_unchanged, moves), strict=True)
        if not move_is_unchanged
    ]
    if changed_paths:
        raise RefusedError(
            f"{files.root}/{changed_paths[0]} is not the file that run {last_run.run} replaced (files like this: "
            f"{len(changed_paths)}), so the run cannot be rolled back. Another program wrote it, or it is damaged. "
            "Nothing was changed"
        )
    return {path: facts.digest for path, facts in facts_by_path.items()}


_BEGUN = {
    "migrate": ("migration", "settings", "state", "migrated state"),
    "restore": ("restore", "offsets", "state", "restored state"),
    "sources": ("run", "offsets", "ones", "new positions"),
}
"""For each kind of run that replaces logs: its name, what a batch has taken from it, and what is old and new."""


def _refuse_begun(files: Directory, last_run: Journal, logs: Logs, listing: Listing) -> None:
    """Raise RefusedError if Spark has begun a batch with the settings of a migration, or other offsets than before.

    It would run again with them.
    """
    replaced_paths = {move.target for move in last_run.new}
    later_batches = [
        batch for batch in logs.offsets if batch > last_run.batch and layout.offset_file(batch) not in replaced_paths
    ]
    if later_batches or _has_later_state(files, listing, last_run):
        what, inputs, rest, new = _BEGUN[last_run.kind]
        raise RefusedError(
            f"{files.root}: batch {last_run.batch + 1} was begun after the {what} {last_run.run}, with its {inputs}. "
            f"It would run again with them, on the old {rest}. Nothing was changed. Start the query: it can only "
            f"continue with the {new}"
        )


def _logs_after(files: Directory, last_run: Journal, moves_back: Sequence[FileMove]) -> tuple[FileFacts, ...]:
    """Return the identities of the logs of the batch as they will be after the rollback."""
    sources = {move.target: move.source for move in moves_back}
    paths = [layout.offset_file(last_run.batch), layout.commit_file(last_run.batch)]
    facts_of_logs = [facts_of(files, [sources.get(path, path)]) for path in paths]
    return tuple(
        replace(facts, path=path)
        for path, facts_of_log in zip(paths, facts_of_logs, strict=True)
        for facts in facts_of_log
    )


def _has_later_state(files: Directory, listing: Listing, last_run: Journal) -> bool:
    """Return whether Spark has started to run a batch after the run: there are state files of it, and new ones."""
    leftovers_by_path = {facts.path: facts for facts in last_run.leftovers}
    later_paths = [path for path in listing if is_later(path, last_run.batch)]
    return any(
        path not in leftovers_by_path or not is_same(files, leftovers_by_path[path], listing[path])
        for path in later_paths
    )


def _require_loadable(files: Directory) -> None:
    """Raise RefusedError if the restored state needs a file that is missing; Spark may have removed it."""
    try:
        checkpoint = open_checkpoint(files, tolerate_damage=True)
        state_store = open_state_store(checkpoint)
        for store in (store for operator in checkpoint.operators for store in operator.stores):
            lineages_of(checkpoint, state_store, store)
    except CorruptionError as error:
        raise RefusedError(
            error.text + ". Spark cannot load the old state without it, so the run cannot be rolled back. Nothing was "
            "changed"
        ) from error
    except UnsupportedError:
        return  # the files that an unknown format needs are not known


def _refuse_moved_on(files: Directory, last_run: Journal, logs: Logs) -> int:
    """Return the last committed batch. Raise RefusedError unless the files that ``last_run`` replaced belong to it.

    It is the run's batch, or an earlier one. In the second case the run's batch was set back.
    """
    last_committed = _last_committed(files, last_run, logs)
    if last_committed < last_run.batch and last_run.kind == "repair":
        raise RefusedError(
            f"{files.root}: batch {last_run.batch} was set back after the repair {last_run.run}, so the files that it "
            "replaced no longer belong to the logs. Nothing was changed. The query can be started"
        )
    if last_committed > last_run.batch:
        target = shell_word(files.root)
        advice = (
            f"go back to a batch before {last_run.batch} if one is retained (ttlsnap rewind {target} lists them), "
            f"or restore an older backup: ttlsnap copy BACKUP {target} --replace --stopped"
        )
        if last_run.kind == "sources":
            advice = f"make the opposite change of the sources, or {advice}"
        raise RefusedError(
            f"{files.root}: the query has committed batch {last_committed} since run {last_run.run} (batch "
            f"{last_run.batch}). To undo the run would lose what came after it. Instead, {advice}"
        )
    if last_committed == last_run.batch and not has_its_batch(files, last_run):
        raise RefusedError(
            f"{files.root}: batch {last_run.batch} was run again after run {last_run.run}, so neither the new nor the "
            f"old state belongs to it. Run: ttlsnap doctor {shell_word(files.root)}"
        )
    rewritten_paths = [
        path
        for path in find_rewritten(files, last_run)
        if not _is_withdrawn(files, path, last_run.batch, last_committed)
    ]
    present_paths = find_existing(files, rewritten_paths)
    overwritten_paths = [path for path in rewritten_paths if path in present_paths]
    if overwritten_paths:
        raise RefusedError(
            f"{files.root}/{overwritten_paths[0]} is not the file that run {last_run.run} published (files like this: "
            f"{len(overwritten_paths)}). A query has overwritten it, or it is damaged. Nothing was changed. Run: "
            f"ttlsnap doctor {shell_word(files.root)}"
        )
    # While the run's batch is the last one, a missing file only has to make way for an old one.
    if rewritten_paths and last_committed < last_run.batch:
        raise RefusedError(
            f"{files.root}/{rewritten_paths[0]} is missing, although run {last_run.run} published it (such files: "
            f"{len(rewritten_paths)}), and batch {last_run.batch} was set back since. Nothing was changed. Run: "
            f"ttlsnap doctor {shell_word(files.root)}"
        )
    return last_committed


def _last_committed(files: Directory, last_run: Journal, logs: Logs) -> int:
    """Return the last committed batch, or -1. If a run has moved the earlier logs away, its backup knows it."""
    if logs.commits:
        return logs.commits[-1]
    moved_names = [
        name
        for folder, _, name in (move.source.rpartition("/") for move in last_run.to_backup)
        if folder == layout.COMMITS
    ]
    earlier_batches = [
        batch for name in moved_names if (batch := layout.parse_number(name)) is not None and batch < last_run.batch
    ]
    if last_run.replaces_logs and (earlier_batches or last_run.batch == 0):
        return max(earlier_batches, default=-1)
    folder = layout.COMMITS if logs.offsets else layout.OFFSETS
    raise RefusedError(f"{files.root}: its {folder} folder is empty, so the last batch is unknown")


def _is_withdrawn(files: Directory, path: str, batch: int, last_committed: int) -> bool:
    """Return whether a file belongs to a batch that was set back.

    A snapshot of it would hide the batch's new result. Its log would bring the batch back, unless somebody has left the
    offsets in place, so that the batch runs again with the same input.
    """
    if last_committed == batch:
        return False
    file_path = layout.strip_checksum(path)
    folder, _, log_name = file_path.rpartition("/")
    if file_path.startswith(f"{layout.LEDGERS}/"):
        return True  # it may have times of that batch
    if folder in (layout.COMMITS, layout.OFFSETS):
        return layout.parse_number(log_name) == batch and files.stat(file_path) is None
    return layout.is_newer_snapshot(file_path, last_committed + 1)


def _plan_moves(
    files: Directory, last_run: Journal, run: str, moves_back: Sequence[FileMove], last_committed: int
) -> list[FileMove]:
    """Return the moves of the files in the way to the rollback's own backup, and of the old files ``moves_back``.

    The files in the way are those that the run published, later files in logs of sources that the run changed, and
    snapshots of a batch that was started since and not committed. Such a snapshot was computed from the state that is
    removed. When the batch runs again, it replaces its deltas, but not a snapshot. Files from before the run do not
    move.

    If the run's batch was set back, it runs again. Then all its snapshots are in the way, also those that Spark wrote
    of partitions that the run left alone, and all ledgers of written times.
    """
    replaced_paths = [move.target for move in last_run.new]
    kinds = {path.rpartition(".")[2] for path in replaced_paths} & set(layout.SNAPSHOTS)
    version, ledgers = last_run.batch + 1, []
    if last_committed < last_run.batch:
        kinds, version, ledgers = set(layout.SNAPSHOTS), last_committed + 1, [*files.list_tree(layout.LEDGERS)]
    newer_snapshots = [
        path for path in list_activity(files) if kinds and layout.is_newer_snapshot(path, version, *kinds)
    ]
    preserved_paths = set(last_run.preserved)  # only missing ones come back, so nothing is in their way
    paths_in_the_way = [
        *replaced_paths,
        *newer_snapshots,
        *ledgers,
        *find_late_logs(files, last_run),
        *(move.target for move in moves_back if move.target not in preserved_paths),
    ]
    return [*plan_backup(files, run, paths_in_the_way), *moves_back]


def _remove_empty_folders(files: Directory, last_run: Journal) -> None:
    """Remove empty folders for tables which the undone run had created."""
    folders = {move.target.rpartition("/")[0] for move in last_run.new}
    shared_folders = sorted(folder for folder in folders if folder.rpartition("/")[2] in layout.SHARED)
    each(files, files.remove_folder, shared_folders)
