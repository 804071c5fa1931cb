"""The opening of a checkpoint that is only read."""

from __future__ import annotations

from ttlsnap.checkpoint import Checkpoint, open_checkpoint
from ttlsnap.checkpoint.checkpoint import PROVIDERS, Schemas
from ttlsnap.errors import FencedError, TtlsnapError
from ttlsnap.publishing.reading import refuse_half_swapped, refuse_shared_folders
from ttlsnap.storage.open import open_for_reading


def open_to_read(
    target: str, batch: int | None = None, schemas: Schemas | None = None, *, with_state: bool = True
) -> Checkpoint:
    """Open the checkpoint ``target`` as ``open_checkpoint`` does. Nothing is written to it.

    Raise FencedError if an interrupted run has moved only some of the files that the batch needs: they are from two
    states. Unless the caller reads them (``with_state``), raise it only in place of another error. Raise RefusedError
    if two partitions have one folder. Raise UnsupportedError if the provider is not one of Spark's own, and the files
    that the caller reads do not prove to have a known layout; see ``prove_layout``.
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
        refuse_unreadable(checkpoint)
        if checkpoint.provider not in PROVIDERS.values():
            from ttlsnap.reading.proof import prove_layout  # loads Arrow, which inspect does not always need

            return prove_layout(checkpoint)
    return checkpoint


def refuse_unreadable(checkpoint: Checkpoint) -> None:
    """Raise FencedError if the files of the batch are from two states, and RefusedError if two partitions share one."""
    files = checkpoint.files
    refuse_half_swapped(files, checkpoint.batch.id)
    stores = [store for operator in checkpoint.operators for store in operator.stores]
    refuse_shared_folders(files, [store.directory(partition) for store in stores for partition in store.partitions])
