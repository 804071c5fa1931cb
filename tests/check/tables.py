"""Pairs of streams that keep a Delta table up to date: the old stream, the changed one, and the right rows.

A stream merges, batch by batch, the last event of each key into the table, and updates or inserts all columns. It
creates the table if there is none. The old stream merges ``before``, and the new one merges ``after`` into the same
table. A key that the new stream has seen has the new stream's row. Any other key keeps the columns that both streams
have, with null in new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .pair import AFTER, BEFORE, Conf
from .queries import EVENTS, Event

# The new stream has no event of e.
KEPT = (*BEFORE, (Event("e", "z", 6, 6, 13),))


@dataclass(frozen=True)
class Column:
    """A column: its type, the field of an event that it takes (``of``), and the rest of its definition."""

    type: str
    of: str
    rest: str = ""

    def value(self, event: Event) -> Any:
        """Return the column's value for an event, as in JSON."""
        found = getattr(event, self.of)
        return found if found is None else str(found) if self.type == "string" else found


@dataclass(frozen=True)
class Table:
    """The table of a stream. ``clauses`` follow the columns in its DDL, and ``key`` has the columns of the merge."""

    columns: Mapping[str, Column]
    key: tuple[str, ...] = ("user",)
    clauses: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def ddl(self, path: str) -> str:
        """Return the statement that creates the table."""
        columns = ", ".join(f"{name} {column.type} {column.rest}".strip() for name, column in self.columns.items())
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        text = f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta {self.clauses}"
        return text + (f" TBLPROPERTIES ({properties})" if properties else "")


@dataclass(frozen=True)
class TablePair:
    """A pair, as the module describes it.

    ``settings`` are those of the new stream. ``same`` maps the new name of a renamed column to its old name.
    """

    name: str
    change: str
    old: Table
    new: Table
    settings: Conf = field(default_factory=dict)
    before: tuple[tuple[Event, ...], ...] = KEPT
    after: tuple[Event, ...] = AFTER
    same: Mapping[str, str] = field(default_factory=dict)

    def right(self) -> list[list[Any]]:
        """Return the right rows, in the columns of the new stream."""
        rows: dict[Any, dict[str, Any]] = {}
        for table, events in ((self.old, [event for batch in self.before for event in batch]), (self.new, self.after)):
            for event in events:
                key = tuple(self.new.columns[name].value(event) for name in self.new.key)
                rows[key] = {name: column.value(event) for name, column in table.columns.items()}
        return [[row.get(name, row.get(self.same.get(name, ""))) for name in self.new.columns] for row in rows.values()]


TABLE_PAIRS: dict[str, TablePair] = {}


def _pair(name: str, change: str, old: Table, new: Table, **rest: Any) -> None:
    TABLE_PAIRS[name] = TablePair(name, change, old, new, **rest)


def _table(*columns: tuple[str, str], **rest: Any) -> Table:
    """Return a table with these columns, each with a type and filled from the event's field of the same name."""
    return Table({name: Column(type_, name) for name, type_ in columns}, **rest)


USER, OTHER, AMOUNT, PRICE = ("user", "string"), ("other", "string"), ("amount", "bigint"), ("price", "bigint")
PLAIN = _table(USER, OTHER, AMOUNT)
EVOLVES = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}


def with_properties(**properties: str) -> Table:
    """Return the plain table with properties. A double underscore means a dot."""
    return _table(USER, OTHER, AMOUNT, properties={f"delta.{n.replace('__', '.')}": v for n, v in properties.items()})


_pair("table-same", "nothing", PLAIN, PLAIN)
_pair("table-column-added", "column added", PLAIN, _table(USER, OTHER, AMOUNT, PRICE))
_pair("table-column-added-evolving", "column added", PLAIN, _table(USER, OTHER, AMOUNT, PRICE), settings=EVOLVES)
_pair("table-column-removed", "column removed", _table(USER, OTHER, AMOUNT, PRICE), PLAIN)
_pair("table-column-removed-evolving", "column removed", _table(USER, OTHER, AMOUNT, PRICE), PLAIN, settings=EVOLVES)
_pair("table-columns-reordered", "column reordered", PLAIN, _table(AMOUNT, OTHER, USER))
RENAMED = Table(
    {"user": Column("string", "user"), "other": Column("string", "other"), "sum": Column("bigint", "amount")}
)
_pair("table-column-renamed", "column renamed", PLAIN, RENAMED, same={"sum": "amount"})
_pair("table-column-renamed-evolving", "column renamed", PLAIN, RENAMED, settings=EVOLVES, same={"sum": "amount"})
for was, now in (
    ("int", "bigint"),
    ("bigint", "int"),
    ("bigint", "string"),
    ("string", "bigint"),
    ("bigint", "double"),
    ("double", "bigint"),
):
    two = [_table(USER, OTHER, ("amount", kind)) for kind in (was, now)]
    _pair(f"table-{was}-to-{now}", "column retyped", *two)
    if (was, now) == ("int", "bigint"):
        LARGE = (*AFTER[:-1], Event("c", "y", 1 << 40, 5, 29))
        _pair(f"table-{was}-to-{now}-large", "column retyped", *two, after=LARGE)
        widening = [
            _table(USER, OTHER, ("amount", kind), properties={"delta.enableTypeWidening": "true"})
            for kind in (was, now)
        ]
        _pair(f"table-{was}-to-{now}-widening", "column retyped", *widening, settings=EVOLVES, after=LARGE)
