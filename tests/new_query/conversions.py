"""Transformers that give values in the schema of a new query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap import StateDescriptor, StateEntries, for_new_query


@for_new_query
def as_texts(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the same fields as texts."""
    return {name: str(each) for name, each in value.items()}


@for_new_query
def shortened(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the time with hours and without the value, as the new query has them."""
    worth = f"{value['left_value']}!"
    return {"key": value["key"], "hour": value["at"].hour, "worth": worth, "matched": value["matched"]}


@for_new_query
def with_note(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return a value with a note. A function does not see expiry times."""
    assert "ttlExpirationMs" not in value
    return {**value, "note": "-"}


@for_new_query
def incomplete(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {"key": value["key"]}


@for_new_query
def of_another_type(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {**shortened(key, value), "hour": "late"}


@for_new_query
def null(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {**shortened(key, value), "hour": None}


@for_new_query
def failing(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(str(key))


@dataclass(frozen=True)
class Batches:
    """The converter of whole batches; ``short`` loses an entry of each."""

    short: bool = False

    @classmethod
    def from_options(cls, options: dict[str, str]) -> Batches:
        """short: whether to lose an entry of each batch"""
        return cls(options.get("short") == "true")

    def converts(self, state: StateDescriptor, schema: Any) -> bool:
        return state.field("value.left_value") is not None

    def convert(self, entries: StateEntries, schema: Any) -> pa.StructArray:
        old = entries.value_structs
        texts = pc.binary_join_element_wise(pc.cast(old.field("left_value"), pa.string()), "!", "")
        hour = pc.cast(pc.hour(old.field("at")), pa.int32())
        made = pa.StructArray.from_arrays([old.field("key"), hour, texts, old.field("matched")], schema.names)
        return made.slice(1) if self.short else made
