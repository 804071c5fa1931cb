"""What each stateful operator of a query computes, read off the analyzed plan that Spark has made of it.

A line for each fact, in terms of the sources' own columns: what names a query gives on the way does not matter, nor
does what it does with the results. No file of a checkpoint tells any of this.

    group by user                               aggregate sum((amount * 2))
    group by window(ts, 5 minutes)              key user                      (of a deduplication)
    join LeftOuter                              on user = other               (by what rows are found, left and right)
    where (left.ts >= right.ts)                 left total = (amount * 2)     (a column of a join's side)
    input total = (amount * 2)                  timeout ProcessingTimeTimeout
    limit 10
    watermark ts, 10 seconds                    filter (amount > 3)
    after dedupe                                through Union                 (any other node that rows come through)
    union amount = (price * 2)                  (a later branch of a union, where its column means another thing)
    through Join LeftOuter where (user = id)    through Generate explode(tags)
    through MapInPandas of user, (amount * 2)   (what a Python function on the way is given)
    from clicks: user string, amount bigint     (a source, with its name where it has one)
    left: filter (amount > 3)                   (of a join, what the rows of a side come through)

The plan's text differs between versions of Spark; within one it is stable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SOURCE = "source-"
"""How the folders of empty sources begin; the source's name follows."""

_SOURCE_NAME = re.compile(rf"/{SOURCE}([A-Za-z0-9_.-]+)[\],]")
_STATEFUL = {
    "Aggregate": ("stateStoreSave", "sessionWindowStateStoreSaveExec"),
    "Distinct": ("stateStoreSave",),
    "Deduplicate": ("dedupe",),
    "DeduplicateWithinWatermark": ("dedupeWithinWatermark",),
    "Join": ("symmetricHashJoin",),
    "GlobalLimit": ("globalLimit",),
    "FlatMapGroupsWithState": ("flatMapGroupsWithState",),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState",),
    "TransformWithState": ("transformWithStateExec",),
    "TransformWithStateInPandas": ("transformWithStateInPandasExec",),
    "TransformWithStateInPySpark": ("transformWithStateInPandasExec", "transformWithStateInPySparkExec"),
}
_SILENT = (
    "Project",
    "SubqueryAlias",
    "StreamingRelation",
    "StreamingRelationV2",
    "LocalLimit",
    "LocalRelation",
    "Expand",
    "Filter",
    "EventTimeWatermark",
)
_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"), (1000, "ms"))

_TIME = r"precisetimestampconversion\(((?:[^()]|\([^()]*\))+), TimestampType, LongType\)"
_WINDOW = re.compile(rf"{_TIME}.*?- (-?\d+)\) % (\d+)\).*\+ (\d+)\), LongType, TimestampType", re.DOTALL)
_SESSION = re.compile(r"\(cast\((.+?) \+ (?:cast\((.+) as interval\)|(.+?)) as timestamp\)", re.DOTALL)


@dataclass
class PlannedOperator:
    """A stateful operator of a query: the names it may be recorded by, and what it computes.

    ``runs_python`` is whether a Python function works on its state.
    """

    names: tuple[str, ...]
    lines: tuple[str, ...]
    runs_python: bool


@dataclass
class _Walk:
    """What was seen of a plan so far: what each attribute means, by its id, and the names they go by."""

    meanings: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def define(self, attribute: Any, meaning: str | None = None) -> None:
        number = attribute.exprId().id()
        self.names[number] = attribute.name()
        if meaning is not None or number not in self.meanings:
            self.meanings[number] = attribute.name() if meaning is None else meaning

    def text(self, expression: Any, sides: Mapping[int, str] | None = None) -> str:
        """An expression with each attribute replaced by what it means; ``sides`` says which side of a join it is of."""
        text = expression.toString()
        numbers = sorted({int(n) for n in re.findall(r"#(\d+)", text)} & self.names.keys())
        if numbers:
            either = "|".join(rf"{re.escape(self.names[n])}#(?P<n{n}>{n})" for n in numbers)

            def meaning(match: re.Match[str]) -> str:
                number = next(int(n) for n in match.groupdict().values() if n)
                side = (sides or {}).get(number)
                return f"{side}.{self.meanings[number]}" if side else self.meanings[number]

            text = re.sub(rf"(?:{either})(?!\d)L?(?:-T\d+ms)?", meaning, text)
        return re.sub(r"(?<=[\w)>])#\d+L?", "", text)  # a result of a function has a number, too


