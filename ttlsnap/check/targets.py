"""The targets of a check: a checkpoint, a Delta table, or a contract in a file."""

from __future__ import annotations

import re
from pathlib import Path

from ttlsnap.contract import Contract, TableContract, contract_of_table, parse_contract
from ttlsnap.contract.model import MAX_BYTES
from ttlsnap.delta import is_table
from ttlsnap.errors import UsageError
from ttlsnap.keywords import public
from ttlsnap.printable import shell_word
from ttlsnap.storage.open import open_directory, read_given

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_folder(target: str) -> bool:
    """Return whether ``target`` is a folder, and not a file with a contract. Raise UsageError for an unusable name."""
    try:
        folder = Path(target).is_dir()
    except OSError as error:  # for example a name that is too long
        raise UsageError(f"cannot read {target[:80]}: {error.strerror}") from error
    return "://" in target or target.startswith("file:") or folder


def refuse_script(target: str) -> None:
    """Raise UsageError for a script: its contract has to be made first."""
    if target.endswith(".py") and Path(target).is_file():
        raise UsageError(f"{target} is a script. To make its contract: ttlsnap contract --script {shell_word(target)}")


@public
def load_contract(target: str) -> Contract | TableContract:
    """Return the contract in the file ``target``, or that of the checkpoint or Delta table in the folder ``target``."""
    if is_folder(target):
        from ttlsnap.contract.of_checkpoint import contract_of_checkpoint

        return contract_of_table(target) if is_table(open_directory(target)) else contract_of_checkpoint(target)
    if not Path(target).exists():
        raise UsageError(
            f"{target} does not exist. Name the folder of a checkpoint or table, or a file that "
            f"`ttlsnap contract{f' {target}' if _FUNCTION.fullmatch(target) else ''}` wrote"
        )
    refuse_script(target)
    return parse_contract(read_given(target, MAX_BYTES, "a contract"), target)
