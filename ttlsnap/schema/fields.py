"""Names of fields as users write them: ``value.max``, ``key.window.end``, ``value.sum#2``, ``value.`a.b` ``.

A path begins with ``key`` or ``value`` and descends through structs. If a name occurs more than once at its level,
``#`` and a number select one of the fields, counted from 1. Without a number such a name is ambiguous and an error.
Names with dots, colons, back-quotes or ``#`` are back-quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ttlsnap.errors import UsageError
from ttlsnap.schema.types import ArrayType, DataType, MapType, StructType, physical
from ttlsnap.suggestions import did_you_mean

_STEP = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`#:]+))(?:#([1-9][0-9]{0,8}))?(?:\.|$)")


@dataclass(frozen=True)
class Field:
    """One field of a state: its ``side``, its ordinals from the top of that side's schema, its spelling and type."""

    side: Literal["key", "value"]
    path: tuple[int, ...]
    name: str
    type: DataType
    metadata: tuple[tuple[str, object], ...] = ()

    @property
    def column(self) -> tuple[str, int]:
        """The top-level column that is the field or contains it."""
        return self.side, self.path[0]


def all_fields(key: StructType, value: StructType) -> list[Field]:
    """Return every field of a state, each with its unambiguous spelling; a struct's fields follow the struct."""
    return [*_descend("key", key, (), "key"), *_descend("value", value, (), "value")]


def distinct_names(names: Sequence[str], spell: Callable[[str], str] = str) -> list[str]:
    """Return the names of one struct's fields as ``spell`` spells them.

    A name that occurs more than once gets a number that counts its occurrences: ``sum#2``.
    """
    return [
        spell(name) if names.count(name) == 1 else f"{spell(name)}#{names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def find_field(name: str, key: StructType, value: StructType) -> Field | None:
    """Return the field that a user named, or None if the state has no such field.

    Raises UsageError if the name is malformed or ambiguous.
    """
    side, dot, field_names = name.partition(".")
    if side not in ("key", "value") or not dot:
        hint = did_you_mean(name, [*(field.name for field in all_fields(key, value)), "@written"])
        raise UsageError(
            f"{name!r} is not a field name{hint}: it must begin with 'key.' or 'value.', as inspect shows it"
        )
    schema: DataType = key if side == "key" else value
    path: list[int] = []
    for field_name, number in _steps(name, field_names):
        if not isinstance(schema, StructType):
            return None
        matching_ordinals = [ordinal for ordinal, field in enumerate(schema.fields) if field.name == field_name]
        if number is None and len(matching_ordinals) > 1:
            start = name if name.endswith(f".{field_name}") else field_name
            options = ", ".join(f"{start}#{copy + 1}" for copy in range(len(matching_ordinals)))
            raise UsageError(
                f"{name!r} is ambiguous: there are {len(matching_ordinals)} fields {field_name!r}; "
                f"write one of {options}"
            )
        index = (number or 1) - 1
        if index >= len(matching_ordinals):
            return None
        path.append(matching_ordinals[index])
        schema = physical(schema.fields[matching_ordinals[index]].type)
    ordinals = tuple(path)
    return next(field for field in all_fields(key, value) if (field.side, field.path) == (side, ordinals))


def _steps(name: str, field_names: str) -> Iterator[tuple[str, int | None]]:
    position = 0
    while position < len(field_names):
        match = _STEP.match(field_names, position)
        if match is None:
            raise UsageError(f"{name!r} is not a field name: see character {position + 1} of {field_names!r}")
        quoted_name, plain_name, number = match.groups()
        yield (
            (quoted_name.replace("``", "`") if quoted_name is not None else plain_name),
            int(number) if number else None,
        )
        position = match.end()
    if not field_names or field_names.endswith("."):
        raise UsageError(f"{name!r} is not a field name: it ends with a dot")


def _descend(side: Literal["key", "value"], schema: StructType, path: tuple[int, ...], prefix: str) -> Iterator[Field]:
    for ordinal, (field, spelling) in enumerate(zip(schema.fields, distinct_names(schema.names, _quote), strict=True)):
        name = f"{prefix}.{spelling}"
        inner_type = physical(field.type)
        yield Field(side, (*path, ordinal), name, inner_type, tuple(field.metadata.items()))
        if isinstance(inner_type, StructType):
            yield from _descend(side, inner_type, (*path, ordinal), name)


def _quote(name: str) -> str:
    if name and not re.search(r"[.`#:]", name):
        return name
    return "`" + name.replace("`", "``") + "`"


def as_nullable(struct: StructType) -> StructType:
    """Return a struct whose fields may all be null, at every depth, as Spark 4.3 and later record it."""
    return StructType(tuple(replace(field, nullable=True, type=_with_nulls(field.type)) for field in struct.fields))


def _with_nulls(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return as_nullable(kind)
        case ArrayType():
            return ArrayType(_with_nulls(kind.element), True)
        case MapType():
            return MapType(_with_nulls(kind.key), _with_nulls(kind.value), True)
    return kind
