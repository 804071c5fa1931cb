"""State contracts: descriptions of a query's state, to compare before a deployment. See ``docs/contract.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttlsnap.contract.model import Contract, OperatorContract, StateContract, StoreContract, parse_contract
from ttlsnap.contract.table import TableContract, contract_of_table

if TYPE_CHECKING:
    from ttlsnap.contract.of_checkpoint import contract_of_checkpoint

__all__ = [
    "Contract",
    "OperatorContract",
    "StateContract",
    "StoreContract",
    "TableContract",
    "contract_of_checkpoint",
    "contract_of_table",
    "parse_contract",
]


def __getattr__(name: str) -> Any:
    if name != "contract_of_checkpoint":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # It needs the code that reads state. A check of two files does without.
    from ttlsnap.contract.of_checkpoint import contract_of_checkpoint

    return contract_of_checkpoint
