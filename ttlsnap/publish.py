"""Publishing: staged files replace old ones behind a fence that keeps Spark out.

    1  the report and the journal are written                      nothing has changed yet
    2  the fence ``offsets/<latest + 1>`` is created, if absent     from here on Spark refuses to start
    3  logs, state files and temporary files are compared with those that were planned for
    4  old files move to the run's backup, and when they are safe there, staged ones into place
    5  logs, temporary files and the published files are compared once more
    6  the fence is replaced by a planned batch, in one step        Spark starts on the new state
    7  the journal is closed

A crash before 2 changed nothing. A crash from 2 to 6 leaves a checkpoint that Spark refuses, quoting the fence,
whose words name ``ttlsnap recover``. An error in 4 or 5 is undone at once where the disk allows it.

The planned batch protects a query that was idle all the while. That query has the old state in its memory, and what
it would write next does not fit the new files. When it starts its next batch, it finds that batch in the log and
stops (CONCURRENT_STREAM_LOG_UPDATE) before it has written anything. A query that is started runs the planned batch,
which has no data, like any other. A batch that was started and not committed takes that place already, and is left
alone. The fence of a rollback takes the place of the planned batch, so that this place is never free.

``tests/publishing/protocol`` has a model of these steps. Its conformance test fails when a step is added, left out or
moved. See ``docs/publishing.md``; tried on Spark 3.5 to 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ttlsnap import journal as journals
from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.listing import Listing, difference, is_temporary, list_activity
from ttlsnap.checkpoint.logs import FENCE_MARK, MAX_LOG_BYTES, plan_next, read_logs
from ttlsnap.errors import BusyError, CorruptionError, RefusedError, StorageError
from ttlsnap.filesystem import Directory, FileInfo, each
from ttlsnap.interrupts import deferred, raise_received
from ttlsnap.journal import (
    FileFacts,
    Journal,
    Move,
    close_journal,
    facts_of,
    is_same,
    next_number,
    read_journal,
    write_journal,
)
from ttlsnap.locking import YOUNGEST_S
from ttlsnap.partition import PartitionResult
from ttlsnap.plan import PartitionPlan, Plan, StorePlan
from ttlsnap.preflight import hand_over, refuse_immovable


def publish(plan: Plan, results: Sequence[PartitionResult], *, planned_batch: bool = True) -> Journal:
    """Put the staged files of ``results`` in place, and plan the next batch.

    Without ``planned_batch`` the fence is just removed: only for a query that is certain to be stopped.
    Raises BusyError when the checkpoint is no longer the one that was planned for, StorageError when the disk
    refuses; the checkpoint is then as it was, or fenced, and the message says which.
    """
    files, checkpoint = plan.checkpoint.files, plan.checkpoint
    staged = [file for result in results for file in result.staged or ()]
    # A snapshot of a batch that never committed would outlive that batch's second run, which replaces only its
    # deltas. That run may differ in every partition of every operator, since one operator's output is the next one's
    # input. The deltas stay: should the batch be running after all, and commit, it needs them.
    kind = "zip" if checkpoint.provider == "rocksdb" else "snapshot"
    outliving = [path for path in plan.listing if layout.outlives(path, checkpoint.version, kind)]
    fence = fence_file(checkpoint.logs)
    aside = set_aside(files, plan.run, [*(file.target for file in staged), *outliving])
    aside += set_aside_checksums(files, plan.run, fence)
    tables = [path for result in results for path in result.superseded]
    superseded = [*tables, *sorted(existing(files, [name for path in tables for name in layout.all_checksums(path)]))]
    each(files, lambda path: files.preserve(path, journals.backup_path(plan.run, path)), superseded)
    is_next = checkpoint.logs.offsets[-1] == checkpoint.batch.id
    times = {path: info.mtime_ns for path, info in stats(files, [file.path for file in staged]).items()}
    journal = Journal(
        run=plan.run,
        number=next_number(files),
        kind="compact",
        batch=checkpoint.batch.id,
        fence=fence,
        moves=(*aside, *(Move(file.path, file.target) for file in staged)),
        status="open",
        published=tuple(FileFacts(f.target, f.size, times.get(f.path, 0), f.digest) for f in staged),
        logs=facts_of(files, (layout.offset_file(checkpoint.batch.id), layout.commit_file(checkpoint.batch.id))),
        preserved=tuple(superseded),
        planned=plan_next(files, checkpoint.batch) if planned_batch and is_next else None,
    )
    return swap(files, journal, check=lambda: check_unchanged(plan), recheck=lambda: check_quiet(plan))


def set_aside(files: Directory, run: str, paths: Sequence[str]) -> list[Move]:
    """Moves of existing files, with every checksum file beside them, to the backup of ``run``.

    A checksum file goes before the file it is about: a stale one would make Spark fail.
    """
    names = [name for path in paths for name in (*layout.all_checksums(path), path)]
    there = existing(files, names)
    return [Move(name, journals.backup_path(run, name)) for name in dict.fromkeys(names) if name in there]


def set_aside_checksums(files: Directory, run: str, path: str) -> list[Move]:
    """Moves of checksum files that an earlier file of this name left: they would not fit the new one."""
    there = existing(files, layout.all_checksums(path)) if files.stat(path) is None else set()
    return [Move(name, journals.backup_path(run, name)) for name in layout.all_checksums(path) if name in there]


def existing(files: Directory, paths: Sequence[str]) -> set[str]:
    """Those of the paths where something is."""
    return set(stats(files, paths))


def stats(files: Directory, paths: Sequence[str]) -> dict[str, FileInfo]:
    """What is known of those of the paths where something is."""
    return {p: info for p, info in zip(paths, each(files, files.stat, paths), strict=True) if info is not None}


def fence_file(logs: Logs, moves: Sequence[Move] = ()) -> str:
    """The offset file that is one past the newest, and past those that ``moves`` bring back."""
    back = [layout.parse_number(name) for _, _, name in (m.target.rpartition(f"{layout.OFFSETS}/") for m in moves)]
    newest = logs.offsets[-1] if logs.offsets else logs.commits[-1]
    return layout.offset_file(max([newest, *(number for number in back if number is not None)]) + 1)


@deferred()
def swap(
    files: Directory,
    journal: Journal,
    check: Callable[[], None] = lambda: None,
    recheck: Callable[[], None] = lambda: None,
) -> Journal:
    """Carry out the moves of ``journal`` behind its fence, and end with the planned batch, if it has one.

    ``check`` is called once the fence is in place, ``recheck`` when all files are; if either raises, all is undone.

    The journal is closed when this returns, and when it raises, unless the message names ``ttlsnap recover``.
    """
    raise_received()
    refuse_immovable(files, [path for move in journal.moves for path in (move.source, move.target)])
    staged = [move for move in journal.new if move.source == journals.staged_path(journal.run, move.target)]
    each(files, lambda move: hand_over(files, move.source, move.target), staged)
    _require_place_for_fence(files, journal)
    backup = f"{layout.run_directory(journal.run)}/backup"  # which is named in the report
    for folder in sorted({backup, *(move.target.rpartition("/")[0] for move in journal.moves)}):
        files.mkdirs(folder)
    # What the journal names must outlive a power cut as the journal does: the staged files' names, too.
    _sync(files, [move.source for move in journal.moves if move.source.startswith(f"{layout.RUNS}/")])
    begun = False
    try:
        write_journal(files, journal)
        if not raise_fence(files, journal):
            raise BusyError(
                f"{files.root}/{journal.fence} appeared in the meantime: the query runs. Nothing was changed"
            )
        check()
        _require_sources(files, journal)
        begun = True
        apply(files, journal)
        _require_targets(files, journal)
        recheck()
    except BaseException as error:
        _give_up(files, journal, error, begun)
        if isinstance(error, StorageError):
            undone = "What had been done was undone: the" if begun else "The"
            raise StorageError(f"{error}\n{undone} checkpoint is as it was") from error
        raise
    try:
        open_again(files, journal)
        return close_journal(files, journal, "done")
    except BaseException as error:
        raise StorageError(
            f"{_words(error)}\nThe new state is in place, but the run could not be ended. "
            f"When nothing is in its way any more, run: ttlsnap recover {files.root}"
        ) from error


def _require_sources(files: Directory, journal: Journal) -> None:
    """Nothing is moved before everything is there: a file that is gone would be taken for one that was moved."""
    there = existing(files, [move.source for move in journal.moves])
    for move in journal.moves:
        if move.source not in there:
            raise StorageError(
                f"{files.root}/{move.source} is gone: something else than ttlsnap removes files here, or the storage "
                "is not the same for all who write to it"
            )


def _require_targets(files: Directory, journal: Journal) -> None:
    there = stats(files, [move.target for move in journal.moves])
    for move in journal.moves:
        if move.target not in there:
            raise StorageError(f"{files.root}/{move.target} is gone, a moment after it was put there")
    for facts in journal.published:
        if there[facts.path].size != facts.size:
            raise BusyError(
                f"{files.root}/{facts.path} was written by somebody else, a moment after it was put there: the query "
                "runs. Stop it first"
            )


def _require_place_for_fence(files: Directory, journal: Journal) -> None:
    """Refuse a run if something is in the place of its fence that is not the planned batch which the fence replaces."""
    if journal.replaces is None and files.stat(journal.fence) is not None:
        raise BusyError(
            f"{files.root}/{journal.fence} is in the place of the fence: the query runs, or that is not a file of the "
            "query's. Nothing was changed. Stop the query, or move that away"
        )


def raise_fence(files: Directory, journal: Journal) -> bool:
    """Create the fence, or replace the planned batch by it; return False when another offset file is there."""
    text = f"{_fence_head(journal)}and was cut off; run `ttlsnap recover {files.root}` and start the query again\n"
    data = text.encode("utf-8", "backslashreplace")  # a path need not be text
    if journal.replaces is not None and _is_there(files, journal.fence, journal.replaces):
        files.replace(journal.fence, data)
        return True
    return files.create(journal.fence, data)


def open_again(files: Directory, journal: Journal) -> None:
    """Replace the run's fence by its planned batch, in one step; without one, remove the fence."""
    if journal.planned is None:
        lower_fence(files, journal)
    elif has_fence(files, journal):
        files.replace(journal.fence, journal.planned.encode())


