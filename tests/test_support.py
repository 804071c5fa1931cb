"""The support table: it shows what was recorded, and has a row for every query of the tests."""

from __future__ import annotations

import json
from pathlib import Path

from . import support
from .judge.queries import OPERATORS
from .judge.reported import LINKS


def test_every_query_of_the_tests_has_one_row() -> None:
    rows = [name for names in support.OPERATORS.values() for name in names]
    assert sorted(rows) == sorted(OPERATORS)


def test_a_row_names_the_versions_that_restarted_each_checkpoint(tmp_path: Path) -> None:
    one = {"operator": "session window", "store": "RocksDB", "written": "4.0"}
    records = [json.dumps({**one, "by": by}) for by in ("4.2", "4.0", "4.2")]
    (tmp_path / "1.jsonl").write_text("\n".join(records))
    row = support.table(support.collect(tmp_path)).splitlines()[-1]
    assert row == "| session window | RocksDB | - |  |  |  |  | 4.0, 4.2 |  |  |  |"


def test_the_page_shows_what_was_recorded() -> None:
    kept = json.loads(support.KEPT.read_text())
    assert support.PAGE.read_text() == support.page(kept), "run: python -m tests.support"


def test_the_docs_name_each_report() -> None:
    page = support.PAGE.read_text()
    assert all(f"]({link}) | `{name}` |" in page for name, link in LINKS.items())
