"""Spark replaces no ``${...}`` in the name of a table or a column: another table would be changed, or a secret told."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ..judge.processes import Server
from ..samples import bytes_of
from .tables import NOW, TTL, Table

VARIABLE = "${system:os.name}"
VALUE = "Linux"


def ask(server: Server, function: str, **order: Any) -> Any:
    return server.ask("call", package=str(Path(__file__).parent), function=f"stream.{function}", order=order)


@pytest.mark.wide
def test_a_table_with_a_variable_in_its_name_is_the_one_that_changes(delta_server: Server, tmp_path: Path) -> None:
    made = Table(delta_server, tmp_path / "made")
    meant, other = tmp_path / f"t{VARIABLE}", tmp_path / f"t{VALUE}"
    for place in (meant, other):
        shutil.copytree(made.path, place)
    before, old = bytes_of(other), len(DeltaTable(meant).to_pyarrow_table())
    report = made.call("compact", path=str(meant), **made.order())
    assert 0 < report["totals"]["dropped"] == old - len(DeltaTable(meant).to_pyarrow_table())
    made.call("rollback", path=str(meant))
    assert len(DeltaTable(meant).to_pyarrow_table()) == old
    assert bytes_of(other) == before


def test_a_column_with_a_variable_in_its_name_is_that_column(delta_server: Server, tmp_path: Path) -> None:
    path, name = tmp_path / "table", f"delta.`{tmp_path / 'table'}`"
    old, new = ((NOW - TTL + timedelta(hours=hours)).isoformat() for hours in (-1, 1))
    statements = [
        "SET spark.sql.variable.substitute = false",
        f"CREATE TABLE {name} (`{VARIABLE}` TIMESTAMP, user STRING) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        f"INSERT INTO {name} VALUES (TIMESTAMP '{old}', 'old'), (TIMESTAMP '{new}', 'new')",
        "SET spark.sql.variable.substitute = true",
    ]
    ask(delta_server, "sql", statements=statements)
    order = {"ttl": "7d", "timestamp": f"key.`{VARIABLE}`", "key": ["user", VARIABLE], "now": NOW.isoformat()}
    report = ask(delta_server, "compact", path=str(path), **order)
    assert report["totals"]["dropped"] == 1
    assert ask(delta_server, "sql", statements=[f"SELECT user FROM {name}"]) == [["new"]]
    log = "".join(file.read_text() for file in (path / "_delta_log").glob("*.json"))
    assert json.dumps(VALUE) not in log and f"{VARIABLE}" in log.replace("\\\\u0024", "$")