def take_fence_back(files: Directory, journal: Journal) -> None:
    """Remove the fence of a run that was undone, or put the planned batch back that was there before."""
    if journal.replaces is None:
        lower_fence(files, journal)
    elif has_fence(files, journal) or _is_removed(files, journal):
        files.replace(journal.fence, journal.replaces.encode())


def _is_removed(files: Directory, journal: Journal) -> bool:
    """Whether somebody removed the fence, or the planned batch that it replaces, and nothing else of the logs."""
    newest = read_logs(files).offsets[-1:]
    return bool(newest) and journal.fence == layout.offset_file(newest[0] + 1) and has_its_batch(files, journal)


def has_its_batch(files: Directory, journal: Journal) -> bool:
    """Whether the logs of the run's batch are as they were: the batch was not set back."""
    there = stats(files, [facts.path for facts in journal.logs])
    return all(is_same(files, facts, there.get(facts.path)) for facts in journal.logs)


def lower_fence(files: Directory, journal: Journal) -> None:
    """Remove the run's fence; any other file of that name is left alone."""
    if has_fence(files, journal):
        files.remove(journal.fence)
        files.sync(layout.OFFSETS)


def has_fence(files: Directory, journal: Journal) -> bool:
    """Whether the run's fence stands; also one that is torn, which a file system without hard links may leave."""
    info = files.stat(journal.fence)
    if info is None or info.is_dir:
        return False
    head = _fence_head(journal).encode()
    with files.open(journal.fence) as file:
        found = file.read(len(head))
    return head.startswith(found)


