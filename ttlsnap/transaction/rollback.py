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
from ttlsnap.documents import Document
from ttlsnap.errors import (
    CorruptionError,
    RefusedError,
    TtlsnapError,
    UnsupportedError,
    explain_errors,
)
from ttlsnap.printable import shell_word
from ttlsnap.publishing.archives import allowed_places, record_take_back, take_back_if_allowed
from ttlsnap.publishing.fence import fence_file, has_its_batch
from ttlsnap.publishing.journal import (
    FileFacts,
    FileMove,
    Journal,
    facts_of,
    find_backup,
    is_later,
    is_same,
)
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.moves import find_rewritten, plan_backup
from ttlsnap.publishing.runs import Runs, new_run_id, open_existing, refuse_if_interrupted
from ttlsnap.publishing.stale_snapshots import warn_of_early_snapshots
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.trees import find_existing, stat_files
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.transaction.steps import Run, WorkPlace, change_in_place


@dataclass(frozen=True)
class RollbackReport(Document):
    """The result of ``rollback``.

    ``run`` is the run of the rollback. ``undone`` and ``kind`` are the run that it rolled back and that run's kind.
    ``restored`` is the number of restored files. ``set_back_to`` is the last committed batch if the run's batch was set
    back, and otherwise None.
    """

    target: str
    run: str
    undone: str
    restored: int
    warnings: tuple[str, ...] = ()
    kind: str = "compact"
    set_back_to: int | None = None


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
        done = f"Run {run.undone.run} is rolled back (as run {run.id})."
        with explain_errors(done):
            _remove_empty_folders(files, run.undone)
        run.warnings += take_back_if_allowed(files, run.undone.run, places)
        with explain_errors(done):
            logs = read_logs(files)
            run.warnings += [*describe_obstacles(files, logs), *warn_of_early_snapshots(files, logs, runs=run.runs)]
        return run.report


class Rollback(Run):
    """A run that undoes the last published one, ``undone``."""

    def __init__(self, runs: Runs, places: AllowedPlaces) -> None:
        files = runs.files
        self.undone = _find_last(runs)
        super().__init__(runs, new_run_id(), list_activity(files))
        self._places, self._logs = places, read_logs(files)
        self._committed = _refuse_moved_on(files, self.undone, self._logs)
        self._planned = runs.find_planning(self._logs)
        self._back = _find_old_files(files, self.undone, self._committed)
        self._digests = _identify(files, self.undone, self._back)

    def stage(self, place: WorkPlace) -> None:
        """Do nothing: the old files are in the backup of the run."""

    def is_wanted(self) -> bool:
        return True

    def journal(self) -> Journal:
        files, last, back = self.files, self.undone, self._back
        moves = _plan_moves(files, last, self.id, back, self._committed)
        # A planned batch that Spark has begun to run stays and is run again. The sink may already have its number.
        has_planned = self._planned is not None and self._planned.run == last.run
        is_ours = has_planned and not _has_later_state(files, self.before, last)
        if last.kind == "migrate" and not is_ours:
            _refuse_begun(files, last, self._logs, self.before)
        infos = stat_files(files, [move.source for move in back])
        record_take_back(files, last.run, self.id, self._places)
        return Journal(
            run=self.id,
            number=self.runs.next_number,
            kind="rollback",
            batch=last.batch,
            fence=last.fence if is_ours else fence_file(self._logs, moves),
            moves=tuple(moves),
            status="open",
            undoes=last.run,
            logs=_logs_after(files, last, back),
            replaces=last.planned if is_ours else None,
            published=tuple(
                FileFacts(m.target, infos[m.source].size, infos[m.source].mtime_ns, self._digests.get(m.target))
                for m in back
            ),
        )

    def check_again(self) -> None:
        if self.undone.has_new_state and self._committed == self.undone.batch:
            _require_loadable(self.files)

    @property
    def report(self) -> RollbackReport:
        """The report of the published rollback."""
        last, committed = self.undone, self._committed
        return RollbackReport(
            self.files.root,
            self.id,
            last.run,
            len(self._back),
            tuple(self.warnings),
            last.kind,
            committed if committed < last.batch else None,
        )


def undoable_run(runs: Runs) -> str | None:
    """Return the run that ``rollback`` can undo as long as its backup exists; None if there is none.

    If the logs are damaged, it is the last run: after they are repaired, ``rollback`` may be possible.
    """
    files = runs.files
    try:
        last = _find_last(runs)
    except RefusedError:
        return None
    try:
        _find_old_files(files, last, _refuse_moved_on(files, last, read_logs(files)))
    except RefusedError:
        return None
    except TtlsnapError:
        pass
    return last.run


