"""The computation of each stateful operator of a query, read from Spark's analyzed plan.

There is one line for each fact, in terms of the columns of the sources. Aliases on the way do not matter, and neither
does what the query does with the results. No file of a checkpoint contains these facts.

    group by user                               aggregate sum((amount * 2))
    group by window(ts, 5 minutes)              key user                      (of a deduplication)
    join LeftOuter                              on user = other               (equal columns, left and right)
    where (left.ts >= right.ts)                 left total = (amount * 2)     (a column of a join's side)
    input total = (amount * 2)                  timeout ProcessingTimeTimeout
    limit 10
    watermark ts, 10 seconds                    filter (amount > 3)
    after dedupe                                through Union                 (any other node on the way of the rows)
    union amount = (price * 2)                  (a column of a later branch of a union that has another meaning)
    through Join LeftOuter where (user = id)    through Generate explode(tags)
    through MapInPandas f of user, (amount * 2) (a Python function on the way, and the columns that it receives)
    subquery: through LogicalRelation prices    (a step within a subquery)
    from clicks: user string, amount bigint     (a source, with its name if it has one)
    left: filter (amount > 3)                   (a step on one side of a join)

After a join, a column that both sides have is named by its side: ``left.amount``. If two functions have one name, the
second is ``f~2``. The text of a plan differs between versions of Spark, and is stable within a version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ttlsnap.contract.jvm import items, jvm, kind_of

SOURCE = "source-"
"""The beginning of the folder names of empty sources; the source's name follows."""

AGGREGATE = "aggregate "
"""The beginning of the line of an aggregate."""

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
_SILENT = frozenset(
    {
        "Project",
        "SubqueryAlias",
        "LocalLimit",
        "LocalRelation",
        "Filter",
        "EventTimeWatermark",
        "CollectMetrics",
    }
)
# Nodes that pass on the rows that they receive, so that their name is enough.
_PLAIN = frozenset(
    {"View", "Union", "Repartition", "RepartitionByExpression", "Sort", "ResolvedHint", "Deduplicate", "Distinct"}
)
_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"), (1000, "ms"))

_NUMBER_SIGN = "\\u0023"  # a # in a text or a name, so that it does not look like the number of an attribute
_SEED = re.compile(r"\b(randn?|uuid)\((?:Some\()?-?\d+\)?\)")
_WINDOW_HEAD = "named_struct('start', "
_TIME = r"precisetimestampconversion\(((?:[^()]|\([^()]*\))+), TimestampType, LongType\)"
_WINDOW = re.compile(rf"{_TIME}.*?- (-?\d+)\) % (\d+)\).*\+ (\d+)\), LongType, TimestampType", re.DOTALL)
_SESSION = re.compile(r"\(cast\((.+?) \+ (?:cast\((.+) as interval\)|(.+?)) as timestamp\)", re.DOTALL)


