"""The rules of ``check``: each has a stable code, which reports and ``--ignore`` use.

``docs/checks.md`` has a section for each rule. ``ttlsnap.check.outcomes`` has the cases that a rule distinguishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CheckRule:
    """One kind of difference: ``title`` says what changed, ``why`` says why that matters."""

    code: str
    title: str
    why: str


RULES: Mapping[str, CheckRule] = {
    code: CheckRule(code, title, why)
    for code, title, why in (
        # Operators and stores
        ("operator-added", "a stateful operator was added", "Spark finds an operator's state by its number."),
        (
            "operator-removed",
            "a stateful operator was removed",
            "Its state would stay behind, and later operators would get other numbers.",
        ),
        ("operators-reordered", "operators changed places", "Spark gives each operator the state of its number."),
        ("operator-replaced", "an operator is of another kind", "Each kind lays its state out differently."),
        (
            "layout",
            "an operator uses another state format version",
            "Schemas of different layouts cannot be compared.",
        ),
        ("stores-changed", "an operator uses other state stores", "Spark does not read the old ones."),
        # Keys
        (
            "key-added",
            "a column was added to the key",
            "Existing keys lack it, so new keys never match them. A migration gives all of them the same value.",
        ),
        ("key-removed", "a column was removed from the key", "Existing keys have it, so new keys never match them."),
        ("key-reordered", "the columns of the key are in another order", "Spark compares keys by position."),
        ("key-retyped", "a column of the key has another type", "The same key then has other bytes."),
        ("key-widened", "a column of the key has a wider type", "The same key can then have other bytes."),
        (
            "key-nullability",
            "a column of the key may be null now, or no longer",
            "Spark compares nullability, although the bytes are the same.",
        ),
        ("keys-swapped", "columns of the key changed places", "Spark compares only types and loses all old groups."),
        (
            "two-key-orders",
            "a deduplication has keys in two orders",
            "The query moved to another Spark, which has another order of the columns, and continued.",
        ),
        (
            "key-floats",
            "a deduplication has floats in its keys, and the two versions of Spark differ in which are equal",
            "From 4.2 on, Spark normalizes the columns by which it deduplicates.",
        ),
        (
            "key-intervals",
            "the key has calendar intervals, and the two versions of Spark differ in their hash",
            "From 4.3 on, the hash has the days of the interval. It decides in which partition Spark looks for a key.",
        ),
        (
            "key-renamed",
            "a column of the key has another name",
            "It can be the same column or another; Spark does not compare names.",
        ),
        (
            "key-changed",
            "the key is computed in another way",
            "Spark finds no existing group again, and new groups start empty.",
        ),
        (
            "window-changed",
            "a window has another length, slide or start",
            "Existing windows match new ones only by coincidence.",
        ),
        ("session-gap", "sessions have another gap", "Open sessions keep the end that the old gap gave them."),
        # Values
        ("value-added", "a column was added to the value", "Existing values lack it."),
        ("value-removed", "a column was removed from the value", "Existing values have it."),
        ("value-reordered", "the columns of the value are in another order", "Spark reads values by position."),
        ("value-retyped", "a column of the value has another type", "Existing values have other bytes."),
        (
            "value-widened",
            "a column of the value has a wider type",
            "Spark would read a negative number as a large one.",
        ),
        (
            "value-nullability",
            "a column of the value may be null now, or no longer",
            "Spark compares nullability, although the bytes are the same.",
        ),
        ("values-swapped", "columns of the value changed places", "Spark compares only types and mixes them up."),
        (
            "value-renamed",
            "a column of the value has another name",
            "It can be the same column or another; Spark does not compare names.",
        ),
        (
            "aggregate-changed",
            "another aggregate replaced an aggregate",
            "Spark compares only types, and the new one would reuse the old buffer.",
        ),
        (
            "input-changed",
            "a stored column, or one that a function receives, is computed in another way",
            "Existing state was computed in the old way.",
        ),
        # Joins
        ("join-sides", "the sides of a join changed places", "Spark knows a side only as left or right."),
        ("join-type", "the join has another type", "Buffered rows remain and are joined in the new way."),
        (
            "join-condition",
            "the join has another condition",
            "Spark kept rows only as long as the old condition needed them.",
        ),
        # Rows on their way to the operator
        ("filter-changed", "rows are filtered in another way", "The existing state stays as it is."),
        ("upstream-changed", "rows pass through other steps", "The existing state stays as it is."),
        ("limit-changed", "a limit has another value", "Rows counted so far still count."),
        ("watermark-changed", "a watermark changed", "State is closed sooner or later than before."),
        (
            "dedup-delay",
            "the delay of dropDuplicatesWithinWatermark changed",
            "Existing keys expire when the old delay ends.",
        ),
        # Functions and state variables
        (
            "function-changed",
            "a Python function has other code",
            "Only its author knows whether it reads the existing state correctly.",
        ),
        ("function-renamed", "a Python function has another name", "Its body is the same."),
        (
            "variable-added",
            "a state variable was added",
            "It is empty for every key, unless an earlier query had a variable of this name: Spark keeps its values.",
        ),
        (
            "variable-returned",
            "a state variable returns that an earlier query had",
            "Spark keeps the values of a variable that is removed, and its type.",
        ),
        ("variable-removed", "a state variable was removed", "Spark keeps its values."),
        ("variable-renamed", "a state variable may have another name", "Spark creates a new variable, which is empty."),
        (
            "variable-kind",
            "a state variable is of another kind",
            "A value, a list and a map have different layouts.",
        ),
        ("ttl-on", "a state variable got a TTL", "Existing values have no expiry time."),
        ("ttl-off", "a state variable lost its TTL", "Existing values have one field more."),
        ("ttl-shorter", "a state variable has a shorter TTL", "Existing values keep their expiry times."),
        ("ttl-longer", "a state variable has a longer TTL", "Existing values keep their expiry times."),
        ("time-mode", "the time mode of transformWithState changed", "Spark compares it at the start."),
        ("output-mode", "the query has another output mode", "Groups that are closed do not appear again."),
        ("timeout", "a timeout is of another kind", "Stored timeouts are times on the old clock."),
        # The whole query
        (
            "sources",
            "the query has other sources, or another order of them",
            "The offset log identifies a source by its position, or by its name.",
        ),
        ("time-zone", "the session has another time zone", "There, a timestamp can belong to another day."),
        ("provider-ignored", "another state store provider is set", "The checkpoint pins the old one."),
        ("partitions-ignored", "another number of partitions is set", "The checkpoint pins the old one."),
        ("setting-ignored", "a setting has another value", "The checkpoint pins the old one."),
        ("changelog", "changelogs are switched on or off", "Spark reads RocksDB state either way."),
        (
            "checkpoint-format",
            "another checkpoint format is set",
            "The checkpoint does not pin it, and each format names its files differently.",
        ),
        (
            "offset-log",
            "another version of the offset log is set",
            "Each version matches offsets to sources in its own way.",
        ),
        ("spark-downgraded", "an older Spark is to read the state", "It may not support what the newer one wrote."),
        ("state-schema-missing", "a checkpoint has no state schema", "Spark before 3.1 did not write one."),
        # Delta tables
        ("table-key", "a table's rows have another key", "MERGE then matches other rows."),
        ("table-column-added", "a column was added to a table's stream", "The table keeps its own columns."),
        ("table-column-removed", "a column was removed from a table's stream", "UPDATE SET * needs every column."),
        ("table-column-renamed", "a column has another name", "Delta matches columns by name."),
        ("table-column-widened", "a column has a wider type", "The table keeps its own type."),
        ("table-column-retyped", "a column has another type", "The table keeps its own type."),
        ("table-nullability", "a column may be null now, or no longer", "The table keeps its own constraint."),
        ("table-partitioning", "a table has other partition columns", "The table keeps its own partitioning."),
        ("table-append-only", "a table does not accept updates", "Delta refuses a MERGE that updates."),
        ("table-constraint", "a table has a constraint", "It applies to the new stream's rows, too."),
        ("table-property", "a table property has another value", "The table keeps its own."),
        ("table-protocol", "a table needs newer features of Delta", "An older Delta neither reads nor writes it."),
    )
}
