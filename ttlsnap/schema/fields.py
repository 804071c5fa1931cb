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
    side, dot, rest = name.partition(".")
    if side not in ("key", "value") or not dot:
        raise UsageError(f"{name!r} is not a field name: it must begin with 'key.' or 'value.', as inspect shows it")
    schema: DataType = key if side == "key" else value
    path: list[int] = []
    for wanted, number in _steps(name, rest):
        if not isinstance(schema, StructType):
            return None
        same = [i for i, field in enumerate(schema.fields) if field.name == wanted]
        if number is None and len(same) > 1:
            options = ", ".join(f"{wanted}#{n + 1}" for n in range(len(same)))
            raise UsageError(f"{name!r} is ambiguous: there are {len(same)} fields {wanted!r}; write one of {options}")
        index = (number or 1) - 1
        if index >= len(same):
            return None
        path.append(same[index])
        schema = physical(schema.fields[same[index]].type)
    ordinals = tuple(path)
    return next(field for field in all_fields(key, value) if (field.side, field.path) == (side, ordinals))


def _steps(name: str, rest: str) -> Iterator[tuple[str, int | None]]:
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise UsageError(f"{name!r} is not a field name: see character {position + 1} of {rest!r}")
        quoted, plain, number = match.groups()
        yield (quoted.replace("``", "`") if quoted is not None else plain), int(number) if number else None
        position = match.end()
    if not rest or rest.endswith("."):
        raise UsageError(f"{name!r} is not a field name: it ends with a dot")


def _descend(side: Literal["key", "value"], schema: StructType, path: tuple[int, ...], prefix: str) -> Iterator[Field]:
    for i, (field, spelling) in enumerate(zip(schema.fields, distinct_names(schema.names, _quote), strict=True)):
        name = f"{prefix}.{spelling}"
        inner = physical(field.type)
        yield Field(side, (*path, i), name, inner, tuple(field.metadata.items()))
        if isinstance(inner, StructType):
            yield from _descend(side, inner, (*path, i), name)


def _quote(name: str) -> str:
    if name and not re.search(r"[.`#:]", name):
        return name
    return "`" + name.replace("`", "``") + "`"


def as_nullable(struct: StructType) -> StructType:
    """Return a struct whose fields may all be null, at every depth, as Spark 4.3 and later record it."""
    return StructType(tuple(replace(f, nullable=True, type=_with_nulls(f.type)) for f in struct.fields))


def _with_nulls(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return as_nullable(kind)
        case ArrayType():
            return ArrayType(_with_nulls(kind.element), True)
        case MapType():
            return MapType(_with_nulls(kind.key), _with_nulls(kind.value), True)
    return kind