def has_planned(files: Directory, journal: Journal) -> bool:
    """Whether the run's planned batch is in place, as the run wrote it."""
    return journal.planned is not None and _is_there(files, journal.fence, journal.planned)


def _is_there(files: Directory, path: str, text: str) -> bool:
    return files.stat(path) is not None and files.read(path, MAX_LOG_BYTES) == text.encode()


def rewritten(files: Directory, journal: Journal) -> list[str]:
    """The files that the run published, or is about to, and that are no longer what they were, by their places."""
    done = each(files, lambda move: is_done(files, move), journal.new)
    ends = {m.target: m.target if d else m.source for m, d in zip(journal.new, done, strict=True)}
    known = [replace(facts, path=ends.get(facts.path, facts.path)) for facts in journal.published]
    there = stats(files, [facts.path for facts in known])
    same = each(files, lambda facts: is_same(files, facts, there.get(facts.path)), known)
    return [facts.path for facts, is_as_it_was in zip(known, same, strict=True) if not is_as_it_was]


def _fence_head(journal: Journal) -> str:
    return f"{FENCE_MARK}: this checkpoint was being changed by ttlsnap run {journal.run} "


def is_done(files: Directory, move: Move) -> bool:
    """Whether a move has been carried out: the end that lies in the run's folder is used by no other move."""
    if move.target.startswith(f"{layout.RUNS}/"):
        return files.stat(move.target) is not None
    return files.stat(move.source) is None


