"""Delta state tables: rows with a key, which a stream updates with ``MERGE``."""

from __future__ import annotations

from ttlsnap.delta.log import Protocol, TableMetadata, TableState, is_table, read_table

__all__ = ["Protocol", "TableMetadata", "TableState", "is_table", "read_table"]
