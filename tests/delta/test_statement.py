"""The ``MERGE`` of a run names each row by its key, and changes only rows that are as they were read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ttlsnap.delta.log import read_table
from ttlsnap.delta.planning import TablePlan, plan_table
from ttlsnap.delta.rewriting import RowChanges
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transform.chain import StateResult
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, UpdateType

TTL = TtlTransformerFactory(StateTtlConfig(86_400_000_000), "at")


def plan(folder: Path, rule: TtlTransformerFactory = TTL) -> TablePlan:
    """Return the plan of a run over a table whose key has two columns, one of them with a dot in its name."""
    columns = {"user": ["u1", None], "a.b": [1, 2], "at": pa.array([0, 1], pa.timestamp("us", "UTC")), "n": [5, 6]}
    write_deltalake(str(folder), pa.table(columns))
    files = LocalDirectory(str(folder))
    return plan_table(files, read_table(files), [rule], ["user", "a.b"], "2026-01-01")


def statement(of: TablePlan, *, null_keys: bool = False, dropped: int = 0, rewritten: int = 0) -> str:
    counts = StateResult("rows", dropped=dropped, rewritten=rewritten)
    changes = RowChanges(Mock(), counts, null_keys, 100, "changes")
    return changes.statement(of, None)


@pytest.mark.parametrize(("null_keys", "equal"), [(False, "="), (True, "<=>")])
def test_every_column_of_the_key_is_compared(tmp_path: Path, null_keys: bool, equal: str) -> None:
    # In SQL, a null is not equal to a null, and so the row would stay.
    made = statement(plan(tmp_path), null_keys=null_keys, dropped=1)
    assert f" ON t.`user` {equal} s.old.c0 AND t.`a.b` {equal} s.old.c1 WHEN " in made


def test_a_row_that_another_writer_has_changed_is_neither_dropped_nor_rewritten(tmp_path: Path) -> None:
    made = statement(plan(tmp_path), dropped=1, rewritten=1)
    drop, update = re.findall(r"WHEN MATCHED AND (.*?) THEN (?:DELETE|UPDATE)", made)
    for clause, gone in ((drop, "s.gone"), (update, "NOT s.gone")):
        assert clause == f"{gone} AND t.`at` <=> s.old.c2 AND t.`n` <=> s.old.c3"
    assert made.endswith("THEN UPDATE SET t.`at` = s.new.c2, t.`n` = s.new.c3")


@pytest.mark.parametrize(
    ("counts", "words"), [({"dropped": 1}, ["DELETE"]), ({"rewritten": 1}, ["UPDATE"]), ({}, [])], ids=str
)
def test_nothing_else_is_done(tmp_path: Path, counts: dict[str, Any], words: list[str]) -> None:
    made = statement(plan(tmp_path), **counts)
    assert re.findall("DELETE|UPDATE|INSERT", made) == words


def test_a_table_with_other_columns_is_left_alone(tmp_path: Path) -> None:
    old = plan(tmp_path)
    write_deltalake(str(tmp_path), pa.table({"another": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(RefusedError, match="changed during the run; run again"):
        statement(old, dropped=1)


def test_a_disabled_ttl_deletes_no_row(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to do: its update type is Disabled"):
        plan(tmp_path, TtlTransformerFactory(StateTtlConfig(1, UpdateType.DISABLED), "at"))
