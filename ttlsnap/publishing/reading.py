"""Refusals to read a checkpoint while a run may have moved some of its files, or if its folders are links."""

from __future__ import annotations

from collections.abc import Sequence

from ttlsnap.checkpoint.logs import fenced, is_copy_fence, read_logs
from ttlsnap.errors import CorruptionError, RefusedError
from ttlsnap.publishing.moves import find_done
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each


def refuse_half_swapped(files: Directory, batch: int | None = None) -> None:
    """Raise FencedError if an interrupted run has moved only some of the files that a batch needs, or any batch.

    Raise it also for a copy that is not complete.
    """
    fence = read_logs(files).fence
    if fence is None:
        return
    if is_copy_fence(fence):
        raise fenced(files, fence)
    try:
        journal = Runs.read(files).interrupted
    except CorruptionError:
        return  # ``recover`` would say no more than that
    if journal is None:
        return
    if batch is not None and batch < journal.batch and journal.kind in ("compact", "import"):
        return  # such a run moves no files of earlier batches
    if len(set(find_done(files, journal.moves))) == 2:
        raise fenced(files, fence)


def refuse_shared_folders(files: Directory, folders: Sequence[str]) -> None:
    """Raise RefusedError if two of these folders are one, through a link: their files would count twice."""
    first_folders: dict[str, str] = {}
    for folder, real_folder in zip(folders, each(files, files.real_path, folders), strict=True):
        first_folder = first_folders.setdefault(real_folder, folder)
        if first_folder != folder:
            raise RefusedError(
                f"{files.root}/{first_folder} and {files.root}/{folder} are the same folder, but two partitions. "
                "Nothing was changed. Restore the folders from a copy of the checkpoint"
            )
