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
from ttlsnap.checkpoint.logs import SOURCE_EVOLUTION
from ttlsnap.contract.table import COLUMNS, MADE_FROM, VERSION, Reviewed, TableContract, by_name
from ttlsnap.documents import Document, in_json
from ttlsnap.errors import TtlsnapError, UnsupportedError, UsageError
from ttlsnap.keywords import public
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.schema.types import StructType
from ttlsnap.versions import VERSION as RELEASE
from ttlsnap.versions import refuse_newer

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


@dataclass(frozen=True, kw_only=True)
class StateContract(Document):
    """One state: a column family, a state variable, or the only state of a store.

    ``ttl`` is whether a variable of transformWithState has a TTL. ``key_encoder`` is Spark's name for the layout of
    keys. Both are None if the state does not have them. ``ttl_ms`` is the TTL in milliseconds, known only from a query.
    ``kept`` says of a variable that the query no longer has whether Spark has kept its values.
    """

    name: str
    kind: str
    role: str
    ttl: bool | None = None
    ttl_ms: int | None = None
    key_encoder: str | None = None
    key: StructType = field(metadata=COLUMNS)
    value: StructType = field(metadata=COLUMNS)
    kept: bool | None = field(default=None, metadata=in_json(optional=True))


@dataclass(frozen=True)
class StoreContract(Document):
    """One store; ``states`` is None if the checkpoint records no schema (Spark before 3.1).

    ``unused`` has the state variables that earlier queries had, and this one does not; None if that is not known.
    """

    name: str
    prefix_key_columns: int
    states: tuple[StateContract, ...] | None
    unused: tuple[StateContract, ...] | None = field(default=None, metadata=in_json(optional=True))


@dataclass(frozen=True)
class AggregateBuffer(Document):
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


@dataclass(frozen=True, kw_only=True)
class OperatorContract(Document):
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
    time_mode: str | None = None
    output_mode: str | None = None
    stores: tuple[StoreContract, ...]
    legacy_key: tuple[str, ...] | None = field(default=None, metadata=in_json(optional=True))
    buffers: tuple[AggregateBuffer, ...] | None = field(default=None, metadata=in_json(optional=True))
    plan: tuple[str, ...] | None = None
    functions: Mapping[str, Mapping[str, str]] | None = field(default=None, metadata=in_json(convert=by_name))

    def __str__(self) -> str:
        return f"operator {self.id}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, kw_only=True)
class Contract(Reviewed):
    """The description of a query's state.

    ``ttlsnap`` is the version that made the contract. ``made_from`` is ``checkpoint``, ``query`` or ``checkpoint and
    query``. ``spark`` is a version; for a checkpoint, which does not record it, a range such as ``>=4.0,<4.2``.
    ``planned_by`` is the version that wrote the plans.
    ``changelog`` (RocksDB) is None if no file shows it. ``conf`` has the settings that Spark pins in the checkpoint.
    ``output_mode`` is the mode of the query, which no checkpoint records. ``reads`` has the query's sources in Spark's
    order, each with its name, if any, and its columns. ``source_names`` are the sorted names by which Spark knows the
    sources (source evolution); None without names, or if nothing shows them.

    In a contract from a query, a column is nullable if the query makes it so, whatever Spark records (see
    ``records_nullability``).
    """

    version: int = field(default=VERSION, init=False)
    ttlsnap: str = field(default=RELEASE, init=False)
    made_from: str
    spark: str
    planned_by: str | None = None
    provider: str
    encoding: str
    codec: str
    checkpoint_format: int
    row_checksums: bool
    changelog: bool | None
    offset_log: int
    sources: int
    reads: tuple[str, ...] | None = None
    source_names: tuple[str, ...] | None = field(default=None, metadata=in_json(optional=True))
    output_mode: str | None = None
    operators: tuple[OperatorContract, ...]
    conf: Mapping[str, str] = field(default_factory=dict, metadata=in_json(convert=by_name))

    @property
    def widens(self) -> bool:
        """Whether Spark records every column as nullable."""
        return self.conf.get(ALWAYS_NULLABLE, "false").lower() == "true"

    @property
    def names_sources(self) -> bool:
        """Whether Spark knows the sources by their names."""
        return self.conf.get(SOURCE_EVOLUTION, "false").lower() == "true"

    @property
    def lists_keys(self) -> bool:
        """Whether deduplications have the columns of their keys in the order in which the query lists them."""
        return self.conf.get(KEYS_AS_LISTED, "false").lower() == "true"

    @property
    def records_nullability(self) -> bool:
        """Whether the schemas say which columns the query itself makes nullable."""
        return self.made_from == "query" or not self.widens


@public
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
    if isinstance(document, dict) and "ttlsnap" in document:
        refuse_newer(document["ttlsnap"], where)
    table = isinstance(document, dict) and document.get("made_from") == MADE_FROM
    _validate(document, where, "table_schema.json" if table else "schema.json")
    try:
        return (TableContract if table else Contract).from_json(document)
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
