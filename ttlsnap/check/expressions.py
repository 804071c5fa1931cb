"""The expressions in a query's plan: do two of them compute the same value?

Spark writes an expression in one way, so that equal texts are equal expressions. Where a difference does not matter to
the state, these functions see through it: casts, the order of an equation, functions that share a buffer. They go
through the calls in a text, which can be nested to any depth.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\w+|.", re.DOTALL)
# What a cast to another type loses shows as another type of the result.
_HARMLESS = {"bigint", "double", "string", "timestamp"}
_FOR_NULLS = {"coalesce", "nullif", "nvl", "ifnull"}
_COUNT = re.compile(r"count\([\w.]+\)")
_EQUATION = re.compile(r"\(([\w.]+) = ([\w.]+)\)")

# The second aggregate reads the first one's buffer correctly.
_SAME_BUFFER = ((r"collect_list(\(.*\))", r"collect_set(\(.*\))"),)
# The same once the group gets a new row.
_SAME_BUFFER_WITH_A_ROW = (
    (r"first(\(.*, false\))", r"last(\(.*, false\))"),  # these take nulls, too
    (r"sum\(([\w.]+)\)", r"sum\(coalesce\(([\w.]+), (?:cast\()?0(?: as \w+\))?\)\)"),
)

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_SPAN = r"INTERVAL '(?P<{0}>\d{{1,18}})' (?P<{0}_unit>SECOND|MINUTE|HOUR|DAY)"
_TIME_RANGE = re.compile(
    rf"between\((?P<what>[\w.]+), cast\((?P<of>[\w.]+) - {_SPAN.format('back')} as timestamp\), "
    rf"cast\((?P<too>[\w.]+) \+ {_SPAN.format('on')} as timestamp\)\)"
)


def is_window(text: str) -> bool:
    """Return whether an expression is a window of any kind."""
    return text.startswith(("window(", "session_window("))


def is_session(text: str) -> bool:
    """Return whether an expression is a session window."""
    return text.startswith("session_window(")


def are_same(was: str, now: str, *, same_sources: bool, aggregate: bool = False) -> bool:
    """Return whether two texts mean the same column, or the same ``aggregate``. A changed type is another finding.

    A cast around the whole, or around an aggregate's argument, does not matter. An inner cast does, unless the types
    of the sources changed, for which Spark inserts it.
    """
    if _without_outer_cast(was, aggregate) == _without_outer_cast(now, aggregate):
        return True
    return not same_sources and differ_by_casts(was, now)


def differ_by_casts(was: str, now: str) -> bool:
    """Return whether two texts are the same apart from casts."""
    return _without_casts(was) == _without_casts(now)


def differ_for_null(was: str, now: str) -> bool:
    """Return whether two texts are the same apart from casts and from what they do with nulls."""
    return _without_nulls(was) == _without_nulls(now)


def differ_in_counted_nulls(was: str, now: str) -> bool:
    """Return whether one is ``count(*)`` and the other counts the values of a column that are not null."""
    return "count(1)" in (was, now) and bool(_COUNT.fullmatch(was) and _COUNT.fullmatch(now))


def _without_outer_cast(text: str, aggregate: bool) -> str:
    tokens = _TOKEN.findall(text)
    casts = {call.start: call for call in _calls(tokens) if _is_harmless_cast(tokens, call)}
    # count() counts values that are not null, and a cast may turn a value into null.
    inner = 2 if aggregate and tokens[1:2] == ["("] and tokens[0] != "count" else 0
    for start in (0, inner):
        cast = casts.get(start)
        if cast is not None and cast.end == len(tokens) - 1 - bool(start):
            return "".join([*tokens[:start], *tokens[start + 2 : cast.end - 4], *tokens[cast.end + 1 :]])
    return text


def _without_casts(text: str) -> str:
    """Return the text without casts, except those around other casts: a cast back and forth loses something."""
    tokens = _TOKEN.findall(text)
    for call in [call for call in _calls(tokens) if not call.has_cast and _is_harmless_cast(tokens, call)]:
        tokens[call.start] = tokens[call.start + 1] = ""
        tokens[call.end - 4 : call.end + 1] = [""] * 5
    return "".join(tokens)


def _without_nulls(text: str) -> str:
    tokens = _TOKEN.findall(text)
    for call in _calls(tokens):
        if tokens[call.start] in _FOR_NULLS and len(call.commas) == 1:
            (comma,) = call.commas
            tokens[call.start] = tokens[call.start + 1] = ""
            tokens[comma : call.end + 1] = [""] * (call.end + 1 - comma)
    return _without_casts("".join(tokens))


class _Call(NamedTuple):
    """A function with arguments: the numbers of its tokens, and whether the arguments have a cast."""

    start: int
    end: int
    commas: tuple[int, ...]
    has_cast: bool


def _calls(tokens: list[str]) -> list[_Call]:
    """Return the calls in an expression, an inner one before the one around it."""
    found: list[_Call] = []
    parentheses: list[int] = []
    commas: list[list[int]] = []
    casts: list[bool] = []
    for place, token in enumerate(tokens):
        if token == "(":
            parentheses.append(place)
            commas.append([])
            casts.append(False)
        elif token == "," and commas:
            commas[-1].append(place)
        elif token == ")" and parentheses:
            start, has_cast = parentheses.pop() - 1, casts.pop()
            found.append(_Call(start, place, tuple(commas.pop()), has_cast))
            if casts and (has_cast or tokens[start] == "cast"):
                casts[-1] = True
    return [call for call in found if call.start >= 0]


def _is_harmless_cast(tokens: list[str], call: _Call) -> bool:
    end = tokens[max(call.start + 2, call.end - 4) : call.end]
    return tokens[call.start] == "cast" and end[:3] == [" ", "as", " "] and end[-1] in _HARMLESS


def reads_same_buffer(was: str, now: str, *, needs_a_row: bool) -> bool:
    """Return whether an aggregate reads another's buffer correctly.

    ``needs_a_row``: the query emits only groups that got a new row.
    """
    for old, new in _SAME_BUFFER + (_SAME_BUFFER_WITH_A_ROW if needs_a_row else ()):
        before, after = re.fullmatch(old, was), re.fullmatch(new, now)
        if before and after and before.groups() == after.groups():
            return True
    return False


def is_longer(was: str, now: str) -> bool:
    """Return whether the span at the end of ``now`` is known to be longer than that of ``was``."""
    spans = []
    for text in (was, now):
        found = re.search(r"(?<!\d)(\d{1,18}) (second|minute|hour|day|week)s?\)?$", text)
        if found is None:
            return False
        spans.append(int(found[1]) * _SECONDS[found[2]])
    return spans[1] > spans[0]


def are_narrower(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether two lists of conditions differ only in a time range, which has become shorter."""
    if len(before) != len(after):
        return False
    for was, now in zip(before, after, strict=True):
        if was == now:
            continue
        old, new = _TIME_RANGE.fullmatch(was), _TIME_RANGE.fullmatch(now)
        if not old or not new or any(old[name] != new[name] for name in ("what", "of", "too")):
            return False
        spans = [[int(m[n]) * _SECONDS[m[f"{n}_unit"].lower()] for n in ("back", "on")] for m in (old, new)]
        if any(span > most for most, span in zip(*spans, strict=True)):
            return False
    return True


