"""What a check is given: a checkpoint, a Delta table, or a contract in a file."""

from __future__ import annotations

from pathlib import Path

from ttlsnap.contract import Contract, TableContract, contract_of_checkpoint, contract_of_table, parse_contract
from ttlsnap.contract.model import MAX_BYTES
from ttlsnap.delta import is_table
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.filesystem import open_directory


def load_contract(target: str) -> Contract | TableContract:
    """The contract in the file ``target``, or that of the checkpoint or the Delta table in the folder ``target``."""
    path = Path(target)
    if "://" in target or target.startswith("file:") or path.is_dir():
        return contract_of_table(target) if is_table(open_directory(target)) else contract_of_checkpoint(target)
    if not path.exists():
        raise UsageError(
            f"{target} does not exist: the folder of a checkpoint or a table is wanted, or a file that "
            "`ttlsnap contract` wrote"
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{target} is larger than a contract can be")
        text = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {target}: {error.strerror}") from error
    return parse_contract(text, target)
