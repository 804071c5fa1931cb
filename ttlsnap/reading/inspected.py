"""The results of ``inspect`` as data, and as the JSON on which scripts rely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.documents import Document, Result, to_json
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.keywords import name_parameters
from ttlsnap.operators.registry import Selection, no_match
from ttlsnap.operators.transform_with_state import variable_in
from ttlsnap.schema.fields import Field, all_fields
from ttlsnap.schema.json import to_value

if TYPE_CHECKING:
    from ttlsnap.reading.sizes import Sizes
    from ttlsnap.reading.times import FieldTimes

_EPOCH_CONFS = (
    ("spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled", ">=4.3"),
    ("spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion", ">=4.2"),
    ("spark.sql.streaming.stateStore.encodingFormat", ">=4.0,<4.2"),
)
SAMPLE = 2_000_000_000
"""The bytes of files up to which everything is measured, if the user names no other limit."""


@dataclass
class StateInspection(Document):
    """One state.

    ``entries`` is None if neither a scan nor the files give the number, and ``bytes`` if the files do not give the
    size. ``times`` are the fields that can hold the time of an entry, None if they were not looked for. ``problem``
    says why the state could not be read, or has no ages.
    """

    descriptor: StateDescriptor | None
    name: str
    bytes: int | None
    entries: int | None = None
    age: dict[str, Any] | None = None
    times: list[FieldTimes] | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the numbers beside the facts of the descriptor, which are fixed values if there is none."""
        state = self.descriptor
        return {
            "name": self.name,
            "type": state.kind if state else "value",
            "role": state.role if state else "primary",
            "key_schema": to_value(state.key_schema) if state else None,
            "value_schema": to_value(state.value_schema) if state else None,
            "timestamp": state.stored_timestamp if state else None,
            "time": state.stored_time if state else None,
            "fields": [{"name": field.name, "type": field.type.simple_string} for field in self.fields],
            "entries": self.entries,
            "bytes": self.bytes,
            **({"unused": True, "variable": variable_in(self.name)} if self.unused else {}),
            **({"age": self.age} if self.age is not None else {}),
            **({"times": to_json(self.times)} if self.times is not None else {}),
            **({"problem": self.problem} if self.problem is not None else {}),
        }

    @property
    def unused(self) -> bool:
        """Whether no variable of the query uses it."""
        return self.descriptor is not None and self.descriptor.unused

    @property
    def opaque(self) -> bool:
        """Whether its entries are shown as bytes."""
        return self.descriptor is not None and self.descriptor.opaque is not None

    @property
    def fields(self) -> list[Field]:
        """Every field, with the name that ``--timestamp`` takes."""
        return all_fields(self.descriptor.key_schema, self.descriptor.value_schema) if self.descriptor else []


@dataclass
class Inspection(Result):
    """The result of ``inspect``; ``operators`` pairs each operator with the states of its stores.

    ``planned_by`` is the run of ttlsnap that planned the uncommitted batch, which then has no data. ``stops_spark``
    says what in the logs stops Spark.
    """

    checkpoint: Checkpoint
    operators: list[tuple[Operator, list[tuple[Store, list[StateInspection]]]]]
    planned_by: str | None = None
    warnings: tuple[str, ...] = ()
    stops_spark: tuple[str, ...] = ()
    samples: list[dict[str, Any]] | None = None
    sizes: Sizes | None = None

    def states(self) -> list[StateInspection]:
        """Return the states of all operators and stores, in their order."""
        return [state for _, stores in self.operators for _, states in stores for state in states]

    def state(self, operator: int, store: str = "default", state: str = "default") -> StateInspection:
        """Return one state by its operator, store and name; raises UsageError if there is no such state."""
        for operator_found, stores in self.operators:
            for store_found, states in stores:
                for state_found in states:
                    if (operator_found.id, store_found.name, state_found.name) == (operator, store, state):
                        return state_found
        with name_parameters():
            raise no_match(self.checkpoint, Selection(operator, store, state))

    def summary(self) -> dict[str, Any]:
        """Return the facts of the checkpoint, and one row for each state."""
        document = self.to_json()
        states = [
            {
                "operator": operator["id"],
                "store": store["name"],
                "state": state["name"],
                "fields": ", ".join(field["name"] for field in state["fields"]),
                **{name: state[name] for name in ("timestamp", "entries", "bytes")},
            }
            for operator in document["operators"]
            for store in operator["stores"]
            for state in store["states"]
        ]
        return {**{key: value for key, value in document.items() if key != "operators"}, "states": states}

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``inspect --format json``, which is a tree; most of its facts are the checkpoint's."""
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
            "stops_spark": list(self.stops_spark),
            "codec": checkpoint.codec,
            "row_checksums": checkpoint.row_checksums,
            "operators": [
                {
                    "id": operator.id,
                    "name": operator.name,
                    "provider": checkpoint.recorded_provider,
                    "partitions": max((len(store.partitions) for store in operator.stores), default=0),
                    "stores": [{"name": store.name, "states": to_json(states)} for store, states in stores],
                }
                for operator, stores in self.operators
            ],
        }
        if self.samples is not None:
            document["entries"] = self.samples
        if self.sizes is not None:
            document["sizes"] = self.sizes.to_json()
        return document


def uncommitted_batch(checkpoint: Checkpoint) -> int | None:
    """The batch that was started but not committed, if there is one. It runs again when the query restarts."""
    newest = checkpoint.logs.offsets[-1] if checkpoint.logs.offsets else -1
    return newest if newest > checkpoint.logs.commits[-1] else None


def spark_version(conf: Mapping[str, str]) -> str:
    """The versions of Spark that can have written the last batch, from its pinned settings; no file records one."""
    return next((version for name, version in _EPOCH_CONFS if name in conf), "<4.0")
