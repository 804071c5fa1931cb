"""The evolution of entries, a batch at a time."""

from __future__ import annotations

from ttlsnap.evolution.changes import Misfits, StructChange, apply
from ttlsnap.evolution.model import StateEvolution
from ttlsnap.schema.nullable import as_nullable
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows


def evolve_keys(evolution: StateEvolution, old: StructType, rows: Rows, misfits: Misfits) -> Rows:
    """Return keys of the schema ``old`` in the new one."""
    return _evolve(evolution, evolution.key, old, evolution.new_key, rows, "key", misfits)


def evolve_values(evolution: StateEvolution, old: StructType, rows: Rows, misfits: Misfits) -> Rows:
    """Return values of the schema ``old`` in the new one."""
    return _evolve(evolution, evolution.value, old, evolution.new_value, rows, "value", misfits)


def _evolve(
    evolution: StateEvolution,
    change: StructChange | None,
    old: StructType,
    new: StructType,
    rows: Rows,
    side: str,
    misfits: Misfits,
) -> Rows:
    """Return rows in the new schema."""
    if change is None:
        return rows
    # A null where there may be none is reported as one that does not fit, and is not an error of the encoding.
    return encode(apply(decode(rows, old), change, new, side, misfits), as_nullable(new))
