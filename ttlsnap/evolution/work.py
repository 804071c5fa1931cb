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
    return _evolve(evolution.key, old, evolution.new_key, rows, "key", misfits)


def evolve_values(evolution: StateEvolution, old: StructType, rows: Rows, misfits: Misfits) -> Rows:
    """Return values of the schema ``old`` in the new one. Those with an expiry time are without it on both sides."""
    new = evolution.new_value
    if evolution.expiry is not None and evolution.expiry.has:
        inner = new.fields[0].type
        assert isinstance(inner, StructType)
        new = inner
    return _evolve(evolution.value, old, new, rows, "value", misfits)


def _evolve(
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
