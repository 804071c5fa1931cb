"""State contracts: descriptions of a query's state, to compare before a deployment. See ``docs/contract.md``."""

from ttlsnap.contract.model import Contract, OperatorContract, StateContract, StoreContract, parse_contract
from ttlsnap.contract.of_checkpoint import contract_of_checkpoint
from ttlsnap.contract.table import TableContract, contract_of_table

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
