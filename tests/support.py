"""The support table of ``docs/support.md``: the checkpoints that the tests inspected, compacted and restarted.

``TTLSNAP_SUPPORT=FOLDER`` lets every test write what it did to FOLDER, if it passes. A checkpoint counts when it was
inspected and compacted and a real query restarted on it. ``python -m tests.support FOLDER`` then puts all of it into
``tests/support.json`` with the date, and writes the table. Without a folder it only writes the table.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttlsnap import inspect

if TYPE_CHECKING:
    from .judge.spark import Checkpoint

KEPT = Path(__file__).with_name("support.json")
PAGE = Path(__file__).parents[1] / "docs" / "support.md"
VERSIONS = ("3.1", "3.2", "3.3", "3.4", "3.5", "4.0", "4.1", "4.2", "4.3")

OPERATORS = {
    "aggregation": (
        "agg_update",
        "agg_all",
        "agg_slow",
        "agg_update_watermark",
        "agg_update_long",
        "agg_two_maxima",
        "agg_complete",
        "agg_repartitioned",
        "windows_for_ever",
    ),
    "aggregation with a watermark": ("agg_append", "agg_window_update", "agg_namesake"),
    "`dropDuplicates`": (
        "dedup",
        "dedup_plain",
        "dedup_key",
        "dedup_alone",
        "dedup_many",
        "dedup_interval",
        "dedup_void",
        "dedup_floats",
    ),
    "`dropDuplicatesWithinWatermark`": ("dedup_within",),
    "session window": ("sessions",),
    "stream-stream join": ("join", "join_parities", "join_ignoring_case", "join_on_columns"),
    "`flatMapGroupsWithState`": ("groups_scala", "groups_for_ever_scala"),
    "`applyInPandasWithState`": ("groups", "groups_for_ever"),
    "`transformWithState` (Scala)": ("for_a_day_scala",),
    "`transformWithStateInPandas`, `transformWithState` (Python)": (
        *("for_a_day", "for_a_day_rows", "visits", "lists", "alarms", "removals", "reminders"),
    ),
    "several operators": ("windows_of_windows", "dedup_windows", "dedup_within_windows", "join_windows"),
    "`limit`": ("first_rows", "first_rows_deduplicated", "dedup_first_rows"),
}
STORES = ("HDFS-backed", "RocksDB", "RocksDB, changelogs", "RocksDB, checkpoint format 2")
# The first version that has an operator or a store.
SINCE = {
    "session window": "3.2",
    "`dropDuplicatesWithinWatermark`": "3.5",
    "`applyInPandasWithState`": "3.4",
    "`transformWithState` (Scala)": "4.0",
    "`transformWithStateInPandas`, `transformWithState` (Python)": "4.0",
    "RocksDB": "3.2",
    "RocksDB, changelogs": "3.5",
    "RocksDB, checkpoint format 2": "4.0",
}
ONLY_ROCKSDB = ("`transformWithState` (Scala)", "`transformWithStateInPandas`, `transformWithState` (Python)")

_done: list[dict[str, Any]] = []


def folder() -> Path | None:
    """Return the folder for records, or None if nobody wants them."""
    named = os.environ.get("TTLSNAP_SUPPORT")
    return Path(named) if named else None


def inspect_compacted(checkpoint: Checkpoint) -> bool:
    """Inspect a checkpoint that ttlsnap has compacted. Return False for any other one, and if nobody wants records."""
    if folder() is None or not _is_compacted(checkpoint.path):
        return False
    assert inspect(str(checkpoint.path)).states(), checkpoint.path
    return True


def note(checkpoint: Checkpoint, version: str) -> None:
    """Note that a query of this version restarted on a compacted checkpoint."""
    query = checkpoint.query
    done = {"operator": _operator(query.operator), "store": _store(query), "written": checkpoint.version, "by": version}
    if done not in _done:
        _done.append(done)


def settle(*, passed: bool) -> None:
    """Write what the test did, or forget it if the test failed."""
    records, _done[:] = list(_done), []
    place = folder()
    if place is not None and records and passed:
        place.mkdir(parents=True, exist_ok=True)
        with (place / f"{os.getpid()}.jsonl").open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


def _is_compacted(path: Path) -> bool:
    reports = [json.loads(report.read_text()) for report in path.glob("_ttlsnap/runs/*/report.json")]
    undone = {json.loads(journal.read_text()).get("undoes") for journal in path.glob("_ttlsnap/runs/*/journal.json")}
    return any("totals" in report and report.get("run") not in undone for report in reports)


def _operator(name: str) -> str:
    return next(shown for shown, names in OPERATORS.items() if name in names)


def _store(query: Any) -> str:
    if query.provider == "hdfs":
        return STORES[0]
    return STORES[3] if query.checkpoint_format == 2 else STORES[2] if query.changelog else STORES[1]


def collect(place: Path) -> dict[str, Any]:
    """Return all records of a folder: for each operator, store and version the versions that restarted it."""
    cells: dict[str, dict[str, dict[str, list[str]]]] = {}
    for file in sorted(place.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            by = cells.setdefault(one["operator"], {}).setdefault(one["store"], {}).setdefault(one["written"], [])
            by += [one["by"]] if one["by"] not in by else []
    for stores in cells.values():
        for versions in stores.values():
            for by in versions.values():
                by.sort()
    return {"date": datetime.now(UTC).date().isoformat(), "cells": cells}


def table(kept: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    lines = [f"| operator | state store | {' | '.join(VERSIONS)} |", "| --- | --- |" + " --- |" * len(VERSIONS)]
    for operator in OPERATORS:
        for store in STORES:
            if operator in ONLY_ROCKSDB and store == STORES[0]:
                continue
            found = kept["cells"].get(operator, {}).get(store, {})
            cells = [_cell(operator, store, version, found.get(version)) for version in VERSIONS]
            if set(cells) - {"", "-"}:
                lines.append(f"| {operator} | {store} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(operator: str, store: str, version: str, by: list[str] | None) -> str:
    if version < max(SINCE.get(operator, ""), SINCE.get(store, "")):
        return "-"
    return "" if by is None else ", ".join(by)


def page(kept: dict[str, Any]) -> str:
    """Return the page with the current table."""
    begin, end = "<!-- table -->", "<!-- end of table -->"
    head, _, rest = PAGE.read_text().partition(begin)
    text = f"Date: {kept['date']}.\n\n{table(kept)}"
    return f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    if sys.argv[1:]:
        KEPT.write_text(json.dumps(collect(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(json.loads(KEPT.read_text())))


if __name__ == "__main__":
    main()
