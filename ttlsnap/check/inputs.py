"""Rows on their way to an operator, old against new: sources, filters, other steps, watermarks, input columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.expressions import are_same, find_different, find_retyped
from ttlsnap.check.outcomes import (
    DEDUP_DELAY,
    FILTER_CHANGED,
    INPUT_COLUMN,
    INPUT_COLUMNS,
    SOURCE_RENAMED,
    SOURCES_REORDERED,
    UNION_BRANCH,
    UPSTREAM_CHANGED,
    UPSTREAM_SAME_ROWS,
    WATERMARK_CHANGED,
    WATERMARK_COLUMN,
)
from ttlsnap.check.query_plan import QueryPlan
from ttlsnap.contract import OperatorContract
from ttlsnap.entries.place import Place

_WITHIN_WATERMARK = "dedupeWithinWatermark"
_SOURCE = re.compile(r"([^\s:]+): ")
# Steps that return the rows they receive.
_SAME_ROWS = frozenset(
    {"View", "Union", "Repartition", "RepartitionByExpression", "Sort", "ResolvedHint", "Deduplicate"}
)


def compare_sources(both: Comparison, before: Sequence[str], after: Sequence[str]) -> None:
    """Report other sources, or another order: the offset log identifies a source by its position alone."""
    old, new = ([_SOURCE.match(text) for text in reads] for reads in (before, after))
    was, now = ([found[1] if found else None for found in side] for side in (old, new))
    if was == now:
        return
    reordered = None not in (*was, *now) and Counter(was) == Counter(now)
    texts = (", ".join(name or "unnamed" for name in side) for side in (was, now))
    both.add(SOURCES_REORDERED if reordered else SOURCE_RENAMED, Place(), *texts)


def compare_columns(both: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report other columns of a Python function, which may use their positions, and those computed in another way."""
    given = [
        [(name.partition(".")[2], what) for name, what in plan.columns.items() if name.startswith("input.")]
        for plan in (before, after)
    ]
    # A renamed column has its old position; a function that uses names would have changed.
    if given[0] and given[1] and not _are_in_place(*given):
        both.add(INPUT_COLUMNS, place, *(", ".join(name for name, _ in side) for side in given))
    retyped = find_retyped(before.sources, after.sources)
    for name in sorted(before.columns.keys() & after.columns.keys()):
        was, now = before.columns[name], after.columns[name]
        side, _, column = name.partition(".")
        if side == "input" and not are_same(was, now, retyped=retyped):
            both.add(INPUT_COLUMN, place.at(field=column), was, now, name=column)


def _are_in_place(was: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> bool:
    """Return whether the old columns have their old positions, apart from renames; more may follow them."""
    names = [{name for name, _ in side} for side in (was, now)]
    pairs = [(old, new) for (old, _), (new, _) in zip(was, now, strict=False)]
    same = (old == new or (old not in names[1] and new not in names[0]) for old, new in pairs)
    return len(was) <= len(now) and all(same)


def compare_watermarks(
    both: Comparison, place: Place, old: OperatorContract, before: QueryPlan, after: QueryPlan
) -> None:
    """Report another delay, and another column."""
    if Counter(before.watermarks) == Counter(after.watermarks):
        return
    texts = ["; ".join(plan.watermarks) or "none" for plan in (before, after)]
    columns = [Counter(text.rpartition(", ")[0] for text in plan.watermarks) for plan in (before, after)]
    if _WITHIN_WATERMARK in (old.name, place.operator_name):
        both.add(DEDUP_DELAY, place, *texts)
    elif columns[0] != columns[1] and all(columns):
        both.add(WATERMARK_COLUMN, place, *texts)
    else:
        both.add(WATERMARK_CHANGED, place, *texts)


def compare_upstream(both: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report other filters and other steps before the operator."""
    for is_filter, was, now in ((True, before.filters, after.filters), (False, before.upstream, after.upstream)):
        different = find_different(was, now)
        if not different:
            continue
        if all(name.startswith("union ") for name in different):
            branches = ("; ".join(text for text in different if (text in now) is new) for new in (False, True))
            both.add(UNION_BRANCH, place, *(text or "as in the first branch" for text in branches))
            continue
        same_rows = all(name in _SAME_ROWS for name in different)
        outcome = FILTER_CHANGED if is_filter else UPSTREAM_SAME_ROWS if same_rows else UPSTREAM_CHANGED
        both.add(outcome, place, "; ".join(was) or "none", "; ".join(now) or "none")