REQUIRED = Table({**PLAIN.columns, "other": Column("string", "other", "NOT NULL")})
WITHOUT = (*AFTER[:-1], Event("c", None, 8, 5, 29))
_pair("table-now-required", "column nullability", PLAIN, REQUIRED)
_pair("table-now-nullable", "column nullability", REQUIRED, PLAIN)
_pair("table-now-nullable-nulls", "column nullability", REQUIRED, PLAIN, after=WITHOUT)
# The plain table keeps only the last event of c.
TWICE = (*KEPT, (Event("c", "z", 6, 6, 14),))
BOTH = _table(USER, OTHER, AMOUNT, key=("user", "other"))
_pair("table-key-added", "key added", PLAIN, BOTH, before=TWICE)
_pair("table-key-removed", "key removed", BOTH, PLAIN)
_pair("table-key-replaced", "key replaced", PLAIN, _table(USER, OTHER, AMOUNT, key=("other",)))
_pair("table-key-reordered", "key reordered", BOTH, _table(USER, OTHER, AMOUNT, key=("other", "user")))
_pair("table-partitioned", "partitioning", PLAIN, _table(USER, OTHER, AMOUNT, clauses="PARTITIONED BY (other)"))
_pair("table-unpartitioned", "partitioning", _table(USER, OTHER, AMOUNT, clauses="PARTITIONED BY (other)"), PLAIN)
_pair("table-clustered", "partitioning", PLAIN, _table(USER, OTHER, AMOUNT, clauses="CLUSTER BY (other)"))
for name, properties in (
    ("deletion-vectors", {"enableDeletionVectors": "true"}),
    ("change-data-feed", {"enableChangeDataFeed": "true"}),
    ("column-mapping", {"columnMapping__mode": "name"}),
    ("row-tracking", {"enableRowTracking": "true"}),
    ("retention", {"deletedFileRetentionDuration": "interval 1 day"}),
):
    _pair(f"table-{name}-on", "property", PLAIN, with_properties(**properties))
    _pair(f"table-{name}-off", "property", with_properties(**properties), PLAIN)
_pair("table-append-only-old", "property", with_properties(appendOnly="true"), PLAIN, before=BEFORE[:1])
CHECKED = with_properties(constraints__positive="amount < 25")
_pair("table-constraint-old", "constraint", CHECKED, PLAIN, before=BEFORE[:1])


def merge(spark: Any, pair: str, side: int, source: str, path: str, checkpoint: str) -> dict[str, Any]:
    """Run one side of a pair over the rest of the source. Return the table's rows, or the error."""
    from .attempts import refusal

    asked = TABLE_PAIRS[pair]
    table = (asked.old, asked.new)[side]
    session = spark.newSession()
    usual = dict.fromkeys(("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"), "2")
    usual["spark.sql.session.timeZone"] = "UTC"
    for name, value in {**usual, **(asked.settings if side else {})}.items():
        session.conf.set(name, value)
    session.sql(table.ddl(path))
    columns = [f"CAST({column.of} AS {column.type}) AS {name}" for name, column in table.columns.items()]
    on = " AND ".join(f"t.{name} <=> s.{name}" for name in table.key)

    def write(frame: Any, batch: int) -> None:
        own = frame.sparkSession
        frame.selectExpr("*", f"row_number() OVER (PARTITION BY {', '.join(table.key)} ORDER BY ts DESC) AS nth").where(
            "nth = 1"
        ).selectExpr(*columns).createOrReplaceTempView("s")
        own.sql(
            f"MERGE INTO delta.`{path}` t USING s ON {on} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    stream = None
    try:
        events = session.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(source)
        stream = events.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        stream = stream.trigger(availableNow=True).start()
        stream.awaitTermination()
    except Exception as failure:
        return refusal(failure, stream)
    names = [name for name in table.columns if side == 0 or name in session.read.format("delta").load(path).columns]
    rows = session.read.format("delta").load(path).select(*names).collect()
    return {"columns": names, "rows": [list(row) for row in rows]}


def sql(spark: Any, statements: list[str]) -> None:
    """Run statements one after the other."""
    for statement in statements:
        spark.sql(statement)
