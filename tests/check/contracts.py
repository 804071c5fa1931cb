"""Contracts of samples, and changes to them."""

from __future__ import annotations

import json
from collections.abc import Callable
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