def complete_halves(files: Directory, journal: Journal) -> None:
    """End the moves that were cut off between their two halves, where a move has two (see ``Directory.rename``)."""
    waiting = existing(files, [move.source for move in journal.new])
    come = {move.target for move in journal.new if move.source not in waiting}
    for moves in (journal.aside, journal.new):
        # What is in the place of an old file whose successor has come is the successor, if it had the same content too;
        # and where it is still to come, the old file has to be gone before that is looked at.
        halves = [move for move in moves if move.source not in come]
        each(files, lambda move: files.complete_rename(move.source, move.target), halves)


def apply(files: Directory, journal: Journal) -> None:
    """Carry out what is not done yet; nothing is overwritten.

    Raises RefusedError when a file has appeared where one is to go.
    """

    def carry_out(move: Move) -> None:
        if is_done(files, move):
            return
        if files.stat(move.target) is not None:
            raise RefusedError(
                f"{files.root}/{move.target} appeared in the meantime: the query runs. Stop it; if the checkpoint "
                f"is fenced then, move that file away and run: ttlsnap recover {files.root} --undo"
            )
        files.rename(move.source, move.target)

    for moves in (journal.aside, journal.new):
        each(files, carry_out, moves)
        # A power cut must not find a new file in its place and the old one not yet in the backup.
        _sync(files, [path for move in moves for path in (move.source, move.target)])


def finish(files: Directory, journal: Journal) -> None:
    """Carry out the rest of a run that was interrupted, or undo it and raise BusyError when the query is running."""
    _refuse_uploads(files, journal)
    before = list_activity(files)
    apply(files, journal)
    try:
        _require_targets(files, journal)
        refuse_if_changed(files, journal, before, only_signs=True)
    except BusyError as error:
        _give_up(files, journal, error, begun=True)
        raise BusyError(f"{error}. Run {journal.run} was undone: the checkpoint is as it was") from error
    open_again(files, journal)
    close_journal(files, journal, "done")


def undo(files: Directory, journal: Journal) -> None:
    """Take back what is done; nothing is overwritten.

    Raises RefusedError when a file has appeared where one is to go back to, CorruptionError when it cannot be told
    which files are the old ones.
    """
    refuse_unclear(files, journal)
    _refuse_uploads(files, journal)

    def take_back(move: Move) -> None:
        if not is_done(files, move) or files.stat(move.target) is None:
            return
        if files.stat(move.source) is not None:
            raise RefusedError(
                f"{files.root}/{move.source} has appeared anew, written by somebody who took no notice of the "
                f"fence, and the old file is in {files.root}/{move.target}. The fence stays. Move one of the "
                f"two away and run: ttlsnap recover {files.root} --undo"
            )
        files.rename(move.target, move.source)

    for moves in (journal.new, journal.aside):
        each(files, take_back, reversed(moves))
        _sync(files, [path for move in moves for path in (move.source, move.target)])


def _refuse_uploads(files: Directory, journal: Journal) -> None:
    """Raise BusyError while Spark's maintenance writes a file that would replace one of the run's, old or new."""
    beginnings = {f"{folder}/.{name}." for folder, _, name in (move.target.rpartition("/") for move in journal.new)}
    for path, info in list_activity(files).items():
        if is_temporary(path) and any(map(path.startswith, beginnings)):
            age_s = (files.now_ns() - info.mtime_ns) / 1e9
            if age_s < YOUNGEST_S:
                raise BusyError(
                    f"{files.root}/{path} was written {max(age_s, 0):.0f} s ago: the query is running. The fence "
                    f"stays. Stop the query, wait for {YOUNGEST_S:.0f} s and run: ttlsnap recover {files.root}"
                )


def refuse_unclear(files: Directory, journal: Journal) -> None:
    """Old files go before new ones come: a new one in its place, the old one not in the backup, is somebody's doing."""
    there = existing(files, [path for move in journal.moves for path in (move.source, move.target)])
    come = {move.target for move in journal.new if move.source not in there and move.target in there}
    unclear = next((move for move in journal.aside if move.source in come and move.target not in there), None)
    if unclear is not None:
        raise CorruptionError(
            f"{files.root}/{unclear.target} is gone, or the new file that was to replace it is: whether "
            f"{unclear.source} is the old or the new one cannot be told. The fence stays; restore the folder "
            f"{layout.run_directory(journal.run)} from a copy and run recover again"
        )


