"""Rows on their way to an operator, old against new: sources, filters, other steps, watermarks, input columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.expressions import find_different, find_retyped, has_name
from ttlsnap.check.outcomes import (
    DEDUP_DELAY,
    FILTER_CHANGED,
    INPUT_COLUMN,
    INPUT_COLUMNS,
    NAMED_SOURCE_ADDED,
    NAMED_SOURCE_REMOVED,
    NAMED_SOURCE_REPLACED,
    SOURCE_RENAMED,
    SOURCE_UNNAMED,
    SOURCES_NAMED,
    SOURCES_NAMED_IN_FOLDERS,
    SOURCES_REORDERED,
    SOURCES_UNNAMED,
    UNION_BRANCH,
    UPSTREAM_CHANGED,
    UPSTREAM_SAME_ROWS,
    WATERMARK_CHANGED,
    WATERMARK_COLUMN,
)
from ttlsnap.check.query_plan import QueryPlan
from ttlsnap.check.trees import parse
from ttlsnap.contract import OperatorContract
from ttlsnap.entries.place import Place

_WITHIN_WATERMARK = "dedupeWithinWatermark"
_SOURCE = re.compile(r"([^\s:]+): ")
# Steps that return the rows they receive.
_SAME_ROWS = frozenset(
    {"View", "Union", "Repartition", "RepartitionByExpression", "Sort", "ResolvedHint", "Deduplicate"}
)


def compare_sources(comparison: Comparison, before: Sequence[str], after: Sequence[str]) -> None:
    """Report other sources, or another order: the offset log identifies a source by its position alone."""
    old, new = ([_SOURCE.match(text) for text in texts_of_side] for texts_of_side in (before, after))
    old_names, new_names = ([match[1] if match else None for match in side] for side in (old, new))
    if old_names == new_names:
        return
    is_reordered = None not in (*old_names, *new_names) and Counter(old_names) == Counter(new_names)
    texts = (", ".join(name or "unnamed" for name in side) for side in (old_names, new_names))
    is_unnamed = [None] in (old_names, new_names) and len(old_names) == len(new_names)
    outcome = SOURCES_REORDERED if is_reordered else SOURCE_UNNAMED if is_unnamed else SOURCE_RENAMED
    comparison.add(outcome, Place(), *texts)


def compare_named_sources(comparison: Comparison) -> None:
    """Report named sources that were added, removed or replaced, and names that only one of the queries has."""
    old, new = comparison.old, comparison.new
    old_names, new_names = old.source_names or (), new.source_names or ()
    texts = ", ".join(old_names) or "unnamed", ", ".join(new_names) or "unnamed"

    def options(names: Iterable[str]) -> str:
        return " ".join(f"--rename {name}" for name in names)

    if old.names_sources and not new.names_sources:
        # In version 1 of the offset log, the sources have numbers, and only their folders have names.
        numbered = [f"{number}={number}" for number in range(old.sources)]
        named = [f"{name}=NUMBER" for name in old_names or ("NAME",)]
        words = options(named if old.offset_log > 1 else numbered)
        comparison.add(SOURCES_UNNAMED, Place(), *texts, options=words)
    elif not old.names_sources:
        words = options(f"{number}=NAME" for number in range(old.sources))
        comparison.add(SOURCES_NAMED, Place(), *texts, options=words)
    elif old.source_names is None or new.source_names is None:
        comparison.cannot_compare("the names of the sources: a contract of an older ttlsnap does not list them")
    elif old.offset_log < new.offset_log:
        words = options(f"{number}=NAME" for number in range(old.sources))
        comparison.add(SOURCES_NAMED_IN_FOLDERS, Place(), *texts, options=words)
    elif old.offset_log > 1 or len(old_names) == len(new_names):
        gone, added = (
            [name for name in one if name not in other]
            for one, other in ((old_names, new_names), (new_names, old_names))
        )
        texts = ", ".join(gone), ", ".join(added)
        if gone and added:
            words = options(f"{name}={added[0] if len(gone) == len(added) == 1 else 'NAME'}" for name in gone)
            comparison.add(NAMED_SOURCE_REPLACED, Place(), *texts, options=words)
        elif gone:
            comparison.add(NAMED_SOURCE_REMOVED, Place(), texts[0], None)
        elif added:
            comparison.add(NAMED_SOURCE_ADDED, Place(), None, texts[1])


def compare_columns(comparison: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report other columns of a Python function, which may use their positions, and those computed in another way."""
    inputs = [
        [(name.partition(".")[2], meaning) for name, meaning in plan.columns.items() if name.startswith("input.")]
        for plan in (before, after)
    ]
    # A renamed column has its old position; a function that uses names would have changed.
    if inputs[0] and inputs[1] and not _are_in_place(*inputs):
        comparison.add(INPUT_COLUMNS, place, *(", ".join(name for name, _ in side) for side in inputs))
    retyped = find_retyped(before.sources, after.sources)
    for name in sorted(before.columns.keys() & after.columns.keys()):
        old_text, new_text = before.columns[name], after.columns[name]
        side, _, column = name.partition(".")
        if side != "input":
            continue
        # No schema of the state has the types of what a function receives, so a cast matters here.
        if parse(old_text) != parse(new_text) or any(has_name(new_text, source) for source in retyped):
            comparison.add(INPUT_COLUMN, place.at(field=column), old_text, new_text, name=column)


def _are_in_place(old_columns: Sequence[tuple[str, str]], new_columns: Sequence[tuple[str, str]]) -> bool:
    """Return whether the old columns have their old positions, apart from renames; more may follow them."""
    names = [{name for name, _ in side} for side in (old_columns, new_columns)]
    pairs = [(old, new) for (old, _), (new, _) in zip(old_columns, new_columns, strict=False)]
    are_kept = (old == new or (old not in names[1] and new not in names[0]) for old, new in pairs)
    return len(old_columns) <= len(new_columns) and all(are_kept)


def compare_watermarks(
    comparison: Comparison, place: Place, old: OperatorContract, before: QueryPlan, after: QueryPlan
) -> None:
    """Report another delay, and another column."""
    if Counter(before.watermarks) == Counter(after.watermarks):
        return
    texts = ["; ".join(plan.watermarks) or "none" for plan in (before, after)]
    columns = [Counter(text.rpartition(", ")[0] for text in plan.watermarks) for plan in (before, after)]
    if _WITHIN_WATERMARK in (old.name, place.operator_name):
        comparison.add(DEDUP_DELAY, place, *texts)
    elif columns[0] != columns[1] and all(columns):
        comparison.add(WATERMARK_COLUMN, place, *texts)
    else:
        comparison.add(WATERMARK_CHANGED, place, *texts)


def compare_upstream(comparison: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report other filters and other steps before the operator."""
    for is_filter, old_lines, new_lines in (
        (True, before.filters, after.filters),
        (False, before.upstream, after.upstream),
    ):
        changed = find_different(old_lines, new_lines)
        if not changed:
            continue
        if all(name.startswith("union ") for name in changed):
            branches = ("; ".join(text for text in changed if (text in new_lines) is new) for new in (False, True))
            comparison.add(UNION_BRANCH, place, *(text or "as in the first branch" for text in branches))
            continue
        same_rows = all(name in _SAME_ROWS for name in changed)
        outcome = FILTER_CHANGED if is_filter else UPSTREAM_SAME_ROWS if same_rows else UPSTREAM_CHANGED
        comparison.add(outcome, place, "; ".join(old_lines) or "none", "; ".join(new_lines) or "none")
