"""The rows of exported tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Rows = list[dict[str, Any]]


def rows_in(folder: Path) -> Rows:
    """Return the rows of a table."""
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