def _find_last(runs: Runs) -> Journal:
    """Return the last published run. Raise RefusedError if there is none, or if it is a rollback."""
    last = next((journal for journal in reversed(runs.journals) if journal.status == "done"), None)
    if last is None or last.kind == "rollback":
        if last is not None:
            after = f": the last run, {last.run}, is a rollback itself"
        elif any(map(partial(_made_copy, runs), runs.ids)):
            after = ": this checkpoint is a copy. Use the original, which the run that made the copy did not change"
        else:
            after = ""
        raise RefusedError(f"{runs.files.root}: there is no run to roll back{after}")
    return last


def _made_copy(runs: Runs, run: str) -> bool:
    """Return whether a run has made this checkpoint as a copy."""
    try:
        return runs.report_of_copy(run) is not None
    except CorruptionError:
        return False


def _find_old_files(files: Directory, last: Journal, committed: int) -> list[FileMove]:
    """Return the moves of the replaced files from the backup to their places. Raise RefusedError if one is missing."""
    kept = [move for move in last.to_backup if not _is_withdrawn(files, move.source, last.batch, committed)]
    lost = [path for path in last.preserved if files.stat(path) is None]
    backup = find_backup(files, last.run)
    back = [*(FileMove(m.target, m.source) for m in kept), *(FileMove(f"{backup}/{p}", p) for p in lost)]
    if len(find_existing(files, [move.source for move in back])) < len(back):
        raise RefusedError(f"{files.root}: the backup of run {last.run} was removed, so the run cannot be rolled back")
    return back


def _identify(files: Directory, last: Journal, back: Sequence[FileMove]) -> dict[str, str | None]:
    """Return the digests of the old files, by their places. Raise RefusedError if one is not the replaced file."""
    known = {facts.path: facts for facts in last.replaced}
    moves = [move for move in back if move.target in known]
    there = stat_files(files, [move.source for move in moves])

    def is_as_it_was(move: FileMove) -> bool:
        return is_same(files, replace(known[move.target], path=move.source), there.get(move.source))

    others = [move.source for move, same in zip(moves, each(files, is_as_it_was, moves), strict=True) if not same]
    if others:
        raise RefusedError(
            f"{files.root}/{others[0]} is not the file that run {last.run} replaced (files like this: {len(others)}), "
            "so the run cannot be rolled back. Another program wrote it, or it is damaged. Nothing was changed"
        )
    return {path: facts.digest for path, facts in known.items()}


def _refuse_begun(files: Directory, last: Journal, logs: Logs, listing: Listing) -> None:
    """Raise RefusedError if Spark has begun a batch with the settings of a migration: it would run again with them."""
    replaced = {move.target for move in last.new}
    later = [batch for batch in logs.offsets if batch > last.batch and layout.offset_file(batch) not in replaced]
    if later or _has_later_state(files, listing, last):
        raise RefusedError(
            f"{files.root}: batch {last.batch + 1} was begun after the migration {last.run}, with its settings. It "
            "would run again with them, on the old state. Nothing was changed. Start the query: it can only continue "
            "with the migrated state"
        )


def _logs_after(files: Directory, last: Journal, back: Sequence[FileMove]) -> tuple[FileFacts, ...]:
    """Return the identities of the logs of the batch as they will be after the rollback."""
    sources = {move.target: move.source for move in back}
    paths = [layout.offset_file(last.batch), layout.commit_file(last.batch)]
    found = [facts_of(files, [sources.get(path, path)]) for path in paths]
    return tuple(replace(facts, path=path) for path, there in zip(paths, found, strict=True) for facts in there)


def _has_later_state(files: Directory, listing: Listing, last: Journal) -> bool:
    """Return whether Spark has started to run a batch after the run: there are state files of it, and new ones."""
    known = {facts.path: facts for facts in last.leftovers}
    later = [path for path in listing if is_later(path, last.batch)]
    return any(path not in known or not is_same(files, known[path], listing[path]) for path in later)


def _require_loadable(files: Directory) -> None:
    """Raise RefusedError if the restored state needs a file that is missing; Spark may have removed it."""
    try:
        checkpoint = open_checkpoint(files, tolerate_damage=True)
        state_store = open_state_store(checkpoint)
        for kept in (kept for operator in checkpoint.operators for kept in operator.stores):
            lineages_of(checkpoint, state_store, kept)
    except CorruptionError as error:
        raise RefusedError(
            error.text + ". Spark cannot load the old state without it, so the run cannot be rolled back. Nothing was "
            "changed"
        ) from error
    except UnsupportedError:
        return  # the files that an unknown format needs are not known


