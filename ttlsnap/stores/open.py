"""Access to the state store of a checkpoint, and to the files of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttlsnap.errors import UnsupportedError
from ttlsnap.storage.directory import each
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import StateStore

if TYPE_CHECKING:
    from ttlsnap.checkpoint import Checkpoint, Store


def open_state_store(checkpoint: Checkpoint) -> StateStore:
    """Return the state store of a checkpoint's provider.

    Raises UnsupportedError for an unknown provider or setting.
    """
    if checkpoint.provider == "hdfs":
        from ttlsnap.stores.hdfs.store import HdfsStore

        return HdfsStore.of(checkpoint)
    if checkpoint.provider == "rocksdb":
        from ttlsnap.stores.rocksdb.store import RocksDbStore

        return RocksDbStore.of(checkpoint)
    raise unknown_provider(checkpoint.target, checkpoint.provider)


def unknown_provider(target: str, name: str) -> UnsupportedError:
    """Return the error for work on a checkpoint whose provider is not one of Spark's own, and has no proven layout."""
    return UnsupportedError(
        f"{target}: the state store provider {name} is not one of Spark's own, so ttlsnap changes nothing here. "
        "`ttlsnap export`, `inspect --sizes`, `contract` and `check` read the state if all files prove to have the "
        "layout of Spark's. To change it, export it, and import it into the checkpoint of a query with a provider of "
        "Spark's"
    )


def lineage_of(checkpoint: Checkpoint, state_store: StateStore, store: Store, partition: int) -> Lineage:
    """Return the files of one partition of ``store`` at the checkpoint's version."""
    unique_id = checkpoint.unique_id(store, partition)
    return state_store.find(checkpoint.files, store.directory(partition), checkpoint.version, unique_id)


def partition_of(checkpoint: Checkpoint, state_store: StateStore, store: Store, partition: int) -> StorePartition:
    """Return one partition of ``store`` at the checkpoint's version."""
    lineage = lineage_of(checkpoint, state_store, store, partition)
    return StorePartition(checkpoint.target, store.operator, store.name, partition, state_store, lineage)


def partitions_of(checkpoint: Checkpoint, state_store: StateStore, store: Store) -> list[StorePartition]:
    """Return every partition of ``store``; raises CorruptionError if one is incomplete."""
    return each(
        checkpoint.files, lambda partition: partition_of(checkpoint, state_store, store, partition), store.partitions
    )


def lineages_of(checkpoint: Checkpoint, state_store: StateStore, store: Store) -> list[Lineage]:
    """Return the files of every partition of ``store``; raises CorruptionError if one is incomplete."""
    return [partition.lineage for partition in partitions_of(checkpoint, state_store, store)]
