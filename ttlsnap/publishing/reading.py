"""The opening of a checkpoint that is only read, while a run may have moved some of its files."""

from __future__ import annotations

from collections.abc import Sequence

from ttlsnap.checkpoint import Checkpoint, open_checkpoint
from ttlsnap.checkpoint.checkpoint import Schemas, half_swapped
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.errors import CorruptionError, FencedError, RefusedError, TtlsnapError
from ttlsnap.publishing.moves import find_done
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import open_for_reading


def open_to_read(
    target: str, batch: int | None = None, schemas: Schemas | None = None, *, with_state: bool = True
) -> Checkpoint:
    """Open the checkpoint ``target`` as ``open_checkpoint`` does. Nothing is written to it.

    Raise FencedError if an interrupted run has moved only some of the files that the batch needs: they are from two
    states. Unless the caller reads them (``with_state``), raise it only in place of another error. Raise RefusedError
    if two partitions have one folder.
    """
    files = open_for_reading(target)
    try:
        checkpoint = open_checkpoint(files, batch, schemas)
    except FencedError:
        raise
    except TtlsnapError:
        refuse_half_swapped(files, batch)
        raise
    if with_state:
        refuse_half_swapped(files, checkpoint.batch.id)
        stores = [store for operator in checkpoint.operators for store in operator.stores]
        refuse_shared_folders(files, [store.directory(partition) for store in stores for partition in store.partitions])
    return checkpoint


def refuse_half_swapped(files: Directory, batch: int | None = None) -> None:
    """Raise FencedError if an interrupted run has moved only some of the files that a batch needs, or any batch."""
    if read_logs(files).fence is None:
        return
    try:
        journal = Runs.read(files).interrupted
    except CorruptionError:
        return  # ``recover`` would say no more than that
    if journal is None:
        return
    if batch is not None and batch < journal.batch and journal.kind in ("compact", "import"):
        return  # such a run moves no files of earlier batches
    if len(set(find_done(files, journal.moves))) == 2:
        raise half_swapped(files)


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
