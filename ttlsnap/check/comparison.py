"""What the parts of a comparison share: the two contracts, the renames, and the findings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ttlsnap.check.expressions import find_names, is_expression, new_expression, new_name, rename_columns
from ttlsnap.check.findings import Finding
from ttlsnap.check.outcomes import Outcome
from ttlsnap.contract import Contract
from ttlsnap.contract.model import SCHEMA_CHECK
from ttlsnap.entries.place import Place

_SIDES = r"(?:(?:left|right): )*"
_EXPRESSION_LINE = re.compile(rf"({_SIDES}(?:group by|key|on|aggregate) )(.*)", re.DOTALL)
_COLUMN_LINE = re.compile(rf"({_SIDES}(?:left|right|input) )(.*?)(?: = (.*))?", re.DOTALL)
_SOURCE_LINE = re.compile(rf"{_SIDES}from (.*)", re.DOTALL)


@dataclass
class Report:
    """What a comparison has found so far, and a line for each thing that it could not compare."""

    findings: list[Finding] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, place: Place, old: object = None, new: object = None, **words: object) -> None:
        """Add the finding ``outcome``. ``old`` and ``new`` are what is there, None for what is not."""
        old_text, new_text = (None if value is None else str(value) for value in (old, new))
        if "side" in words:
            words["SIDE"] = str(words["side"]).upper()
        row = outcome.fill({"old": old_text, "new": new_text, **words})
        self.findings.append(Finding(row.code, row.verdict, place, old_text, new_text, row.message, row.spark, row.fix))

    def cannot_compare(self, line: str) -> None:
        """Say once that something could not be compared."""
        if line not in self.unseen:
            self.unseen.append(line)


@dataclass
class Comparison(Report):
    """An old contract and a new one. ``renamed`` has the user's new names of columns that are the same, by old name."""

    old: Contract = field(kw_only=True)
    new: Contract = field(kw_only=True)
    renamed: Mapping[str, str] = field(kw_only=True)

    def new_name(self, name: str) -> str:
        """Return the name that the new contract has for a column of the old one."""
        return new_name(name, self.renamed)

    def new_expression(self, text: str) -> str:
        """Return an expression of the old contract with renamed columns under their new names."""
        return new_expression(text, self.computed_names)

    def new_line(self, line: str) -> str:
        """Return a line of an old plan, as ``new_expression`` does with the expression in it."""
        if match := _EXPRESSION_LINE.fullmatch(line):
            return match[1] + self.new_expression(match[2])
        if match := _COLUMN_LINE.fullmatch(line):
            # What a function receives is not in the state.
            names = self.computed_names if match[1].endswith("input ") else self.renamed
            name, meaning = new_name(match[2], names), self.new_expression(match[3] or match[2])
            return f"{match[1]}{name}" if name == meaning else f"{match[1]}{name} = {meaning}"
        return self.new_columns(line)

    def new_columns(self, text: str) -> str:
        """Return a text of the old contract with renamed columns under their new names."""
        return rename_columns(text, self.computed_names)

    @cached_property
    def source_names(self) -> tuple[set[str], set[str]]:
        """The names of the columns of the old sources, and of the new ones, as far as the plans have them."""
        return _source_names(self.old), _source_names(self.new)

    @cached_property
    def computed_names(self) -> Mapping[str, str]:
        """The new names in what the queries compute, where only the sources name columns.

        If the sources of both queries have one of the two names, and no source has the other, only the query renames
        the column.
        """

        def is_of_source(old: str, new: str) -> bool:
            has_old, has_new = ([name in names for names in self.source_names] for name in (old, new))
            return sorted((has_old, has_new)) != [[False, False], [True, True]]

        return {
            old: new
            for old, new in self.renamed.items()
            if is_expression(old) or is_expression(new) or is_of_source(old, new)
        }

    @property
    def widens(self) -> bool:
        """Whether the new query makes every column of the state nullable: the checkpoint pins that, and it knows it."""
        return self.old.widens and parse_version(self.new.spark) >= (4, 3)

    @property
    def knows_nullability(self) -> bool:
        """Whether both contracts say which columns their queries make nullable."""
        return self.old.records_nullability and self.new.records_nullability

    @property
    def unchecked(self) -> bool:
        """Whether the new query's session switches Spark's own comparison of schemas off."""
        return self.new.conf.get(SCHEMA_CHECK, "true").lower() == "false"


def _source_names(contract: Contract) -> set[str]:
    lines = [line for operator in contract.operators for line in operator.plan or ()]
    return find_names([match[1] for line in lines if (match := _SOURCE_LINE.fullmatch(line))])


def parse_version(text: str) -> tuple[int, int]:
    """Return the version; of a range the lowest, and 3.5 if only "before 4.0" is known."""
    if text.startswith("<"):
        return 3, 5
    match = re.search(r"(?<!\d)(\d{1,9})\.(\d{1,9})", text)
    assert match is not None, text  # as the contract's JSON Schema has it
    return int(match[1]), int(match[2])
