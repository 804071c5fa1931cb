"""The state contract: a small JSON document that describes a query's state, and is committed beside the query's code.

A contract is created from a checkpoint, from a query without data, or from both. ``check`` compares two contracts.
``schema.json`` beside this module describes the document; ``docs/contract.md`` explains it. A value that the source
does not have is null, and never guessed. A Delta table has another document (``table.py``, ``table_schema.json``).
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

from ttlsnap.checkpoint.checkpoint import ALWAYS_NULLABLE
from ttlsnap.contract.table import MADE_FROM, VERSION, TableContract
from ttlsnap.errors import TtlsnapError, UnsupportedError, UsageError
from ttlsnap.schema.json import from_value, to_value
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.schema.types import StructType

PARTITIONS = "spark.sql.shuffle.partitions"
SCHEMA_CHECK = "spark.sql.streaming.stateStore.stateSchemaCheck"
# Spark 4.3 and later pin it for new queries. If it is true, deduplications have their keys in the order of the query.
KEYS_AS_LISTED = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"
TIME_ZONE = "spark.sql.session.timeZone"
# Casts that depend on the time zone. For other functions of times, the plan's text contains the zone.
ZONED = re.compile(r" as (?:date|timestamp)\)")
# Casts that depend on the time zone if the sources have times.
ZONED_OF_TIMES = re.compile(r" as (?:date|timestamp|string)\)")
MAX_BYTES = 64 << 20
# Aggregates whose buffers have the values that the names of their columns say, in the types of their columns.
_PLAIN_FUNCTIONS = frozenset(
    ("Average", "BitAndAgg", "BitOrAgg", "BitXorAgg", "Count", "First", "Last", "Max", "MaxBy", "Min", "MinBy", "Sum")
)


@dataclass(frozen=True)
class StateContract:
    """One state: a column family, a state variable, or the only state of a store.

    ``ttl`` is whether a variable of transformWithState has a TTL. ``key_encoder`` is Spark's name for the layout of
    keys. Both are None if the state does not have them. ``ttl_ms`` is the TTL in milliseconds, known only from a query.
    ``kept`` says of a variable that the query no longer has whether Spark has kept its values.
    """

    name: str
    kind: str
    role: str
    key: StructType
    value: StructType
    ttl: bool | None = None
    ttl_ms: int | None = None
    key_encoder: str | None = None
    kept: bool | None = None

    def to_json(self) -> dict[str, Any]:
        more = {} if self.kept is None else {"kept": self.kept}
        return {
            "name": self.name,
            "kind": self.kind,
            "role": self.role,
            "ttl": self.ttl,
            "ttl_ms": self.ttl_ms,
            "key_encoder": self.key_encoder,
            "key": to_value(self.key)["fields"],
            "value": to_value(self.value)["fields"],
            **more,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StateContract:
        schemas = {side: from_value({"type": "struct", "fields": document[side]}) for side in ("key", "value")}
        return cls(**{**document, **schemas})


@dataclass(frozen=True)
class StoreContract:
    """One store; ``states`` is None if the checkpoint records no schema (Spark before 3.1).

    ``unused`` has the state variables that earlier queries had, and this one does not; None if that is not known.
    """

    name: str
    prefix_key_columns: int
    states: tuple[StateContract, ...] | None
    unused: tuple[StateContract, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        states = None if self.states is None else [state.to_json() for state in self.states]
        more = {} if self.unused is None else {"unused": [state.to_json() for state in self.unused]}
        return {"name": self.name, "prefix_key_columns": self.prefix_key_columns, "states": states, **more}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StoreContract:
        found = {
            name: None if (states := document.get(name)) is None else tuple(map(StateContract.from_json, states))
            for name in ("states", "unused")
        }
        return cls(**{**document, **found})


@dataclass(frozen=True)
class AggregateBuffer:
    """The columns that an aggregate has in the state.

    ``aggregate`` is its line in the plan, and ``function`` the class that Spark executes. ``columns`` are the names of
    the columns, and ``initial`` are their values before any row, as JSON: binary values are hexadecimal text, and
    decimals are text. ``inputs`` are the types of its arguments in the query, and ``reads`` those that Spark executes.
    """

    aggregate: str
    function: str
    columns: tuple[str, ...]
    initial: tuple[Any, ...]
    inputs: tuple[str, ...]
    reads: tuple[str, ...]

    @property
    def layout(self) -> tuple[Any, ...]:
        """What another buffer needs in common, apart from the types of the columns, to have the same content.

        The content of most buffers follows from the types of their columns. That of others, such as a list in a binary
        column, depends on the types of the arguments.
        """
        return (self.function, self.columns, *(() if self.is_plain else (self.inputs, self.reads)))

    @property
    def is_plain(self) -> bool:
        """Whether the types of the columns alone say what their content means."""
        return self.function in _PLAIN_FUNCTIONS and self.inputs == self.reads

    def to_json(self) -> dict[str, Any]:
        return {
            "aggregate": self.aggregate,
            "function": self.function,
            "columns": list(self.columns),
            "initial": list(self.initial),
            "inputs": list(self.inputs),
            "reads": list(self.reads),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> AggregateBuffer:
        parts = {name: tuple(document[name]) for name in ("columns", "initial", "inputs", "reads")}
        return cls(aggregate=document["aggregate"], function=document["function"], **parts)


@dataclass(frozen=True)
class OperatorContract:
    """One stateful operator. ``name`` is None if it is not recorded (Spark before 4.0).

    ``time_mode`` and ``output_mode`` are those that transformWithState records. ``plan`` has the lines of
    ``ttlsnap.contract.plan``, from this operator down to the sources. ``functions`` has a digest for each part of each
    Python function or class that the operator runs. Both are None if the contract does not come from a query.

    ``legacy_key`` has the key columns of a deduplication in the order that the query has with a checkpoint that an
    earlier Spark began. It is None if that order is the same, or if the contract does not come from a query.

    ``buffers`` has the aggregates in the order of their columns in the state; None if they are not known.
    """

    id: int
    name: str | None
    partitions: int
    stores: tuple[StoreContract, ...]
    time_mode: str | None = None
    output_mode: str | None = None
    plan: tuple[str, ...] | None = None
    functions: Mapping[str, Mapping[str, str]] | None = None
    legacy_key: tuple[str, ...] | None = None
    buffers: tuple[AggregateBuffer, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        functions = self.functions
        more: dict[str, Any] = {} if self.legacy_key is None else {"legacy_key": list(self.legacy_key)}
        if self.buffers is not None:
            more["buffers"] = [buffer.to_json() for buffer in self.buffers]
        return {
            "id": self.id,
            "name": self.name,
            "partitions": self.partitions,
            "time_mode": self.time_mode,
            "output_mode": self.output_mode,
            "stores": [store.to_json() for store in self.stores],
            **more,
            "plan": None if self.plan is None else list(self.plan),
            "functions": None if functions is None else {name: dict(functions[name]) for name in sorted(functions)},
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> OperatorContract:
        stores = tuple(StoreContract.from_json(store) for store in document["stores"])
        plan = None if document["plan"] is None else tuple(document["plan"])
        legacy, buffers = document.get("legacy_key"), document.get("buffers")
        return cls(
            **{
                **document,
                "stores": stores,
                "plan": plan,
                "legacy_key": None if legacy is None else tuple(legacy),
                "buffers": None if buffers is None else tuple(map(AggregateBuffer.from_json, buffers)),
            }
        )

    def __str__(self) -> str:
        return f"operator {self.id}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True)
class Contract:
    """The description of a query's state.

    ``made_from`` is ``checkpoint``, ``query`` or ``checkpoint and query``. ``spark`` is a version; for a checkpoint,
    which does not record it, a range such as ``>=4.0,<4.2``. ``planned_by`` is the version that wrote the plans.
    ``changelog`` (RocksDB) is None if no file shows it. ``conf`` has the settings that Spark pins in the checkpoint.
    ``output_mode`` is the mode of the query, which no checkpoint records. ``reads`` has the query's sources in Spark's
    order, each with its name, if any, and its columns.

    In a contract from a query, a column is nullable if the query makes it so, whatever Spark records (see
    ``records_nullability``).
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

    @property
    def widens(self) -> bool:
        """Whether Spark records every column as nullable."""
        return self.conf.get(ALWAYS_NULLABLE, "false").lower() == "true"

    @property
    def lists_keys(self) -> bool:
        """Whether deduplications have the columns of their keys in the order in which the query lists them."""
        return self.conf.get(KEYS_AS_LISTED, "false").lower() == "true"

    @property
    def records_nullability(self) -> bool:
        """Whether the schemas say which columns the query itself makes nullable."""
        return self.made_from == "query" or not self.widens

    def to_json(self) -> dict[str, Any]:
        """Return the document, with its keys in an order for reviewers."""
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
        """Return the document as text. Equal contracts have equal texts."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"


def parse_contract(text: str | bytes, where: str) -> Contract | TableContract:
    """Parse a contract. ``where`` names it in errors.

    Raise UnsupportedError for a newer version of the format or an unknown type, and UsageError for a text that is not a
    contract.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{where} is not a contract: it is not JSON ({error})") from error
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
        raise UnsupportedError(
            f"{where} is a contract of version {version}; this ttlsnap knows version {VERSION}. Use a newer ttlsnap"
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
    except UnsupportedError as error:  # a type of a newer Spark
        raise UnsupportedError(f"{where}: {error}") from error
    except TtlsnapError as error:  # not a valid type
        raise UsageError(f"{where} is not a contract: {error}") from error


def _validate(document: Any, where: str, schema: str) -> None:
    try:
        _validator(schema)(document)
    except fastjsonschema.JsonSchemaException as error:
        message = str(error) if len(str(error)) < 300 else f"{str(error)[:300]}..."
        raise UsageError(f"{where} is not a contract: {message}. Make one with `ttlsnap contract`") from error


@cache
def _validator(name: str) -> Callable[[Any], Any]:
    schema = json.loads(resources.files("ttlsnap.contract").joinpath(name).read_text())
    compiled: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return compiled