def stateful_operators(plan: Any) -> list[PlannedOperator]:
    """The stateful operators of an analyzed plan (a JVM object), in the order in which Spark numbers them."""
    walk = _Walk()
    _define(plan, walk)
    return list(_operators(plan, walk))


def _operators(node: Any, walk: _Walk) -> Iterator[PlannedOperator]:
    kind = _kind(node)
    if _is_stateful(node, kind):
        lines = (*_own(node, kind, walk), *_upstream(node, walk))
        yield PlannedOperator(_STATEFUL[kind], lines, kind.endswith(("InPandas", "InPySpark", "InPandasWithState")))
    for child in _items(node.children()):
        yield from _operators(child, walk)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _is_stateful(node: Any, kind: str) -> bool:
    if kind not in _STATEFUL or not node.isStreaming():
        return False
    return all(child.isStreaming() for child in _items(node.children())) if kind == "Join" else True


def _define(node: Any, walk: _Walk) -> None:
    """Learn what the attributes of a plan mean, from the sources up."""
    for child in _items(node.children()):
        _define(child, walk)
    kind = _kind(node)
    if kind in ("Project", "Aggregate"):
        expressions = node.projectList() if kind == "Project" else node.aggregateExpressions()
        for expression in _items(expressions):
            if _kind(expression) == "Alias":
                walk.define(expression, _meaning(expression, walk))
    elif kind == "Expand":  # of sliding windows, which differ in where they begin
        first = node.projections().apply(0)
        for expression, attribute in zip(_items(first), _items(node.output()), strict=True):
            if expression.toString() != attribute.toString():
                walk.define(attribute, _window(walk.text(expression)))
    elif kind == "Generate":
        for attribute in _items(node.generatorOutput()):
            walk.define(attribute, f"{walk.text(node.generator())}.{attribute.name()}")
    for attribute in _items(node.output()):
        walk.define(attribute)


def _meaning(alias: Any, walk: _Walk) -> str:
    text = walk.text(alias.child())
    return _window(text) if text.startswith("named_struct(start, ") else text


def _window(text: str) -> str:
    """A window as one would write it; the analyzed plan has an expression of a page."""
    if (session := _SESSION.search(text)) and "%" not in text:
        gap = session[2] or session[3]
        return f"session_window({session[1]}, {gap})"
    if window := _WINDOW.search(text):
        time, start, slide, length = window[1], *map(int, window.groups()[1:])
        parts = [time, _span(length), *([f"every {_span(slide)}"] if slide != length else [])]
        return f"window({', '.join([*parts, *([f'from {_span(start)}'] if start else [])])})"
    return text


def _span(us: int) -> str:
    for size, name in _UNITS:
        if us and us % size == 0:
            n = us // size
            return f"{n} {name}" if name == "ms" or n == 1 else f"{n} {name}s"
    return f"{us} us"


def _own(node: Any, kind: str, walk: _Walk) -> Iterator[str]:
    """What an operator itself does."""
    children = list(_items(node.children()))
    match kind:
        case "Aggregate":
            for key in _items(node.groupingExpressions()):
                yield f"group by {walk.text(key)}"
            functions = [walk.text(f) for e in _items(node.aggregateExpressions()) for f in _aggregates(e)]
            for function in dict.fromkeys(functions):
                yield f"aggregate {function}"
        case "Deduplicate" | "DeduplicateWithinWatermark":
            for key in _items(node.keys()):
                yield f"key {walk.text(key)}"
        case "Distinct":
            for key in _items(node.output()):
                yield f"key {walk.text(key)}"
        case "Join":
            condition = node.condition()
            both = zip(("left", "right"), children, strict=True)
            sides = {a.exprId().id(): side for side, child in both for a in _items(child.output())}
            yield f"join {node.joinType().toString()}"
            if condition.isDefined():
                yield from _condition(condition.get(), sides, walk)
            for side, child in zip(("left", "right"), children, strict=True):
                yield from _columns(side, _items(child.output()), walk)
        case "GlobalLimit":
            yield f"limit {walk.text(node.limitExpr())}"
        case _:
            output = list(_items(children[0].output()))
            count = node.groupingAttributesLen() if kind == "TransformWithStateInPySpark" else 0
            for key in output[:count] or _items(node.groupingAttributes()):
                yield f"group by {walk.text(key)}"
            yield from _columns("input", output[count:], walk)
            if kind.startswith("FlatMapGroups"):
                yield f"timeout {node.timeout().toString()}"


