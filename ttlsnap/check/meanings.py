"""What operators compute, old against new: what only the plans and the Python functions of the queries tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from ttlsnap.check.collecting import Comparison, version
from ttlsnap.check.findings import Place, Verdict
from ttlsnap.check.rules import SILENT
from ttlsnap.contract import OperatorContract
from ttlsnap.contract.functions import BODY, NAMES, NOT_WHOLE

_KEYS = ("group by ", "key ", "on ")
_WRONG = f"{SILENT}: wrong results"
_SIDES = re.compile(r"((?:(?:left|right): )*)(.*)", re.DOTALL)
# A cast of what is no cast itself: what it loses shows as another type. Of one there and back no type tells.
_CAST = re.compile(
    r"\bcast\(((?:(?!\bcast\()[^()]|(?<!\bcast)\((?:(?!\bcast\()[^()])*\))*) as (?:bigint|double|string|timestamp)\)"
)
_BALANCED = r"(?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"
_WHOLE_CAST = re.compile(rf"cast\(({_BALANCED}) as (?:bigint|double|string|timestamp)\)")
# A count is of what is not null, which a cast may make of a value.
_AGGREGATE = re.compile(r"(?!count\()(\w+)\((.*)\)", re.DOTALL)
_SPAN = r"INTERVAL '(?P<{0}>\d+)' (?P<{0}_unit>SECOND|MINUTE|HOUR|DAY)"
_AROUND = re.compile(
    rf"between\((?P<what>[\w.]+), cast\((?P<of>[\w.]+) - {_SPAN.format('back')} as timestamp\), "
    rf"cast\((?P<too>[\w.]+) \+ {_SPAN.format('on')} as timestamp\)\)"
)
_SOURCE = re.compile(r"([^\s:]+): ")
# Buffers that are read as well by the one as by the other.
_AS_WELL = ((r"collect_list(\(.*\))", r"collect_set(\(.*\))"),)
# Those of which each new row of a group makes what the new one is, so that an old one comes out only without any.
_AS_WELL_WITH_A_ROW = (
    (r"first(\(.*, false\))", r"last(\(.*, false\))"),  # nulls are taken, too
    (r"sum\(([\w.]+)\)", r"sum\(coalesce\(([\w.]+), (?:cast\()?0(?: as \w+\))?\)\)"),
)
_COUNTS = re.compile(r"count\([\w.]+\)")
# What gives the rows that it was given.
_SAME_ROWS = frozenset(
    {"View", "Union", "Repartition", "RepartitionByExpression", "Sort", "ResolvedHint", "Deduplicate"}
)
_EQUAL = re.compile(r"\(([\w.]+) = ([\w.]+)\)")
_NULLS = re.compile(r"\b(?:coalesce|nullif|nvl|ifnull)\(((?:[^(),]|\([^()]*\))+), (?:[^(),]|\([^()]*\))+\)")


@dataclass(frozen=True)
class Plan:
    """The lines of a plan by what they tell."""

    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    columns: dict[str, str]
    join: str | None
    where: tuple[str, ...]
    limit: str | None
    timeout: str | None
    watermarks: tuple[str, ...]
    filters: tuple[str, ...]
    upstream: tuple[str, ...]
    sources: tuple[str, ...]
    sides: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, lines: Sequence[str]) -> Plan:
        parts = [match.groups() for line in lines if (match := _SIDES.match(line))]

        def having(*heads: str) -> tuple[str, ...]:
            return tuple(side + line[len(head) :] for side, line in parts for head in heads if line.startswith(head))

        columns = {}
        for side in ("left", "right", "input"):
            for text in having(f"{side} "):
                name, _, meaning = text.partition(" = ")
                columns[f"{side}.{name}"] = meaning or name
        return cls(
            keys=having(*_KEYS),
            aggregates=having("aggregate "),
            columns=columns,
            join=next(iter(having("join ")), None),
            where=having("where "),
            limit=next(iter(having("limit ")), None),
            timeout=next(iter(having("timeout ")), None),
            watermarks=having("watermark "),
            filters=having("filter "),
            upstream=(*having("through "), *(f"union {text}" for text in having("union ") if _matters(text, parts))),
            sources=having("from "),
            sides={side: tuple(line for head, line in parts if head.startswith(side)) for side in ("left", "right")},
        )


def plans_known(both: Comparison, old: OperatorContract, new: OperatorContract) -> bool:
    """Whether what two operators compute can be compared; if not, the report says so."""
    if old.plan is None or new.plan is None:
        names = [name for name, o in (("old", old), ("new", new)) if o.plan is None]
        both.not_seen(
            "what the query computes (input columns, windows, gaps, delays, TTLs, functions): the "
            f"{' and the '.join(names)} contract {'has' if len(names) == 1 else 'have'} no plan; make "
            f"{'it' if len(names) == 1 else 'them'} from the query (ttlsnap contract module:function)"
        )
        return False
    before, after = (contract.planned_by or contract.spark for contract in (both.old, both.new))
    if version(before) != version(after):
        both.not_seen(
            f"what the query computes: plans of Spark {before} and {after} read differently; compare two contracts of "
            "the query made by one version"
        )
        return False
    return True


def plans(both: Comparison, old: OperatorContract, new: OperatorContract) -> tuple[Plan, Plan]:
    """What both compute, in the new names."""
    after = new.plan or ()
    called = [
        (was, now) for (was, now), parts in (functions_differ(old, new) or {}).items() if was != now and not parts
    ]
    lines = [_called(line, called) for line in old.plan or ()]
    renamed = [(line, both.in_new_names(line)) for line in lines]
    # Of several sources that have a column of the old name, it may be one only that gave it another.
    several = sum("from " in line and line != name for line, name in renamed) > 1
    before = [line if several and line in after and name not in after else name for line, name in renamed]
    return Plan.of(before), Plan.of(after)


def _called(line: str, names: Sequence[tuple[str, str]]) -> str:
    """A line with functions that are the same under another name called by that."""
    for was, now in names:
        if was and now:
            line = re.sub(rf"(?<![\w.~]){re.escape(was)}(?=\(| of )", now.replace("\\", r"\\"), line)
    return line


def compare_rows(
    both: Comparison, place: Place, side: str, before: tuple[Plan, Sequence[str]], after: tuple[Plan, Sequence[str]]
) -> None:
    """The rows of one side of a join: what their columns mean, by position. Each is a plan, and the columns' names."""
    (plan, names), (new_plan, new_names) = before, after
    was = [plan.columns.get(f"{side}.{both.in_new_names(name)}", name) for name in names]
    now = [new_plan.columns.get(f"{side}.{name}", name) for name in new_names]
    if was == now or len(was) != len(now):
        return
    if Counter(was) == Counter(now):
        both.add(
            "values-swapped",
            Verdict.INCOMPATIBLE,
            place.at(field="value"),
            ", ".join(names),
            ", ".join(new_names),
            "the columns of the rows that wait are in another order, by which Spark goes",
            _WRONG,
            "put the columns into their old order: that of the select before the join",
        )
        return
    for name, old_meaning, new_meaning in zip(new_names, was, now, strict=True):
        if not _same(old_meaning, new_meaning, plan, new_plan):
            nulls = _but_nulls(old_meaning) == _but_nulls(new_meaning)
            both.add(
                "value-nullability" if nulls else "input-changed",
                Verdict.UNKNOWN if nulls else Verdict.INCOMPATIBLE,
                place.at(field=f"value.{name}"),
                old_meaning,
                new_meaning,
                f"{name} is {new_meaning}, where {old_meaning} stood: rows that wait to be joined have the old one",
                _WRONG,
                f"keep {old_meaning}, or begin a new checkpoint",
            )


