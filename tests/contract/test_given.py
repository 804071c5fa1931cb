"""Functions that take contracts say how to read one if they get something else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import NewQuery
from ttlsnap.check import check
from ttlsnap.check.targets import load_contract
from ttlsnap.contract import Contract, TableContract, contract_of_checkpoint, parse_contract
from ttlsnap.errors import UsageError

from ..check.observe_tables import read_observed
from ..samples import SAMPLES

AGG = str(SAMPLES / "agg-deltas-lz4-4.2")


@pytest.mark.parametrize("wrong", [AGG, Path(AGG), {"version": 1}, None])
def test_a_contract_is_not_a_path(wrong: Any) -> None:
    contract = contract_of_checkpoint(AGG)
    assert isinstance(contract, Contract)
    kind = type(wrong).__name__
    told = rf"is {kind}, not a contract\. Read .* with ttlsnap\.check\.targets\.load_contract\(path\)"
    with pytest.raises(UsageError, match=f"^old {told}"):
        check(wrong, contract)
    with pytest.raises(UsageError, match=f"^new {told}"):
        check(contract, wrong)
    with pytest.raises(UsageError, match=f"^contract {told}"):
        NewQuery(wrong)
    if wrong is not None:
        with pytest.raises(UsageError, match=f"^old {told}"):
            replace(NewQuery(contract), old=wrong)


def test_a_contract_file_is_read(tmp_path: Path) -> None:
    contract = contract_of_checkpoint(AGG)
    (tmp_path / "new.json").write_text(contract.dumps())
    read = load_contract(str(tmp_path / "new.json"))
    assert isinstance(read, Contract) and read == load_contract(AGG)
    assert load_contract(Path(AGG)) == read  # type: ignore[arg-type]
    assert not check(contract, read).findings
    assert NewQuery(read).contract is read


def test_a_table_is_not_a_query() -> None:
    table = parse_contract(json.dumps(read_observed()["table-same"]["contracts"][0]), "it")
    assert isinstance(table, TableContract)
    with pytest.raises(UsageError, match="contract is the contract of a Delta table, and not of a query"):
        NewQuery(table)  # type: ignore[arg-type]
