"""Contracts of aggregations with other expressions, made from the contract of a real query."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Sequence
from typing import Any

from ttlsnap.contract import Contract, parse_contract

from ..check.quality import KEPT
from .contracts import column

Expression = tuple[str, str, str]
SOURCE = "user string, other string, amount bigint, price double, ts timestamp"


def aggregation(
    keys: Sequence[Expression], aggregates: Sequence[Expression], *, source: str = SOURCE, steps: Sequence[str] = ()
) -> Contract:
    """Return the contract of a query. Each expression has its text, its column in the state, and its type there."""
    document: dict[str, Any] = copy.deepcopy(
        json.loads(gzip.decompress(KEPT.read_bytes()))["contracts"]["agg-argument-now-nullable.new"]
    )
    (operator,) = document["operators"]
    (buffer,) = operator["buffers"]
    (state,) = operator["stores"][0]["states"]
    groups = [f"group by {text}" for text, *_ in keys]
    operator["plan"] = [*groups, *(f"aggregate {text}" for text, *_ in aggregates), *steps, f"from {source}"]
    operator["buffers"] = [{**buffer, "aggregate": text, "columns": [name]} for text, name, _ in aggregates]
    state["key"], state["value"] = ([column(name, kind) for _, name, kind in side] for side in (keys, aggregates))
    contract = parse_contract(json.dumps(document), "it")
    assert isinstance(contract, Contract)
    return contract
