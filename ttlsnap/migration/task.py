"""The work of a migration as plain data: an old partition is split, and a new one is built from the parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ttlsnap.compaction.task import Progress
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.migration.fingerprint import add, fingerprint
from ttlsnap.migration.spill import SpillWriter, read_spill
from ttlsnap.operators.placement import PlacementCheck, hash_keys
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.stores.convert import convert
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StagedFile, Staging, StateStore
from ttlsnap.unsaferow.murmur3 import partitions_of


@dataclass(frozen=True)
class SplitTask:
    """The entries of one old ``partition`` of ``before``, to be sorted by their new partitions into ``spill``.

    ``states`` and ``state_store`` are the old ones, ``new_states`` and ``new_store`` the new ones.
    """

    root: str
    where: str
    partition: int
    before: int
    partitions: int
    states: tuple[StateDescriptor, ...]
    new_states: tuple[StateDescriptor, ...]
    lineage: Lineage
    state_store: StateStore
    new_store: StateStore
    spill: Path
    scratch: str | None


@dataclass(frozen=True)
class Split:
    """The result of a ``SplitTask``: the entries of each new partition and their bytes, and the fingerprint of all.

    ``families`` are the column families by their ids. ``misplaced`` counts the keys that are not where Spark's hash
    puts them, and ``example`` describes one.
    """

    entries: tuple[int, ...]
    sizes: tuple[int, ...]
    fingerprint: int
    families: Mapping[int, str]
    misplaced: int = 0
    example: str = ""


@dataclass(frozen=True)
class BuildTask:
    """One new ``partition`` of ``partitions``, to be built from the ``spills`` of all old ones of its store.

    It has the settings of the old partition ``like``, and ``size`` bytes of keys and values. New files are staged below
    ``staged_below`` in ``staging_root``; None in a dry run.
    """

    root: str
    target: str
    partition: int
    partitions: int
    like: Lineage
    size: int
    state_store: StateStore
    spills: tuple[Path, ...]
    staging_root: str
    staged_below: str | None
    scratch: str | None


@dataclass(frozen=True)
class Built:
    """The result of a ``BuildTask``; ``size`` is in bytes on disk."""

    entries: int
    fingerprint: int
    size: int
    files: tuple[StagedFile, ...]


def split(task: SplitTask, progress: Progress) -> Split:
    """Sort the entries of an old partition by their new partitions.

    Raise UnsupportedError for a state that was not planned, and CorruptionError for damage.
    """
    files = for_reading(open_directory(task.root))
    states = {state.state: state for state in task.states}
    new_states = {state.state: state for state in task.new_states}
    checks: dict[str, PlacementCheck] = {}
    total = 0
    with (
        task.state_store.open(files, task.lineage, task.scratch) as partition,
        SpillWriter(task.spill, task.partitions) as spill,
    ):
        for batch in partition.batches(states):
            state = states.get(batch.state)
            if state is None:
                raise UnsupportedError(f"{task.where}: the state {batch.state!r} is not in the schema")
            keys, values = convert(batch, task.state_store, task.new_store, new_states[state.state], task.where)
            if task.partitions == task.before:
                partitions = np.full(len(keys), task.partition)
            else:
                rows = batch.stored[2]
                hashes = hash_keys(state, rows)
                if bool((partitions_of(hashes, task.before) != task.partition).any()):
                    check = checks.setdefault(state.state, PlacementCheck(state, task.partition, task.before))
                    check.look(rows)
                partitions = partitions_of(hashes, task.partitions)
            spill.add(keys, values, partitions)
            total = add(total, fingerprint(keys, values))
            progress(len(keys), 0)
        spill.finish()
        families = dict(partition.families)
    misplaced = [found for found in (check.result() for check in checks.values()) if found is not None]
    example = ""
    if misplaced:
        first = misplaced[0]
        example = f"{first.example} is in partition {first.partition}, and belongs to partition {first.belongs_to}"
    entries, sizes = tuple(spill.entries.tolist()), tuple(spill.sizes.tolist())
    return Split(entries, sizes, total, families, sum(found.count for found in misplaced), example)


def build(task: BuildTask, progress: Progress) -> Built:
    """Build a new partition. Raise CorruptionError if it cannot be read back as it was written."""
    files = for_reading(open_directory(task.root))
    staging = None
    if task.staged_below is not None:
        staging = Staging(open_directory(task.staging_root), task.staged_below)
    total = entries = 0
    with task.state_store.build(files, task.like, task.target, task.size, staging, task.scratch) as builder:
        for spill in task.spills:
            for keys, values in read_spill(spill, task.partition, task.partitions):
                total = add(total, fingerprint(keys, values))
                entries += len(keys)
                builder.put(keys, values)
                progress(len(keys), 0)
        written = builder.finish()
    return Built(entries, total, written.size, written.files)


def require_all(where: str, splits: list[Split], built: list[Built]) -> None:
    """Raise CorruptionError unless the new partitions have every entry of the old ones, exactly once."""
    wanted = np.sum([split.entries for split in splits], axis=0, dtype=np.int64).tolist()
    before = after = 0
    for split_ in splits:
        before = add(before, split_.fingerprint)
    for partition in built:
        after = add(after, partition.fingerprint)
    if [partition.entries for partition in built] != wanted or before != after:
        raise CorruptionError(
            f"{where}: the new partitions do not have the entries of the old ones. Nothing was published. Check the "
            "disk and the memory of this machine"
        )
