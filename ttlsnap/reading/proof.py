"""The proof that the state files of an unknown provider have the layout of one of Spark's own.

A vendor's state store can be a subclass of Spark's, or write other files. Its class name does not say which, so only
the files count. The proof reads all of them, as ``doctor`` does, and refuses more:

* In the folders of the state, every name is one that Spark gives.
* The files of every partition are complete, and their checksums match, if they have any.
* Every entry belongs to a state that the checkpoint describes, and every row is decoded by the recorded schema.
* RocksDB's snapshots record the number of their entries, and it is the number that was found.
* Entries that belong together match, such as the rows of a join and their counts.
* Every key is in the partition that Spark's hash gives.

A layout that only gives the same bytes another meaning, such as numbers in another unit, would not be noticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import Checkpoint, Operator, layout
from ttlsnap.checkpoint.checkpoint import state_files
from ttlsnap.checkpoint.logs import read_logs, shuffle_partitions
from ttlsnap.compaction.task import Progress
from ttlsnap.engines.local import read_all
from ttlsnap.engines.progress import SilentWorkListener
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.operators.links import Link, StateId
from ttlsnap.operators.placement import PlacementCheck, is_placed_by_hash
from ttlsnap.operators.registry import links_of, states_of, unused_states_of
from ttlsnap.quoting import quote
from ttlsnap.reading.whole_scan import scan_version
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineage_of, open_state_store
from ttlsnap.stores.protocols import StateStore
from ttlsnap.unsaferow.rows import Rows

_KINDS = {"hdfs": {"delta", "snapshot"}, "rocksdb": {"zip", "changelog"}}
_STATE_SCHEMA = re.compile(r"(?:0|[1-9][0-9]{0,17})_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHARED_FILE = re.compile(r"[0-9A-Za-z-]+\.(?:sst|log)")
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.TID[0-9]+)?\.tmp")
"""The name under which Spark writes a file before it renames it."""


def prove_layout(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint, whose provider is not one of Spark's own, with the layout that its files prove to have.

    Raise UnsupportedError if they do not prove it, and StorageError if they cannot be read.
    """
    try:
        proven = replace(checkpoint, proven_layout=_find_layout(checkpoint))
        _require_known_names(proven)
        read_all(_prove, [task for operator in proven.operators for task in _tasks(proven, operator)], None, _SILENT)
    except (CorruptionError, UnsupportedError) as error:
        raise UnsupportedError(
            f"{checkpoint.target}: the state store provider {checkpoint.provider} is not one of Spark's own, and its "
            "files do not prove to have the layout of one. So ttlsnap does not read the state; use the platform that "
            "wrote it. The proof failed: " + error.text
        ) from error
    return proven


_SILENT = SilentWorkListener()


def _find_layout(checkpoint: Checkpoint) -> str:
    """Return the layout of which there are files. Raise UnsupportedError for none, or for both."""
    kinds = {
        name.kind
        for operator in checkpoint.operators
        for store in operator.stores
        for partition in store.partitions
        for _, name in state_files(checkpoint.files, operator.id, partition)
    }
    found = [name for name, kinds_of_layout in _KINDS.items() if kinds & kinds_of_layout]
    if len(found) != 1:
        problem = f"files of both ({', '.join(sorted(kinds))})" if found else "no files of a known kind"
        raise UnsupportedError(f"{checkpoint.target}/{layout.STATE} has {problem}")
    return found[0]


def _require_known_names(checkpoint: Checkpoint) -> None:
    """Raise UnsupportedError for a file that Spark would not have written there: it may be a part of the state."""
    paths = checkpoint.files.list_tree(layout.STATE)
    newest = read_logs(checkpoint.files).offsets[-1]  # read later, because a running query writes it before the state
    for path in paths:
        if not _is_known(checkpoint, path):
            raise UnsupportedError(f"{checkpoint.target}/{path} is not a file that Spark writes with this layout")
        if (layout.batch_of(path) or 0) > newest:
            raise UnsupportedError(
                f"{checkpoint.target}/{path} belongs to a batch after {newest}, the newest one that the query planned"
            )


