"""The keys and aggregates of an operator, old against new: are they computed in the same way?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

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
from ttlsnap.printable import shell_word


def compare_keys(comparison: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report each part of the key that is computed in another way."""
    retyped = find_retyped(before.sources, after.sources)
    old_keys = set(map(parse, before.keys))
    for key in after.keys:
        # The type of a plain column is in the schema of the key. That of an argument is not.
        if parse(key) in old_keys and any(name != key and has_name(key, name) for name in retyped):
            comparison.add(KEY_ARGUMENTS, place.at(field="key"), key, key)
    if _are_reordered(comparison, KEYS_SWAPPED, place.at(field="key"), before.keys, after.keys):
        return
    for old_key, new_key in zip(before.keys, after.keys, strict=True):
        if not are_same(old_key, new_key, retyped=retyped):
            _add_replaced(comparison, place.at(field="key"), "key", (old_key, new_key), (before, after))


def compare_aggregates(comparison: Comparison, place: Place, before: QueryPlan, after: QueryPlan) -> None:
    """Report each aggregate that is computed in another way."""
    if _are_reordered(comparison, AGGREGATES_SWAPPED, place.at(field="value"), before.aggregates, after.aggregates):
        return
    retyped = find_retyped(before.sources, after.sources)
    needs_a_row = comparison.new.output_mode == "update"
    for old_aggregate, new_aggregate in zip(before.aggregates, after.aggregates, strict=True):
        is_same = are_same(old_aggregate, new_aggregate, retyped=retyped, aggregate=True)
        if not is_same and not reads_same_buffer(old_aggregate, new_aggregate, needs_a_row=needs_a_row):
            _add_replaced(comparison, place.at(field="value"), "value", (old_aggregate, new_aggregate), (before, after))


def compare_arguments(comparison: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report each aggregate whose text is the same, and whose buffer has another content.

    Its columns can have the same types: a list in a binary column, or the digits of a decimal.
    """
    after = {parse(buffer.aggregate): buffer for buffer in new.buffers or ()}
    for old_buffer in old.buffers or ():
        new_buffer = after.get(parse(comparison.new_expression(old_buffer.aggregate)))
        if new_buffer is not None and old_buffer.layout != new_buffer.layout:
            texts = (", ".join(buffer.inputs) for buffer in (old_buffer, new_buffer))
            comparison.add(AGGREGATE_ARGUMENTS, place.at(field="value"), *texts, name=new_buffer.aggregate)


def _are_reordered(
    comparison: Comparison, outcome: Outcome, place: Place, before: Sequence[str], after: Sequence[str]
) -> bool:
    """Report another order. Return whether there is no need to compare one by one.

    Another number of them is what ``compare_numbers`` reports.
    """
    if before == after or len(before) != len(after):
        return True
    if Counter(before) == Counter(after):
        comparison.add(outcome, place, ", ".join(before), ", ".join(after))
        return True
    return False


def compare_numbers(comparison: Comparison, place: Place, plans: tuple[QueryPlan, QueryPlan], start: int) -> None:
    """Report another number of keys or aggregates if no difference of the schemas shows it.

    The types can be the same by coincidence. ``start`` is the index of the operator's first finding.
    """
    codes = {finding.code for finding in comparison.findings[start:]}
    before, after = plans
    for side, outcome, old_texts, new_texts in (
        ("key", OTHER_KEYS, before.keys, after.keys),
        ("value", OTHER_AGGREGATES, before.aggregates, after.aggregates),
    ):
        if len(old_texts) != len(new_texts) and codes.isdisjoint(
            (f"{side}-added", f"{side}-removed", f"{side}-retyped")
        ):
            numbers = {"before": len(old_texts), "after": len(new_texts)}
            comparison.add(outcome, place.at(field=side), ", ".join(old_texts), ", ".join(new_texts), **numbers)


def name_aggregates(comparison: Comparison, old: OperatorContract, new: OperatorContract, start: int) -> None:
    """Turn columns that were added or removed into the aggregates that have them, if only one of both has happened.

    A new aggregate can have columns with the names of existing ones. ``start`` is the index of the operator's first
    finding.
    """
    if old.buffers is None or new.buffers is None:
        return
    before = [parse(comparison.new_expression(buffer.aggregate)) for buffer in old.buffers]
    after = [parse(buffer.aggregate) for buffer in new.buffers]
    removed = [buffer for buffer, tree in zip(old.buffers, before, strict=True) if tree not in after]
    added = [buffer for buffer, tree in zip(new.buffers, after, strict=True) if tree not in before]
    code, changed, others = ("value-added", added, old.buffers) if added else ("value-removed", removed, new.buffers)
    fields = {f"value.{column}" for buffer in changed for column in buffer.columns}
    columns = [one for one in comparison.findings[start:] if one.code == code and one.place.field in fields]
    if not columns or (added and removed):
        return
    existing = {column for buffer in others for column in buffer.columns}
    first = columns[0]
    _, _, change_text = first.message.removeprefix(str(first.place.field).removeprefix("value.")).partition(" ")
    named = []
    for buffer in changed:
        text = f"{buffer.aggregate}: {', '.join(buffer.columns)}"
        sides = (None, text) if added else (text, None)
        finding = replace(first, place=first.place.at(field="value"), old=sides[0], new=sides[1])
        if len(buffer.columns) == 1 and buffer.columns[0] not in existing:  # the column has a place of its own
            finding = next((one for one in columns if one.place.field == f"value.{buffer.columns[0]}"), finding)
        named.append(replace(finding, message=f"{buffer.aggregate} {change_text}"))
    comparison.findings[start:] = [*(one for one in comparison.findings[start:] if one not in columns), *named]


def _add_window(comparison: Comparison, place: Place, old_text: str, new_text: str) -> None:
    if is_session(old_text) and is_session(new_text):
        comparison.add(SESSION_GAP_LONGER if is_longer(old_text, new_text) else SESSION_GAP, place, old_text, new_text)
    else:
        comparison.add(WINDOW_CHANGED, place, old_text, new_text)


def _add_replaced(
    comparison: Comparison, place: Place, side: str, texts: tuple[str, str], plans: tuple[QueryPlan, QueryPlan]
) -> None:
    """Report a key or an aggregate that another one replaced: by a renamed column of the source, or really."""
    old_text, new_text = texts
    if renamed := find_rename(old_text, new_text, plans[0].sources, plans[1].sources):
        comparison.add(RENAMED_IN_SOURCE, place, old_text, new_text, side=side, was=renamed[0], now=renamed[1])
    elif is_window(old_text) and is_window(new_text):
        _add_window(comparison, place, old_text, new_text)
    elif differ_by_casts(old_text, new_text):
        comparison.add(KEY_CAST if side == "key" else AGGREGATE_CAST, place, old_text, new_text)
    elif differ_for_null(old_text, new_text) or differ_in_counted_nulls(old_text, new_text):
        comparison.add(DIFFERS_FOR_NULL, place, old_text, new_text, side=side)
    else:
        outcome = KEY_CHANGED if side == "key" else AGGREGATE_CHANGED
        comparison.add(outcome, place, old_text, new_text, rename=shell_word(f"{old_text}={new_text}"))
