"""The state contract: what a query's state is, in a small JSON document that is committed beside its code.

A contract is made from a checkpoint, from a query without data, or from both, and two of them are what ``check``
compares. ``schema.json`` beside this module describes the document; ``docs/contract.md`` explains it. What a source
cannot tell is null, never guessed. Of a Delta table it is another document (``table.py``, ``table_schema.json``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import fastjsonschema

from ttlsnap.contract.table import MADE_FROM, VERSION, TableContract
from ttlsnap.errors import TtlsnapError, UnsupportedError, UsageError
from ttlsnap.schema.json import from_value, to_value
from ttlsnap.schema.types import StructType
from ttlsnap.strict_json import parse_json

PARTITIONS = "spark.sql.shuffle.partitions"
SCHEMA_CHECK = "spark.sql.streaming.stateStore.stateSchemaCheck"
TIME_ZONE = "spark.sql.session.timeZone"
# What depends on it: of a function of times that is no cast, the plan's text has the zone itself.
ZONED = re.compile(r" as (?:date|timestamp)\)")
# The same, where there are times to begin with.
ZONED_OF_TIMES = re.compile(r" as (?:date|timestamp|string)\)")
MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class StateContract:
    """One state: a column family, a state variable, or the one state that a store has.

    ``ttl`` is whether a variable of transformWithState has one, ``key_encoder`` Spark's name for how keys are laid out,
    both None where the state has no such thing. ``ttl_ms`` is the TTL in milliseconds, which only the query tells.
    """

    name: str
    kind: str
    role: str
    key: StructType
    value: StructType
    ttl: bool | None = None
    ttl_ms: int | None = None
    key_encoder: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "role": self.role,
            "ttl": self.ttl,
            "ttl_ms": self.ttl_ms,
            "key_encoder": self.key_encoder,
            "key": to_value(self.key)["fields"],
            "value": to_value(self.value)["fields"],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StateContract:
        schemas = {side: from_value({"type": "struct", "fields": document[side]}) for side in ("key", "value")}
        return cls(**{**document, **schemas})


@dataclass(frozen=True)
class StoreContract:
    """One store; ``states`` is None where the checkpoint records no schema (Spark before 3.1)."""

    name: str
    prefix_key_columns: int
    states: tuple[StateContract, ...] | None

    def to_json(self) -> dict[str, Any]:
        states = None if self.states is None else [state.to_json() for state in self.states]
        return {"name": self.name, "prefix_key_columns": self.prefix_key_columns, "states": states}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StoreContract:
        states = document["states"]
        found = None if states is None else tuple(StateContract.from_json(state) for state in states)
        return cls(**{**document, "states": found})


@dataclass(frozen=True)
class OperatorContract:
    """One stateful operator. ``name`` is None where it is not recorded (Spark before 4.0).

    ``time_mode`` and ``output_mode`` are those that transformWithState records. ``plan`` is the analyzed plan from this
    operator down to the sources, a line for each node, and ``functions`` has for each Python function or class that
    it runs a digest for each of its parts; None where the contract does not come from a query.
    """

    id: int
    name: str | None
    partitions: int
    stores: tuple[StoreContract, ...]
    time_mode: str | None = None
    output_mode: str | None = None
    plan: tuple[str, ...] | None = None
    functions: Mapping[str, Mapping[str, str]] | None = None

    def to_json(self) -> dict[str, Any]:
        functions = self.functions
        return {
            "id": self.id,
            "name": self.name,
            "partitions": self.partitions,
            "time_mode": self.time_mode,
            "output_mode": self.output_mode,
            "stores": [store.to_json() for store in self.stores],
            "plan": None if self.plan is None else list(self.plan),
            "functions": None if functions is None else {name: dict(functions[name]) for name in sorted(functions)},
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> OperatorContract:
        stores = tuple(StoreContract.from_json(store) for store in document["stores"])
        plan = None if document["plan"] is None else tuple(document["plan"])
        return cls(**{**document, "stores": stores, "plan": plan})

    def __str__(self) -> str:
        return f"operator {self.id}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True)
class Contract:
    """What the state of a query is.

    ``made_from`` is ``checkpoint``, ``query`` or ``checkpoint and query``. ``spark`` is a version, or, of a checkpoint,
    which does not record it, a range such as ``>=4.0,<4.2``; ``planned_by`` is the version that made the plans.
    ``changelog`` (RocksDB) is None where no file tells. ``conf`` are the settings that Spark pins in the checkpoint.
    ``output_mode`` is the query's, which no checkpoint records, and ``reads`` has its sources in Spark's order, each
    with its name, where it has one, and its columns.
    """

    made_from: str
    spark: str
    provider: str
    encoding: str
    codec: str
    checkpoint_format: int
    row_checksums: bool
    changelog: bool | None
    offset_log: int
    sources: int
    operators: tuple[OperatorContract, ...]
    output_mode: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    planned_by: str | None = None
    reads: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The document, in the order in which a reviewer wants to read it."""
        return {
            "version": VERSION,
            "made_from": self.made_from,
            "spark": self.spark,
            "planned_by": self.planned_by,
            "provider": self.provider,
            "encoding": self.encoding,
            "codec": self.codec,
            "checkpoint_format": self.checkpoint_format,
            "row_checksums": self.row_checksums,
            "changelog": self.changelog,
            "offset_log": self.offset_log,
            "sources": self.sources,
            "reads": None if self.reads is None else list(self.reads),
            "output_mode": self.output_mode,
            "operators": [operator.to_json() for operator in self.operators],
            "conf": {name: self.conf[name] for name in sorted(self.conf)},
        }

    def dumps(self) -> str:
        """The document as text, the same for the same contract."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"


def parse_contract(text: str | bytes, where: str) -> Contract | TableContract:
    """The contract that ``text`` spells; ``where`` names it in errors.

    Raises UnsupportedError for one of another version, UsageError for what is no contract.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{where} is no contract: it is not JSON ({error})") from error
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
        raise UnsupportedError(
            f"{where} is a contract of version {version}, and this ttlsnap knows version {VERSION}: use a newer ttlsnap"
        )
    table = isinstance(document, dict) and document.get("made_from") == MADE_FROM
    _validate(document, where, "table_schema.json" if table else "schema.json")
    try:
        if table:
            return TableContract.from_json(document)
        del document["version"]
        operators = tuple(OperatorContract.from_json(operator) for operator in document["operators"])
        reads = document.get("reads")
        return Contract(**{**document, "operators": operators, "reads": None if reads is None else tuple(reads)})
    except UnsupportedError as error:  # a type of a later Spark
        raise UnsupportedError(f"{where}: {error}") from error
    except TtlsnapError as error:  # a type that is none
        raise UsageError(f"{where} is no contract: {error}") from error


def _validate(document: Any, where: str, schema: str) -> None:
    try:
        _validator(schema)(document)
    except fastjsonschema.JsonSchemaException as error:
        message = str(error) if len(str(error)) < 300 else f"{str(error)[:300]}..."
        raise UsageError(f"{where} is no contract: {message}. Make one with `ttlsnap contract`") from error


@cache
def _validator(name: str) -> Callable[[Any], Any]:
    schema = json.loads(resources.files("ttlsnap.contract").joinpath(name).read_text())
    compiled: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return compiled
