"""Contracts of samples, changed as if another query had made them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttlsnap.contract import contract_of_checkpoint

Document = dict[str, Any]
Change = Callable[[Document], object]
JOIN, WITHIN, GROUPS, PLAIN = "join-4.2", "dedup-within-4.2", "groups-3.1", "agg-deltas-lz4-4.2"


def contract(target: Path, change: Change) -> Document:
    """Return the contract of a checkpoint, changed as if another query had made it."""
    document: Document = copy.deepcopy(contract_of_checkpoint(str(target)).to_json())
    change(document)
    return document


def states(document: Document, store: str = "") -> list[Document]:
    """Return the states of all stores, or of those with this word in their names."""
    return [
        state
        for operator in document["operators"]
        for each in operator["stores"]
        if store in each["name"]
        for state in each["states"]
    ]


def named(document: Document, name: str) -> Document:
    """Return the state with this name."""
    (found,) = (state for state in states(document) if state["name"] == name)
    return found


def left(document: Document) -> list[Document]:
    """Return the columns of a join's buffered rows on the left."""
    fields: list[Document] = states(document, "left-keyWithIndexToValue")[0]["value"]
    return fields


def column(name: str, kind: Any = "string", *, nullable: bool = True) -> Document:
    """Return a column of a state."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def change_everything(document: Document) -> None:
    """Add, rename, narrow and reorder columns of the rows on the left."""
    fields = left(document)
    fields[2]["name"] = "worth"
    fields[2]["type"] = "integer"
    fields.insert(0, column("extra", "integer", nullable=False))
    fields[1], fields[2] = fields[2], fields[1]
