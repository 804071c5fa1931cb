"""Old and new columns of a struct: each new column gets its source, and each difference a step or an obstacle."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.check.expressions import is_expression, new_name
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
        has_steps: bool = False,
        merges: bool = False,
    ) -> StructChange | None:
        """Return how structs change, None if they stay as they are. ``place`` has the path to them as its field.

        By default, names identify columns. ``sources`` has the sources of the new columns if they are known. With
        ``has_steps``, there are already steps for what is new, gone or in another place. With ``merges``, a column of a
        key may go.
        """
        known_sources = list(sources) if sources is not None else self._find_by_names(place, old, new, merges=merges)
        known_sources = self._swap(place, new, known_sources)
        names = distinct_names(new.names)
        columns: list[Column] = []
        for name, new_field, source in zip(names, new.fields, known_sources, strict=True):
            field_place = place.at(field=f"{place.field}.{name}")
            if isinstance(source, int):
                old_field = old.fields[source]
                if old_field.name != new_field.name and new_field.name not in old.names and not has_steps:
                    self.steps.append(Step("rename", field_place, old_field.name, new_field.name))
                self._compare_nullability(field_place, nullable=(old_field.nullable, new_field.nullable))
                columns.append(Take(source, self._match_types(field_place, old_field.type, new_field.type)))
            else:
                obstacles_before = len(self.obstacles)
                constant = source if source is not None else self._fill(field_place, new_field)
                columns.append(constant)
                literal = "LITERAL" if len(self.obstacles) > obstacles_before else _show(constant.value)
                if not has_steps:
                    self.steps.append(Step("add", field_place, None, f"{new_field.type.simple_string} = {literal}"))
        taken_ordinals = [source for source in known_sources if isinstance(source, int)]
        for ordinal, (name, old_field) in enumerate(zip(distinct_names(old.names), old.fields, strict=True)):
            if ordinal not in taken_ordinals and not has_steps:
                field_place = place.at(field=f"{place.field}.{name}")
                if is_key(field_place) and not merges:
                    self.obstacles.append(
                        UnrepairedFinding(field_place, "without this column, several entries would have one key")
                    )
                self._find_answer(field_place, self.answers.drops)  # it may be given where nobody asks for it
                self.steps.append(Step("drop", field_place, old_field.type.simple_string, None))
        if taken_ordinals != sorted(taken_ordinals) and not has_steps:
            texts = (
                ", ".join(old.fields[index].name for index in order)
                for order in (sorted(taken_ordinals), taken_ordinals)
            )
            self.steps.append(Step("reorder", place, *texts))
        if columns == [Take(ordinal) for ordinal in range(len(old))] and not self._is_stricter(old, new):
            return None
        return StructChange(tuple(columns))

    def _is_stricter(self, old: StructType, new: StructType) -> bool:
        """Return whether a column may no longer be null. Then the values must be read, to show that none is."""
        pairs = zip(old.fields, new.fields, strict=True)
        return self.knows_nullability and any(
            old_field.nullable and not new_field.nullable for old_field, new_field in pairs
        )

    def _compare_nullability(self, place: Place, *, nullable: tuple[bool, bool]) -> None:
        if self.knows_nullability and nullable[0] != nullable[1]:
            texts = ("nullable" if is_nullable else "required" for is_nullable in nullable)
            self.steps.append(Step("nullability", place, *texts))

    def _find_by_names(self, place: Place, old: StructType, new: StructType, *, merges: bool) -> list[Source]:
        """Return the sources of new columns by their names; a name may occur the same number of times on both sides."""
        before = [new_name(name, self.answers.renamed) for name in old.names]
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
                        f"the number of columns {name} was {counts[0][name]} and is now {counts[1][name]}: which is "
                        f"which? {OLD_NEEDS_QUERY}",
                        needs=OLD_NEEDS_QUERY,
                    )
                )
        sources: list[Source] = [places[name].pop(0) if places.get(name) else None for name in after]
        self._ask_for_renames(place, old, new, sources, merges=merges)
        return sources

    def _ask_for_renames(
        self, place: Place, old: StructType, new: StructType, sources: list[Source], *, merges: bool
    ) -> None:
        """Add an obstacle for each new column that may be an old one under another name."""
        for ordinal, new_field in enumerate(new.fields):
            field_place = place.at(field=f"{place.field}.{new_field.name}")
            fill_name = self._find_answer(field_place, self.answers.fills, *_grouping_column(field_place))
            if sources[ordinal] is not None or fill_name is not None:
                continue
            for number, old_field in enumerate(old.fields):
                if number not in sources and self.can_become((old_field,), (new_field,)):
                    is_same = self.ask_if_same(place, old_field.name, new_field.name, merges=merges)
                    if is_same is not False:
                        sources[ordinal] = number
                        break

    def can_become(self, old: Sequence[StructField], new: Sequence[StructField]) -> bool:
        """Return whether each old field can become the new one."""

        def can(old_type: DataType, new_type: DataType) -> bool:
            return _are_alike(old_type, new_type) or is_wider(old_type, new_type) or is_narrower(old_type, new_type)

        return len(old) == len(new) and all(
            can(old_field.type, new_field.type) for old_field, new_field in zip(old, new, strict=True)
        )

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
        is_name = not is_expression(old) and not is_expression(new)
        question = "is it the same?" if is_name else "do both always have the same value?"
        message, needs = f"{old} is gone, and {new} is new: {question} If so, add {rename}", ""
        if merges or not is_key(place):
            message = f"{message}; if not, add {drop}"
            condition = f"{new} is {old} under another name" if is_name else f"{new} always has the value of {old}"
            needs = f"If {condition}, give migrate {rename}; if not, {drop}, which starts it afresh"
        elif not is_name:
            message = f"{message}; if not, keep {old}, or start a new checkpoint"
        new_place = place.at(field=f"{place.field}.{new}") if is_column else place
        renames_key = ""
        if is_name and not needs:
            option = f"--renamed {shell_word(f'{old}={new}')}"
            renames_key = f"First decide if {old} only has another name, such as {new}. If so, pass {option}"
        self.obstacles.append(UnrepairedFinding(new_place, message, needs=needs, old=old, renames_key=renames_key))
        return None

    def is_dropped(self, place: Place, name: str) -> bool:
        """Return whether the user says that an old column or aggregate goes."""
        field_place = place.at(field=f"{place.field}.{name}")
        return self._find_answer(field_place, self.answers.drops, name) is not None

    def _find_answer(self, place: Place, answers: Container[str], *more: str) -> str | None:
        """Return the name under which ``answers`` has a field, with its state or without; None if they do not."""
        for name in (str(place), place.field or "", *more):
            if name in answers:
                self.used.add(name)
                return name
        return None

    def _swap(self, place: Place, new: StructType, sources: list[Source]) -> list[Source]:
        names = [f"{place.field}.{name}" for name in distinct_names(new.names)]
        for pair in self.answers.swaps:
            first_index, second_index = (
                next(
                    (index for index, name in enumerate(names) if field_name in (name, str(place.at(field=name)))), None
                )
                for field_name in pair
            )
            if first_index is not None and second_index is not None:
                self.used.update(pair)
                sources[first_index], sources[second_index] = sources[second_index], sources[first_index]
                self.steps.append(Step("swap", place.at(field=names[first_index]), pair[0], pair[1]))
        return sources

    def _fill(self, place: Place, new_field: StructField) -> Constant:
        """Return the constant for a new column: what the user says, or null if it may be null."""
        answer = self._find_answer(place, self.answers.fills, *_grouping_column(place))
        if answer is not None:
            self._require_one_fill(place, answer)
            value = parse_literal(
                self.answers.fills[answer], new_field.type, f"--fill {answer}={self.answers.fills[answer]}"
            )
            if value is None and not new_field.nullable:
                raise UsageError(f"--fill {answer}=null: the new query does not allow null there")
            return Constant(value)
        if not new_field.nullable or is_key(place):
            name = next(iter(_grouping_column(place)), place.field)
            reason = "" if is_key(place) else ", and it may not be null"
            self.obstacles.append(
                UnrepairedFinding(
                    place,
                    f"existing entries have no {new_field.name}{reason}: add --fill {name}=LITERAL",
                    f"--fill {name}=LITERAL",
                )
            )
        return Constant(None)

    def _require_one_fill(self, place: Place, answer: str) -> None:
        """Raise UsageError if another state got another value for the same grouping column."""
        for column in _grouping_column(place):
            first_answer = self.key_fills.setdefault((place.operator, column), answer)
            if self.answers.fills[first_answer] != self.answers.fills[answer]:
                raise UsageError(f"--fill {first_answer} and --fill {answer} give one grouping column two values")

    def _match_types(self, place: Place, old: DataType, new: DataType) -> Change | None:
        """Return how values change with their type; None if they stay as they are."""
        old_physical, new_physical = physical(old), physical(new)
        match old_physical, new_physical:
            case StructType(), StructType():
                return self.match(place, old_physical, new_physical)
            case ArrayType(), ArrayType():
                inner = self._match_types(
                    place.at(field=f"{place.field}.element"), old_physical.element, new_physical.element
                )
                return None if inner is None else ArrayChange(inner)
            case MapType(), MapType():
                if not _are_alike(old_physical.key, new_physical.key):
                    self._add_retyped(place, old, new)
                    return None
                inner = self._match_types(
                    place.at(field=f"{place.field}.value"), old_physical.value, new_physical.value
                )
                return None if inner is None else MapChange(inner)
        if _are_alike(old_physical, new_physical):
            return None
        if is_key(place) and isinstance(new_physical, DoubleType):
            self.obstacles.append(
                UnrepairedFinding(
                    place, f"a new row of this key can have other digits as {new.simple_string} than an old one"
                )
            )
            return None
        if have_other_order(old, new) and not is_key(place) and place.operator_name in AGGREGATIONS:
            message = f"it was {old.simple_string} and is {new.simple_string}. Texts have another order than numbers"
            self.obstacles.append(UnrepairedFinding(place, f"{message}, and an aggregate compares its values"))
            return None
        if is_wider(old_physical, new_physical):
            self.steps.append(Step("widen", place, old.simple_string, new.simple_string))
            return Cast()
        if is_narrower(old_physical, new_physical):
            self.steps.append(Step("narrow", place, old.simple_string, new.simple_string))
            if self.answers.narrow:
                return Cast(narrow=True)
        self._add_retyped(place, old, new)
        return None

    def _add_retyped(self, place: Place, old: DataType, new: DataType) -> None:
        message = f"it was {old.simple_string} and is {new.simple_string}, which not every old value is"
        if is_narrower(old, new):
            self.obstacles.append(
                UnrepairedFinding(place, f"{message}. If all of its values fit, add --narrow", "--narrow")
            )
        else:
            self.obstacles.append(UnrepairedFinding(place, message))


def have_other_order(old: DataType, new: DataType) -> bool:
    """Return whether one of two types is a text and the other is not: texts have another order than numbers."""
    return isinstance(physical(old), StringType) != isinstance(physical(new), StringType)


def _grouping_column(place: Place) -> tuple[str, ...]:
    """Return how the user names a grouping column, wherever it is in a key: as ``key.user``; () for other fields.

    Spark has the grouping columns of a timer, of an index and of a map within a struct.
    """
    side, *names = (place.field or "").split(".")
    if side != "key" or "userKey" in names:
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
            return len(old) == len(new) and all(
                _are_alike(old_field.type, new_field.type) for old_field, new_field in pairs
            )
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
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_show(part)}' for name, part in value.items())}}}"
    return str(value) if not isinstance(value, str | datetime.date) else f"'{value}'"
