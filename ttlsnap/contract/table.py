"""The contract of a Delta state table: its columns, its key, and what readers and writers must support."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttlsnap.delta.log import KEY, Protocol, open_table, read_table
from ttlsnap.documents import ReadableDocument, in_json
from ttlsnap.schema.json import from_value, to_value
from ttlsnap.schema.types import ArrayType, DataType, MapType, StructField, StructType
from ttlsnap.versions import VERSION as RELEASE

VERSION = 1
MADE_FROM = "delta table"
_MAPPING = "delta.columnMapping."


def _struct(fields: list[Any]) -> StructType:
    struct = from_value({"type": "struct", "fields": fields})
    assert isinstance(struct, StructType)
    return struct


COLUMNS = in_json(convert=lambda struct: to_value(struct)["fields"], read=_struct)
"""The metadata of a field with columns."""


def by_name(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a mapping in the order of its keys, for reviewers."""
    return None if values is None else dict(sorted(values.items()))


class Reviewed(ReadableDocument):
    """A document that is committed, with its keys in an order for reviewers."""

    def dumps(self) -> str:
        """Return the document as text. Equal contracts have equal texts."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class TableContract(Reviewed):
    """The description of a Delta table.

    ``key`` has the columns of a row's key; it is empty if they are not known. ``properties`` are those of the table.
    """

    version: int = field(default=VERSION, init=False)
    ttlsnap: str = field(default=RELEASE, init=False)
    made_from: str = field(default=MADE_FROM, init=False)
    protocol: Protocol
    key: tuple[str, ...]
    partition_columns: tuple[str, ...]
    columns: StructType = field(metadata=COLUMNS)
    properties: Mapping[str, str] = field(metadata=in_json(convert=by_name))


def contract_of_table(target: str, key: Sequence[str] = ()) -> TableContract:
    """Return the contract of the table ``target``.

    ``key`` has the columns of a row's key; by default they are those that the table records.

    Raise UsageError for a key that is not a column, and the errors of ``read_table``.
    """
    table = read_table(open_table(target))
    metadata = table.metadata
    return TableContract(
        protocol=table.protocol,
        key=metadata.key_of(key, target),
        partition_columns=metadata.partition_columns,
        columns=StructType(tuple(_plain(field) for field in metadata.schema)),
        properties={
            name: value
            for name, value in metadata.properties.items()
            if name != KEY and not name.startswith(_MAPPING + "max")
        },
    )


def _plain(field: StructField) -> StructField:
    """Return a column without the names and numbers that it has in files, because they only matter within the table."""
    metadata = {name: value for name, value in field.metadata.items() if not name.startswith(_MAPPING)}
    return replace(field, type=_plain_type(field.type), metadata=metadata)


def _plain_type(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return StructType(tuple(_plain(field) for field in kind))
        case ArrayType():
            return replace(kind, element=_plain_type(kind.element))
        case MapType():
            return replace(kind, key=_plain_type(kind.key), value=_plain_type(kind.value))
    return kind
