"""The content of archives of dropped rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

Rows = list[dict[str, Any]]


def archived(place: str) -> Rows:
    """Return the rows in a folder or in a Delta table."""
    path = Path(place.removeprefix("delta:"))
    found = DeltaTable(path).to_pyarrow_table() if (path / "_delta_log").exists() else pq.read_table(path)
    rows: Rows = found.to_pylist()
    return sorted(rows, key=lambda row: (row["run"], row["key"]))


def users(rows: Rows) -> list[str]:
    return [json.loads(row["key"])["user"] for row in rows]
