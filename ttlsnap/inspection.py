"""``inspect``: what the state in a checkpoint is, without a JVM and without opening a state file (of RocksDB, a zip).

Only ``entries`` and ``age`` scan, one partition after the other. A checkpoint without schemas (Spark before 3.1)
shows its stores and sizes all the same, and raw bytes as entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ttlsnap.checkpoint import Checkpoint, Operator, Store, open_checkpoint
from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.clock import clock_at
from ttlsnap.errors import CorruptionError, UnsupportedError, UsageError
from ttlsnap.fields import Field, all_fields
from ttlsnap.filesystem import open_for_reading
from ttlsnap.journal import planned_batch
from ttlsnap.operators import Selection, states_of
from ttlsnap.schema.json import to_value
from ttlsnap.shadows import find_shadows
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import lineage_of, state_store
from ttlsnap.stores.lineage import Lineage

_EPOCH_CONFS = (
    ("spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion", ">=4.2"),
    ("spark.sql.streaming.stateStore.encodingFormat", ">=4.0,<4.2"),
)


@dataclass
class StateInspection:
    """One state; ``entries`` is None unless a scan counted them or the files say, ``bytes`` None where those do not.

    ``problem`` says why it could not be read, or has no ages.
    """

    descriptor: StateDescriptor | None
    name: str
    bytes: int | None
    entries: int | None = None
    age: dict[str, Any] | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        state = self.descriptor
        return {
            "name": self.name,
            "type": state.kind if state else "value",
            "role": state.role if state else "primary",
            "key_schema": to_value(state.key_schema) if state else None,
            "value_schema": to_value(state.value_schema) if state else None,
            "timestamp": state.stored_timestamp if state else None,
            "time": state.stored_time if state else None,
            "fields": [{"name": f.name, "type": f.type.simple_string} for f in self.fields],
            "entries": self.entries,
            "bytes": self.bytes,
            **({"age": self.age} if self.age is not None else {}),
            **({"problem": self.problem} if self.problem is not None else {}),
        }

    @property
    def opaque(self) -> bool:
        """Whether its entries are shown as bytes."""
        return self.descriptor is not None and self.descriptor.opaque is not None

    @property
    def fields(self) -> list[Field]:
        """Every field with the spelling that ``--timestamp`` takes."""
        return all_fields(self.descriptor.key_schema, self.descriptor.value_schema) if self.descriptor else []


@dataclass
class Inspection:
    """What ``inspect`` found; ``operators`` pairs each operator with its stores' states.

    ``planned_by`` is the run of ttlsnap that planned the uncommitted batch, which then has no data.
    """

    checkpoint: Checkpoint
    operators: list[tuple[Operator, list[tuple[Store, list[StateInspection]]]]]
    planned_by: str | None = None
    warnings: tuple[str, ...] = ()
    samples: list[dict[str, Any]] | None = None

    def to_json(self) -> dict[str, Any]:
        """The document of ``inspect --format json``."""
        checkpoint = self.checkpoint
        document: dict[str, Any] = {
            "target": checkpoint.target,
            "kind": "checkpoint",
            "query_id": checkpoint.query_id,
            "spark_version": spark_version(checkpoint.batch.conf),
            "batch": checkpoint.batch.id,
            "uncommitted_batch": uncommitted_batch(checkpoint),
            "planned_by": self.planned_by,
            "watermark_ms": checkpoint.batch.watermark_ms,
            "batch_timestamp_ms": checkpoint.batch.timestamp_ms,
            "fence": checkpoint.logs.fence,
            "warnings": list(self.warnings),
            "codec": checkpoint.codec,
            "row_checksums": checkpoint.row_checksums,
            "operators": [
                {
                    "id": operator.id,
                    "name": operator.name,
                    "provider": checkpoint.provider,
                    "partitions": max((len(store.partitions) for store in operator.stores), default=0),
                    "stores": [
                        {"name": store.name, "states": [state.to_json() for state in states]}
                        for store, states in stores
                    ],
                }
                for operator, stores in self.operators
            ],
        }
        if self.samples is not None:
            document["entries"] = self.samples
        return document


def inspect(
    target: str,
    *,
    batch: int | None = None,
    entries: int = 0,
    age: bool = False,
    timestamp: str | None = None,
    now: str = "checkpoint",
    selection: Selection | None = None,
    schemas: Schemas | None = None,
) -> Inspection:
    """Describe the checkpoint ``target`` as of its last committed batch, or as of the retained ``batch``.

    ``entries`` is how many decoded entries to show of each state; ``age`` counts all entries and sorts them by
    age, by ``timestamp`` or by what Spark stores. Raises a ``TtlsnapError``.
    """
    if timestamp is not None and not age:
        raise UsageError("--timestamp goes with --age")
    checkpoint = open_checkpoint(open_for_reading(target), batch, schemas)
    selection = selection or Selection()
    planned = planned_batch(checkpoint.files, checkpoint.logs)
    shadows = find_shadows(checkpoint.files, checkpoint.logs)
    found = Inspection(
        checkpoint,
        [],
        planned.run if planned is not None else None,
        tuple(f"{shadow.describe(checkpoint.target)}. {shadow.advise(checkpoint.target)}" for shadow in shadows),
    )
    for operator in checkpoint.operators:
        if selection.operator not in (None, operator.id):
            continue
        stores = [
            (store, _states(checkpoint, operator, store, selection))
            for store in operator.stores
            if selection.store in (None, store.name)
        ]
        found.operators.append((operator, stores))
    if entries or age:
        # What decodes entries takes half a second to load, which a look without them should not pay.
        from ttlsnap.scanning import scan

        try:
            samples = scan(found, entries, timestamp, age, clock_at(now, checkpoint.batch), selection.state)
        except CorruptionError as error:
            if not schemas:
                raise
            raise UsageError(f"{error}\nRead with the --schema given, which may not be the right one") from error
        found.samples = samples if entries else None
    return found


def _states(checkpoint: Checkpoint, operator: Operator, store: Store, selection: Selection) -> list[StateInspection]:
    described = [s for s in states_of(checkpoint, operator, store) if selection.state in (None, s.state)]
    lineages, problem = _lineages(checkpoint, store)
    size = sum(lineage.size for lineage in lineages) if problem is None else None
    counts = [lineage.entries for lineage in lineages]
    entries = sum(filter(None, counts)) if counts and None not in counts and len(store.families) == 1 else None
    if not described:
        return [StateInspection(None, "default", size, entries, problem=problem)]
    # States of one store share its files, whose bytes go with the first of them.
    return [
        StateInspection(state, state.state, size if number == 0 else None, entries, problem=problem)
        for number, state in enumerate(described)
    ]


def _lineages(checkpoint: Checkpoint, store: Store) -> tuple[list[Lineage], str | None]:
    """The files of all partitions; or none, and why."""
    try:
        files = state_store(checkpoint)
        return [lineage_of(checkpoint, files, store, partition) for partition in store.partitions], None
    except (CorruptionError, UnsupportedError) as error:
        return [], str(error)


def uncommitted_batch(checkpoint: Checkpoint) -> int | None:
    """The batch that was begun after the last commit, if there is one: it runs again at the next start."""
    newest = checkpoint.logs.offsets[-1] if checkpoint.logs.offsets else -1
    return newest if newest > checkpoint.logs.commits[-1] else None


def spark_version(conf: Mapping[str, str]) -> str:
    """Which versions of Spark may have written the last batch, from the settings it pins; it records no number."""
    return next((version for name, version in _EPOCH_CONFS if name in conf), "<4.0")
