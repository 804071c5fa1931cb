"""What a check is given: a checkpoint, or a contract in a file."""

from __future__ import annotations

from pathlib import Path

from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.contract.model import MAX_BYTES
from ttlsnap.errors import StorageError, UsageError


def load_contract(target: str) -> Contract:
    """The contract in the file ``target``, or that of the checkpoint in the folder ``target``."""
    path = Path(target)
    if "://" in target or target.startswith("file:") or path.is_dir():
        return contract_of_checkpoint(target)
    if not path.exists():
        raise UsageError(
            f"{target} does not exist: a checkpoint's folder is wanted, or a file that `ttlsnap contract` wrote"
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{target} is larger than a contract can be")
        text = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {target}: {error.strerror}") from error
    return parse_contract(text, target)
