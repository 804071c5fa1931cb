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


def are_same(was: str, now: str, *, retyped: Collection[str], aggregate: bool = False) -> bool:
    """Return whether two texts mean the same column, or the same ``aggregate``. A changed type is another finding.

    A cast around the whole, or around an aggregate's argument, does not matter. An inner cast does, unless one of the
    ``retyped`` columns of the sources is in the expression: Spark inserts a cast for its new type.
    """
    if _without_outer_cast(parse(was), aggregate) == _without_outer_cast(parse(now), aggregate):
        return True
    return any(has_name(now, name) for name in retyped) and differ_by_casts(was, now)


def differ_by_casts(was: str, now: str) -> bool:
    """Return whether two texts are the same apart from casts to types that keep most values."""
    return _without_casts(parse(was)) == _without_casts(parse(now))


def differ_by_types(was: str, now: str) -> bool:
    """Return whether two texts are the same apart from casts to any type."""
    return _without_types(parse(was)) == _without_types(parse(now))


def differ_for_null(was: str, now: str) -> bool:
    """Return whether two texts are the same apart from casts and from what they do with nulls."""
    return _without_casts(_without_nulls(parse(was))) == _without_casts(_without_nulls(parse(now)))


def differ_in_counted_nulls(was: str, now: str) -> bool:
    """Return whether one is ``count(*)`` and the other counts the values of an expression that are not null."""
    both = parse(was), parse(now)
    return _COUNT_ROWS in both and all(tree.form == _COUNT and not tree.parts[0].is_sequence for tree in both)


def _without_outer_cast(tree: Tree, aggregate: bool) -> tuple[Tree, ...]:
    """Return an expression without the cast around it, and the filter of an aggregate."""
    whole, *filters = _split_filter(tree) if aggregate else (tree,)
    if _is_harmless_cast(whole):
        return whole.parts[0], *filters
    # count() counts values that are not null, and a cast may turn a value into null.
    if aggregate and whole.form != _COUNT and len(whole.parts) == 1 and _is_harmless_cast(whole.parts[0]):
        return Tree(whole.form, whole.parts[0].parts[:1]), *filters
    return whole, *filters


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


def reads_same_buffer(was: str, now: str, *, needs_a_row: bool) -> bool:
    """Return whether an aggregate reads another's buffer correctly.

    ``needs_a_row``: the query emits only groups that got a new row.
    """
    (old, *old_filter), (new, *new_filter) = _split_filter(parse(was)), _split_filter(parse(now))
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


def is_longer(was: str, now: str) -> bool:
    """Return whether the gap of the session window ``now`` is known to be longer than that of ``was``."""
    old, new = parse(was), parse(now)
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


def _find_more(texts: Sequence[str], others: Sequence[str]) -> list[str]:
    rest = Counter(map(parse, others))
    found = []
    for text in texts:
        tree = parse(text)
        if rest[tree]:
            rest[tree] -= 1
        else:
            found.append(text)
    return found


def are_narrower(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether each of some conditions is a time range, which has become shorter."""
    return len(before) == len(after) and all(starmap(_is_narrower, zip(before, after, strict=True)))


def _is_narrower(was: str, now: str) -> bool:
    old, new = _read_time_range(parse(was)), _read_time_range(parse(now))
    if old is None or new is None:
        return False
    return old[0] == new[0] and all(span <= most for most, span in zip(old[1], new[1], strict=True))


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
    gone, come = find_changed(before, after)
    for text in tuple(gone):
        more = next((other for other in come if " of " in text and other.startswith(f"{text}, ")), None)
        if more is not None:
            gone.remove(text)
            come.remove(more)
    if not gone + come:
        # The order of two functions matters.
        calls = [[text.partition(" of ")[0] for text in side if " of " in text] for side in (before, after)]
        return [] if calls[0] == calls[1] else calls[1]
    return gone + come


def rename_columns(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names of columns; ``names`` has the new ones by the old ones."""
    if not names:
        return text
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"{QUOTED}|{_column_named(either)}", lambda match: names.get(match[0], match[0]), text)


def has_name(text: str, name: str) -> bool:
    """Return whether an expression may name a column."""
    return re.search(_column_named(re.escape(name)), text) is not None


def _column_named(pattern: str) -> str:
    # A name before a parenthesis is a function, one after a number is a unit: neither is a column.
    return rf"(?<!\w)(?<!\d )(?:{pattern})(?!\w|\()"


def find_rename(was: str, now: str, before: Sequence[str], after: Sequence[str]) -> tuple[str, str] | None:
    """Return the old and the new name if one column of the sources has another name, and that is all.

    ``before`` and ``after`` are the lines of the sources.
    """
    old, new = ({name for name, _ in _columns_of(lines)} for lines in (before, after))
    gone = [name for name in old - new if has_name(was, name)]
    come = [name for name in new - old if has_name(now, name)]
    if len(gone) == len(come) == 1 and parse(rename_columns(was, {gone[0]: come[0]})) == parse(now):
        return gone[0], come[0]
    return None


def find_retyped(before: Sequence[str], after: Sequence[str]) -> set[str]:
    """Return the columns of the sources that have another type; the arguments are the lines of the sources."""
    old, new = _columns_of(before), _columns_of(after)
    names = {name for name, _ in old} & {name for name, _ in new}
    return {name for name in names if {c for c in old if c[0] == name} != {c for c in new if c[0] == name}}


def _columns_of(sources: Sequence[str]) -> set[tuple[str, str]]:
    """Return the columns of sources with their types."""
    columns = [column for source in sources for column in _NAMES_OF_SOURCE.sub("", source, count=1).split(", ")]
    return {(found[1], found[2]) for column in columns if (found := _COLUMN.fullmatch(column))}
