"""Delta state tables: rows by a key that a stream keeps up to date with ``MERGE``."""

from __future__ import annotations

from ttlsnap.delta.log import Protocol, TableMetadata, TableState, is_table, read_table

__all__ = ["Protocol", "TableMetadata", "TableState", "is_table", "read_table"]
