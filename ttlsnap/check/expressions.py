"""The expressions in a query's plan: do two of them compute the same value?

Spark writes an expression in one way, so that equal texts are equal expressions. Where a difference does not matter to
the state, these functions see through it, at any depth: casts, the order of an equation, functions that share a buffer.
They compare trees, whose equality is that of their texts. What is not known to be the same is different.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import starmap

from ttlsnap.check.trees import CAST, QUOTED, Tree, parse, rewrite

# What a cast to another type loses shows as another type of the result.
_HARMLESS = {"bigint", "double", "string", "timestamp"}
_FOR_NULLS = {f"{function}(?, ?)" for function in ("coalesce", "nullif", "nvl", "ifnull")}
_COUNT, _COUNT_ROWS = "count(?)", parse("count(1)")
# The buffers of these have the type of the argument, or a type that follows from it. Others, such as that of avg
# (Spark's Average: double and bigint), do not show what a cast loses.
_TYPED_BUFFERS = {f"{function}(?)" for function in ("sum", "try_sum", "min", "max", "first", "last")}
_FILTER = parse(" FILTER").parts
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_AMOUNT = re.compile(r"(?:INTERVAL ')?(\d{1,18})'? (second|minute|hour|day|week)s?", re.IGNORECASE)
_NAMES_OF_SOURCE = re.compile(r"(?:[A-Za-z0-9_.-]+: )*")
_COLUMN = re.compile(
    r"(.+?) ((?:array|map|struct)<.*|interval \w+(?: to \w+)?|string collate \w+|\S+)", re.DOTALL
)  # a name may have spaces, and so may a type


def is_window(text: str) -> bool:
    """Return whether an expression is a window of any kind."""
    return text.startswith(("window(", "session_window("))


def is_session(text: str) -> bool:
    """Return whether an expression is a session window."""
    return text.startswith("session_window(")


def are_same(old_text: str, new_text: str, *, retyped: Collection[str], aggregate: bool = False) -> bool:
    """Return whether two texts mean the same column, or the same ``aggregate``. A changed type is another finding.

    A cast around the whole does not matter, nor one around an aggregate's argument if the buffer shows its type. An
    inner cast does, unless one of the ``retyped`` columns of the sources is in the expression: Spark inserts a cast for
    its new type.
    """
    if _without_outer_cast(parse(old_text), aggregate) == _without_outer_cast(parse(new_text), aggregate):
        return True
    return any(has_name(new_text, name) for name in retyped) and differ_by_casts(old_text, new_text)


def differ_by_casts(old_text: str, new_text: str) -> bool:
    """Return whether two texts are the same apart from casts to types that keep most values."""
    return _without_casts(parse(old_text)) == _without_casts(parse(new_text))


def differ_by_types(old_text: str, new_text: str) -> bool:
    """Return whether two texts are the same apart from casts to any type."""
    return _without_types(parse(old_text)) == _without_types(parse(new_text))


def differ_for_null(old_text: str, new_text: str) -> bool:
    """Return whether two texts are the same apart from casts and from what they do with nulls."""
    return _without_casts(_without_nulls(parse(old_text))) == _without_casts(_without_nulls(parse(new_text)))


def differ_in_counted_nulls(old_text: str, new_text: str) -> bool:
    """Return whether one is ``count(*)`` and the other counts the values of an expression that are not null."""
    trees = parse(old_text), parse(new_text)
    return _COUNT_ROWS in trees and all(tree.form == _COUNT and not tree.parts[0].is_sequence for tree in trees)


def _without_outer_cast(tree: Tree, aggregate: bool) -> tuple[Tree, ...]:
    """Return an expression without the cast around it, and the filter of an aggregate."""
    expression, *filters = _split_filter(tree) if aggregate else (tree,)
    if _is_harmless_cast(expression):
        return expression.parts[0], *filters
    if aggregate and expression.form in _TYPED_BUFFERS and _is_harmless_cast(expression.parts[0]):
        return Tree(expression.form, expression.parts[0].parts[:1]), *filters
    return expression, *filters


def _split_filter(aggregate: Tree) -> tuple[Tree, ...]:
    """Return the function of an aggregate, and the parts of its ``FILTER (WHERE ...)``."""
    return aggregate.parts if aggregate.parts[1:3] == _FILTER else (aggregate,)


def _without_casts(tree: Tree) -> Tree:
    """Return the tree without casts, except those around other casts: a cast back and forth loses something."""
    return rewrite(tree, lambda old, new: new.parts[0] if _is_harmless_cast(old) and not old.has_cast else new)


def _without_types(tree: Tree) -> Tree:
    return rewrite(tree, lambda _, new: new.parts[0] if new.form == CAST else new)


def _without_nulls(tree: Tree) -> Tree:
    return rewrite(tree, lambda _, new: new.parts[0] if new.form in _FOR_NULLS else new)


def _is_harmless_cast(tree: Tree) -> bool:
    return tree.form == CAST and tree.parts[1].form in _HARMLESS


def reads_same_buffer(old_text: str, new_text: str, *, needs_a_row: bool) -> bool:
    """Return whether an aggregate reads another's buffer correctly.

    ``needs_a_row``: the query emits only groups that got a new row.
    """
    (old, *old_filter), (new, *new_filter) = _split_filter(parse(old_text)), _split_filter(parse(new_text))
    if old_filter != new_filter:
        return False
    functions = tuple(function.form.partition("(")[0] for function in (old, new))
    if functions == ("collect_list", "collect_set"):
        return old.parts == new.parts
    if not needs_a_row or new_filter:  # a new row may not pass the filter
        return False
    if functions == ("first", "last"):
        takes_nulls = old.form == "first(?, ?)" and old.parts[1].form == "false"
        return takes_nulls and old.parts == new.parts
    if old.form == new.form == "sum(?)" and new.parts[0].form == "coalesce(?, ?)":
        value, otherwise = new.parts[0].parts
        return old.parts == (value,) and _is_zero(otherwise)
    return False


def _is_zero(tree: Tree) -> bool:
    """Return whether this is 0, as a number of a type without a scale."""
    if tree.form == CAST and not tree.parts[1].parts:
        return tree.parts[0].form == "0"
    return tree.form == "0"


def is_longer(old_text: str, new_text: str) -> bool:
    """Return whether the gap of the session window ``new_text`` is known to be longer than that of ``old_text``."""
    old, new = parse(old_text), parse(new_text)
    if not old.form == new.form == "session_window(?, ?)" or old.parts[0] != new.parts[0]:
        return False
    before, after = (_seconds(tree.parts[1]) for tree in (old, new))
    return before is not None and after is not None and after > before


def _seconds(span: Tree) -> int | None:
    """Return the length of a span of one or several amounts of time; None if it is not known."""
    pieces = span.parts if span.is_sequence else (span,)
    amounts = [_AMOUNT.fullmatch(piece.form) for piece in pieces if piece.form != " "]
    if not all(amounts):
        return None
    return sum(int(amount[1]) * _SECONDS[amount[2].lower()] for amount in amounts if amount)


def find_changed(before: Sequence[str], after: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts that only the first of two lists has, and those that only the second has."""
    return _find_more(before, after), _find_more(after, before)