def find_different(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the texts that only one of two lists has.

    A function that gets more columns after the old ones is the same function.
    """
    lines = (Counter(_EQUATION.sub(_in_one_order, text) for text in side) for side in (before, after))
    gone, come = (list((one - two).elements()) for one, two in permutations(lines))
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


def _in_one_order(equation: re.Match[str]) -> str:
    return "({} = {})".format(*sorted(equation.groups()))


def find_rename(was: str, now: str, before: Sequence[str], after: Sequence[str]) -> tuple[str, str] | None:
    """Return the old and the new name if one column of the sources has another name, and that is all.

    ``before`` and ``after`` are the lines of the sources.
    """
    gone = [name for name in _names_in(was) if _has_column(before, name) and not _has_column(after, name)]
    come = [name for name in _names_in(now) if _has_column(after, name) and not _has_column(before, name)]
    if len(gone) == len(come) == 1 and re.sub(rf"\b{re.escape(gone[0])}\b", come[0], was) == now:
        return gone[0], come[0]
    return None


def find_retyped(before: Sequence[str], after: Sequence[str]) -> set[str]:
    """Return the columns of the sources that have another type; the arguments are the lines of the sources."""
    old, new = ([column for source in lines for column in _columns_of(source)] for lines in (before, after))
    names = {name for name, _ in old} & {name for name, _ in new}
    return {name for name in names if {c for c in old if c[0] == name} != {c for c in new if c[0] == name}}


def _columns_of(source: str) -> list[tuple[str, str]]:
    """Return the columns of a source with their types."""
    columns = re.sub(r"^[A-Za-z0-9_.-]+: ", "", source)
    depth, ends = 0, [-1]
    for place, letter in enumerate(columns):
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and not depth:
            ends.append(place)
    pairs = (columns[start + 1 : end].strip().rpartition(" ") for start, end in pairwise([*ends, len(columns)]))
    return [(name, kind) for name, _, kind in pairs if name]


def has_name(text: str, name: str) -> bool:
    """Return whether an expression names a column."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w|\()", text) is not None


def _names_in(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _has_column(sources: Sequence[str], name: str) -> bool:
    return any(re.search(rf"(?:^|[ ,]){re.escape(name)} \w", source) for source in sources)
