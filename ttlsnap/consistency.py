"""Whether what hangs together in a state does: a join's rows and their counts, and whatever else has links."""

from __future__ import annotations

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.diagnosis.reading import scan_version
from ttlsnap.operators import links_of
from ttlsnap.stores import lineage_of, state_store


def check_links(checkpoint: Checkpoint) -> int:
    """Read all that hangs together in ``checkpoint``; how many partitions that were. ``doctor`` tells of it in words.

    Raises CorruptionError, naming a key, where an index entry has no twin, a count is not the count, or an index has
    gaps; UnsupportedError for a store that cannot be read.
    """
    files = state_store(checkpoint)
    checked = 0
    for operator in checkpoint.operators:
        links = links_of(checkpoint, operator)
        states = {place: state for link in links for place, state in link.places.items()}
        linked = {store for store, _ in states}
        stores = [store for store in operator.stores if store.name in linked]
        for partition in stores[0].partitions if stores else ():
            lineages = {store.name: lineage_of(checkpoint, files, store, partition) for store in stores}
            scan_version(checkpoint.files, lineages, files, states, links)
            checked += 1
    return checked