def _columns(side: str, attributes: Iterable[Any], walk: _Walk) -> Iterator[str]:
    for attribute in attributes:
        name, meaning = attribute.name(), walk.text(attribute)
        yield f"{side} {name}" if name == meaning else f"{side} {name} = {meaning}"


def _condition(expression: Any, sides: Mapping[int, str], walk: _Walk) -> Iterator[str]:
    """The parts of a join's condition; those by which Spark finds rows with the left side first."""
    if _kind(expression) == "And":
        for child in _items(expression.children()):
            yield from _condition(child, sides, walk)
        return
    if _kind(expression) == "EqualTo":
        ends = [(_side(child, sides), walk.text(child)) for child in _items(expression.children())]
        if {side for side, _ in ends} == {"left", "right"}:
            yield "on {} = {}".format(*(text for _, text in sorted(ends)))
            return
    text = walk.text(expression, sides)
    if text != "true":
        yield f"where {text}"


def _side(expression: Any, sides: Mapping[int, str]) -> str | None:
    """The one side of a join whose columns an expression has."""
    found = {sides.get(int(n)) for n in re.findall(r"#(\d+)", expression.toString())}
    return found.pop() if len(found) == 1 else None


def _aggregates(expression: Any) -> Iterator[Any]:
    if _kind(expression) == "AggregateExpression":
        yield expression
        return
    for child in _items(expression.children()):
        yield from _aggregates(child)


def _upstream(node: Any, walk: _Walk) -> Iterator[str]:
    """What the rows come through before they reach an operator; of a join, for each side."""
    if _is_stateful(node, kind := _kind(node)) and kind == "Join":
        for side, child in zip(("left", "right"), _items(node.children()), strict=True):
            yield from (f"{side}: {line}" for line in _through(child, walk))
        return
    for child in _items(node.children()):
        yield from _through(child, walk)


def _through(child: Any, walk: _Walk) -> Iterator[str]:
    """What a node and those below it do to the rows that come through."""
    kind = _kind(child)
    if kind == "EventTimeWatermark":
        yield f"watermark {walk.text(child.eventTime())}, {child.delay().toString()}"
    elif kind == "Filter":
        text = walk.text(child.condition())
        if text != "true" and not text.startswith("isnotnull("):  # Spark's own, before a window
            yield f"filter {text}"
    elif kind.startswith("StreamingRelation"):
        yield f"from {_source(child)}"
    elif _is_stateful(child, kind):
        yield f"after {_STATEFUL[kind][0]}"
    elif kind not in _SILENT:
        yield f"through {kind}{_how(child, kind, walk)}"
        if kind == "Union":
            yield from _branches(child, walk)
    yield from _upstream(child, walk)


def _how(node: Any, kind: str, walk: _Walk) -> str:
    """What a node that keeps no state does with the rows, as far as its name does not tell."""
    if kind == "Join":
        condition = node.condition()
        where = f" where {walk.text(condition.get())}" if condition.isDefined() else ""
        return f" {node.joinType().toString()}{where}"
    if kind == "Generate":
        return f" {walk.text(node.generator())}"
    if kind.startswith(("MapIn", "PythonMapIn")):
        given = (walk.text(attribute) for child in _items(node.children()) for attribute in _items(child.output()))
        return f" of {', '.join(given)}"
    return ""


def _branches(union: Any, walk: _Walk) -> Iterator[str]:
    """What the columns of a union are in its later branches, if they are not what they are in the first one."""
    first, *others = ([walk.text(column) for column in _items(branch.output())] for branch in _items(union.children()))
    for other in others:
        yield from (f"union {name} = {meaning}" for name, meaning in zip(first, other, strict=True) if name != meaning)


def sources(plan: Any) -> list[str]:
    """The streaming sources of an analyzed plan in the order in which Spark numbers them, each as in ``from``."""
    found: dict[tuple[int, ...], str] = {}
    for leaf in _items(plan.collectLeaves()):
        if _kind(leaf).startswith("StreamingRelation"):
            # One that is read twice is one source.
            found.setdefault(tuple(a.exprId().id() for a in _items(leaf.output())), _source(leaf))
    return list(found.values())


def _source(relation: Any) -> str:
    columns = ", ".join(f"{a.name()} {a.dataType().simpleString()}" for a in _items(relation.output()))
    named = _SOURCE_NAME.search(relation.toString())
    return f"{named[1]}: {columns}" if named else columns


def _items(sequence: Any) -> Iterator[Any]:
    for i in range(sequence.size()):
        yield sequence.apply(i)
