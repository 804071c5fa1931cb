"""The rules of a check: a stable code for each, and why it matters. ``docs/checks.md`` has a section for each.

What Spark does in each case was seen on real Spark: ``tests/check`` has the pairs of queries, and what became of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REFUSED_KEY = "refuses at the start: STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"
REFUSED_VALUE = "refuses at the start: STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"
REFUSED_OPERATORS = "refuses at the start: STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
REFUSED_CONFIG = "refuses at the start: STATE_STORE_INVALID_CONFIG_AFTER_RESTART"
SILENT = "silent"
IGNORED = "silent: goes on with the old one"


@dataclass(frozen=True)
class Rule:
    """``title`` says what changed, ``why`` what follows from it."""

    code: str
    title: str
    why: str


def _rules(*rules: Rule) -> Mapping[str, Rule]:
    return {rule.code: rule for rule in rules}


RULES = _rules(
    Rule("operator-added", "a stateful operator was added", "Spark knows state by its operator's number."),
    Rule(
        "operator-removed", "a stateful operator was removed", "Its state would be left behind, and others renumbered."
    ),
    Rule("operators-reordered", "operators changed places", "Spark gives each the state that lies under its number."),
    Rule("operator-replaced", "an operator is of another kind", "Its state is laid out in another way."),
    Rule("layout", "an operator's state is laid out by another format version", "Schemas cannot be compared then."),
    Rule("stores-changed", "an operator keeps its state in other stores", "What is in the old ones is not looked at."),
    Rule("key-added", "a column was added to the key", "Old keys lack it, and cannot be found by the new ones."),
    Rule(
        "key-removed", "a column was removed from the key", "Old keys have more, and cannot be found by the new ones."
    ),
    Rule("key-reordered", "the key's columns are in another order", "Spark compares and finds keys by position."),
    Rule("key-retyped", "a column of the key has another type", "The same key has other bytes then."),
    Rule("key-widened", "a column of the key has a wider type", "The same key may have other bytes then."),
    Rule(
        "key-nullability",
        "whether a column of the key may be null",
        "Spark compares that, although the bytes are the same.",
    ),
    Rule(
        "keys-swapped", "two columns of the key changed places", "Spark compares types only: all old groups are lost."
    ),
    Rule("key-renamed", "a column of the key has another name", "It may be the same column, or another one."),
    Rule(
        "key-changed", "the key is computed in another way", "Old groups are never met again, and new ones start empty."
    ),
    Rule(
        "window-changed",
        "windows have another length, slide or start",
        "Old windows are never met again, but by chance.",
    ),
    Rule("session-gap", "sessions have another gap", "Sessions in the state end where the old gap let them end."),
    Rule("value-added", "a column was added to the value", "Old values lack it."),
    Rule("value-removed", "a column was removed from the value", "Old values have more."),
    Rule("value-reordered", "the value's columns are in another order", "Spark reads values by position."),
    Rule("value-retyped", "a column of the value has another type", "Old values have other bytes."),
    Rule("value-widened", "a column of the value has a wider type", "A negative number would be read as a large one."),
    Rule("value-nullability", "whether a column of the value may be null", "Spark compares that, too."),
    Rule("values-swapped", "two columns of the value changed places", "Spark compares types only, and mixes them up."),
    Rule("value-renamed", "a column of the value has another name", "It may be the same column, or another one."),
    Rule(
        "aggregate-changed",
        "an aggregate was replaced by another",
        "Spark compares types only, and goes on with the old sum.",
    ),
    Rule(
        "input-changed", "a column that is kept is computed in another way", "Old rows have what was computed before."
    ),
    Rule("join-sides", "the sides of a join changed places", "Spark knows a side as the left or the right one."),
    Rule("join-type", "the join is of another type", "Rows that were kept go on, with the new type's results."),
    Rule(
        "join-condition",
        "the join's condition is another",
        "Old rows were kept for as long as the old one needed them.",
    ),
    Rule(
        "filter-changed", "rows are filtered in another way", "The state goes on; what it was made of does not change."
    ),
    Rule("upstream-changed", "rows come another way", "The state goes on; what it was made of does not change."),
    Rule("limit-changed", "a limit is another", "What was counted goes on to count."),
    Rule("watermark-changed", "a watermark's delay is another", "The state goes on; it is closed sooner or later."),
    Rule(
        "dedup-delay",
        "dropDuplicatesWithinWatermark has another delay",
        "Old keys expire when they were to expire before.",
    ),
    Rule(
        "function-changed",
        "a Python function has another body",
        "Only its author knows whether it reads the old state right.",
    ),
    Rule("function-renamed", "a Python function has another name", "Its body is the same."),
    Rule("variable-added", "a state variable was added", "It is empty for every key."),
    Rule("variable-removed", "a state variable was removed", "Spark drops what was in it."),
    Rule("variable-renamed", "a state variable may have been renamed", "Spark makes a new one, which is empty."),
    Rule("variable-kind", "a state variable is of another kind", "A list's elements are no map's."),
    Rule("ttl-on", "a state variable got a TTL", "Old values have no moment of expiry."),
    Rule("ttl-off", "a state variable lost its TTL", "Old values have one field more."),
    Rule("ttl-shorter", "a state variable's TTL is shorter", "Old values keep the moment at which they expire."),
    Rule("ttl-longer", "a state variable's TTL is longer", "Old values keep the moment at which they expire."),
    Rule("time-mode", "transformWithState has another time mode", "Spark compares it at the start."),
    Rule("output-mode", "the output mode is another", "What was closed before does not come out again."),
    Rule("timeout", "a timeout is of another kind", "What is in the state is a moment on the old clock."),
    Rule(
        "sources",
        "the query has other sources, or in another order",
        "Spark matches the offsets of its log to sources by their place.",
    ),
    Rule("time-zone", "the session has another time zone", "A timestamp is of another day there."),
    Rule("provider-ignored", "another state store provider is set", "The checkpoint pins the old one."),
    Rule("partitions-ignored", "another number of partitions is set", "The checkpoint pins the old one."),
    Rule("setting-ignored", "a setting is another", "The checkpoint pins the old one."),
    Rule("changelog", "changelogs are switched on or off", "RocksDB state is read either way."),
    Rule(
        "checkpoint-format",
        "another checkpoint format is set",
        "The checkpoint does not pin it, and the files have other names.",
    ),
    Rule("offset-log", "another version of the offset log is set", "Offsets are matched to sources in another way."),
    Rule("table-key", "a table's rows go by another key", "MERGE finds other rows than those that were meant."),
    Rule("table-column-added", "a column was added to a table's stream", "The table keeps its own columns."),
    Rule("table-column-removed", "a column was removed from a table's stream", "UPDATE SET * asks for all of them."),
    Rule("table-column-renamed", "a column has another name", "Delta goes by names."),
    Rule("table-column-widened", "a column has a wider type", "The table keeps its own type."),
    Rule("table-column-retyped", "a column has another type", "The table keeps its own type."),
    Rule("table-nullability", "whether a column of a table may be null", "The table keeps its own word on that."),
    Rule("table-partitioning", "a table is partitioned by other columns", "The table stays as it was made."),
    Rule("table-append-only", "a table takes no updates", "A MERGE that updates is refused."),
    Rule("table-constraint", "a table has a constraint", "It holds for what the new stream writes, too."),
    Rule("table-property", "a table's property is another", "The table keeps its own."),
    Rule("table-protocol", "a table asks for more of Delta", "An older Delta neither reads nor writes it."),
    Rule("spark-downgraded", "an older Spark is to read it", "It may not know what the newer one wrote."),
    Rule("state-schema-missing", "a checkpoint has no state schema", "Spark before 3.1 wrote none."),
)
