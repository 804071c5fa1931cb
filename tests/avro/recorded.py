"""The samples that ``generate`` wrote, as the objects that ttlsnap works with."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ttlsnap.avro.keys import KeyLayout
from ttlsnap.avro.values import ValueSchemas
from ttlsnap.schema.json import from_value
from ttlsnap.schema.types import StructType

VERSIONS = ("4.0", "4.1", "4.2")
LISTS = ("rows", "recent", "list")
_DELIMITERS = {"4.0": b",", "4.1": b",", "4.2": b""}


@dataclass(frozen=True, eq=False)
class Sample:
    """One state of one query as Spark stored it in Avro.

    ``twin`` has the same entries in unsaferow. ``said`` has them as Spark's reader shows them.
    """

    version: str
    query: str
    state: str
    layout: KeyLayout
    schemas: ValueSchemas
    keys: list[bytes]
    values: list[bytes]
    twin: list[tuple[bytes, bytes]]
    said: list[str]

    def __str__(self) -> str:
        return f"{self.version}-{self.query}-{self.state}"

    @property
    def rows(self) -> list[bytes]:
        """Return the stored values. For a list these are its elements."""
        return [row for value in self.values for row in self.elements(value)]

    def elements(self, value: bytes) -> list[bytes]:
        """Return the elements of a list's value, or the value itself."""
        if self.state not in LISTS:
            return [value]
        found, delimiter = [], _DELIMITERS[self.version]
        while value:
            (size,) = struct.unpack_from("<i", value)
            found.append(value[4 : 4 + size])
            value = value[4 + size :]
            assert not value or value.startswith(delimiter)
            value = value[len(delimiter) :]
        return found


@cache
def samples(*versions: str) -> list[Sample]:
    """Return all samples, or those of these versions of Spark."""
    return [_sample(version, each) for version in versions or VERSIONS for each in _read(version)]


def sample(version: str, query: str, state: str) -> Sample:
    """Return the sample of one state."""
    (found,) = [each for each in samples(version) if (each.query, each.state) == (query, state)]
    return found


def _read(version: str) -> Any:
    path = Path(__file__).parent / "samples" / f"{version}.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))


def _sample(version: str, document: dict[str, Any]) -> Sample:
    encoder = document["encoder"]
    ordered = encoder["keyStateEncoderType"] == "RangeKeyScanStateEncoderSpec"
    prefix = len(encoder["orderingOrdinals"]) if ordered else encoder.get("numColsPrefixKey", 0)
    schemas = {int(number): _struct(value) for number, value in document["value_schemas"].items()}
    return Sample(
        version,
        document["query"],
        document["state"],
        KeyLayout(_struct(document["key_schema"]), 0, prefix, ordered),
        ValueSchemas(schemas, list(schemas)[-1]),
        [bytes.fromhex(key) for key, _ in document["avro"]],
        [bytes.fromhex(value) for _, value in document["avro"]],
        [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in document.get("unsaferow", [])],
        document.get("spark") or [],
    )


def _struct(value: Any) -> StructType:
    parsed = from_value(value)
    assert isinstance(parsed, StructType)
    return parsed
