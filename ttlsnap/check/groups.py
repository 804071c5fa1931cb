"""The keys and aggregates of an operator, old against new: are they computed in the same way?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ttlsnap.check.comparison import Comparison
from ttlsnap.check.expressions import (
    are_same,
    differ_by_casts,
    differ_for_null,
    differ_in_counted_nulls,
    find_rename,
    find_retyped,
    has_name,
    is_longer,
    is_session,
    is_window,
    reads_same_buffer,
)
from ttlsnap.check.outcomes import (
    AGGREGATE_ARGUMENTS,
    AGGREGATE_CAST,
    AGGREGATE_CHANGED,
    AGGREGATES_SWAPPED,
    DIFFERS_FOR_NULL,
    KEY_ARGUMENTS,
    KEY_CAST,
    KEY_CHANGED,
    KEYS_SWAPPED,
    OTHER_AGGREGATES,
    OTHER_KEYS,
    RENAMED_IN_SOURCE,
    SESSION_GAP,
    SESSION_GAP_LONGER,
    WINDOW_CHANGED,
    Outcome,
)
from ttlsnap.check.query_plan import QueryPlan
from ttlsnap.check.trees import parse
from ttlsnap.contract import OperatorContract
from ttlsnap.entries.place import Place


def compare_keys(both: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report each part of the key that is computed in another way."""
    retyped = find_retyped(before.sources, after.sources)
    known = set(map(parse, before.keys))
    for key in after.keys:
        # The type of a plain column is in the schema of the key. That of an argument is not.
        if parse(key) in known and any(name != key and has_name(key, name) for name in retyped):
            both.add(KEY_ARGUMENTS, place.at(field="key"), key, key)
    if _are_reordered(both, KEYS_SWAPPED, place.at(field="key"), before.keys, after.keys):
        return
    for was, now in zip(before.keys, after.keys, strict=True):
        if not are_same(was, now, retyped=retyped):
            _add_replaced(both, place.at(field="key"), "key", (was, now), (before, after))


def compare_aggregates(both: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report each aggregate that is computed in another way."""
    if _are_reordered(both, AGGREGATES_SWAPPED, place.at(field="value"), before.aggregates, after.aggregates):
        return
    retyped = find_retyped(before.sources, after.sources)
    needs_a_row = both.new.output_mode == "update"
    for was, now in zip(before.aggregates, after.aggregates, strict=True):
        same = are_same(was, now, retyped=retyped, aggregate=True)
        if not same and not reads_same_buffer(was, now, needs_a_row=needs_a_row):
            _add_replaced(both, place.at(field="value"), "value", (was, now), (before, after))


def compare_arguments(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report each aggregate whose text is the same, and whose buffer has another content.

    Its columns can have the same types: a list in a binary column, or the digits of a decimal.
    """
    after = {parse(buffer.aggregate): buffer for buffer in new.buffers or ()}
    for was in old.buffers or ():
        now = after.get(parse(both.in_new_names(was.aggregate)))
        if now is not None and was.layout != now.layout:
            texts = (", ".join(buffer.inputs) for buffer in (was, now))
            both.add(AGGREGATE_ARGUMENTS, place.at(field="value"), *texts, name=now.aggregate)


def _are_reordered(
    both: Comparison, outcome: Outcome, place: Place, before: Sequence[str], after: Sequence[str]
) -> bool:
    """Report another order. Return whether there is no need to compare one by one.

    Another number of them is what ``compare_numbers`` reports.
    """
    if before == after or len(before) != len(after):
        return True
    if Counter(before) == Counter(after):
        both.add(outcome, place, ", ".join(before), ", ".join(after))
        return True
    return False


def compare_numbers(both: Comparison, place: Place, plans: tuple[QueryPlan, QueryPlan], since: int) -> None:
    """Report another number of keys or aggregates if no difference of the schemas shows it.

    The types can be the same by coincidence. ``since`` is the index of the operator's first finding.
    """
    codes = {finding.code for finding in both.findings[since:]}
    before, after = plans
    for side, outcome, was, now in (
        ("key", OTHER_KEYS, before.keys, after.keys),
        ("value", OTHER_AGGREGATES, before.aggregates, after.aggregates),
    ):
        if len(was) != len(now) and codes.isdisjoint((f"{side}-added", f"{side}-removed", f"{side}-retyped")):
            numbers = {"before": len(was), "after": len(now)}
            both.add(outcome, place.at(field=side), ", ".join(was), ", ".join(now), **numbers)


def _add_window(both: Comparison, place: Place, was: str, now: str) -> None:
    if is_session(was) and is_session(now):
        both.add(SESSION_GAP_LONGER if is_longer(was, now) else SESSION_GAP, place, was, now)
    else:
        both.add(WINDOW_CHANGED, place, was, now)


def _add_replaced(
    both: Comparison, place: Place, side: str, texts: tuple[str, str], plans: tuple[QueryPlan, QueryPlan]
) -> None:
    """Report a key or an aggregate that another one replaced: by a renamed column of the source, or really."""
    was, now = texts
    if renamed := find_rename(was, now, plans[0].sources, plans[1].sources):
        both.add(RENAMED_IN_SOURCE, place, was, now, side=side, was=renamed[0], now=renamed[1])
    elif is_window(was) and is_window(now):
        _add_window(both, place, was, now)
    elif differ_by_casts(was, now):
        both.add(KEY_CAST if side == "key" else AGGREGATE_CAST, place, was, now)
    elif differ_for_null(was, now) or differ_in_counted_nulls(was, now):
        both.add(DIFFERS_FOR_NULL, place, was, now, side=side)
    else:
        both.add(KEY_CHANGED if side == "key" else AGGREGATE_CHANGED, place, was, now)
