"""Old and new columns of a struct: each new column gets its source, and each difference a step or an obstacle."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.check.operators import AGGREGATIONS
from ttlsnap.entries.place import Place
from ttlsnap.errors import UsageError
from ttlsnap.migration.evolution import Step
from ttlsnap.migration.struct_changes import (
    ArrayChange,
    Cast,
    Change,
    Column,
    Constant,
    MapChange,
    StructChange,
    Take,
    is_narrower,
    is_wider,
)
from ttlsnap.new_query.answers import OLD_NEEDS_QUERY, Answers, UnrepairedFinding
from ttlsnap.printable import shell_word
from ttlsnap.schema.fields import distinct_names
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.types import ArrayType, DataType, DoubleType, MapType, StringType, StructField, StructType, physical

Source = int | Constant | None
"""Where a new column comes from: the ordinal of an old one, a constant, or unknown."""


@dataclass
class Matcher:
    """The search for the sources of new columns. ``used`` are the answers that decided something.

    ``knows_nullability``: the schemas say which columns the queries make nullable.
    """

    answers: Answers
    knows_nullability: bool = True
    steps: list[Step] = field(default_factory=list)
    obstacles: list[UnrepairedFinding] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    key_fills: dict[tuple[int | None, str], str] = field(default_factory=dict)

    def match(
        self,
        place: Place,
        old: StructType,
        new: StructType,
        sources: Sequence[Source] | None = None,
        *,
        told: bool = False,
        merges: bool = False,
    ) -> StructChange | None:
        """Return how structs change, None if they stay as they are. ``place`` has the path to them as its field.

        By default, names identify columns. ``sources`` has the sources of the new columns if they are known. With
        ``told``, there are already steps for what is new, gone or in another place. With ``merges``, a column of a key
        may go.
        """
        known = list(sources) if sources is not None else self._find_by_names(place, old, new, merges=merges)
        known = self._swap(place, new, known)
        names = distinct_names(new.names)
        columns: list[Column] = []
        for name, now, source in zip(names, new.fields, known, strict=True):
            at = place.at(field=f"{place.field}.{name}")
            if isinstance(source, int):
                was = old.fields[source]
                if was.name != now.name and now.name not in old.names and not told:
                    self.steps.append(Step("rename", at, was.name, now.name))
                self._compare_nullability(at, nullable=(was.nullable, now.nullable))
                columns.append(Take(source, self._match_types(at, was.type, now.type)))
            else:
                open_before = len(self.obstacles)
                constant = source if source is not None else self._fill(at, now)
                columns.append(constant)
                shown = "LITERAL" if len(self.obstacles) > open_before else _show(constant.value)
                if not told:
                    self.steps.append(Step("add", at, None, f"{now.type.simple_string} = {shown}"))
        taken = [source for source in known if isinstance(source, int)]
        for ordinal, (name, was) in enumerate(zip(distinct_names(old.names), old.fields, strict=True)):
            if ordinal not in taken and not told:
                at = place.at(field=f"{place.field}.{name}")
                if is_key(at) and not merges:
                    self.obstacles.append(
                        UnrepairedFinding(at, "without this column, several entries would have one key")
                    )
                self._find_answer(at, self.answers.drops)  # it may be given where nobody asks for it
                self.steps.append(Step("drop", at, was.type.simple_string, None))
        if taken != sorted(taken) and not told:
            texts = (", ".join(old.fields[n].name for n in order) for order in (sorted(taken), taken))
            self.steps.append(Step("reorder", place, *texts))
        if columns == [Take(ordinal) for ordinal in range(len(old))] and not self._is_stricter(old, new):
            return None
        return StructChange(tuple(columns))

    def _is_stricter(self, old: StructType, new: StructType) -> bool:
        """Return whether a column may no longer be null. Then the values must be read, to show that none is."""
        pairs = zip(old.fields, new.fields, strict=True)
        return self.knows_nullability and any(was.nullable and not now.nullable for was, now in pairs)

    def _compare_nullability(self, at: Place, *, nullable: tuple[bool, bool]) -> None:
        if self.knows_nullability and nullable[0] != nullable[1]:
            texts = ("nullable" if each else "required" for each in nullable)
            self.steps.append(Step("nullability", at, *texts))

    def _find_by_names(self, place: Place, old: StructType, new: StructType, *, merges: bool) -> list[Source]:
        """Return the sources of new columns by their names; a name may occur the same number of times on both sides."""
        before = [self.answers.renamed.get(name, name) for name in old.names]
        after = list(new.names)
        counts = [Counter(names) for names in (before, after)]
        places: dict[str, list[int]] = {}
        for ordinal, name in enumerate(before):
            places.setdefault(name, []).append(ordinal)
        for name in places:
            if counts[1][name] and counts[0][name] != counts[1][name]:
                self.obstacles.append(
                    UnrepairedFinding(
                        place,
                        f"there were {counts[0][name]} columns {name}, and now there are {counts[1][name]}: which is "
                        f"which? {OLD_NEEDS_QUERY}",
                        needs=OLD_NEEDS_QUERY,
                    )
                )
        found: list[Source] = [places[name].pop(0) if places.get(name) else None for name in after]
        self._ask_for_renames(place, old, new, found, merges=merges)
        return found

    def _ask_for_renames(
        self, place: Place, old: StructType, new: StructType, found: list[Source], *, merges: bool
    ) -> None:
        """Add an obstacle for each new column that may be an old one under another name."""
        for ordinal, now in enumerate(new.fields):
            at = place.at(field=f"{place.field}.{now.name}")
            told = self._find_answer(at, self.answers.fills, *_grouping_column(at))
            if found[ordinal] is not None or told is not None:
                continue
            for number, was in enumerate(old.fields):
                if number not in found and self.can_become((was,), (now,)):
                    is_same = self.ask_if_same(place, was.name, now.name, merges=merges)
                    if is_same is not False:
                        found[ordinal] = number
                        break

    def can_become(self, old: Sequence[StructField], new: Sequence[StructField]) -> bool:
        """Return whether each old field can become the new one."""

        def can(was: DataType, now: DataType) -> bool:
            return _are_alike(was, now) or is_wider(was, now) or is_narrower(was, now)

        return len(old) == len(new) and all(can(a.type, b.type) for a, b in zip(old, new, strict=True))

    def ask_if_same(self, place: Place, old: str, new: str, *, merges: bool = False) -> bool | None:
        """Return whether something has only another name, as the user says.

        If the user says nothing, there is an obstacle, and the result is None. ``place`` is that of the struct. With
        ``merges``, a column of a key may go.
        """
        if self.answers.renamed.get(old) == new:
            return True
        if self.is_dropped(place, old):
            return False
        is_column = old.isidentifier() and bool(place.field)
        field = f"{place.field}.{old}" if is_column else old
        rename, drop = f"--rename {shell_word(f'{old}={new}')}", f"--drop {shell_word(field)}"
        told, needs = f"{old} is gone, and {new} is new: is it the same? If so, add {rename}", ""
        if merges or not is_key(place):
            told = f"{told}; if not, add {drop}"
            needs = (
                f"If {new} is {old} under another name, give migrate {rename}; if not, {drop}, which starts it afresh"
            )
        at = place.at(field=f"{place.field}.{new}") if is_column else place
        self.obstacles.append(UnrepairedFinding(at, told, needs=needs))
        return None

    def is_dropped(self, place: Place, name: str) -> bool:
        """Return whether the user says that an old column or aggregate goes."""
        at = place.at(field=f"{place.field}.{name}")
        return self._find_answer(at, self.answers.drops, name) is not None

    def _find_answer(self, at: Place, answers: Container[str], *more: str) -> str | None:
        """Return the name under which ``answers`` has a field, with its state or without; None if they do not."""
        for told in (str(at), at.field or "", *more):
            if told in answers:
                self.used.add(told)
                return told
        return None

    def _swap(self, place: Place, new: StructType, sources: list[Source]) -> list[Source]:
        names = [f"{place.field}.{name}" for name in distinct_names(new.names)]
        for pair in self.answers.swaps:
            one, two = (
                next((n for n, name in enumerate(names) if told in (name, str(place.at(field=name)))), None)
                for told in pair
            )
            if one is not None and two is not None:
                self.used.update(pair)
                sources[one], sources[two] = sources[two], sources[one]
                self.steps.append(Step("swap", place.at(field=names[one]), pair[0], pair[1]))
        return sources

    def _fill(self, at: Place, now: StructField) -> Constant:
        """Return the constant for a new column: what the user says, or null if it may be null."""
        told = self._find_answer(at, self.answers.fills, *_grouping_column(at))
        if told is not None:
            self._require_one_fill(at, told)
            value = parse_literal(self.answers.fills[told], now.type, f"--fill {told}={self.answers.fills[told]}")
            if value is None and not now.nullable:
                raise UsageError(f"--fill {told}=null: the new query does not allow null there")
            return Constant(value)
        if not now.nullable or is_key(at):
            name = next(iter(_grouping_column(at)), at.field)
            why = "" if is_key(at) else ", and it may not be null"
            self.obstacles.append(
                UnrepairedFinding(
                    at,
                    f"existing entries have no {now.name}{why}: add --fill {name}=LITERAL",
                    f"--fill {name}=LITERAL",
                )
            )
        return Constant(None)

    def _require_one_fill(self, at: Place, told: str) -> None:
        """Raise UsageError if another state got another value for the same grouping column."""
        for column in _grouping_column(at):
            first = self.key_fills.setdefault((at.operator, column), told)
            if self.answers.fills[first] != self.answers.fills[told]:
                raise UsageError(f"--fill {first} and --fill {told} give one grouping column two values")

    def _match_types(self, at: Place, old: DataType, new: DataType) -> Change | None:
        """Return how values change with their type; None if they stay as they are."""
        was, now = physical(old), physical(new)
        match was, now:
            case StructType(), StructType():
                return self.match(at, was, now)
            case ArrayType(), ArrayType():
                inner = self._match_types(at.at(field=f"{at.field}.element"), was.element, now.element)
                return None if inner is None else ArrayChange(inner)
            case MapType(), MapType():
                if not _are_alike(was.key, now.key):
                    self._add_retyped(at, old, new)
                    return None
                inner = self._match_types(at.at(field=f"{at.field}.value"), was.value, now.value)
                return None if inner is None else MapChange(inner)
        if _are_alike(was, now):
            return None
        if is_key(at) and isinstance(now, DoubleType):
            self.obstacles.append(
                UnrepairedFinding(
                    at, f"a new row of this key can have other digits as {new.simple_string} than an old one"
                )
            )
            return None
        texts = isinstance(was, StringType) or isinstance(now, StringType)
        if texts and not is_key(at) and at.operator_name in AGGREGATIONS:
            told = f"it was {old.simple_string} and is {new.simple_string}. Texts have another order than numbers"
            self.obstacles.append(UnrepairedFinding(at, f"{told}, and an aggregate compares its values"))
            return None
        if is_wider(was, now):
            self.steps.append(Step("widen", at, old.simple_string, new.simple_string))
            return Cast()
        if is_narrower(was, now):
            self.steps.append(Step("narrow", at, old.simple_string, new.simple_string))
            if self.answers.narrow:
                return Cast(narrow=True)
        self._add_retyped(at, old, new)
        return None

    def _add_retyped(self, at: Place, old: DataType, new: DataType) -> None:
        told = f"it was {old.simple_string} and is {new.simple_string}, which not every old value is"
        if is_narrower(old, new):
            self.obstacles.append(UnrepairedFinding(at, f"{told}. If all of its values fit, add --narrow", "--narrow"))
        else:
            self.obstacles.append(UnrepairedFinding(at, told))


def _grouping_column(place: Place) -> tuple[str, ...]:
    """Return how the user names a grouping column, wherever it is in a key: as ``key.user``; () for other fields.

    Spark has the grouping columns of a timer, of an index and of a map within a struct.
    """
    head, *names = (place.field or "").split(".")
    if head != "key" or "userKey" in names:
        return ()
    while len(names) > 1 and names[0] in ("key", "elementKey"):
        names = names[1:]
    return (".".join(["key", *names]),)


def is_key(place: Place) -> bool:
    """Return whether a place is in the key of a state."""
    return (place.field or "").partition(".")[0] == "key"


def _are_alike(old: DataType, new: DataType) -> bool:
    """Return whether two types have the same bytes, apart from the names of fields."""
    old, new = physical(old), physical(new)
    match old, new:
        case StructType(), StructType():
            pairs = zip(old.fields, new.fields, strict=False)
            return len(old) == len(new) and all(_are_alike(a.type, b.type) for a, b in pairs)
        case ArrayType(), ArrayType():
            return _are_alike(old.element, new.element)
        case MapType(), MapType():
            return _are_alike(old.key, new.key) and _are_alike(old.value, new.value)
    return old == new


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if not isinstance(value, str | datetime.date) else f"'{value}'"
