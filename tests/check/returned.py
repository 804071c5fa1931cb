"""Contracts of a query that declares a state variable again, which an earlier query had."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from ttlsnap.contract import contract_of_checkpoint

from ..new_query.contracts import Change, Document, column
from .returning import Declared


def with_variable(target: Path, name: str, change: Change = lambda variable: None) -> Document:
    """Return the contract of a checkpoint with an unused variable declared again, as ``change`` changes it."""
    document: Document = copy.deepcopy(contract_of_checkpoint(str(target)).to_json())
    store = document["operators"][0]["stores"][0]
    variable = next(state for state in store.pop("unused") if state["name"] == name)
    del variable["kept"]
    change(variable)
    store["states"].append(variable)
    return document


def write(path: Path, document: Document) -> Path:
    path.write_text(json.dumps(document))
    return path


def with_text(variable: Document) -> None:
    """Give the first field of a variable without a TTL another type."""
    variable["value"][0]["type"] = "string"


def without_ttl(variable: Document) -> None:
    variable.update(ttl=False, value=variable["value"][0]["type"]["fields"])


def as_value(variable: Document) -> None:
    variable["kind"] = "value"


def as_map(variable: Document) -> None:
    """Make a map of another variable: its key has a part of its own."""
    parts = {"key": variable["key"], "userKey": [column("digit")]}
    variable["kind"] = "map"
    variable["key"] = [column(name, {"type": "struct", "fields": fields}) for name, fields in parts.items()]


def another_name(variable: Document) -> None:
    variable["name"] = "never"


_TYPES = {"int": "integer", "bigint": "long", "string": "string"}


def declared_as(variable: Document, wanted: Declared) -> None:
    """Make a variable what the code declares."""
    fields = [column("x", _TYPES[wanted.type])]
    with_ttl = [column("value", {"type": "struct", "fields": fields}), column("ttlExpirationMs", "long")]
    if wanted.kind == "map" and variable["kind"] != "map":
        as_map(variable)
    elif wanted.kind != "map" and variable["kind"] == "map":
        variable["key"] = variable["key"][0]["type"]["fields"]
    variable.update(kind=wanted.kind, ttl=wanted.ttl, value=with_ttl if wanted.ttl else fields)