def _refuse_moved_on(files: Directory, last: Journal, logs: Logs) -> int:
    """Return the last committed batch. Raise RefusedError unless the files that ``last`` replaced belong to it.

    It is the run's batch, or an earlier one. In the second case the run's batch was set back.
    """
    committed = _last_committed(files, last, logs)
    if committed < last.batch and last.kind == "repair":
        raise RefusedError(
            f"{files.root}: batch {last.batch} was set back after the repair {last.run}, so the files that it replaced "
            "no longer belong to the logs. Nothing was changed. The query can be started"
        )
    if committed > last.batch:
        raise RefusedError(
            f"{files.root}: batch {committed} was committed after run {last.run} (batch {last.batch}), and the old "
            "state is not the state of that batch. Use an older copy of the checkpoint instead"
        )
    if committed == last.batch and not has_its_batch(files, last):
        raise RefusedError(
            f"{files.root}: batch {last.batch} was run again after run {last.run}, so neither the new nor the old "
            f"state belongs to it. Run: ttlsnap doctor {shell_word(files.root)}"
        )
    others = [path for path in find_rewritten(files, last) if not _is_withdrawn(files, path, last.batch, committed)]
    there = find_existing(files, others)
    overwritten = [path for path in others if path in there]
    if overwritten:
        raise RefusedError(
            f"{files.root}/{overwritten[0]} is not the file that run {last.run} published (files like this: "
            f"{len(overwritten)}). A query has overwritten it, or it is damaged. Nothing was changed. Run: ttlsnap "
            f"doctor {shell_word(files.root)}"
        )
    # While the run's batch is the last one, a missing file only has to make way for an old one.
    if others and committed < last.batch:
        raise RefusedError(
            f"{files.root}/{others[0]} is missing, although run {last.run} published it (such files: {len(others)}), "
            f"and batch {last.batch} was set back since. Nothing was changed. Run: ttlsnap doctor "
            f"{shell_word(files.root)}"
        )
    return committed


def _last_committed(files: Directory, last: Journal, logs: Logs) -> int:
    """Return the last committed batch, or -1. If a run has moved the earlier logs away, its backup knows it."""
    if logs.commits:
        return logs.commits[-1]
    moved = [name for folder, _, name in (m.source.rpartition("/") for m in last.to_backup) if folder == layout.COMMITS]
    earlier = [batch for name in moved if (batch := layout.parse_number(name)) is not None and batch < last.batch]
    if last.kind == "migrate" and (earlier or last.batch == 0):
        return max(earlier, default=-1)
    folder = layout.COMMITS if logs.offsets else layout.OFFSETS
    raise RefusedError(f"{files.root}: its {folder} folder is empty, so the last batch is unknown")


def _is_withdrawn(files: Directory, path: str, batch: int, committed: int) -> bool:
    """Return whether a file belongs to a batch that was set back.

    A snapshot of it would hide the batch's new result. Its log would bring the batch back, unless somebody has left the
    offsets in place, so that the batch runs again with the same input.
    """
    if committed == batch:
        return False
    name = layout.strip_checksum(path)
    folder, _, number = name.rpartition("/")
    if name.startswith(f"{layout.LEDGERS}/"):
        return True  # it may have times of that batch
    if folder in (layout.COMMITS, layout.OFFSETS):
        return layout.parse_number(number) == batch and files.stat(name) is None
    return layout.is_newer_snapshot(name, committed + 1)


def _plan_moves(files: Directory, last: Journal, run: str, back: Sequence[FileMove], committed: int) -> list[FileMove]:
    """Return the moves of the files in the way to the rollback's own backup, and of the old files ``back``.

    The files in the way are those that the run published, and snapshots of a batch that was started since and not
    committed. Such a snapshot was computed from the state that is removed. When the batch runs again, it replaces its
    deltas, but not a snapshot. Files from before the run do not move.

    If the run's batch was set back, it runs again. Then all its snapshots are in the way, also those that Spark wrote
    of partitions that the run left alone, and all ledgers of written times.
    """
    replaced = [move.target for move in last.new]
    kinds = {path.rpartition(".")[2] for path in replaced} & set(layout.SNAPSHOTS)
    version, ledgers = last.batch + 1, []
    if committed < last.batch:
        kinds, version, ledgers = set(layout.SNAPSHOTS), committed + 1, [*files.list_tree(layout.LEDGERS)]
    newer = [path for path in list_activity(files) if kinds and layout.is_newer_snapshot(path, version, *kinds)]
    lost = set(last.preserved)  # only missing ones come back, so nothing is in their way
    in_the_way = [*replaced, *newer, *ledgers, *(move.target for move in back if move.target not in lost)]
    return [*plan_backup(files, run, in_the_way), *back]


def _remove_empty_folders(files: Directory, last: Journal) -> None:
    """Remove empty folders for tables, which the undone run had created."""
    folders = {move.target.rpartition("/")[0] for move in last.new}
    shared = sorted(folder for folder in folders if folder.rpartition("/")[2] in layout.SHARED)
    each(files, files.remove_folder, shared)