def close_undone(files: Directory, journal: Journal) -> None:
    """End a run that changed nothing, or was undone, also where there is no room left to say so."""
    try:
        close_journal(files, journal, "undone")
    except StorageError:
        files.remove(journal.path)
        files.sync(layout.run_directory(journal.run))


def _sync(files: Directory, paths: Sequence[str]) -> None:
    """Make the names of ``paths`` durable, as far as their folders exist."""

    def sync(folder: str) -> None:
        if files.stat(folder) is not None:
            files.sync(folder)

    each(files, sync, sorted({path.rpartition("/")[0] for path in paths}))


def _give_up(files: Directory, journal: Journal, error: BaseException, begun: bool) -> None:
    """After an error: undo what was ``begun``, or say that ``recover`` has to."""
    try:
        if read_journal(files, journal.run) is None:
            return  # the journal itself could not be written, so nothing came after it
        if begun:
            complete_halves(files, journal)
            undo(files, journal)
        take_fence_back(files, journal)
        close_undone(files, journal)
    except BaseException as second:
        raise StorageError(
            f"{_words(error)}\nUndoing failed too: {_words(second)}\nThe checkpoint may be fenced. "
            f"When nothing is in its way any more, run: ttlsnap recover {files.root}"
        ) from error


def check_unchanged(plan: Plan) -> None:
    """Raise BusyError unless logs, state files and temporary files are those that the plan was made of."""
    files = plan.checkpoint.files
    _check_logs(plan)
    listing = list_activity(files)
    listing.pop(fence_file(plan.checkpoint.logs), None)
    changed = difference(plan.listing, listing)
    if changed is not None:
        raise BusyError(f"{files.root}/{changed} changed while ttlsnap worked: the query runs. Nothing was changed")

    def check(place: tuple[StorePlan, PartitionPlan]) -> None:
        store, partition = place
        folder = layout.store_directory(store.operator, partition.partition, store.store)
        try:
            lineage = plan.find(store, partition.partition)
        except CorruptionError as error:
            raise BusyError(f"{error}\nIt was there before: the query runs. Nothing was changed") from error
        if lineage != partition.lineage:
            raise BusyError(f"{files.root}/{folder} changed while ttlsnap worked: the query runs. Nothing was changed")

    each(files, check, [(store, partition) for store in plan.stores if store.touched for partition in store.partitions])


def check_quiet(plan: Plan) -> None:
    """Raise BusyError when the logs have changed since the plan was made, or there are new temporary files."""
    _check_logs(plan)
    files = plan.checkpoint.files
    new = next((path for path in list_activity(files) if is_temporary(path) and path not in plan.listing), None)
    if new is not None:
        raise BusyError(f"{files.root}/{new} appeared in the meantime: the query runs. Stop it first")


def refuse_if_changed(files: Directory, journal: Journal, before: Listing, *, only_signs: bool = False) -> None:
    """Raise BusyError when the logs or the state are not what they were ``before`` the run, apart from its own changes.

    With ``only_signs`` only the logs and temporary files are compared.
    """
    ours = {journal.fence, *(end for move in journal.moves for end in (move.source, move.target))}

    def watched(listing: Listing) -> Listing:
        every = {path: info for path, info in listing.items() if path not in ours}
        if not only_signs:
            return every
        return {path: info for path, info in every.items() if _is_log(path) or is_temporary(path)}

    changed = difference(watched(before), watched(list_activity(files)))
    if changed is not None:
        raise BusyError(f"{files.root}/{changed} changed in the meantime: the query is running. Stop it first")


def _is_log(path: str) -> bool:
    return not path.startswith(f"{layout.STATE}/")


def _check_logs(plan: Plan) -> None:
    now, then = read_logs(plan.checkpoint.files), plan.checkpoint.logs
    if (now.offsets, now.commits) != (then.offsets, then.commits):
        raise BusyError(
            f"{plan.checkpoint.target}: the query went on while ttlsnap worked (batch {then.commits[-1]} was the last, "
            f"now it is {now.commits[-1] if now.commits else 'none'}). Nothing was changed; stop the query first"
        )


def _words(error: BaseException) -> str:
    """What an error says; an interrupt says nothing, and is named."""
    return str(error) or type(error).__name__
