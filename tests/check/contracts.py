"""Contracts of samples, and changes to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract

from ..samples import SAMPLES

Edit = Callable[[dict[str, Any]], object]


def contract(name: str, edit: Edit | None = None) -> Contract:
    """Return the contract of a sample, changed by ``edit``."""
    document = json.loads(contract_of_checkpoint(str(SAMPLES / name)).dumps())
    if edit is not None:
        edit(document)
    made = parse_contract(json.dumps(document), name)
    assert isinstance(made, Contract)
    return made


def as_recorded(query: Contract) -> Contract:
    """Return the contract of a query without what its checkpoint does not record."""
    operators = tuple(
        replace(
            operator,
            stores=tuple(
                replace(store, states=store.states and tuple(replace(state, ttl_ms=None) for state in store.states))
                for store in operator.stores
            ),
            plan=None,
            functions=None,
            buffers=None,
            legacy_key=None,
        )
        for operator in query.operators
    )
    return replace(query, made_from="checkpoint", operators=operators, output_mode=None, planned_by=None, reads=None)
