"""Whether what hangs together in a state does: a join's rows and their counts, and whatever else has links."""

from __future__ import annotations

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.clock import clock_at
from ttlsnap.operators import links_of
from ttlsnap.partition import PartitionTask, StoreTask, check_partition
from ttlsnap.stores import lineage_of, state_store


def check_links(checkpoint: Checkpoint) -> int:
    """Read all that hangs together in ``checkpoint``; how many partitions that were.

    Raises CorruptionError, naming a key, where an index entry has no twin, a count is not the count, or an index has
    gaps; UnsupportedError for a store that cannot be read.
    """
    files = state_store(checkpoint)
    checked = 0
    for operator in checkpoint.operators:
        links = links_of(checkpoint, operator)
        linked = {store for link in links for store, _ in link.places}
        stores = [store for store in operator.stores if store.name in linked]
        for partition in stores[0].partitions if stores else ():
            check_partition(
                PartitionTask(
                    root=checkpoint.target,
                    operator=operator.id,
                    partition=partition,
                    stores=tuple(
                        StoreTask(store.name, (), lineage_of(checkpoint, files, store, partition)) for store in stores
                    ),
                    state_store=files,
                    factories=(),
                    clock=clock_at("checkpoint", checkpoint.batch),
                    staging_root=checkpoint.target,
                    staged_below=None,
                    links=links,
                )
            )
            checked += 1
    return checked
