"""The parts of a query's plan, and whether two plans can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ttlsnap.check.comparison import Comparison, parse_version
from ttlsnap.check.expressions import is_expression
from ttlsnap.check.functions import find_changed_parts
from ttlsnap.contract import OperatorContract

_KEYS = ("group by ", "key ", "on ")
_SIDES = re.compile(r"((?:(?:left|right): )*)(.*)", re.DOTALL)


@dataclass(frozen=True)
class QueryPlan:
    """The lines of a plan, sorted by subject."""

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
    def of(cls, lines: Sequence[str]) -> QueryPlan:
        parts = [match.groups() for line in lines if (match := _SIDES.match(line))]

        def having(*prefixes: str) -> tuple[str, ...]:
            return tuple(
                side + line[len(prefix) :] for side, line in parts for prefix in prefixes if line.startswith(prefix)
            )

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
            upstream=(*having("through "), *(f"union {text}" for text in having("union ") if _is_used(text, parts))),
            sources=having("from "),
            sides={
                side: tuple(line for prefix, line in parts if prefix.startswith(side)) for side in ("left", "right")
            },
        )

    @property
    def computed(self) -> tuple[str, ...]:
        """The expressions whose values are in the state."""
        return (*self.keys, *self.aggregates, *self.columns.values())


def _is_used(union: str, parts: Sequence[tuple[str, ...]]) -> bool:
    """Return whether the operator uses the column to which a branch of a union gives another value."""
    name = re.compile(rf"(?<!\w){re.escape(union.partition(' = ')[0])}(?!\w)")
    operator_lines = (line for _, line in parts if not line.startswith(("union ", "from ")))
    return any(map(name.search, operator_lines))


def can_compare_plans(comparison: Comparison, old: OperatorContract, new: OperatorContract) -> bool:
    """Return whether the plans of two operators can be compared; if not, the report says so."""
    if old.plan is None or new.plan is None:
        sides = (("old", old, comparison.old), ("new", new, comparison.new))
        lacking = [(name, contract) for name, operator, contract in sides if operator.plan is None]
        names = [
            f"the {name} {'checkpoint' if contract.made_from == 'checkpoint' else 'contract'}"
            for name, contract in lacking
        ]
        made = lacking[0][0].upper() if len(lacking) == 1 else "both"
        comparison.cannot_compare(
            "what the query computes (input columns, aggregates, windows, gaps, delays, TTLs, functions): "
            f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} no plan. To compare this, too, make "
            f"{made} from the code of the query: ttlsnap contract MODULE:FUNCTION, or --script FILE"
        )
        return False
    before, after = (contract.planned_by or contract.spark for contract in (comparison.old, comparison.new))
    if parse_version(before) != parse_version(after):
        comparison.cannot_compare(
            f"what the query computes: Spark {before} and {after} write plans differently; compare two contracts that "
            "one version of Spark created from the query"
        )
        return False
    return True


def pair_plans(comparison: Comparison, old: OperatorContract, new: OperatorContract) -> tuple[QueryPlan, QueryPlan]:
    """Return the old and the new plan, both in the new names of columns and functions."""
    after = new.plan or ()
    renamed_functions = [
        (old_name, new_name)
        for (old_name, new_name), parts in (find_changed_parts(old, new) or {}).items()
        if old_name != new_name and not parts
    ]
    lines = [_rename_functions(line, renamed_functions) for line in old.plan or ()]
    renamed = [(line, comparison.new_line(line)) for line in lines]
    # If several sources have a column of the old name, possibly only one of them renamed it. That one expression has
    # the values of another does not say that it has replaced it everywhere.
    is_ambiguous = sum("from " in line and line != name for line, name in renamed) > 1
    is_ambiguous = is_ambiguous or any(is_expression(name) for pair in comparison.renamed.items() for name in pair)
    before = [line if is_ambiguous and line in after and name not in after else name for line, name in renamed]
    return QueryPlan.of(before), QueryPlan.of(after)


def _rename_functions(line: str, names: Sequence[tuple[str, str]]) -> str:
    for old_name, new_name in names:
        if old_name and new_name:
            line = re.sub(rf"(?<![\w.~]){re.escape(old_name)}(?=\(| of )", new_name.replace("\\", r"\\"), line)
    return line


def look_swapped(old: Sequence[Sequence[str]], new: Sequence[Sequence[str]]) -> bool:
    """Return whether each of two new plans resembles the other's old plan more than its own, by their words."""

    def count_common_words(first_lines: Sequence[str], second_lines: Sequence[str]) -> int:
        words = (
            Counter(word for line in lines for word in re.findall(r"\w+|[^\w\s]+", line))
            for lines in (first_lines, second_lines)
        )
        return (next(words) & next(words)).total()

    unswapped = count_common_words(old[0], new[0]) + count_common_words(old[1], new[1])
    return count_common_words(old[0], new[1]) + count_common_words(old[1], new[0]) > unswapped
