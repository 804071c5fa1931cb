"""The evolution of entries, a batch at a time."""

from __future__ import annotations

from ttlsnap.entries.batch import StateEntries
from ttlsnap.errors import TransformerError, UsageError
from ttlsnap.migration.evolution import StateEvolution
from ttlsnap.migration.struct_changes import Misfits, StructChange, apply
from ttlsnap.quoting import quote
from ttlsnap.schema.fields import as_nullable
from ttlsnap.schema.types import StructType
from ttlsnap.transform.converters import ConvertsValues, convert_values
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows


def converted_values(
    converter: ConvertsValues, entries: StateEntries, new_schema: StructType, misfits: Misfits
) -> Rows:
    """Return the values that a converter gives, in ``new_schema``.

    Raise TransformerError if it gives something else.
    """
    converted = convert_values(converter, entries, new_schema)
    for number, field in enumerate(new_schema.fields):
        nulls = converted.field(number).null_count
        if nulls and not field.nullable:
            misfits(f"value.{field.name}", nulls)
    try:
        return encode(converted, as_nullable(new_schema))
    except UsageError as error:
        raise TransformerError(f"{entries.state}: the values of the converter do not fit: " + quote(error)) from error


def evolve_keys(evolution: StateEvolution, old_schema: StructType, rows: Rows, misfits: Misfits) -> Rows:
    """Return keys of ``old_schema`` in the new one."""
    return _evolve(evolution.key, old_schema, evolution.new_key, rows, "key", misfits)


def evolve_values(evolution: StateEvolution, old_schema: StructType, rows: Rows, misfits: Misfits) -> Rows:
    """Return values of ``old_schema`` in the new one. Those with an expiry time are without it on both sides."""
    new_schema = evolution.new_value
    if evolution.expiry is not None and evolution.expiry.has:
        user_schema = new_schema.fields[0].type
        assert isinstance(user_schema, StructType)
        new_schema = user_schema
    return _evolve(evolution.value, old_schema, new_schema, rows, "value", misfits)


def _evolve(
    change: StructChange | None,
    old_schema: StructType,
    new_schema: StructType,
    rows: Rows,
    side: str,
    misfits: Misfits,
) -> Rows:
    """Return rows in the new schema."""
    if change is None:
        return rows
    # A null where there may be none is reported as one that does not fit, and is not an error of the encoding.
    return encode(apply(decode(rows, old_schema), change, new_schema, side, misfits), as_nullable(new_schema))