def compare_meanings(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    """Report what is computed in another way."""
    before, after = plans(both, old, new)
    _keys(both, place, before, after)
    _aggregates(both, place, before, after)
    _columns(both, place, before, after)
    old_sides, new_sides = (tuple(plan.sides.values()) for plan in (before, after))
    exactly = old_sides != new_sides and old_sides == new_sides[::-1]
    if before.join and (exactly or crossed(old_sides, new_sides)):
        both.add(
            "join-sides",
            Verdict.INCOMPATIBLE if exactly else Verdict.UNKNOWN,
            place,
            "; ".join(before.sides["left"]),
            "; ".join(after.sides["left"]),
            "the sides of the join have changed places: each gets the other's rows"
            if exactly
            else "have the sides of the join changed places? Each is more like what the other was, and gets its rows",
            _WRONG,
            "join in the old order" + ("" if exactly else "; if that is as it was, ignore this finding"),
        )
        if exactly:
            return
    if before.join != after.join and before.join == "LeftSemi":
        both.add(
            "join-type",
            Verdict.INCOMPATIBLE,
            place,
            before.join,
            after.join,
            "a left row that has met its match is not kept by a semi join, and is missed by all that comes later",
            _WRONG,
            "begin a new checkpoint",
        )
    elif before.join != after.join:
        both.add(
            "join-type",
            Verdict.AS_IS,
            place,
            before.join,
            after.join,
            "the join is of another type; rows that wait go on to wait, and come out as the new one says",
            SILENT,
        )
    if Counter(before.where) != Counter(after.where):
        narrower = _narrower(sorted(before.where), sorted(after.where))
        both.add(
            "join-condition",
            Verdict.AS_IS if narrower else Verdict.UNKNOWN,
            place,
            " and ".join(before.where) or "none",
            " and ".join(after.where) or "none",
            "the join reaches less far in time than it did"
            if narrower
            else "the join's condition is another: if it reaches further back than before, what it needs may be gone",
            SILENT,
            "" if narrower else "if it does not reach further back, ignore this finding",
        )
    if before.limit != after.limit:
        both.add(
            "limit-changed",
            Verdict.AS_IS,
            place,
            before.limit,
            after.limit,
            "what was counted goes on to count",
            SILENT,
        )
    if before.timeout != after.timeout:
        both.add(
            "timeout",
            Verdict.UNKNOWN,
            place,
            before.timeout,
            after.timeout,
            f"the timeout is {after.timeout}, and was {before.timeout}: what is in the state was set by the old clock",
            SILENT,
            "if every key sets its timeout anew before the old moment comes, ignore this finding",
        )
    _watermarks(both, place, old, before, after)
    for code, was, now in (
        ("filter-changed", before.filters, after.filters),
        ("upstream-changed", before.upstream, after.upstream),
    ):
        other = _different(was, now)
        if other and all(name.startswith("union ") for name in other):
            _branches(both, place, other, now)
        elif other:
            known = code == "filter-changed" or all(name in _SAME_ROWS for name in other)
            both.add(
                code,
                Verdict.AS_IS if known else Verdict.UNKNOWN,
                place,
                "; ".join(was) or "none",
                "; ".join(now) or "none",
                "new rows come another way; the state goes on with what the old ones left in it"
                if known
                else "rows go through what may give columns another meaning: are keys and values what they were?",
                SILENT,
                "" if known else "if they are, ignore this finding",
            )
    _functions(both, place, old, new)


def _branches(both: Comparison, place: Place, other: Sequence[str], now: Sequence[str]) -> None:
    """The branches are those that there were, and what one gives is another thing."""
    was, is_ = ("; ".join(text for text in other if (text in now) is new) for new in (False, True))
    both.add(
        "input-changed",
        Verdict.INCOMPATIBLE,
        place,
        was or "as in the first branch",
        is_ or "as in the first branch",
        "a later branch of the union gives another thing for a column than it did",
        _WRONG,
        "let each branch give what it gave, or begin a new checkpoint",
    )


def crossed(old: Sequence[Sequence[str]], new: Sequence[Sequence[str]]) -> bool:
    """Whether of two each is more like what the other was than like what it was itself, by the words of their plans."""

    def common(one: Sequence[str], other: Sequence[str]) -> int:
        words = (
            Counter(word for line in lines for word in re.findall(r"\w+|[^\w\s]+", line)) for lines in (one, other)
        )
        return (next(words) & next(words)).total()

    straight = common(old[0], new[0]) + common(old[1], new[1])
    return common(old[0], new[1]) + common(old[1], new[0]) > straight


def _matters(union: str, parts: Sequence[tuple[str, ...]]) -> bool:
    """Whether a column that a branch of a union gives another meaning is one that the operator works with."""
    name = re.compile(rf"(?<!\w){re.escape(union.partition(' = ')[0])}(?!\w)")
    own = (line for _, line in parts if not line.startswith(("union ", "from ")))
    return any(map(name.search, own))


def _different(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """What only one of two has; a function that is given more columns behind the old ones is the same."""
    lines = (Counter(_EQUAL.sub(_in_order, text) for text in side) for side in (before, after))
    gone, come = (list((one - two).elements()) for one, two in permutations(lines))
    for text in tuple(gone):
        more = next((other for other in come if " of " in text and other.startswith(f"{text}, ")), None)
        if more is not None:
            gone.remove(text)
            come.remove(more)
    if not gone + come:
        # One function after another is not the same as the other after the one.
        calls = [[text.partition(" of ")[0] for text in side if " of " in text] for side in (before, after)]
        return [] if calls[0] == calls[1] else calls[1]
    return gone + come


def _in_order(equation: re.Match[str]) -> str:
    """What is equal may be written either way."""
    return "({} = {})".format(*sorted(equation.groups()))


def _narrower(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether conditions are the same but for a range of time around a column that has become smaller."""
    if len(before) != len(after):
        return False
    for was, now in zip(before, after, strict=True):
        if was == now:
            continue
        old, new = _AROUND.fullmatch(was), _AROUND.fullmatch(now)
        if not old or not new or old["what"] != new["what"] or old["of"] != new["of"] or old["too"] != new["too"]:
            return False
        spans = [[int(m[n]) * _SECONDS[m[f"{n}_unit"].lower()] for n in ("back", "on")] for m in (old, new)]
        if any(span > most for most, span in zip(*spans, strict=True)):
            return False
    return True


def _keys(both: Comparison, place: Place, before: Plan, after: Plan) -> None:
    if before.keys == after.keys:
        return
    if Counter(before.keys) == Counter(after.keys):
        both.add(
            "keys-swapped",
            Verdict.INCOMPATIBLE,
            place.at(field="key"),
            ", ".join(before.keys),
            ", ".join(after.keys),
            "the key's columns are in another order, by which Spark goes: no old group is met again",
            _WRONG,
            "put them into their old order",
        )
        return
    if len(before.keys) != len(after.keys):
        return  # see compare_numbers
    for was, now in zip(before.keys, after.keys, strict=True):
        if was == now:
            continue
        if _is_window(was) and _is_window(now):
            _windows(both, place, was, now)
        elif not _same(was, now, before, after):
            _another(both, place.at(field="key"), "key", was, now, before, after)


def _is_window(text: str) -> bool:
    return text.startswith(("window(", "session_window("))


def _windows(both: Comparison, place: Place, was: str, now: str) -> None:
    session = was.startswith("session_window(") and now.startswith("session_window(")
    if session:
        both.add(
            "session-gap",
            Verdict.UNKNOWN if _longer(was, now) else Verdict.INCOMPATIBLE,
            place.at(field="key"),
            was,
            now,
            "sessions that are in the state end where the old gap let them end"
            + ("" if _longer(was, now) else ", and the new rows of a key may split them"),
            _WRONG,
            "let the open sessions end first, or begin a new checkpoint",
        )
        return
    both.add(
        "window-changed",
        Verdict.INCOMPATIBLE,
        place.at(field="key"),
        was,
        now,
        "the windows are others: what was counted in the old ones is not met again, and comes out alone or never",
        _WRONG,
        "begin a new checkpoint at a moment when the old windows are closed",
    )


_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def _longer(was: str, now: str) -> bool:
    """Whether the span at the end of the second is known to be longer than that of the first."""
    spans = []
    for text in (was, now):
        found = re.search(r"(\d+) (second|minute|hour|day|week)s?\)?$", text)
        if found is None:
            return False
        spans.append(int(found[1]) * _SECONDS[found[2]])
    return spans[1] > spans[0]


def _aggregates(both: Comparison, place: Place, before: Plan, after: Plan) -> None:
    if before.aggregates == after.aggregates:
        return
    at = place.at(field="value")
    if Counter(before.aggregates) == Counter(after.aggregates):
        both.add(
            "values-swapped",
            Verdict.INCOMPATIBLE,
            at,
            ", ".join(before.aggregates),
            ", ".join(after.aggregates),
            "the aggregates are in another order, by which Spark goes: of one type, it takes one for another",
            _WRONG,
            "put them into their old order",
        )
        return
    if len(before.aggregates) != len(after.aggregates):
        return  # see compare_numbers
    for was, now in zip(before.aggregates, after.aggregates, strict=True):
        if not _same(was, now, before, after, aggregate=True) and not _reads_as_well(
            was, now, both.new.output_mode == "update"
        ):
            _another(both, at, "value", was, now, before, after)


def compare_sources(both: Comparison, before: Sequence[str], after: Sequence[str]) -> None:
    """Where rows come from; Spark knows a source in the log of offsets by its place alone."""
    place = Place()
    old, new = ([_SOURCE.match(text) for text in reads] for reads in (before, after))
    was, now = ([found[1] if found else None for found in side] for side in (old, new))
    if was == now:
        return
    known = None not in (*was, *now)
    if known and Counter(was) == Counter(now):
        both.add(
            "sources",
            Verdict.INCOMPATIBLE,
            place,
            ", ".join(map(str, was)),
            ", ".join(map(str, now)),
            "the sources are in another order: each goes on from the other's offsets",
            _WRONG,
            "put the sources into their old order: that of the branches of a union or a join",
        )
        return
    both.add(
        "sources",
        Verdict.UNKNOWN,
        place,
        ", ".join(name or "unnamed" for name in was),
        ", ".join(name or "unnamed" for name in now),
        "a source has another name: is it the same? The offsets in the checkpoint are of the old one",
        SILENT,
        "if it is, ignore this finding; if it is another, begin a new checkpoint",
    )


def compare_numbers(both: Comparison, place: Place, known: tuple[Plan, Plan], since: int) -> None:
    """Another number of keys or aggregates, where the schemas do not show it: their types may happen to be the same.

    ``since`` is the place of the operator's first finding.
    """
    told = {finding.code for finding in both.findings[since:]}
    before, after = known
    for side, code, was, now in (
        ("key", "key-changed", before.keys, after.keys),
        ("value", "aggregate-changed", before.aggregates, after.aggregates),
    ):
        if len(was) != len(now) and told.isdisjoint((f"{side}-added", f"{side}-removed", f"{side}-retyped")):
            _others(both, place.at(field=side), code, was, now)


def _others(both: Comparison, place: Place, code: str, was: Sequence[str], now: Sequence[str]) -> None:
    both.add(
        code,
        Verdict.INCOMPATIBLE,
        place,
        ", ".join(was),
        ", ".join(now),
        f"there were {len(was)}, and are {len(now)}: others, even where their types are the same",
        _WRONG,
        "keep those that there were, or begin a new checkpoint",
    )


def _another(both: Comparison, place: Place, side: str, was: str, now: str, before: Plan, after: Plan) -> None:
    """A key or an aggregate that is computed in another way: of a column that was renamed at the source, or truly."""
    gone = [name for name in _words(was) if _has(before.sources, name) and not _has(after.sources, name)]
    come = [name for name in _words(now) if _has(after.sources, name) and not _has(before.sources, name)]
    if len(gone) == len(come) == 1 and re.sub(rf"\b{re.escape(gone[0])}\b", come[0], was) == now:
        both.add(
            f"{side}-renamed",
            Verdict.UNKNOWN,
            place,
            was,
            now,
            f"the source has no {gone[0]} any more, and a new {come[0]}: is it the same column?",
            SILENT,
            f"if it is the same, say --renamed {gone[0]}={come[0]}; if it is another, begin a new checkpoint",
        )
        return
    code = "key-changed" if side == "key" else "aggregate-changed"
    if _uncast(was) == _uncast(now):
        both.add(
            code,
            Verdict.UNKNOWN,
            place,
            was,
            now,
            f"{now} stands where {was} stood: does the cast make another value of it?",
            _WRONG,
            "if it does not, ignore this finding",
        )
        return
    if _but_nulls(was) == _but_nulls(now) or (
        "count(1)" in (was, now) and _COUNTS.fullmatch(was) and _COUNTS.fullmatch(now)
    ):
        both.add(
            f"{side}-nullability",
            Verdict.UNKNOWN,
            place,
            was,
            now,
            f"{now} stands where {was} stood, and differs for null only: does the state have any?",
            SILENT,
            "if it has no null there, ignore this finding",
        )
        return
    both.add(
        code,
        Verdict.INCOMPATIBLE,
        place,
        was,
        now,
        f"{now} stands where {was} stood"
        + (": no old group is met again" if side == "key" else ", and goes on with what that had come to"),
        _WRONG,
        f"keep {was}, or begin a new checkpoint",
    )


def _columns(both: Comparison, place: Place, before: Plan, after: Plan) -> None:
    """The columns that a Python function is given, which may go by their places."""
    given = [
        [(name.partition(".")[2], what) for name, what in plan.columns.items() if name.startswith("input.")]
        for plan in (before, after)
    ]
    # One that was renamed has its old place: a function that goes by names would be another one.
    if given[0] and given[1] and not _one_by_one(*given):
        was, now = (", ".join(name for name, _ in side) for side in given)
        both.add(
            "input-changed",
            Verdict.UNKNOWN,
            place,
            was,
            now,
            f"the function is given the columns {now}, and was given {was}: does it go by their places?",
            SILENT,
            "if what it makes of them is what it was, ignore this finding",
        )
    for name in sorted(before.columns.keys() & after.columns.keys()):
        was, now = before.columns[name], after.columns[name]
        side, _, column = name.partition(".")
        if side == "input" and not _same(was, now, before, after):
            both.add(
                "input-changed",
                Verdict.UNKNOWN,
                place.at(field=column),
                was,
                now,
                f"{column} is {now}, and was {was}: the state was made of the old one",
                SILENT,
                "if that is meant, ignore this finding",
            )


def _one_by_one(was: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> bool:
    """Whether columns are in their old places, but for names that neither has elsewhere; behind them may be more."""
    names = [{name for name, _ in side} for side in (was, now)]
    pairs = [(old, new) for (old, _), (new, _) in zip(was, now, strict=False)]
    same = (old == new or (old not in names[1] and new not in names[0]) for old, new in pairs)
    return len(was) <= len(now) and all(same)


def _watermarks(both: Comparison, place: Place, old: OperatorContract, before: Plan, after: Plan) -> None:
    if Counter(before.watermarks) == Counter(after.watermarks):
        return
    was, now = ("; ".join(plan.watermarks) or "none" for plan in (before, after))
    if "dedupeWithinWatermark" in (old.name, place.operator_name):
        both.add(
            "dedup-delay",
            Verdict.UNKNOWN,
            place,
            was,
            now,
            "keys in the state expire when the old delay lets them: until then the new one does not hold for them",
            SILENT,
            "if that may be, ignore this finding",
        )
        return
    columns = [Counter(text.rpartition(", ")[0] for text in plan.watermarks) for plan in (before, after)]
    if columns[0] != columns[1] and all(columns):
        both.add(
            "watermark-changed",
            Verdict.UNKNOWN,
            place,
            was,
            now,
            "the watermark goes by another column, and goes on from where the old one had come: are the times alike?",
            SILENT,
            "if the new column is not behind the old one, ignore this finding",
        )
        return
    both.add(
        "watermark-changed",
        Verdict.AS_IS,
        place,
        was,
        now,
        "the watermark is another; the state goes on, and is closed sooner or later than before",
        SILENT,
    )


def functions_differ(old: OperatorContract, new: OperatorContract) -> Mapping[tuple[str, str], Sequence[str]] | None:
    """By their old and new names the functions of two operators, with the parts of them that differ.

    One that the other has not is beside an empty name, and differs whole. None where the functions are not known. A
    part that two processors do not have in common differs.
    """
    if old.functions is None or new.functions is None:
        return None
    before, after = old.functions, new.functions
    pairs = [(name, name) for name in sorted(before.keys() & after.keys())]
    gone, come = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    pairs += zip(gone, come, strict=False)
    found = {(was, now): _parts(before[was], after[now]) for was, now in pairs}
    return {
        **found,
        **{(was, ""): [BODY] for was in gone[len(come) :]},
        **{("", now): [BODY] for now in come[len(gone) :]},
    }


def _parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    parts = sorted(part for part in before.keys() | after.keys() if before.get(part) != after.get(part))
    # The names of variables are compared by themselves, and are another thing only where nothing else is.
    return parts if parts == [NAMES] else [part for part in parts if part != NAMES]


def _functions(both: Comparison, place: Place, old: OperatorContract, new: OperatorContract) -> None:
    if old.functions is None or new.functions is None:
        both.not_seen("what Python functions do: a contract says nothing of them")
    for name, digests in {**(old.functions or {}), **(new.functions or {})}.items():
        if any(digest.endswith(NOT_WHOLE) for digest in digests.values()):
            both.not_seen(
                f"what {name} does, whole: it names or imports what was not to be had where its contract was made"
            )
    for (was, now), parts in (functions_differ(old, new) or {}).items():
        if parts and parts != [NAMES]:
            _function(both, place, was, now, parts)
        elif was != now:
            both.add("function-renamed", Verdict.AS_IS, place, was, now, f"{was} is called {now} now", SILENT)


def _function(both: Comparison, place: Place, was: str, now: str, parts: Sequence[str]) -> None:
    both.add(
        "function-changed",
        Verdict.UNKNOWN,
        place.at(field=f"{now}.{', '.join(parts)}" if list(parts) != [BODY] else now or was),
        was or None,
        now or None,
        f"{now} does something else than it did ({', '.join(parts)}): does it read the old state right?"
        if was and now
        else f"the function {was or now} was {'removed' if was else 'added'}: is the old state read right?",
        SILENT,
        "if it does, ignore this finding",
    )


def _same(was: str, now: str, before: Plan, after: Plan, *, aggregate: bool = False) -> bool:
    """Whether two texts mean the same column or ``aggregate``: a type that changed is seen by itself.

    A cast around all of it, or around what an aggregate is of, does not matter. One within does, unless the sources
    have other types by now, for which Spark puts it there.
    """
    if _without_cast(was, aggregate) == _without_cast(now, aggregate):
        return True
    return before.sources != after.sources and _uncast(was) == _uncast(now)


def _without_cast(text: str, aggregate: bool) -> str:
    if whole := _WHOLE_CAST.fullmatch(text):
        return whole[1]
    if aggregate and (of := _AGGREGATE.fullmatch(text)) and (whole := _WHOLE_CAST.fullmatch(of[2])):
        return f"{of[1]}({whole[1]})"
    return text


def _uncast(text: str) -> str:
    """A text without casts."""
    return _CAST.sub(r"\1", text)


def _but_nulls(text: str) -> str:
    """A text without what it makes of nulls."""
    return _uncast(_NULLS.sub(r"\1", text))


def _reads_as_well(was: str, now: str, needs_a_row: bool) -> bool:
    """Whether an aggregate goes on with another's buffer; ``needs_a_row``: only groups that got a new row come out."""
    for old, new in _AS_WELL + (_AS_WELL_WITH_A_ROW if needs_a_row else ()):
        before, after = re.fullmatch(old, was), re.fullmatch(new, now)
        if before and after and before.groups() == after.groups():
            return True
    return False


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _has(sources: Sequence[str], name: str) -> bool:
    return any(re.search(rf"(?:^|[ ,]){re.escape(name)} \w", source) for source in sources)
