"""Pairs of queries whose old state is migrated, so that real Spark restarts the new query on it.

The pairs are those of ``tests.check``, in which Spark refuses the old state, or returns wrong rows. ``MIGRATED`` has
those that a migration repairs, and ``REFUSED`` those that it refuses, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ttlsnap.check.ignores import parse_ignore
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.contract import Contract
from ttlsnap.engines.local import LocalEngine
from ttlsnap.migration.changes import Changes
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.run import migrate
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.query import NewQuery
from ttlsnap.transform.converters import ConvertsValues

from ..check.observe import Observer, normal, put
from ..check.pair import Pair
from ..check.pairs import PAIRS
from ..check.quality import contracts_of
from ..check.queries import Event


@dataclass(frozen=True)
class Migrated:
    """A pair that a migration repairs, with the user's ``answers``.

    ``afresh`` are the columns of the result that are as if the query had started with the new rows: those of an added
    aggregate. The ``keys`` are the first columns, which identify a row. ``ignored`` are the codes of findings that the
    user accepts. ``filled`` are the values that old events have in the new query.
    """

    name: str
    steps: tuple[str, ...]
    answers: Mapping[str, Any] = field(default_factory=dict)
    afresh: tuple[int, ...] = ()
    keys: int = 1
    rows: list[tuple[Any, ...]] | None = None
    ignored: tuple[str, ...] = ()
    filled: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pair(self) -> Pair:
        return PAIRS[self.name]

    @property
    def given(self) -> Answers:
        return Answers(**self.answers)

    @property
    def goes_on(self) -> bool:
        """Whether the query itself says which rows are right in later batches; not for what begins empty."""
        begins_empty = re.search("tws-field-added|tws-ttl-variable-added|pandas-field-added", self.name)
        return self.rows is None and self.pair.rows is None and not begins_empty

    def events(self, batch: int) -> list[Event]:
        """Return the events of a batch after the restart."""
        return [replace(event, minute=event.minute + batch) for event in self.pair.after]

    def right(self, batch: int = 0) -> list[str]:
        """Return the rows that the restarted query must give in a ``batch``."""
        pair = self.pair
        if batch == 0 and self.rows is not None:
            return normal(self.rows)
        before, after = [event for events in pair.before for event in events], self.events(batch)
        since = [event for number in range(batch) for event in self.events(number)]
        rows = [list(row) for row in pair.right()]
        if self.filled or batch:
            before = [replace(event, **self.filled) for event in before]
            rows = [list(row) for row in pair.new.right(before + since, after)]
        if self.afresh:
            new = {tuple(row[: self.keys]): row for row in pair.new.right(since, after)}
            for row in rows:
                for column in self.afresh:
                    row[column] = new[tuple(row[: self.keys])][column]
        return normal(rows)


class Migrator(Observer):
    """An observer that migrates the state of the old query before the new one starts."""

    def restart(self, one: Migrated) -> tuple[MigrationReport, dict[str, Any]]:
        """Return the report of the migration, and what real Spark does then: its rows, or its error."""
        pair = one.pair
        checkpoint = self.checkpoint_of(pair, 0)
        report = self.migrate(str(checkpoint), one)
        return report, self.resume(one, checkpoint)

    def resume(self, one: Migrated, checkpoint: Path) -> dict[str, Any]:
        """Return what real Spark does with the new query: its rows, or its error."""
        pair = one.pair
        put(checkpoint.parent / "source", [pair.after])
        done = self._attempt(pair, 1, checkpoint.parent)
        if pair.new.once and "rows" in done:  # the only batch was the one that ttlsnap planned
            assert not done["rows"]
            done = self._attempt(pair, 1, checkpoint.parent)
        return done

    def go_on(self, one: Migrated, batch: int) -> dict[str, Any]:
        """Return what real Spark does with another batch, after another restart."""
        folder = self._folder / one.name
        put(folder / "source", [one.events(batch)])
        return self._attempt(one.pair, 1, folder)

    def migrate(
        self,
        checkpoint: str,
        one: Migrated,
        contracts: tuple[Contract, Contract] | None = None,
        converters: Sequence[ConvertsValues] = (),
    ) -> MigrationReport:
        """Migrate the state of a pair's old query to its new one, or from one of the ``contracts`` to the other."""
        old, new = contracts or contracts_of(one.name)
        assert isinstance(old, Contract) and isinstance(new, Contract)
        ignores = [parse_ignore(code) for code in one.ignored]
        changes = Changes(new_query=NewQuery(new, old, one.given, ignores, converters=converters))
        return migrate(checkpoint, changes, (), CompactOptions(stopped=True), LocalEngine(2))


