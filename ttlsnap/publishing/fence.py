"""The fence: an offset file that Spark refuses, so that no query starts while files are replaced.

It is created in the place of the next batch, and ends as a planned batch (see ``publishing.swap``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from secrets import token_hex

from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.logs import FENCE_MARK, MAX_LOG_BYTES, read_logs
from ttlsnap.errors import BusyError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import (
    FileFacts,
    FileMove,
    Journal,
    find_migrated,
    is_same,
)
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.trees import stat_files


def fence_file(logs: Logs, moves: Sequence[FileMove] = ()) -> str:
    """Return the offset file after the newest one, and after those that ``moves`` restore."""
    restored_batches = [
        layout.parse_number(name) for _, _, name in (move.target.rpartition(f"{layout.OFFSETS}/") for move in moves)
    ]
    newest_batch = logs.offsets[-1] if logs.offsets else logs.commits[-1]
    # Spark writes the next batch there, so a running query stops at it (HDFSMetadataLog.addNewBatchByStream).
    return layout.offset_file(max([newest_batch, *(number for number in restored_batches if number is not None)]) + 1)


def require_place_for_fence(files: Directory, journal: Journal) -> None:
    """Raise RefusedError if the place of the fence has a file other than the planned batch that the fence replaces."""
    if journal.replaces is None and files.stat(journal.fence) is not None:
        raise BusyError(
            f"{files.root}/{journal.fence} already exists where the fence belongs: the query is running, or something "
            "else wrote the file. Nothing was changed. Stop the query, or move the file away"
        )


def raise_fence(files: Directory, journal: Journal) -> bool:
    """Create the fence, or replace the planned batch with it. Return False if another offset file exists there."""
    command = f"ttlsnap recover {shell_word(files.root)}"
    # Spark takes the first line for the version of the log, and quotes it in its error. The fence has a number of its
    # own, so that no late request of another process takes this fence for its own.
    text = f"{_fence_head(journal)}and was interrupted; run `{command}` and start the query again ({token_hex(4)})\n"
    data = text.encode("utf-8", "backslashreplace")  # a path need not be text
    if journal.replaces is not None and _is_there(files, journal.fence, journal.replaces):
        files.replace(journal.fence, data, instead_of=journal.replaces.encode())
        return True
    return files.create(journal.fence, data)


def replace_fence(files: Directory, journal: Journal) -> None:
    """Replace the run's fence with its planned batch in one step; without a planned batch, remove the fence."""
    if journal.planned is None:
        lower_fence(files, journal)
    elif (fence_bytes := _read_fence(files, journal)) is not None:
        # In one step: without this file, an idle query could start the batch in between.
        files.replace(journal.fence, journal.planned.encode(), instead_of=fence_bytes or None)


def undo_fence(files: Directory, journal: Journal) -> None:
    """Remove the fence of an undone run, or restore the planned batch that it replaced."""
    if journal.replaces is None:
        lower_fence(files, journal)
    elif (fence_bytes := _read_fence(files, journal)) is not None:
        files.replace(journal.fence, journal.replaces.encode(), instead_of=fence_bytes or None)
    elif _is_removed(files, journal):
        files.replace(journal.fence, journal.replaces.encode(), instead_of=b"")


def _is_removed(files: Directory, journal: Journal) -> bool:
    """Return whether only the fence, or the planned batch that it replaces, was removed from the logs."""
    newest_batches = read_logs(files).offsets[-1:]
    return (
        bool(newest_batches)
        and journal.fence == layout.offset_file(newest_batches[0] + 1)
        and has_its_batch(files, journal)
    )


def has_its_batch(files: Directory, journal: Journal, later_journals: Collection[Journal] = ()) -> bool:
    """Return whether nothing but the later runs changed the logs of the run's batch: it was not set back."""
    infos = stat_files(files, [facts.path for facts in journal.logs])

    def is_known(facts: FileFacts) -> bool:
        known_facts = (facts, *find_migrated(later_journals, facts.path))
        return any(is_same(files, known, infos.get(facts.path)) for known in known_facts)

    return all(map(is_known, journal.logs))


def lower_fence(files: Directory, journal: Journal) -> None:
    """Remove the run's fence; any other file of that name stays."""
    fence_bytes = _read_fence(files, journal)
    if fence_bytes is not None:
        files.remove_exactly(journal.fence, fence_bytes)
        files.sync(layout.OFFSETS)


def has_fence(files: Directory, journal: Journal) -> bool:
    """Return whether the run's fence exists, possibly truncated, as a file system without hard links can leave it."""
    return _read_fence(files, journal) is not None


def _read_fence(files: Directory, journal: Journal) -> bytes | None:
    """Return the content of the run's fence; None if it does not exist."""
    info = files.stat(journal.fence)
    if info is None or info.is_dir:
        return None
    head = _fence_head(journal).encode()
    with files.open(journal.fence) as file:
        beginning = file.read(len(head))
        return beginning + file.read() if head.startswith(beginning) else None


def has_planned(files: Directory, journal: Journal) -> bool:
    """Return whether the run's planned batch is in place, as the run wrote it."""
    return journal.planned is not None and _is_there(files, journal.fence, journal.planned)


def _is_there(files: Directory, path: str, text: str) -> bool:
    return files.stat(path) is not None and files.read(path, MAX_LOG_BYTES) == text.encode()


def _fence_head(journal: Journal) -> str:
    return f"{FENCE_MARK}: this checkpoint was being changed by ttlsnap run {journal.run} "