def _is_known(checkpoint: Checkpoint, path: str) -> bool:
    _, number, *names = layout.strip_checksum(path).split("/")
    unfinished = _UNFINISHED.fullmatch(names[-1]) if names else None
    names[-1:] = [unfinished[1]] if unfinished else names[-1:]
    operator = next((each for each in checkpoint.operators if str(each.id) == number), None)
    if operator is None or len(names) < 2:
        return False
    stores = {store.name for store in operator.stores}
    match names:
        case ["_metadata", "metadata"]:
            return True
        case ["_metadata", "v2", name]:
            return layout.parse_number(name) is not None
        case ["_stateSchema", store_name, name]:
            return store_name in stores and _STATE_SCHEMA.fullmatch(name) is not None
    partition, *names = names
    if layout.parse_number(partition) is None:
        return False
    if names[0] in stores - {layout.DEFAULT_STORE}:
        names = names[1:]
    match names:
        case ["_metadata", "schema"]:
            return True
        case [layout.SSTS | layout.LOGS, name]:
            return checkpoint.provider == "rocksdb" and _SHARED_FILE.fullmatch(name) is not None
        case [name]:
            state_file = layout.parse_state_file(name)
            return state_file is not None and state_file.kind in _KINDS[checkpoint.provider]
    return False


@dataclass(frozen=True)
class _Task:
    """A partition of an operator, with the states of its stores."""

    root: str
    operator: int
    partition: int
    partitions: int
    state_store: StateStore
    lineages: Mapping[str, Lineage]
    states: Mapping[StateId, StateDescriptor]
    links: tuple[Link, ...]

    @property
    def size(self) -> int:
        """The size of the files, in bytes."""
        return sum(lineage.size for lineage in self.lineages.values())


def _tasks(checkpoint: Checkpoint, operator: Operator) -> Iterator[_Task]:
    state_store = open_state_store(checkpoint)
    numbers = sorted({number for store in operator.stores for number in store.partitions})
    lineages = {
        number: {store.name: lineage_of(checkpoint, state_store, store, number) for store in operator.stores}
        for number in numbers
    }
    states: dict[StateId, StateDescriptor] = {}
    for store in operator.stores:
        if not store.families:
            raise UnsupportedError(f"operator {operator.id}: the checkpoint records no schema of store {store.name}")
        all_states = [
            *states_of(checkpoint, operator, store),
            *unused_states_of(checkpoint, operator, store, [found[store.name] for found in lineages.values()]),
        ]
        states |= {state.place: state for state in all_states if state.opaque is None}
    for number in numbers:
        yield _Task(
            root=checkpoint.target,
            operator=operator.id,
            partition=number,
            partitions=shuffle_partitions(checkpoint.batch.conf) or len(numbers),
            state_store=state_store,
            lineages=lineages[number],
            states=states,
            links=links_of(checkpoint, operator),
        )


def _prove(task: _Task, progress: Progress) -> None:
    """Read a partition. Raise CorruptionError or UnsupportedError unless it proves to have the layout."""
    folder = f"{task.root}/{layout.operator_directory(task.operator)}/{task.partition}"
    for lineage in task.lineages.values():
        if lineage.snapshot is not None and not lineage.counted:
            raise UnsupportedError(f"{task.root}/{lineage.snapshot.path} does not record the number of its entries")
    checks = {
        place: PlacementCheck(state, task.partition, task.partitions)
        for place, state in task.states.items()
        if is_placed_by_hash(state)
    }

    def look(place: StateId, keys: Rows) -> None:
        if place in checks:
            checks[place].look(keys)

    def refuse(place: StateId) -> None:
        raise UnsupportedError(f"{folder} has entries of the state {place[1]}, whose rows ttlsnap cannot read")

    scan_version(
        open_for_reading(task.root),
        task.lineages,
        task.state_store,
        task.states,
        task.links,
        None,
        progress,
        look,
        refuse,
    )
    for check in checks.values():
        misplaced = check.result()
        if misplaced is not None and misplaced.interpreted:
            raise UnsupportedError(
                f"{folder}: {quantity(misplaced.count, 'key is', 'keys are')} not in the partition that Spark's hash "
                "gives. For example, "
                + quote(json.dumps(misplaced.example, ensure_ascii=False))
                + f" belongs to partition {misplaced.belongs_to}"
            )
