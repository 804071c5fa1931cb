"""A join of two streams, old against new: its sides, type and condition, and the columns of its buffered rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.expressions import are_narrower, are_same, differ_for_null, find_changed, find_retyped
from ttlsnap.check.outcomes import (
    JOIN_COLUMN_CHANGED,
    JOIN_COLUMN_NULLS,
    JOIN_COLUMNS_SWAPPED,
    JOIN_CONDITION,
    JOIN_FROM_SEMI,
    JOIN_MAYBE_SIDES,
    JOIN_RANGE_NARROWER,
    JOIN_SIDES,
    JOIN_TYPE,
)
from ttlsnap.check.query_plan import QueryPlan, look_swapped
from ttlsnap.entries.place import Place


def are_sides_swapped(comparison: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> bool:
    """Report sides that changed places, or seem to. Return whether they certainly did: nothing else compares then."""
    old, new = (tuple(plan.sides.values()) for plan in (before, after))
    is_exact = old != new and old == new[::-1]
    if before.join and (is_exact or look_swapped(old, new)):
        texts = ("; ".join(plan.sides["left"]) for plan in (before, after))
        comparison.add(JOIN_SIDES if is_exact else JOIN_MAYBE_SIDES, place, *texts)
    return bool(before.join) and is_exact


def compare_joins(comparison: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report another type, and another condition."""
    if before.join != after.join:
        comparison.add(JOIN_FROM_SEMI if before.join == "LeftSemi" else JOIN_TYPE, place, before.join, after.join)
    removed, added = find_changed(before.where, after.where)
    if removed or added:
        is_narrower = are_narrower(sorted(removed), sorted(added))
        texts = (" and ".join(plan.where) or "none" for plan in (before, after))
        comparison.add(JOIN_RANGE_NARROWER if is_narrower else JOIN_CONDITION, place, *texts)


def compare_rows(
    comparison: Comparison,
    place: Place,
    side: str,
    before: tuple[QueryPlan, Sequence[str]],
    after: tuple[QueryPlan, Sequence[str]],
) -> None:
    """Report the columns of one side's buffered rows that have another meaning, by position.

    ``before`` and ``after`` are each a plan, and the names of the columns.
    """
    (plan, names), (new_plan, new_names) = before, after
    old_columns = {name: plan.columns.get(f"{side}.{name}", name) for name in names}
    old_meanings = [plan.columns.get(f"{side}.{comparison.new_name(name)}", old_columns[name]) for name in names]
    new_meanings = [new_plan.columns.get(f"{side}.{name}", name) for name in new_names]
    if old_meanings == new_meanings or len(old_meanings) != len(new_meanings):
        return
    if Counter(old_meanings) == Counter(new_meanings):
        comparison.add(JOIN_COLUMNS_SWAPPED, place.at(field="value"), ", ".join(names), ", ".join(new_names))
        return
    retyped = find_retyped(plan.sources, new_plan.sources)
    for name, old_meaning, new_meaning in zip(new_names, old_meanings, new_meanings, strict=True):
        if not are_same(old_meaning, new_meaning, retyped=retyped):
            outcome = JOIN_COLUMN_NULLS if differ_for_null(old_meaning, new_meaning) else JOIN_COLUMN_CHANGED
            comparison.add(outcome, place.at(field=f"value.{name}"), old_meaning, new_meaning, name=name)
