"""Arbitrary state per group: ``mapGroupsWithState``, ``flatMapGroupsWithState``, ``applyInPandasWithState``.

All entries are primary: one per group. The value has the user's own state, ``groupState`` (in format 1 its fields
beside the others), and where the query has a timeout ``timeoutTimestamp``, in milliseconds, -1 for a group that has
none. Spark calls the function of a group once that moment lies before the watermark, or before the processing time;
which of the two no file tells (a watermark that has not moved yet is recorded like none). A group that is dropped is
never called for its timeout.

With state of format 1 the schema says that the timeout is an ``int``. It is a ``bigint`` there, too.
Source: Spark's ``FlatMapGroupsWithStateExec`` and ``FlatMapGroupsWithStateExecHelper``.
"""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.checkpoint import Operator
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.schema.types import IntegerType, LongType, StructType

NAMES = ("flatMapGroupsWithState", "applyInPandasWithState")
TIMEOUT = "timeoutTimestamp"


def stored_timestamp(value: StructType) -> str | None:
    """The moment of the timeout, where the query has one."""
    return f"value.{TIMEOUT}:ms" if any(field.name == TIMEOUT for field in value.fields) else None


def as_stored(operator: Operator, family: ColumnFamilySchema) -> ColumnFamilySchema:
    """Return the family with the schema that its values have, where the recorded one is wrong."""
    if operator.name not in (None, *NAMES) or not family.value.fields:
        return family
    *others, last = family.value.fields
    if last.name != TIMEOUT or not isinstance(last.type, IntegerType):
        return family
    return replace(family, value=StructType((*others, replace(last, type=LongType()))))
