"""Snapshots and deltas with changed entries, in an HDFS-backed store."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from ttlsnap import open_checkpoint
from ttlsnap.checkpoint import Checkpoint, Store
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.codecs import Compressor
from ttlsnap.stores.open import open_state_store

from ..stores.plain import Put, state_file


def rewrite(target: Path, store: str, change: Callable[[list[Put]], list[Put]]) -> None:
    """Write a snapshot with changed entries into the first partition that has entries."""
    checkpoint = open_checkpoint(open_directory(str(target)))
    (found,) = (s for s in checkpoint.operators[0].stores if s.name == store)
    for partition in found.partitions:
        entries = live(checkpoint, found, partition, checkpoint.version)
        if entries:
            write(target / found.directory(partition) / f"{checkpoint.version}.snapshot", change(entries))
            return
    raise AssertionError(f"no entries in {store}")


def live(checkpoint: Checkpoint, store: Store, partition: int, version: int) -> list[Put]:
    """Return the entries of a partition at a version."""
    state_store = open_state_store(checkpoint)
    lineage = state_store.find(checkpoint.files, store.directory(partition), version)
    with state_store.open(checkpoint.files, lineage, None) as stored:
        return [
            entry
            for batch in stored.batches({})
            for entry in zip(batch.keys.to_arrow().to_pylist(), batch.values.to_arrow().to_pylist(), strict=True)
        ]


def write(path: Path, puts: list[Put]) -> None:
    """Write a snapshot or a delta, without a checksum beside it."""
    sink = io.BytesIO()
    compressor = Compressor(sink, "lz4")
    compressor.write(state_file(puts))
    compressor.close()
    path.write_bytes(sink.getvalue())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
