"""A check of a state's links, such as a join's rows and their counts."""

from __future__ import annotations

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.operators.registry import links_of
from ttlsnap.reading.whole_scan import scan_version
from ttlsnap.stores.open import lineage_of, open_state_store


def check_links(checkpoint: Checkpoint) -> int:
    """Check all linked entries of ``checkpoint``. Return the number of partitions checked.

    Raise CorruptionError, which names a key, if an index entry has no counterpart, a count is wrong, or an index has
    gaps. Raise UnsupportedError for a store that cannot be read. ``doctor`` reports the same faults.
    """
    state_store = open_state_store(checkpoint)
    checked = 0
    for operator in checkpoint.operators:
        links = links_of(checkpoint, operator)
        states = {place: state for link in links for place, state in link.places.items()}
        linked = {store for store, _ in states}
        stores = [store for store in operator.stores if store.name in linked]
        for partition in stores[0].partitions if stores else ():
            lineages = {store.name: lineage_of(checkpoint, state_store, store, partition) for store in stores}
            scan_version(checkpoint.files, lineages, state_store, states, links)
            checked += 1
    return checked
