"""Contracts that the caller of a function gives, as objects."""

from __future__ import annotations

from ttlsnap.contract.model import Contract
from ttlsnap.contract.table import TableContract
from ttlsnap.errors import UsageError


def require_contract(given: object, name: str, *, of_query: bool = False) -> None:
    """Raise UsageError if ``given`` is not a contract, or with ``of_query`` not that of a query.

    ``name`` is that of the argument.
    """
    if isinstance(given, TableContract) and of_query:
        raise UsageError(f"{name} is the contract of a Delta table, and not of a query")
    if not isinstance(given, Contract | TableContract):
        raise UsageError(
            f"{name} is {type(given).__name__}, not a contract. Read a contract file, a checkpoint or a Delta table "
            "with ttlsnap.check.targets.load_contract(path)"
        )
