"""Publishing: staged files replace old ones behind a fence that keeps Spark out.

    1  the report and the journal are written                      nothing has changed yet
    2  the fence ``offsets/<latest + 1>`` is created, if absent     from here on Spark refuses to start
    3  logs, state files and temporary files are compared with the planned ones
    4  old files move to the run's backup, and when they are safe there, staged files into place
    5  logs, temporary files and the published files are compared once more
    6  the fence is replaced by a planned batch, in one step        Spark starts on the new state
    7  the journal is closed

A crash before 2 changed nothing. A crash from 2 to 6 leaves a checkpoint that Spark refuses. Spark's error quotes the
fence, which names ``ttlsnap recover``. An error in 4 or 5 is undone at once if the disk allows it.

The planned batch protects a query that was idle during the run. That query has the old state in memory, and its next
files would not match the new ones. When it starts its next batch, it finds that batch in the log, and stops
(CONCURRENT_STREAM_LOG_UPDATE) before it writes anything. A restarted query runs the planned batch, which has no data,
like any other. A batch that was started and not committed is already in that place, and stays. The fence of a rollback
replaces the planned batch, so that this place is never empty.

``tests/publishing/protocol`` has a model of these steps. Its conformance test fails if a step is added, omitted or
moved. See ``docs/protocol.md``; tested on Spark 3.5 to 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.listing import Listing, difference, is_temporary, list_activity
from ttlsnap.errors import BusyError, RefusedError, StorageError
from ttlsnap.interrupts import defer_signals, note_run, raise_received
from ttlsnap.printable import shell_word
from ttlsnap.publishing import journal as journals
from ttlsnap.publishing.fence import raise_fence, replace_fence, require_place_for_fence, undo_fence
from ttlsnap.publishing.journal import FileMove, Journal, facts_of, read_journal
from ttlsnap.publishing.late_logs import refuse_late_logs, require_no_late_logs
from ttlsnap.publishing.liveness import YOUNGEST_S
from ttlsnap.publishing.moves import (
    apply,
    complete_halves,
    find_new_folders,
    is_done,
    refuse_unclear,
    remove_empty_folders,
)
from ttlsnap.publishing.preflight import hand_over, refuse_immovable
from ttlsnap.publishing.recording import close_journal, free_space, reserve_space, write_journal
from ttlsnap.publishing.runs import Fence, describe_interrupted
from ttlsnap.publishing.takeover import take_over
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.trees import find_existing, make_folders, remove_if_empty, stat_files, sync_names


@defer_signals()
def swap(
    files: Directory,
    journal: Journal,
    check: Callable[[], None] = lambda: None,
    recheck: Callable[[], None] = lambda: None,
) -> Journal:
    """Carry out the moves of ``journal`` behind its fence, and end with the planned batch, if it has one.

    ``check`` is called when the fence is in place, and ``recheck`` when all files are. If one raises, all is undone.

    The journal is closed at the end, also after an error, unless the message names ``ttlsnap recover``.
    """
    raise_received()
    refuse_immovable(files, [path for move in journal.moves for path in (move.source, move.target)])
    staged_moves = [move for move in journal.new if move.source == journals.staged_path(journal.run, move.target)]
    each(files, lambda move: hand_over(files, move.source, move.target), staged_moves)
    require_place_for_fence(files, journal)
    journal = replace(journal, replaced=facts_of(files, [move.source for move in journal.to_backup]))
    backup_folder = f"{layout.run_directory(journal.run)}/backup"  # the report names this folder
    for folder in sorted({backup_folder, *(move.target.rpartition("/")[0] for move in journal.to_backup)}):
        files.mkdirs(folder)
    # The journal survives a power cut, so the staged files that it names must, too.
    sync_names(files, [move.source for move in journal.moves if move.source.startswith(f"{layout.RUNS}/")])
    new_folders = find_new_folders(files, journal)
    moves_begun, fence = False, Fence.ABSENT
    try:
        reserve_space(files, journal)
        write_journal(files, journal)
        fence = Fence.MAYBE
        if not raise_fence(files, journal):
            raise BusyError(
                f"{files.root}/{journal.fence} appeared during the run: the query is running. Nothing was changed. "
                "Stop the query first"
            )
        fence = Fence.PRESENT
        # A batch may have begun before the fence was in place. From here on, none can begin.
        check()
        _require_sources(files, journal)
        moves_begun = True
        apply(files, journal)
        _require_targets(files, journal)
        # A batch that had begun can still commit, and Spark's maintenance can upload a snapshot.
        recheck()
        remove_empty_folders(files, journal)
    except BaseException as error:
        _give_up(files, journal, error, fence, moves_begun=moves_begun, new_folders=new_folders)
        if isinstance(error, StorageError):
            sentence_start = "The run was undone, so the" if moves_begun else "The"
            raise StorageError(error.text + f"\n{sentence_start} checkpoint is as it was before") from error
        raise
    try:
        free_space(files, journal)
        fence = Fence.MAYBE
        replace_fence(files, journal)
        fence = Fence.ABSENT
        return close_journal(files, journal, "done")
    except BaseException as error:
        raise StorageError(
            f"{_words(error)}\nThe new state is in place. {describe_interrupted(files, journal.run, fence)}"
        ) from error


def _require_sources(files: Directory, journal: Journal) -> None:
    """Raise StorageError if a file to be moved is missing: later, a missing file would count as moved."""
    present_paths = find_existing(files, [move.source for move in journal.moves])
    for move in journal.moves:
        if move.source not in present_paths:
            raise StorageError(
                f"{files.root}/{move.source} disappeared. Another program removes files here, or the writers do not "
                "see the same storage"
            )


def _require_targets(files: Directory, journal: Journal) -> None:
    infos = stat_files(files, [move.target for move in journal.moves])
    for move in journal.moves:
        if move.target not in infos:
            raise StorageError(f"{files.root}/{move.target} disappeared just after ttlsnap had written it")
    for facts in journal.published:
        if infos[facts.path].size != facts.size:
            raise BusyError(
                f"{files.root}/{facts.path} was overwritten just after ttlsnap had written it: the query is running. "
                "Stop it first"
            )


def finish(files: Directory, journal: Journal) -> None:
    """Carry out the rest of an interrupted run. If the query is running, undo the run and raise BusyError."""
    _refuse_uploads(files, journal)
    require_no_late_logs(files, journal)
    listing_before = list_activity(files)
    apply(files, journal)
    try:
        _require_targets(files, journal)
        refuse_activity(files, journal, listing_before)
        refuse_late_logs(files, journal)
    except BusyError as error:
        _give_up(files, journal, error, Fence.PRESENT, moves_begun=True)
        outcome = f". Run {journal.run} was undone, so the checkpoint is as it was before"
        raise BusyError(error.text + outcome) from error
    remove_empty_folders(files, journal)
    replace_fence(files, journal)
    close_journal(files, journal, "done")


def undo(files: Directory, journal: Journal, new_folders: Sequence[str] | None = None) -> None:
    """Undo the moves that are done, without overwriting anything. Remove the ``new_folders`` of the run.

    After an interrupt these are not known. Then remove the empty folders that the run may have made.

    Raise RefusedError if a file has appeared in the place of an old one, or one that hides a log of a source. Raise
    CorruptionError if the old files cannot be identified.
    """
    refuse_unclear(files, journal)
    _refuse_uploads(files, journal)
    require_no_late_logs(files, journal)

    def take_back(move: FileMove) -> None:
        if not is_done(move, present_paths) or move.target not in present_paths:
            return
        if move.source in present_paths:
            raise RefusedError(
                f"{files.root}/{move.source} was recreated while the fence was in place. The old file is "
                f"{files.root}/{move.target}. The fence stays. Move {move.source} to another folder, unless you know "
                f"that it is the right file, and run: ttlsnap recover {shell_word(files.root)} --undo"
            )
        files.rename(move.target, move.source)

    for moves in (journal.new, journal.to_backup):
        present_paths = find_existing(files, [end for move in moves for end in (move.source, move.target)])
        make_folders(files, [move.source for move in moves])
        each(files, take_back, reversed(moves))
        sync_names(files, [path for move in moves for path in (move.source, move.target)])
    if new_folders is None:
        remove_empty_folders(files, journal)
    else:
        remove_if_empty(files, new_folders)


def _refuse_uploads(files: Directory, journal: Journal) -> None:
    """Raise BusyError while Spark's maintenance writes a file that would replace one of the run's, old or new."""
    # Spark writes ``.5.snapshot.<uuid>.tmp``, and renames it over ``5.snapshot``
    # (CheckpointFileManager.generateTempPath).
    temporary_prefixes = {
        f"{folder}/.{name}." for folder, _, name in (move.target.rpartition("/") for move in journal.new)
    }
    for path, info in list_activity(files).items():
        if is_temporary(path) and any(map(path.startswith, temporary_prefixes)):
            age_s = (files.now_ns() - info.mtime_ns) / 1e9
            if age_s < YOUNGEST_S:
                raise BusyError(
                    f"{files.root}/{path} was written {max(age_s, 0):.0f} s ago: the query is running. The fence "
                    f"stays. Stop the query, wait for {YOUNGEST_S:.0f} s and run: ttlsnap recover "
                    f"{shell_word(files.root)}"
                )


def close_undone(files: Directory, journal: Journal) -> None:
    """End a run that changed nothing or was undone, even if the disk has no space left to record it."""
    try:
        close_journal(files, journal, "undone")
    except StorageError as error:
        if not files.failures_are_final:
            raise  # recover needs the journal if the fence arrives late
        try:
            files.remove(journal.path)
        except StorageError:
            raise error from None
        note_run(files.root, journal.run, "undone")
        files.sync(layout.run_directory(journal.run))


def _give_up(
    files: Directory,
    journal: Journal,
    error: BaseException,
    fence: Fence,
    *,
    moves_begun: bool,
    new_folders: Sequence[str] | None = None,
) -> None:
    """Undo the moves after an error if ``moves_begun``, or say that ``recover`` is needed."""
    try:
        if read_journal(files, journal.run) is None:
            return  # the journal could not be written, so nothing else was done
        free_space(files, journal)
        if not files.failures_are_final:
            journal = take_over(files, journal)
        if moves_begun:
            complete_halves(files, journal)
            undo(files, journal, new_folders)
        fence = Fence.MAYBE if fence is not Fence.ABSENT else fence
        undo_fence(files, journal)
        fence = Fence.ABSENT
        close_undone(files, journal)
    except BaseException as second_error:
        raise StorageError(
            f"{_words(error)}\nUndoing the run failed, too: {_words(second_error)}\n"
            f"{describe_interrupted(files, journal.run, fence)}"
        ) from error


def refuse_if_changed(files: Directory, before: Listing, fence: str | None = None) -> None:
    """Raise BusyError unless the logs, the state files and temporary files are those ``before`` the run.

    ``fence`` is the path of the run's own fence, if that is in place.
    """
    current_listing, earlier_listing = list_activity(files), dict(before)
    for listing in (current_listing, earlier_listing):
        listing.pop(fence or "", None)
    changed_path = difference(earlier_listing, current_listing)
    if changed_path is None:
        return
    if not changed_path.startswith(f"{layout.COMMITS}/"):
        change = f"{files.root}/{changed_path} changed while ttlsnap worked"
    else:
        earlier_batch, current_batch = (_last_committed(listing) for listing in (earlier_listing, current_listing))
        change = (
            f"{files.root}: the query committed a batch while ttlsnap worked (the last batch was {earlier_batch}, now "
            f"it is {current_batch})"
        )
    raise BusyError(f"{change}: the query is running. Nothing was changed. Stop the query first")


def _last_committed(listing: Listing) -> str:
    batches = [
        layout.parse_number(name)
        for folder, _, name in (path.rpartition("/") for path in listing)
        if folder == layout.COMMITS
    ]
    return str(max((number for number in batches if number is not None), default="none"))


def refuse_activity(files: Directory, journal: Journal, before: Listing) -> None:
    """Raise BusyError if logs or temporary files differ from those ``before`` the run, apart from its own changes."""
    own_paths = {journal.fence, *(end for move in journal.moves for end in (move.source, move.target))}

    def select_watched(listing: Listing) -> Listing:
        return {
            path: info
            for path, info in listing.items()
            if path not in own_paths and (_is_log(path) or is_temporary(path))
        }

    changed_path = difference(select_watched(before), select_watched(list_activity(files)))
    if changed_path is not None:
        raise BusyError(f"{files.root}/{changed_path} changed during the run: the query is running. Stop it first")


def _is_log(path: str) -> bool:
    return not path.startswith(f"{layout.STATE}/")


def _words(error: BaseException) -> str:
    """Return the message of an error, or the name of an interrupt."""
    return str(error) or type(error).__name__
