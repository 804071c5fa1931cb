"""What each difference means for the existing state: one row for each case that ``check`` distinguishes.

The texts are templates of ``str.format``. ``{old}`` and ``{new}`` are those of the finding, ``{side}`` is ``key`` or
``value``, and the comparison that reports the row provides the other words. ``tests/check`` has the pairs of queries
from which real Spark's behaviour in each case is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ttlsnap.check.findings import Verdict

SILENT = "silent"
_WRONG = "silent: wrong results"
_KEPT = "silent: keeps the old value"
_REFUSED_CONFIG = "refuses at the start: STATE_STORE_INVALID_CONFIG_AFTER_RESTART"
_REFUSED_OPERATORS = "refuses at the start: STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
_REFUSED_SCHEMA = "refuses at the start: STATE_STORE_{SIDE}_SCHEMA_NOT_COMPATIBLE"
_UNRESOLVED = "refuses the first batch: DELTA_MERGE_UNRESOLVED_EXPRESSION"

_KEEP = "keep {old}, or start a new checkpoint"
_RESTORE_ORDER = "restore the old order of the columns"
ORDER_FIRST = (
    "restore the old order, or migrate. Do not switch off Spark's schema check for this: it would take one column "
    "for another"
)
_BRANCHES = "restore the old order, which is that of the branches of the union or join"
_OLD_SETTINGS = "create the new contract with the old settings (--conf)"
_OLD_ZONE = (
    "set {name}={old}, and create the new contract with it (--conf); without it, a contract has the zone of its machine"
)
_EVOLUTION = "spark.databricks.delta.schema.autoMerge.enabled=true, or MERGE WITH SCHEMA EVOLUTION"

_AS_IS, _RECONFIGURATION, _AFTER_MIGRATION = Verdict.AS_IS, Verdict.RECONFIGURATION, Verdict.AFTER_MIGRATION
_UNKNOWN, _INCOMPATIBLE = Verdict.UNKNOWN, Verdict.INCOMPATIBLE


@dataclass(frozen=True)
class Outcome:
    """One case of the rule ``code``.

    ``message`` says what changed and what follows. ``spark`` is what Spark does without a check: an error class, or
    text that begins with ``silent`` if it starts. ``fix`` is what to do, empty if there is nothing to do.
    """

    code: str
    verdict: Verdict
    message: str
    spark: str
    fix: str = ""

    def fill(self, words: Mapping[str, object]) -> Outcome:
        """Return the row with ``words`` in the places of the templates."""
        texts = (text.format_map(words) for text in (self.message, self.spark, self.fix))
        return Outcome(self.code.format_map(words), self.verdict, *texts)


# Operators and their stores

OPERATORS_REORDERED, OPERATOR_REPLACED, OPERATOR_ADDED, OPERATOR_REMOVED = (
    Outcome(
        code,
        _INCOMPATIBLE,
        f"{phrase}; Spark finds an operator's state by its number",
        _REFUSED_OPERATORS,
        "restore the old stateful operators in their order, and put new ones into a separate query, "
        "or start a new checkpoint",
    )
    for code, phrase in (
        ("operators-reordered", "the operators are in another order"),
        ("operator-replaced", "{added} replaced {removed}"),
        ("operator-added", "{added} was added"),
        ("operator-removed", "{removed} was removed"),
    )
)
OPERATORS_SWAPPED = Outcome(
    "operators-reordered",
    _INCOMPATIBLE,
    "operators of one kind changed places, so each would get the other's state",
    f"{_WRONG}, if their types are the same",
    _BRANCHES,
)
OPERATORS_MAYBE_SWAPPED = Outcome(
    "operators-reordered",
    _UNKNOWN,
    "did operators of one kind change places? One resembles the old version of another, and would get its state",
    f"{_WRONG}, if their types are the same",
    f"{_BRANCHES}; if the order is the old one, ignore this finding",
)
TIME_MODE, RECORDED_OUTPUT_MODE = (
    Outcome(
        code,
        _INCOMPATIBLE,
        f"the {phrase} changed from {{old}} to {{new}}; transformWithState records it",
        _REFUSED_CONFIG,
        f"set the {phrase} to {{old}}, or start a new checkpoint",
    )
    for code, phrase in (("time-mode", "time mode"), ("output-mode", "output mode"))
)
OTHER_LAYOUT = Outcome(
    "layout",
    _UNKNOWN,
    "the two contracts use different state formats, so their keys and values cannot be compared",
    SILENT,
    _OLD_SETTINGS,
)
OTHER_STORES, OTHER_STATES = (
    Outcome(
        "stores-changed",
        _INCOMPATIBLE,
        phrase,
        "fails in the first batch",
        f"{_OLD_SETTINGS}, or start a new checkpoint",
    )
    for phrase in ("the operator keeps its state in other stores", "the store keeps other states")
)
OTHER_PREFIX = Outcome(
    "stores-changed",
    _INCOMPATIBLE,
    "the store looks keys up by {new} instead of {old}",
    "fails in the first batch, or does not find existing keys",
    f"{_OLD_SETTINGS}, or start a new checkpoint",
)
NO_SCHEMA = Outcome(
    "state-schema-missing",
    _UNKNOWN,
    "no state schema is recorded, so there is nothing to compare",
    SILENT,
    "let a newer Spark run one batch, which records the schema",
)

# Keys and values of the state. {side} is key or value, {name} is a column.

COLUMN_ADDED, COLUMN_REMOVED = (
    Outcome(
        f"{{side}}-{phrase}",
        _INCOMPATIBLE,
        f"{{name}} was {phrase}; the {{side}} had {{before}} and now has {{after}}",
        _REFUSED_SCHEMA,
        "{instead}start a new checkpoint",
    )
    for phrase in ("added", "removed")
)
INSTEAD_OF_ADDING = "put the new column into a separate state, or "
INSTEAD_OF_REMOVING = "keep the old column (Spark leaves out an aggregate that no later step uses), or "
COLUMNS_REORDERED = Outcome(
    "{side}-reordered",
    _INCOMPATIBLE,
    "the columns are in another order; Spark reads them by position",
    _REFUSED_SCHEMA,
    _RESTORE_ORDER,
)
COLUMNS_SWAPPED = Outcome(
    "{side}s-swapped",
    _INCOMPATIBLE,
    "the columns are in another order; their types are the same, so Spark takes one for the other",
    _WRONG,
    _RESTORE_ORDER,
)
_OTHER_ORDER = (
    "the columns of dropDuplicates are in another order. Spark 3 and Spark 4 put more than four columns in an order of "
    "their own. Spark Connect keeps the order that the query lists, and so does Spark 4.3 for a new query"
)
_OLD_ORDER = (
    "run the query on the Spark that wrote the state; or use Spark Connect, which keeps the order that the query "
    "lists: dropDuplicates([{old}])"
)
DEDUPLICATION_REORDERED = Outcome("key-reordered", _INCOMPATIBLE, _OTHER_ORDER, _REFUSED_SCHEMA, _OLD_ORDER)
DEDUPLICATION_SWAPPED = Outcome(
    "keys-swapped",
    _INCOMPATIBLE,
    f"{_OTHER_ORDER}. Their types are the same, so Spark takes one for the other. Duplicates of old rows come through",
    _WRONG,
    _OLD_ORDER,
)
TWO_KEY_ORDERS = Outcome(
    "two-key-orders",
    _INCOMPATIBLE,
    "the state has keys in two orders of their columns: {orders}. The new query finds only those in its own order",
    _WRONG,
    "restore a copy of the checkpoint from before the query moved to another Spark, or start a new checkpoint",
)
KEY_FLOATS, KEY_FLOATS_FOUND = (
    Outcome(
        "key-floats",
        verdict,
        f"Spark {{new}} takes -0.0 for 0.0, and all NaNs for one. Spark {{old}} did not, so {phrase}",
        "silent: one more row comes through for such a key, unless the state has its other form, too",
        f"ttlsnap migrate CHECKPOINT --set float-keys=normalized{more}",
    )
    for verdict, phrase, more in (
        (
            _UNKNOWN,
            "it may have keys that Spark {new} does not find: has a row a -0.0, or an unusual NaN?",
            "; if no row has one, ignore this finding",
        ),
        (_AFTER_MIGRATION, "Spark {new} does not find {keys} of the keys in the state. {both}", ""),
    )
)
KEY_INTERVALS = Outcome(
    "key-intervals",
    _INCOMPATIBLE,
    "Spark {new} looks for keys with calendar intervals in other partitions than Spark {old}, and finds few of them",
    _WRONG,
    "ttlsnap migrate CHECKPOINT --set interval-keys={set}",
)
KEY_FLOATS_BACK = Outcome(
    "key-floats",
    _UNKNOWN,
    "Spark {old} takes -0.0 for 0.0, and all NaNs for one. Spark {new} does not: has a row a -0.0, or an unusual NaN?",
    "silent: one more row comes through for such a key",
    "if no row has one, ignore this finding",
)
FIELDS_SWAPPED_IN_CODE = Outcome(
    "values-swapped",
    _UNKNOWN,
    "the fields changed their names and the code did not: Spark reads fields by position; does the code, too?",
    f"{_WRONG}, if the code uses names",
    "if the code uses positions, ignore this finding; if it uses names, restore the old order of the fields",
)
FIELDS_SWAPPED_IN_AVRO = Outcome(
    "values-swapped",
    _INCOMPATIBLE,
    "the code is the same and reads fields by position, but Avro matches names, and these are in another order",
    _WRONG,
    "restore the old order of the fields",
)
COLUMN_RETYPED = Outcome(
    "{side}-retyped",
    _INCOMPATIBLE,
    "{name} changed from {old} to {new}",
    _REFUSED_SCHEMA,
    "cast it back to {old}, or start a new checkpoint",
)
COLUMN_WIDENED = Outcome(
    "{side}-widened",
    _INCOMPATIBLE,
    "{name} changed from {old} to {new}",
    _REFUSED_SCHEMA,
    "cast it back to {old}, or start a new checkpoint",
)
COLUMN_WIDENED_UNCHECKED = Outcome(
    "value-widened",
    _UNKNOWN,
    "{name} changed from {old} to {new}; Spark would read a negative number as a large one",
    f"{_WRONG} for negative numbers",
    "if the state has no negative number, ignore this finding",
)
COLUMN_PROMOTED = Outcome(
    "value-widened", _AS_IS, "{name} changed from {old} to {new}; Avro reads {old} as {new}", SILENT
)
COLUMN_PROMOTED_INEXACTLY = Outcome(
    "value-widened",
    _UNKNOWN,
    "{name} changed from {old} to {new}; of numbers beyond 2^{digits}, {new} has only the first {digits} bits: does "
    "the state have such numbers?",
    SILENT,
    "if it has none, ignore this finding",
)
COLUMN_RENAMED = Outcome(
    "{side}-renamed",
    _UNKNOWN,
    "{new} replaced {old} with the same type: is it the same column?",
    "silent: reads one as the other",
    "if it is the same, pass --renamed {old}={new}; otherwise start a new checkpoint",
)
FIELD_RENAMED_IN_AVRO, FIELD_MAYBE_RENAMED_IN_AVRO = (
    Outcome(
        "value-renamed",
        verdict,
        "{old} is missing and {new} is new; Avro matches names, and reads null for {new}",
        "silent: null for every existing entry",
        "keep the name {old}",
    )
    for verdict in (_INCOMPATIBLE, _UNKNOWN)
)
NOW_NULLABLE = Outcome(
    "{side}-nullability",
    _RECONFIGURATION,
    "{name} was required and may now be null; the bytes are the same, but Spark compares nullability",
    _REFUSED_SCHEMA,
    "set spark.sql.streaming.stateStore.stateSchemaCheck=false for the first start, or keep the column required: "
    "coalesce(column, a value), or assert_true(column is not null)",
)
NOW_NULLABLE_UNCHECKED = Outcome(
    "{side}-nullability",
    _AS_IS,
    "{name} was required and may now be null; the bytes are the same, and Spark's schema check is switched off",
    SILENT,
)
NOW_REQUIRED = Outcome(
    "{side}-nullability",
    _UNKNOWN,
    "{name} could be null and is now required; Spark does not find existing entries with null again",
    SILENT,
    "if the state has no null there, ignore this finding",
)
NOW_REQUIRED_SAME_COLUMN = Outcome(
    "{side}-nullability", _AS_IS, "{name} could be null and is now required; the bytes are the same", SILENT
)

# What keys and aggregates are computed from

KEYS_SWAPPED = Outcome(
    "keys-swapped",
    _INCOMPATIBLE,
    "the columns of the key are in another order; Spark compares them by position and finds no existing group",
    _WRONG,
    _RESTORE_ORDER,
)
KEY_CHANGED = Outcome(
    "key-changed",
    _INCOMPATIBLE,
    "{new} replaced {old}; Spark finds no existing group again",
    _WRONG,
    f"{_KEEP}. If both always have the same value, pass --renamed {{rename}}",
)
AGGREGATES_SWAPPED = Outcome(
    "values-swapped",
    _INCOMPATIBLE,
    "the aggregates are in another order; Spark compares only types, and takes one aggregate for another",
    _WRONG,
    "restore the old order of the aggregates",
)
AGGREGATE_CHANGED = Outcome(
    "aggregate-changed", _INCOMPATIBLE, "{new} replaced {old} and would reuse its buffer", _WRONG, _KEEP
)
AGGREGATE_ARGUMENTS = Outcome(
    "aggregate-changed",
    _INCOMPATIBLE,
    "the arguments of {name} have other types, which changes the content of its buffer",
    _WRONG,
    "keep the types of its arguments, or start a new checkpoint",
)
OTHER_KEYS, OTHER_AGGREGATES = (
    Outcome(
        code,
        _INCOMPATIBLE,
        f"the number of {phrase} changed from {{before}} to {{after}}; they differ even if their types are the same",
        _WRONG,
        f"keep the old {phrase}, or start a new checkpoint",
    )
    for code, phrase in (("key-changed", "keys"), ("aggregate-changed", "aggregates"))
)
RENAMED_IN_SOURCE = Outcome(
    "{side}-renamed",
    _UNKNOWN,
    "the source no longer has {was} and has a new {now}: is it the same column?",
    SILENT,
    "if it is the same, pass --renamed {was}={now}; otherwise start a new checkpoint",
)
KEY_CAST, AGGREGATE_CAST = (
    Outcome(
        code,
        _UNKNOWN,
        "{new} replaced {old}: does the cast change values?",
        _WRONG,
        "if it does not, ignore this finding",
    )
    for code in ("key-changed", "aggregate-changed")
)
DIFFERS_FOR_NULL = Outcome(
    "{side}-nullability",
    _UNKNOWN,
    "{new} replaced {old}, and differs only for null: does the state have nulls?",
    SILENT,
    "if the state has no null there, ignore this finding",
)
KEY_ARGUMENTS = Outcome(
    "key-changed",
    _UNKNOWN,
    "a column that {new} uses has another type: does the key keep its values?",
    _WRONG,
    "if it does, ignore this finding",
)
WINDOW_CHANGED = Outcome(
    "window-changed",
    _INCOMPATIBLE,
    "the windows changed; existing windows match new ones only by coincidence",
    _WRONG,
    "start a new checkpoint after the old windows have closed",
)
SESSION_GAP_LONGER = Outcome(
    "session-gap",
    _UNKNOWN,
    "the session gap changed; open sessions keep the end that the old gap gave them",
    _WRONG,
    "let the open sessions end first, or start a new checkpoint",
)
SESSION_GAP = Outcome(
    "session-gap",
    _INCOMPATIBLE,
    f"{SESSION_GAP_LONGER.message}, and new rows of a key may split them",
    _WRONG,
    SESSION_GAP_LONGER.fix,
)

# Joins

JOIN_COLUMNS_SWAPPED = Outcome(
    "values-swapped",
    _INCOMPATIBLE,
    "the columns of the buffered rows are in another order; Spark reads them by position",
    _WRONG,
    "restore the old order of the columns, which is that of the select before the join",
)
JOIN_COLUMN_CHANGED = Outcome(
    "input-changed",
    _INCOMPATIBLE,
    "{name} is {new} and was {old}; buffered rows have the old value",
    _WRONG,
    _KEEP,
)
JOIN_COLUMN_NULLS = Outcome(
    "value-nullability",
    _UNKNOWN,
    "{name} is {new} and was {old}, and differs only for null; buffered rows have the old value",
    _WRONG,
    f"{_KEEP}; if the state has no null there, ignore this finding",
)
JOIN_SIDES = Outcome(
    "join-sides",
    _INCOMPATIBLE,
    "the sides of the join changed places, so each would get the other's rows",
    _WRONG,
    "restore the old order of the sides",
)
JOIN_MAYBE_SIDES = Outcome(
    "join-sides",
    _UNKNOWN,
    "did the sides of the join change places? Each resembles the old version of the other, and would get its rows",
    _WRONG,
    "restore the old order of the sides; if the order is the old one, ignore this finding",
)
JOIN_FROM_SEMI = Outcome(
    "join-type",
    _INCOMPATIBLE,
    "a semi join discards left rows once they match, and the new join type needs them",
    _WRONG,
    "start a new checkpoint",
)
JOIN_TYPE = Outcome(
    "join-type",
    _AS_IS,
    "the join type changed from {old} to {new}; buffered rows remain, and are joined in the new way",
    SILENT,
)
JOIN_RANGE_NARROWER = Outcome("join-condition", _AS_IS, "the join covers a shorter time range", SILENT)
JOIN_CONDITION = Outcome(
    "join-condition",
    _UNKNOWN,
    "the join condition changed: does it reach further back? Rows that it then needs may have been dropped",
    SILENT,
    "if it does not reach further back, ignore this finding",
)

# Rows on their way to the operator

INPUT_COLUMNS = Outcome(
    "input-changed",
    _UNKNOWN,
    "the function receives the columns {new}, and received {old}: does it use their positions?",
    SILENT,
    "if its results stay the same, ignore this finding",
)
INPUT_COLUMN = Outcome(
    "input-changed",
    _UNKNOWN,
    "{name} is {new} and was {old}; the existing state was computed from the old values",
    SILENT,
    "if you want that, ignore this finding",
)
UNION_BRANCH = Outcome(
    "input-changed",
    _INCOMPATIBLE,
    "a later branch of the union gives another value for a column than before",
    _WRONG,
    "let each branch give its old values, or start a new checkpoint",
)
FILTER_CHANGED = Outcome(
    "filter-changed", _AS_IS, "new rows are filtered in another way; the existing state stays as it is", SILENT
)
UPSTREAM_SAME_ROWS = Outcome(
    "upstream-changed",
    _AS_IS,
    "new rows reach the operator in another way; the existing state stays as it is",
    SILENT,
)
UPSTREAM_CHANGED = Outcome(
    "upstream-changed",
    _UNKNOWN,
    "new rows pass through other steps: do keys and values keep their meaning?",
    SILENT,
    "if they do, ignore this finding",
)
LIMIT_CHANGED = Outcome(
    "limit-changed", _AS_IS, "the limit changed from {old} to {new}; rows counted so far still count", SILENT
)
TIMEOUT_CHANGED = Outcome(
    "timeout",
    _UNKNOWN,
    "the timeout changed from {old} to {new}; stored timeouts are times on the old clock: is each set again in time?",
    SILENT,
    "if every key sets its timeout again before the old one expires, ignore this finding",
)
DEDUP_DELAY = Outcome(
    "dedup-delay",
    _UNKNOWN,
    "the delay changed from {old} to {new}; keys in the state keep the expiry time that the old delay gave them",
    SILENT,
    "if you want that, ignore this finding",
)
WATERMARK_COLUMN = Outcome(
    "watermark-changed",
    _UNKNOWN,
    "the watermark uses another column and continues from the old column's value: are their times alike?",
    SILENT,
    "if the times of the new column are not behind those of the old one, ignore this finding",
)
WATERMARK_CHANGED = Outcome(
    "watermark-changed", _AS_IS, "the watermark changed; state is closed sooner or later than before", SILENT
)

# Python functions and state variables

FUNCTION_CHANGED = Outcome(
    "function-changed",
    _UNKNOWN,
    "{name} changed ({parts}): does it read the existing state correctly?",
    SILENT,
    "if it does, ignore this finding",
)
FUNCTION_ADDED, FUNCTION_REMOVED = (
    Outcome(
        "function-changed",
        _UNKNOWN,
        f"the function {{name}} was {phrase}: is the existing state still read correctly?",
        SILENT,
        "if it is, ignore this finding",
    )
    for phrase in ("added", "removed")
)
FUNCTION_RENAMED = Outcome("function-renamed", _AS_IS, "{old} was renamed to {new}; its body is the same", SILENT)
VARIABLE_ADDED = Outcome(
    "variable-added",
    _AS_IS,
    "the variable {new} was added; it is empty for every key, unless an earlier query had a variable {new}",
    "silent; if an earlier query had the variable, its values are there again, and with another type Spark refuses: "
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "if an earlier query had a variable {new}, give this one another name",
)
VARIABLE_ADDED_EMPTY = Outcome(
    "variable-added", _AS_IS, "the variable {new} was added; it is empty for every key", SILENT
)
_REMOVE_OR_RENAME = (
    "give the new variable another name, or remove what Spark has kept: ttlsnap migrate CHECKPOINT --drop {new}"
)
VARIABLE_RETURNED = Outcome(
    "variable-returned",
    _UNKNOWN,
    "an earlier query had a variable {new}: Spark has kept its values, and the new query reads them",
    "silent: the old values are there again",
    f"if it is the same variable, ignore this finding. If not, {_REMOVE_OR_RENAME}",
)
VARIABLE_RETURNED_EMPTY = Outcome(
    "variable-returned",
    _AS_IS,
    "an earlier query had a variable {new}, whose values were removed; it is empty for every key",
    SILENT,
)
VARIABLE_RETURNED_RETYPED = Outcome(
    "variable-returned",
    _INCOMPATIBLE,
    "an earlier query had a variable {new} with {was}, and now it has {now}; Spark compares the two, also if no value "
    "is left",
    "refuses at the start: STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE; with Avro "
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION, or an error in the first batch",
    _REMOVE_OR_RENAME,
)
VARIABLE_RETURNED_OTHER_KEY, VARIABLE_RETURNED_MISREAD = (
    Outcome(
        "variable-returned",
        _INCOMPATIBLE,
        f"an earlier query had a {{was}} {{new}}, and now it is a {{now}}; {phrase}",
        spark,
        _REMOVE_OR_RENAME,
    )
    for phrase, spark in (
        (
            "Spark compares their keys, also if no value is left",
            "refuses at the start: STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        ),
        (
            "Spark has kept the values, and does not compare the two",
            "silent: wrong results, or the first batch fails or hangs; with Avro the JVM can crash",
        ),
    )
)
VARIABLE_REMOVED = Outcome(
    "variable-removed",
    _AS_IS,
    "the variable {old} was removed; Spark keeps its values",
    SILENT,
    'to remove the values, call handle.deleteIfExists("{old}") in init',
)
_SAME_OR_NOT = ". If {new} is the same variable, add --renamed {old}={new}; if it is another one, ignore this finding"
VARIABLE_RENAMED, VARIABLE_RENAMED_SAME_CODE, VARIABLE_MAYBE_RENAMED = (
    Outcome(
        "variable-renamed",
        verdict,
        f"{phrase} Spark does not carry its values over",
        "silent: the new variable is empty",
        f"keep the name {{old}}{instead}",
    )
    for verdict, phrase, instead in (
        (_INCOMPATIBLE, "--renamed says that {new} is the variable {old}.", ""),
        (_INCOMPATIBLE, "the variable {old} is missing, {new} is new, and the code is the same.", _SAME_OR_NOT),
        (_UNKNOWN, "the variable {old} is missing and {new} is new: was it renamed?", _SAME_OR_NOT),
    )
)
VARIABLES_SWAPPED = Outcome(
    "variable-renamed",
    _INCOMPATIBLE,
    "state variables exchanged their names, so the code would read each other's values",
    _WRONG,
    "restore the old names",
)
VARIABLE_KIND = Outcome(
    "variable-kind",
    _INCOMPATIBLE,
    "{name} was a {old} and is now a {new}",
    "refuses at the start: STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "give the new variable another name",
)
TTL_ON, TTL_OFF = (
    Outcome(
        code,
        _INCOMPATIBLE,
        f"{{name}} {phrase}, which changes the layout of its values",
        "refuses at the start, or with Avro fails in the first batch that reads the variable",
        f"give the variable another name (it starts empty), or {instead}",
    )
    for code, phrase, instead in (
        ("ttl-on", "got a TTL", "remove the TTL again: ttlsnap compact drops old entries without one"),
        ("ttl-off", "lost its TTL", "keep the TTL"),
    )
)
TTL_LONGER = Outcome(
    "ttl-longer",
    _AS_IS,
    "the TTL of {name} changed from {old} to {new}; existing values keep their expiry times",
    "silent: the new TTL applies to values that are written from now on",
)
TTL_SHORTER = Outcome(
    "ttl-shorter",
    _AS_IS,
    TTL_LONGER.message,
    TTL_LONGER.spark,
    "to let existing values expire sooner, run ttlsnap compact --old-ttl {old} --ttl {new} before the restart",
)

# Settings of the whole query

PROVIDER_PINNED, PARTITIONS_PINNED, SETTING_PINNED = (
    Outcome(
        code,
        _AS_IS,
        "{name} is {value}, but the checkpoint pins {pinned}; the new value has no effect on this state",
        _KEPT,
        "{fix}",
    )
    for code in ("provider-ignored", "partitions-ignored", "setting-ignored")
)
KEEP_SETTING = "set {name}={pinned}, which is what applies"
CHANGE_SETTING = KEEP_SETTING + "; or change the old checkpoint: ttlsnap migrate CHECKPOINT {option}"
CHECKPOINT_FORMAT = Outcome(
    "checkpoint-format",
    _RECONFIGURATION,
    "{name} is {new}, but the checkpoint has format {old}",
    "fails in the first batch",
    "set {name}={old}",
)
OFFSET_LOG = Outcome(
    "offset-log",
    _RECONFIGURATION,
    "the offset log has version {old}, but the new query writes version {new}",
    SILENT,
    "restore the old value of spark.sql.streaming.queryEvolution.enableSourceEvolution",
)
CHANGELOG = Outcome(
    "changelog",
    _AS_IS,
    "changelog checkpointing was switched {switched}; Spark reads the existing state either way",
    SILENT,
)
NUMBER_OF_SOURCES = Outcome(
    "sources",
    _INCOMPATIBLE,
    "the number of sources changed from {old} to {new}",
    "refuses at the start: the offset log has another number of sources",
    "start a new checkpoint, or read the new source in a separate query",
)
_NAME_THEM = (
    "ttlsnap sources CHECKPOINT {options} gives the checkpoint the names of the new query; ttlsnap sources CHECKPOINT "
    "shows which source has which number"
)
SOURCES_NAMED = Outcome(
    "sources",
    _AFTER_MIGRATION,
    "the sources have names now: {new}. The checkpoint knows them only by their numbers",
    "refuses at the start: STREAMING_QUERY_EVOLUTION_ERROR.CANNOT_ENABLE_ON_EXISTING_CHECKPOINT (Spark 4.2: fails in "
    "the first batch if a source reads files)",
    _NAME_THEM,
)
SOURCES_NAMED_IN_FOLDERS = Outcome(
    "sources",
    _AFTER_MIGRATION,
    "the offset log has version 1, so it does not have the names of the sources ({old}), which Spark 4.3 expects there",
    "refuses at the start: STREAMING_QUERY_EVOLUTION_ERROR.CANNOT_ENABLE_ON_EXISTING_CHECKPOINT",
    _NAME_THEM,
)
SOURCES_UNNAMED = Outcome(
    "sources",
    _AFTER_MIGRATION,
    "the sources have no names any more; the checkpoint knows them by their names: {old}",
    "fails in the first batch: all sources should be named",
    "keep the names, or use ttlsnap sources CHECKPOINT {options}, with the number of each source in the new query",
)
NAMED_SOURCE_REPLACED = Outcome(
    "sources",
    _UNKNOWN,
    "the query has no source {old} any more, and a new one, {new}: is it the same source? Spark reads a source with "
    "another name from its beginning",
    f"{SILENT}: counts the rows of the source again, if it is the same",
    "if it is the same: ttlsnap sources CHECKPOINT {options}. Otherwise ignore this finding",
)
NAMED_SOURCE_ADDED = Outcome(
    "sources",
    _AS_IS,
    "the query has a new source, {new}, which Spark reads from its beginning, or as its options say",
    SILENT,
)
NAMED_SOURCE_REMOVED = Outcome(
    "sources",
    _AS_IS,
    "the query has no source {old} any more; Spark forgets its position",
    SILENT,
)
SOURCES_REORDERED = Outcome(
    "sources",
    _INCOMPATIBLE,
    "the sources are in another order, so each would continue from another's offsets",
    _WRONG,
    _BRANCHES,
)
SOURCE_RENAMED = Outcome(
    "sources",
    _UNKNOWN,
    "a source has another name: is it the same source? The checkpoint has the offsets of the old one",
    SILENT,
    "if it is the same, ignore this finding; otherwise start a new checkpoint",
)
SOURCE_UNNAMED = Outcome(
    "sources",
    _UNKNOWN,
    "one contract has no name of the source, and the other has: is it the same source?",
    SILENT,
    "make the contract that has no name again, with --schema NAME=SCHEMA, where NAME is the name in the other "
    "contract; or, if it is the same source, ignore this finding",
)
TIME_ZONE_OF_DATES = Outcome(
    "time-zone",
    _INCOMPATIBLE,
    "the session time zone changed from {old} to {new}; dates in the state belong to the old one",
    _WRONG,
    _OLD_ZONE,
)
TIME_ZONE = Outcome(
    "time-zone",
    _UNKNOWN,
    "the session time zone changed from {old} to {new}: does a function depend on it?",
    SILENT,
    f"{_OLD_ZONE}. If nothing in the state depends on the time zone, ignore this finding",
)
OUTPUT_MODE = Outcome("output-mode", _AS_IS, "the output mode changed from {old} to {new}", SILENT)
GROUPS_CLOSED, GROUPS_MAYBE_CLOSED = (
    Outcome(
        "output-mode",
        verdict,
        f"{OUTPUT_MODE.message}; the complete result will lack the groups that the watermark has closed",
        SILENT,
        "if you need every group, start a new checkpoint; otherwise ignore this finding",
    )
    for verdict in (_INCOMPATIBLE, _UNKNOWN)
)
OLDER_SPARK = Outcome("spark-downgraded", _AS_IS, "Spark {new} is to read state that Spark {old} wrote", SILENT)
SPARK_TOO_OLD = Outcome(
    "spark-downgraded",
    _INCOMPATIBLE,
    f"{OLDER_SPARK.message}, and does not support {{features}}",
    "fails at the start or in the first batch",
    "stay on Spark {old}",
)

# Delta tables

TABLE_KEY = Outcome(
    "table-key",
    _INCOMPATIBLE,
    "the new stream merges rows by another key; one new row may match several old ones, or rows that were separate "
    "are merged",
    f"{_WRONG}, or DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE in a batch",
    "keep the key, or fill a new table from the source",
)
TABLE_COLUMN_ADDED = Outcome(
    "table-column-added",
    _RECONFIGURATION,
    "the table does not have the column {name}, and drops the new stream's values for it",
    "silent: the column is not stored",
    f"ALTER TABLE ... ADD COLUMNS ({{new}}), or set {_EVOLUTION}",
)
TABLE_COLUMN_REMOVED = Outcome(
    "table-column-removed",
    _RECONFIGURATION,
    "the new stream lacks the table's column {name}, and UPDATE SET * needs every column",
    _UNRESOLVED,
    f"set {_EVOLUTION}; the column then keeps its old values",
)
TABLE_REQUIRED_COLUMN_REMOVED = Outcome(
    "table-column-removed",
    _AFTER_MIGRATION,
    TABLE_COLUMN_REMOVED.message,
    _UNRESOLVED,
    f"ALTER TABLE ... ALTER COLUMN {{name}} DROP NOT NULL, and then {TABLE_COLUMN_REMOVED.fix}",
)
TABLE_COLUMN_RENAMED, TABLE_COLUMN_MAYBE_RENAMED = (
    Outcome(
        "table-column-renamed",
        _AFTER_MIGRATION,
        f"the table has {{old}}, and the new stream gives {{new}}{phrase}",
        f"{_UNRESOLVED}; with schema evolution silent: old values are not carried over",
        "if it is the same column: ALTER TABLE ... RENAME COLUMN {old} TO {new} (with delta.columnMapping.mode=name); "
        "if it is another: ADD COLUMNS, and DROP COLUMN",
    )
    for phrase in (", as --renamed says", ": is it the same column?")
)
TABLE_COLUMN_WIDENED, TABLE_COLUMN_NOT_WIDENED = (
    Outcome(
        "table-column-widened",
        _AFTER_MIGRATION,
        "the table keeps {name} as {old}, and casts the new stream's values to it",
        "fails in a batch with a value that does not fit: CAST_OVERFLOW_IN_TABLE_INSERT; a fraction is lost silently",
        fix,
    )
    for fix in (
        "ALTER TABLE ... ALTER COLUMN {old_name} TYPE {new} (with delta.enableTypeWidening=true)",
        "Delta does not widen {old} to {new}: keep it {old}, or give the new column another name",
    )
)
TABLE_COLUMN_FITS = Outcome("table-column-retyped", _AS_IS, TABLE_COLUMN_WIDENED.message, SILENT)
TABLE_COLUMN_RETYPED = Outcome(
    "table-column-retyped",
    _UNKNOWN,
    TABLE_COLUMN_WIDENED.message,
    "fails in the first batch, or in a batch with a value that cannot be cast",
    "keep {name} {old}, or give the new column another name",
)
TABLE_COLUMN_RULE = Outcome(
    "table-constraint",
    _UNKNOWN,
    "the table has a rule for {name} ({old}): do the new rows satisfy it?",
    "fails in a batch with a row that does not",
    "if they do, ignore this finding; otherwise change the table's column first",
)
TABLE_CONSTRAINT = Outcome(
    "table-constraint",
    _UNKNOWN,
    "the table has the constraint {old}: do the new rows satisfy it?",
    "fails in a batch with a row that does not: DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    "if they do, ignore this finding; otherwise ALTER TABLE ... DROP CONSTRAINT {name}",
)
TABLE_NOT_NULL = Outcome(
    "table-nullability",
    _UNKNOWN,
    "{name} is NOT NULL in the table, and the new stream may give null",
    "fails in a batch with a null: DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "if no null occurs, ignore this finding; otherwise ALTER TABLE ... ALTER COLUMN {old_name} DROP NOT NULL",
)
TABLE_NULLABLE = Outcome(
    "table-nullability", _AS_IS, "{name} stays nullable in the table, and old rows may have null there", SILENT
)
TABLE_PARTITIONING = Outcome("table-partitioning", _AS_IS, "the table keeps its partitioning by {old}", SILENT)
TABLE_APPEND_ONLY = Outcome(
    "table-append-only",
    _RECONFIGURATION,
    "the table does not accept updates",
    "refuses the first batch that updates: DELTA_CANNOT_MODIFY_APPEND_ONLY",
    "ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
)
TABLE_PROPERTY = Outcome(
    "table-property",
    _AS_IS,
    "the table keeps its {name}; CREATE TABLE IF NOT EXISTS does not change an existing table",
    SILENT,
    "to change it: ALTER TABLE ... SET TBLPROPERTIES ('{name}' = '{new}')",
)
TABLE_PROPERTY_REMOVED = Outcome("table-property", _AS_IS, TABLE_PROPERTY.message, SILENT)
TABLE_PROTOCOL = Outcome(
    "table-protocol",
    _AS_IS,
    "the table needs {old}; the new one does not",
    "a Delta that does not support it refuses the table: DELTA_UNSUPPORTED_FEATURES_FOR_READ or ..._FOR_WRITE",
)

OUTCOMES: tuple[Outcome, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Outcome))
"""Every row, in the order of this page."""