def _find_more(texts: Sequence[str], other_texts: Sequence[str]) -> list[str]:
    counts_left = Counter(map(parse, other_texts))
    unmatched = []
    for text in texts:
        tree = parse(text)
        if counts_left[tree]:
            counts_left[tree] -= 1
        else:
            unmatched.append(text)
    return unmatched


def are_narrower(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether each of some conditions is a time range, which has become shorter."""
    return len(before) == len(after) and all(starmap(_is_narrower, zip(before, after, strict=True)))


def _is_narrower(old_text: str, new_text: str) -> bool:
    old, new = _read_time_range(parse(old_text)), _read_time_range(parse(new_text))
    if old is None or new is None:
        return False
    return old[0] == new[0] and all(new_span <= old_span for old_span, new_span in zip(old[1], new[1], strict=True))


def _read_time_range(tree: Tree) -> tuple[list[Tree], list[int]] | None:
    """Return the times of ``between(a, b - span, c + span)``, and the spans in seconds; None for anything else."""
    if tree.form != "between(?, ?, ?)":
        return None
    times, spans = [tree.parts[0]], []
    for end, form in zip(tree.parts[1:], ("? - ?", "? + ?"), strict=True):
        if end.form != CAST or end.parts[0].form != form or end.parts[1].form != "timestamp":
            return None
        time, span = end.parts[0].parts
        seconds = _seconds(span)
        if seconds is None:
            return None
        times.append(time)
        spans.append(seconds)
    return times, spans


def find_different(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the steps that only one of two lists has.

    A function that gets more columns after the old ones is the same function.
    """
    removed, added = find_changed(before, after)
    for text in tuple(removed):
        extended = next(
            (candidate for candidate in added if " of " in text and candidate.startswith(f"{text}, ")), None
        )
        if extended is not None:
            removed.remove(text)
            added.remove(extended)
    if not removed + added:
        # The order of two functions matters.
        calls = [[text.partition(" of ")[0] for text in side if " of " in text] for side in (before, after)]
        return [] if calls[0] == calls[1] else calls[1]
    return removed + added


def is_expression(text: str) -> bool:
    """Return whether a text is an expression, and not the name of a column, which may have spaces."""
    tree = parse(text)
    return any(part.parts for part in tree.parts) if tree.is_sequence else bool(tree.parts)


def new_name(name: str, renamed: Mapping[str, str]) -> str:
    """Return the new name of a stored column. That a query computes it by another expression is not a name."""
    new = renamed.get(name, name)
    return new if is_expression(name) or not is_expression(new) else name


def new_expression(text: str, renamed: Mapping[str, str]) -> str:
    """Return an expression as the new query has it.

    ``renamed`` has columns, which are renamed wherever they are, and whole expressions that replace others.
    """
    return renamed[text] if text in renamed else rename_columns(text, renamed)


def rename_columns(text: str, renamed: Mapping[str, str]) -> str:
    """Return a text with the new names of columns. Expressions in ``renamed`` change nothing."""
    names = {old: new for old, new in renamed.items() if not is_expression(old) and not is_expression(new)}
    if not names:
        return text
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"{QUOTED}|{_column_named(pattern)}", lambda match: names.get(match[0], match[0]), text)