@dataclass(frozen=True)
class PlannedOperator:
    """A stateful operator of a query: the ``names`` that Spark may record for it, and the ``lines`` of its plan.

    ``function`` is the plan's name of the Python function that works on its state, None if there is none.
    ``aggregates`` has the text and the object (of the JVM) of each aggregate by its id.
    """

    names: tuple[str, ...]
    lines: tuple[str, ...]
    function: str | None
    aggregates: Mapping[int, tuple[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rows:
    """The output rows of a node: the lines of the nodes that they passed, and the stateful operators among these.

    Both begin at the node and end at the sources.
    """

    lines: tuple[str, ...] = ()
    operators: tuple[PlannedOperator, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[_Rows]) -> _Rows:
        rows = list(parts)
        return cls(
            tuple(line for part in rows for line in part.lines),
            tuple(operator for part in rows for operator in part.operators),
        )

    def of_side(self, side: str) -> _Rows:
        return replace(self, lines=tuple(f"{side}: {line}" for line in self.lines))


def stateful_operators(plan: Any) -> list[PlannedOperator]:
    """Return the stateful operators of an analyzed plan (a JVM object), in the order in which Spark numbers them."""
    return list(_Walk().read(plan).operators)


@dataclass
class _Walk:
    """A walk over a plan, from its sources up.

    ``meanings`` and ``names`` have the meaning and the name of each attribute at the current node, by its id.
    ``shared`` has the rows and the attributes of each common table expression, by its id.
    """

    meanings: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    shared: dict[int, tuple[_Rows, list[Any]]] = field(default_factory=dict)

    def read(self, node: Any) -> _Rows:
        """Return the rows of a node, and record the meanings of its attributes."""
        kind = kind_of(node)
        if kind == "WithCTE":
            for shared in items(node.cteDefs()):
                self.shared[shared.id()] = self.read(shared.child()), list(items(shared.child().output()))
            return self.read(node.plan())
        if kind == "CTERelationRef" and node.cteId() in self.shared:
            rows, attributes = self.shared[node.cteId()]
            for attribute, shared_attribute in zip(items(node.output()), attributes, strict=True):
                self._define(attribute, self.text(shared_attribute))
            return rows
        children = [self.read(child) for child in items(node.children())]
        self._learn(node, kind)
        queries = [self.read(plan).of_side("subquery") for plan in items(node.subqueries())]
        stateful = _is_stateful(node, kind)
        rows_below = _Rows.of(
            [rows.of_side(side) for side, rows in zip(("left", "right"), children, strict=True)]
            if stateful and kind == "Join"
            else children
        )
        rows_below = _Rows.of([rows_below, *queries])
        if stateful:
            operator = PlannedOperator(
                _STATEFUL[kind],
                (*_own(node, kind, self), *rows_below.lines),
                _function(node) if _runs_python(kind) else None,
                _find_aggregates(node, self) if kind == "Aggregate" else {},
            )
            rows = _Rows((f"after {_STATEFUL[kind][0]}",), (operator,))
        else:
            rows = _Rows(tuple(_through(node, kind, self)))
        if kind == "Join":
            self._tell_sides_apart(node)
        return _Rows.of([rows, rows_below])

    def text(self, expression: Any, sides: Mapping[int, str] | None = None) -> str:
        """Return an expression as text, with each attribute replaced by its meaning.

        ``sides`` has the side of a join for each attribute, by its id; then the side precedes the meaning.
        """
        text = _quote(expression).toString()
        numbers = sorted({int(digits) for digits in re.findall(r"#(\d+)", text)} & self.names.keys())
        if numbers:
            pattern = "|".join(rf"{re.escape(self.names[digits])}#(?P<n{digits}>{digits})" for digits in numbers)

            def meaning(match: re.Match[str]) -> str:
                number = next(int(digits) for digits in match.groupdict().values() if digits)
                side = (sides or {}).get(number)
                return f"{side}.{self.meanings[number]}" if side else self.meanings[number]

            text = re.sub(rf"(?:{pattern})(?!\d)L?(?:-T\d+ms)?", meaning, text)
        text = re.sub(r"(?<=[\w)>~])#\d+L?", "", text)  # the result of a function has a number, too
        text = _SEED.sub(r"\1()", text)  # a seed is different each time
        return text.replace(_NUMBER_SIGN, "#")

    def _define(self, attribute: Any, meaning: str | None = None) -> None:
        number = attribute.exprId().id()
        self.names[number] = attribute.name()
        if meaning is not None or number not in self.meanings:
            meaning = attribute.name() if meaning is None else meaning
            self.meanings[number] = meaning.replace("#", _NUMBER_SIGN)

    def _learn(self, node: Any, kind: str) -> None:
        """Record the meanings of the attributes that a node creates."""
        if kind in ("Project", "Aggregate"):
            expressions = node.projectList() if kind == "Project" else node.aggregateExpressions()
            for expression in items(expressions):
                if kind_of(expression) == "Alias":
                    text = self.text(expression.child())
                    self._define(expression, _window(text) if text.startswith(_WINDOW_HEAD) else text)
        elif kind == "Expand":
            for attribute, alternatives in _find_expanded(node):
                window = self.text(alternatives[0])
                if window.startswith(_WINDOW_HEAD):  # sliding windows, which differ in their start
                    self._define(attribute, _window(window))
        elif kind == "Generate":
            for attribute in items(node.generatorOutput()):
                self._define(attribute, f"{self.text(node.generator())}.{attribute.name()}")
        for attribute in items(node.output()):
            self._define(attribute)

    def _tell_sides_apart(self, join: Any) -> None:
        """Add the side to each meaning that both sides of a join have."""
        sides = [{attribute.exprId().id() for attribute in items(child.output())} for child in items(join.children())]
        common_meanings = {self.meanings[attribute_id] for attribute_id in sides[0]} & {
            self.meanings[attribute_id] for attribute_id in sides[1]
        }
        for side, numbers in zip(("left", "right"), sides, strict=True):
            for number in numbers:
                if self.meanings[number] in common_meanings:
                    self.meanings[number] = f"{side}.{self.meanings[number]}"


def _find_expanded(expand: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the attributes that differ among the rows that an ``Expand`` makes of one row.

    Each comes with its expressions in these rows.
    """
    projections = [list(items(projection)) for projection in items(expand.projections())]
    for attribute, *alternatives in zip(items(expand.output()), *projections, strict=True):
        if any(alternative.toString() != attribute.toString() for alternative in alternatives):
            yield attribute, alternatives


def _quote(expression: Any) -> Any:
    """Return the expression with its texts in quotes. Spark omits these, so that a text would look like a column."""
    if kind_of(expression) == "Literal":
        value = expression.value()
        if value is None or not expression.dataType().simpleString().startswith("string"):
            return expression
        text = str(value.toString()).replace("\\", "\\\\").replace("'", "\\'").replace("#", _NUMBER_SIGN)
        literal = getattr(jvm().org.apache.spark.sql.catalyst.expressions, "Literal$")
        return getattr(literal, "MODULE$").apply(f"'{text}'")
    children = list(items(expression.children()))
    quoted = [_quote(child) for child in children]
    if all(new is old for new, old in zip(quoted, children, strict=True)):
        return expression
    return expression.withNewChildren(jvm().PythonUtils.toSeq(quoted))


def _runs_python(kind: str) -> bool:
    return kind.endswith(("InPandas", "InPySpark", "InPandasWithState"))


def _function(node: Any) -> str:
    """Return the name of the Python function that a node runs."""
    return str(node.functionExpr().toString()).partition("(")[0]


def _is_stateful(node: Any, kind: str) -> bool:
    if kind not in _STATEFUL or not node.isStreaming():
        return False
    return all(child.isStreaming() for child in items(node.children())) if kind == "Join" else True


def _window(text: str) -> str:
    """Return a window as a user would write it, made from the long expression in the analyzed plan."""
    if (session := _SESSION.search(text)) and "%" not in text:
        gap = (session[2] or session[3]).strip("'")
        return f"session_window({session[1]}, {gap})"
    if window := _WINDOW.search(text):
        time, start, slide, length = window[1], *map(int, window.groups()[1:])
        parts = [time, _span(length), *([f"every {_span(slide)}"] if slide != length else [])]
        return f"window({', '.join([*parts, *([f'from {_span(start)}'] if start else [])])})"
    return text


def _span(us: int) -> str:
    for size, name in _UNITS:
        if us and us % size == 0:
            count = us // size
            return f"{count} {name}" if name == "ms" or count == 1 else f"{count} {name}s"
    return f"{us} us"


def _own(node: Any, kind: str, walk: _Walk) -> Iterator[str]:
    """Yield the lines of an operator itself, without the nodes below it."""
    children = list(items(node.children()))
    match kind:
        case "Aggregate":
            for key in items(node.groupingExpressions()):
                yield f"group by {walk.text(key)}"
            yield from dict.fromkeys(f"{AGGREGATE}{text}" for text, _ in _find_aggregates(node, walk).values())
        case "Deduplicate" | "DeduplicateWithinWatermark":
            for key in items(node.keys()):
                yield f"key {walk.text(key)}"
        case "Distinct":
            for key in items(node.output()):
                yield f"key {walk.text(key)}"
        case "Join":
            condition = node.condition()
            children_of_sides = zip(("left", "right"), children, strict=True)
            sides = {
                attribute.exprId().id(): side
                for side, child in children_of_sides
                for attribute in items(child.output())
            }
            yield f"join {node.joinType().toString()}"
            if condition.isDefined():
                yield from _condition(condition.get(), sides, walk)
            for side, child in zip(("left", "right"), children, strict=True):
                yield from _columns(side, items(child.output()), walk)
        case "GlobalLimit":
            yield f"limit {walk.text(node.limitExpr())}"
        case _:
            output = list(items(children[0].output()))
            count = node.groupingAttributesLen() if kind == "TransformWithStateInPySpark" else 0
            for key in output[:count] or items(node.groupingAttributes()):
                yield f"group by {walk.text(key)}"
            yield from _columns("input", output[count:], walk)
            if kind.startswith("FlatMapGroups"):
                yield f"timeout {node.timeout().toString()}"


def _columns(side: str, attributes: Iterable[Any], walk: _Walk) -> Iterator[str]:
    for attribute in attributes:
        name, meaning = attribute.name(), walk.text(attribute)
        yield f"{side} {name}" if name == meaning else f"{side} {name} = {meaning}"


def _condition(expression: Any, sides: Mapping[int, str], walk: _Walk) -> Iterator[str]:
    """Yield the parts of a join's condition. An equation between both sides has the left side first."""
    if kind_of(expression) == "And":
        for child in items(expression.children()):
            yield from _condition(child, sides, walk)
        return
    if kind_of(expression) == "EqualTo":
        operands = [(_side(child, sides), walk.text(child)) for child in items(expression.children())]
        if {side for side, _ in operands} == {"left", "right"}:
            yield "on {} = {}".format(*(text for _, text in sorted(operands)))
            return
    text = walk.text(expression, sides)
    if text != "true":
        yield f"where {text}"


def _side(expression: Any, sides: Mapping[int, str]) -> str | None:
    """Return the side of a join whose columns an expression has; None if it has columns of both, or none."""
    expression_sides = {sides.get(int(number)) for number in re.findall(r"#(\d+)", expression.toString())}
    return expression_sides.pop() if len(expression_sides) == 1 else None


def _find_aggregates(node: Any, walk: _Walk) -> dict[int, tuple[str, Any]]:
    """Return the text and the object of each aggregate of a node, by its id."""
    return {
        aggregate.resultId().id(): (walk.text(aggregate), aggregate)
        for expression in items(node.aggregateExpressions())
        for aggregate in _aggregates(expression)
    }


def _aggregates(expression: Any) -> Iterator[Any]:
    if kind_of(expression) == "AggregateExpression":
        yield expression
        return
    for child in items(expression.children()):
        yield from _aggregates(child)


def _through(node: Any, kind: str, walk: _Walk) -> Iterator[str]:
    """Yield the lines of a node that has no state."""
    if kind == "EventTimeWatermark":
        yield f"watermark {walk.text(node.eventTime())}, {node.delay().toString()}"
    elif kind == "Filter":
        text = walk.text(node.condition())
        if text != "true" and not text.startswith("isnotnull("):  # Spark itself adds it before a window
            yield f"filter {text}"
    elif kind.startswith("StreamingRelation"):
        yield f"from {_source(node)}"
    elif kind not in _SILENT:
        description = _how(node, kind, walk)
        if description is not None:
            yield " ".join(filter(None, ["through", kind, description]))
        if kind == "Union":
            yield from _branches(node, walk)


def _how(node: Any, kind: str, walk: _Walk) -> str | None:
    """Return what a node without state does with the rows, beyond its name; None if it does nothing."""
    if kind in _PLAIN:
        return ""
    if kind == "Join":
        condition = node.condition()
        condition_text = f" where {walk.text(condition.get())}" if condition.isDefined() else ""
        return f"{node.joinType().toString()}{condition_text}"
    if kind == "Generate":
        return walk.text(node.generator())
    if kind == "Expand":
        expanded = [
            (attribute.name(), [walk.text(alternative) for alternative in alternatives])
            for attribute, alternatives in _find_expanded(node)
        ]
        descriptions = [
            f"{name}: {' | '.join(alternatives)}"
            for name, alternatives in expanded
            if not alternatives[0].startswith(_WINDOW_HEAD)
        ]
        return "; ".join(descriptions) or None
    if kind.startswith(("MapIn", "PythonMapIn")):
        arguments = (walk.text(attribute) for child in items(node.children()) for attribute in items(child.output()))
        return f"{_function(node)} of {', '.join(arguments)}"
    if not node.children().size():
        return _table(node)
    return ", ".join(walk.text(expression) for expression in items(node.expressions()))


def _table(relation: Any) -> str:
    """Return the name of a static table, or the end of its path; empty if it has neither."""
    if kind_of(relation) == "Range":
        return str(relation.toString()).removeprefix("Range ")
    try:
        table = relation.catalogTable()
        if table.isDefined():
            return str(table.get().identifier().unquotedString())
        return ", ".join(path.getName() for path in items(relation.relation().location().rootPaths()))
    except Exception:  # another kind of relation, without these methods
        return ""


def _branches(union: Any, walk: _Walk) -> Iterator[str]:
    """Yield a line for each column that has another meaning in a later branch of a union than in the first."""
    first_branch, *later_branches = (
        [walk.text(column) for column in items(branch.output())] for branch in items(union.children())
    )
    for later_branch in later_branches:
        yield from (
            f"union {name} = {meaning}"
            for name, meaning in zip(first_branch, later_branch, strict=True)
            if name != meaning
        )


def sources(plan: Any) -> list[str]:
    """Return the streaming sources of an analyzed plan, in the order in which Spark numbers them, as after ``from``."""
    sources_by_attributes: dict[tuple[int, ...], str] = {}
    for leaf in items(plan.collectLeaves()):
        if kind_of(leaf).startswith("StreamingRelation"):
            # A source that is read twice is one source.
            sources_by_attributes.setdefault(
                tuple(attribute.exprId().id() for attribute in items(leaf.output())), _source(leaf)
            )
    return list(sources_by_attributes.values())


def _source(relation: Any) -> str:
    columns = ", ".join(
        f"{attribute.name()} {attribute.dataType().simpleString()}" for attribute in items(relation.output())
    )
    name_match = _SOURCE_NAME.search(relation.toString())
    return f"{name_match[1]}: {columns}" if name_match else columns