def case(name: str, *steps: str, **facts: Any) -> Migrated:
    return Migrated(name, steps, **facts)


CODE = ("function-changed",)
WITH_X: dict[str, Any] = {"answers": {"fills": {"key.other": "x"}}, "filled": {"other": "x"}}
FROM_NOW: dict[str, Any] = {"births": ("now",)}
AVRO = ("", "-avro")
SESSIONS = [((0, 50), "a", 60, 1), ((5, 55), "b", 21, 1), ((12, 59), "c", 13, 1), ((28, 58), "d", 50, 1)]
# The batch that ttlsnap plans has no rows, and in complete mode Spark emits all groups.
NONE_YET = [(user, None) for user in "abce"]
MIGRATED = [
    # Grouping columns
    case("agg-key-reordered", "reorder"),
    case("agg-keys-swapped", "reorder"),
    case("agg-keys-swapped-rocksdb", "reorder"),
    case("agg-key-widened", "widen"),
    case("agg-key-widened-unchecked", "widen"),
    case("agg-key-int-to-string", "widen"),
    case("session-keys-swapped", "reorder", "reorder"),
    case("agg-key-added", "add", **WITH_X),
    case("agg-key-added-rocksdb", "add", **WITH_X),
    case("agg-key-added-unchecked", "add", **WITH_X),
    *(
        case(f"agg-key-added-{version}", "add", **WITH_X)
        for version in ("3.5", "3.5-4.2", "4.0", "4.0-4.2", "4.1", "4.1-4.2", "4.2-4.3", "4.3")
    ),
    case("window-key-added", "add", **WITH_X),
    case("session-key-added", "add", "add", **WITH_X),
    *(case(f"agg-keys-swapped-{version}", "reorder") for version in ("3.5", "4.0", "4.1", "4.3")),
    # Aggregates
    case("agg-value-added", "add", afresh=(2,)),
    case("agg-value-added-rocksdb", "add", afresh=(2,)),
    case("agg-value-added-unchecked", "add", afresh=(2,)),
    case("agg-value-removed", "drop"),
    case("agg-value-removed-rocksdb", "drop"),
    case("agg-value-reordered", "reorder"),
    case("agg-values-swapped", "reorder"),
    case("agg-values-swapped-rocksdb", "reorder"),
    case("agg-values-min-max-swapped", "reorder"),
    case("agg-values-selected-in-another-order", "reorder"),
    case("agg-value-widened", "widen"),
    case("agg-value-widened-unchecked-negative", "widen"),
    case("agg-value-to-double", "narrow", answers={"narrow": True}),
    case(
        "agg-approx-count-distinct-beside-a-widened-value",
        "add",
        "drop",
        "widen",
        afresh=(1,),
        answers={"drops": frozenset({"approx_count_distinct(price, 0.05, 0, 0)"})},
    ),
    case("agg-value-to-string", "add", "drop", afresh=(1,), answers={"drops": frozenset({"max(price)"})}),
    case("agg-min-to-max", "add", "drop", afresh=(1,)),
    case("agg-min-to-max-rocksdb", "add", "drop", afresh=(1,)),
    case("agg-max-to-min", "add", "drop", afresh=(1,)),
    case("agg-sum-to-max", "add", "drop", afresh=(1,)),
    case("agg-last-to-first", "add", "drop", afresh=(1,)),
    case("agg-first-to-max", "add", "drop", afresh=(1,)),
    case("agg-count-to-sum-of-ones", "add", "drop", afresh=(1,)),
    case("agg-avg-to-sum", "add", "drop", afresh=(1,)),
    case("agg-or-to-xor", "add", "drop", afresh=(1,)),
    case("agg-buffer-now-required", "add", "drop", afresh=(1,)),
    case("agg-buffer-now-nullable", "add", "drop", afresh=(1,)),
    case("agg-max-of-another-type", "add", "drop", afresh=(1,)),
    case("agg-sum-of-another", "add", "drop", afresh=(1,), answers={"drops": frozenset({"sum(amount)"})}),
    case("agg-distinct-of-another", "add", "drop", afresh=(1,)),
    case("agg-set-to-list", "add", "drop", afresh=(1,)),
    case("agg-list-of-another", "add", "drop", afresh=(1,)),
    case(
        "agg-list-of-another-same-type",
        "add",
        "drop",
        afresh=(1,),
        answers={"drops": frozenset({"collect_list(user, 0, 0, true)"})},
    ),
    case(
        "agg-collect-list-argument-widened",
        "add",
        "drop",
        afresh=(1,),
        answers={"drops": frozenset({"collect_list(price, 0, 0, true)"})},
    ),
    case(
        "agg-approx-count-distinct-argument-widened",
        "add",
        "drop",
        afresh=(1,),
        answers={"drops": frozenset({"approx_count_distinct(price, 0.05, 0, 0)"})},
    ),
    case(
        "agg-value-narrowed",
        "narrow",
        answers={"narrow": True, "renamed": {"max(amount)": "max(cast(amount as int))"}},
    ),
    case(
        "way-first-to-last-complete",
        "add",
        "drop",
        rows=[*NONE_YET, ("a", 20), ("b", 1), ("c", 8), ("d", 50), ("e", None)],
    ),
    case("way-first-to-last-windows", "add", "drop", rows=[((0, 60), user, None) for user in "abc"]),
    case("agg-sum-of-another-rocksdb", "add", "drop", afresh=(1,), answers={"drops": frozenset({"sum(amount)"})}),
    case("agg-avg-to-sum-and-count", "add", "add", "drop", afresh=(1, 2)),
    case("session-value-added", "add", rows=SESSIONS),
    case(
        "session-sum-of-another",
        "add",
        "drop",
        answers={"drops": frozenset({"sum(amount)"})},
        rows=[((0, 50), "a", 7), ((5, 55), "b", 9), ((12, 59), "c", 5), ((28, 58), "d", 6)],
    ),
    case(
        "window-of-another-aggregate",
        "add",
        "drop",
        answers={"drops": frozenset({"sum(amount)"})},
        rows=[((0, 60), "a", 7), ((0, 60), "b", 9), ((0, 60), "c", 5), ((0, 60), "d", 6)],
    ),
    # Deduplications
    case("dedup-columns-swapped", "reorder"),
    case("dedup-columns-swapped-rocksdb", "reorder"),
    case("dedup-columns-reordered", "reorder"),
    case("dedup-column-widened", "widen"),
    case("dedup-column-widened-unchecked", "widen"),
    case("dedup-now-nullable", "nullability"),
    case("within-columns-swapped", "reorder"),
    case("dedup-column-added", "add", **WITH_X),
    case("dedup-column-added-rocksdb", "add", **WITH_X),
    case("within-column-added", "add", **WITH_X),
    case("dedup-column-removed", "drop"),
    case("dedup-column-removed-rocksdb", "drop"),
    case("within-column-removed", "drop"),
    case("upgrade-dedup-many-3.5-4.2", "reorder"),
    case("upgrade-dedup-many-3.5-4.3", "reorder"),
    case("downgrade-dedup-many-4.3-4.2", "reorder"),
    # Joins
    case("join-keys-swapped", "reorder", "reorder", "reorder", "reorder"),
    case("join-keys-swapped-rocksdb", "reorder", "reorder", "reorder", "reorder"),
    case("join-value-added", "add", rows=[(1, 9, 20), (20, 7, 30), (5, None, 8)]),
    case("join-value-removed", "drop"),
    case("join-columns-behind", "drop"),
    case("join-value-reordered", "reorder"),
    case("join-value-shown-reordered", "reorder"),
    case("join-value-shown-reordered-rocksdb", "reorder"),
    case("join-value-widened", "widen"),
    case("join-value-retyped", "widen"),
    case("join-whole-inner-to-left", "nullability"),
    case("join-value-now-nullable", "nullability", "nullability"),
    case(
        "join-inner-to-semi",
        "rename",
        "rename",
        "rename",
        "nullability",
        "drop",
        answers={"renamed": {"l_user": "user", "l_amount": "amount", "l_ts": "ts"}},
    ),
    # The user's own state
    case("tws-field-widened", "widen"),
    case("tws-field-float-widened", "widen"),
    case("tws-field-array-int-widened", "widen"),
    case("tws-list-widened", "widen"),
    case("tws-field-now-nullable", "nullability"),
    case("tws-field-to-double", "narrow", answers={"narrow": True}, ignored=CODE),
    *(case(f"tws-field-to-string{avro}", "widen", ignored=CODE) for avro in AVRO),
    case("tws-field-narrowed", "narrow", answers={"narrow": True}),
    case("tws-field-added", "add", ignored=CODE),
    case("tws-field-added-first", "add", ignored=CODE),
    case("tws-field-removed", "drop", ignored=CODE),
    case("tws-field-reordered", "reorder", ignored=CODE),
    case("tws-fields-swapped", "reorder", ignored=CODE),
    case("tws-variable-renamed", "rename-state"),
    case("tws-variable-renamed-avro", "rename-state"),
    case("tws-list-renamed", "rename-state"),
    case("tws-map-renamed", "rename-state"),
    case("tws-keys-swapped", "reorder"),
    case("tws-key-added", "add", **WITH_X),
    case("tws-field-narrowed-avro", "narrow", answers={"narrow": True}),
    case("tws-field-renamed-avro", "rename", answers={"renamed": {"total": "sum"}}),
    # TTLs, and modes
    *(case(f"tws-ttl-on{avro}", "switch-ttl", "switch-time-mode", answers=FROM_NOW) for avro in AVRO),
    case("tws-ttl-on-second-variable", "switch-ttl", answers=FROM_NOW),
    *(case(f"tws-ttl-off{avro}", "switch-ttl", "switch-time-mode") for avro in AVRO),
    *(case(f"tws-ttl-on-same-time-mode{avro}", "switch-ttl", answers=FROM_NOW) for avro in AVRO),
    *(case(f"tws-ttl-off-same-time-mode{avro}", "switch-ttl") for avro in AVRO),
    case("tws-ttl-list-on", "switch-ttl", "switch-time-mode", answers=FROM_NOW),
    case("tws-ttl-map-off", "switch-ttl", "switch-time-mode"),
    *(case(f"tws-ttl-list-off{avro}", "switch-ttl", "switch-time-mode") for avro in AVRO),
    *(case(f"tws-ttl-map-on{avro}", "switch-ttl", "switch-time-mode", answers=FROM_NOW) for avro in AVRO),
    case("tws-ttl-variable-added", "switch-time-mode", ignored=CODE),
    case("tws-time-mode-to-event", "switch-time-mode"),
    case("tws-time-mode-to-processing", "switch-time-mode"),
    case("tws-time-mode-processing-to-event", "switch-time-mode"),
    case("tws-time-mode-to-none", "switch-time-mode"),
    case("tws-output-mode", "switch-output-mode"),
    case("pandas-field-added", "add", ignored=CODE),
    case("pandas-field-added-rocksdb", "add", ignored=CODE),
    case("pandas-field-removed", "drop", ignored=CODE),
    case("pandas-fields-swapped", "reorder", ignored=CODE),
    case("pandas-field-widened", "widen"),
    case("pandas-field-now-nullable", "nullability"),
    case("pandas-field-to-string", "widen", ignored=CODE),
    case("pandas-keys-swapped", "reorder"),
    case("pandas-key-added", "add", **WITH_X),
]
"""The pairs that a migration repairs."""