def has_name(text: str, name: str) -> bool:
    """Return whether an expression may name a column."""
    return re.search(_column_named(re.escape(name)), text) is not None


def _column_named(pattern: str) -> str:
    # A name before a parenthesis is a function, one after a number is a unit: neither is a column.
    return rf"(?<!\w)(?<!\d )(?:{pattern})(?!\w|\()"


def find_rename(old_text: str, new_text: str, before: Sequence[str], after: Sequence[str]) -> tuple[str, str] | None:
    """Return the old and the new name if one column of the sources has another name, and that is all.

    ``before`` and ``after`` are the lines of the sources.
    """
    old, new = find_names(before), find_names(after)
    removed_names = [name for name in old - new if has_name(old_text, name)]
    added_names = [name for name in new - old if has_name(new_text, name)]
    if len(removed_names) == len(added_names) == 1 and parse(
        rename_columns(old_text, {removed_names[0]: added_names[0]})
    ) == parse(new_text):
        return removed_names[0], added_names[0]
    return None


def find_retyped(before: Sequence[str], after: Sequence[str]) -> set[str]:
    """Return the columns of the sources that have another type; the arguments are the lines of the sources."""
    old, new = _columns_of(before), _columns_of(after)
    names = {name for name, _ in old} & {name for name, _ in new}
    return {
        name
        for name in names
        if {column for column in old if column[0] == name} != {column for column in new if column[0] == name}
    }


def find_names(sources: Sequence[str]) -> set[str]:
    """Return the names of the columns of sources."""
    return {name for name, _ in _columns_of(sources)}


def _columns_of(sources: Sequence[str]) -> set[tuple[str, str]]:
    """Return the columns of sources with their types."""
    columns = [column for source in sources for column in _NAMES_OF_SOURCE.sub("", source, count=1).split(", ")]
    return {(match[1], match[2]) for column in columns if (match := _COLUMN.fullmatch(column))}
