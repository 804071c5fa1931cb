"""An independent count of what a checkpoint stores: every raw key and value, and every exported row."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ttlsnap import export, open_checkpoint
from ttlsnap.operators.registry import states_of
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.open import lineages_of, open_state_store

Place = tuple[int, str, str]
Pairs = dict[Place, dict[int, list[tuple[bytes, bytes]]]]


def raw_pairs(checkpoint: Path) -> Pairs:
    """Return the stored keys and values of each state by partition, without any schema."""
    files = LocalDirectory(str(checkpoint.resolve()))
    read = open_checkpoint(files)
    state_store = open_state_store(read)
    found: Pairs = defaultdict(lambda: defaultdict(list))
    for operator in read.operators:
        for store in operator.stores:
            for state in states_of(read, operator, store):
                _ = found[operator.id, store.name, state.state]
            for partition, lineage in zip(store.partitions, lineages_of(read, state_store, store), strict=True):
                with state_store.open(files, lineage, None) as opened:
                    for batch in opened.batches({}):
                        keys, values, _ = batch.stored
                        pairs = zip(keys.to_list(), values.to_list(), strict=True)
                        found[operator.id, store.name, batch.state][partition] += pairs
    return found


def exported_rows(checkpoint: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the exported rows by table."""
    stream = io.BytesIO()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    export(str(checkpoint), stream, **options)
    for line in stream.getvalue().splitlines():
        row = json.loads(line)
        found[row["table"]].append(row)
    return found


def nearest_rank(numbers: list[int], percent: int) -> int:
    """Return the lowest number that at least so many percent of all numbers do not exceed."""
    return sorted(numbers)[-(-len(numbers) * percent // 100) - 1]
