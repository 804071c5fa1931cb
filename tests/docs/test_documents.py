"""The documents of all commands stay as they are stored, with the order of their keys."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.delta.history import table_history

from ..delta.tables import Table
from ..judge.processes import Server
from .documents import STORED, as_text, with_fixed

NAMES = tuple(json.loads(STORED.read_text())) if STORED.exists() else ()
STORED_OF_TABLES = STORED.with_name("table_documents.json")
OF_TABLES = {"bytes_before": 0, "at": "TIME", "physically_gone_by": "TIME"}


def test_every_document_is_stored(made_documents: dict[str, Any]) -> None:
    if os.environ.get("TTLSNAP_STORE"):
        STORED.write_text(as_text(made_documents) + "\n")
    assert tuple(json.loads(STORED.read_text())) == tuple(made_documents)


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_as_stored(made_documents: dict[str, Any], name: str) -> None:
    assert as_text(made_documents[name]).splitlines() == as_text(json.loads(STORED.read_text())[name]).splitlines()


@pytest.mark.wide
def test_the_documents_of_a_changed_table_are_as_stored(delta_server: Server, tmp_path: Path) -> None:
    table = Table(delta_server, tmp_path, kind="vectors")
    found = {"compact": table.compact()}
    table.call("rollback", path=table.path)
    found["erase"] = table.compact(erase=(0, True))
    found["history"] = [run.to_json() for run in table_history(table.path)]
    text = as_text(with_fixed(found, str(tmp_path), OF_TABLES)) + "\n"
    if os.environ.get("TTLSNAP_STORE"):
        STORED_OF_TABLES.write_text(text)
    assert text.splitlines() == STORED_OF_TABLES.read_text().splitlines()
