"""Arbitrary state per group: ``mapGroupsWithState``, ``flatMapGroupsWithState``, ``applyInPandasWithState``.

All entries are primary: one for each group. The value has the user's own state, ``groupState`` (in format 1 its fields
beside the others). If the query has a timeout, it has ``timeoutTimestamp`` in milliseconds, -1 for a group without one.
Spark calls the function of a group when that time is before the watermark, or before the processing time. No file
records which clock applies (a watermark that has not moved yet is recorded like none). For a dropped group, Spark never
calls the function.

In format 1 the schema says that the timeout is an ``int``, but it is a ``bigint``.
Source: Spark's ``FlatMapGroupsWithStateExec`` and ``FlatMapGroupsWithStateExecHelper``.
"""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.checkpoint import Operator
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.operators.stored_time import StoredTime
from ttlsnap.schema.types import IntegerType, LongType, StructType

NAMES = ("flatMapGroupsWithState", "applyInPandasWithState")
TIMEOUT = "timeoutTimestamp"


def stored_time(value: StructType) -> StoredTime | None:
    """Return the time of the timeout, if the query has timeouts. No file records its clock."""
    if all(field.name != TIMEOUT for field in value.fields):
        return None
    # -1 (NO_TIMESTAMP) is a group without a timeout.
    return StoredTime(f"value.{TIMEOUT}:ms", None, written_plus_ttl=True, is_timeout=True)


def as_stored(operator: Operator, family: ColumnFamilySchema) -> ColumnFamilySchema:
    """Return the family with the real schema of its values if the recorded one is wrong."""
    if operator.name not in (None, *NAMES) or not family.value.fields:
        return family
    *other_fields, last_field = family.value.fields
    if last_field.name != TIMEOUT or not isinstance(last_field.type, IntegerType):
        return family
    # Spark declares an int, and then calls setLong and getLong (FlatMapGroupsWithStateExecHelper.StateManagerImplV1).
    return replace(family, value=StructType((*other_fields, replace(last_field, type=LongType()))))
