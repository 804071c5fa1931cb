"""Dataclasses as JSON documents, and JSON documents as dataclasses.

The keys of a ``Document`` are the names of its fields, in their order. After them come the properties with
``json_property``. Where this is not right, the class says so: ``in_json`` at a field, and ``JSON_ORDER``.

    @dataclass(frozen=True)
    class Report(Document):
        JSON_ORDER = "target changed"

        target: str
        dropped: int
        now_us: int = field(metadata=in_json("now", convert=iso))

        @property
        @json_property()
        def changed(self) -> bool: ...

    {"target": "ck", "changed": true, "dropped": 3, "now": "2026-11-21T09:00:00.000Z"}

``from_json`` of a ``ReadableDocument`` reads what ``to_json`` has written. It passes each value to the constructor, so
an unknown key is an error, and so is one that is missing. It makes tuples and nested dataclasses, and does not check
other values. Check a document from a file before, as a contract with its JSON Schema, or the object, as a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

Function = TypeVar("Function", bound=Callable[..., Any])
Convert = Callable[[Any], Any]

_RULE = "json_rule"
_PLAIN = frozenset((bool, float, int, str, type(None)))


@dataclass(frozen=True)
class _Rule:
    """The way in which a field or a property appears in JSON; see ``in_json``."""

    key: str | None = None
    convert: Convert | None = None
    read: Convert | None = None
    inline: bool = False
    hidden: bool = False
    optional: bool = False


class _Member(NamedTuple):
    """A field or a property in JSON. If it is optional and has the value ``default``, it is absent."""

    name: str
    key: str
    rule: _Rule
    default: Any


def in_json(
    key: str | None = None,
    *,
    convert: Convert | None = None,
    read: Convert | None = None,
    inline: bool = False,
    hidden: bool = False,
    optional: bool = False,
) -> dict[str, _Rule]:
    """Return metadata for a field that appears in JSON under another ``key``, or in another way.

    ``convert`` makes the value for JSON, and ``read`` the field's value from that. The keys of an ``inline`` object are
    beside the others. A ``hidden`` field is not in JSON. An ``optional`` one is absent if it has its default value.
    """
    return {_RULE: _Rule(key, convert, read, inline, hidden, optional)}


def json_property(
    key: str | None = None, *, convert: Convert | None = None, optional: bool = False
) -> Callable[[Function], Function]:
    """Return a decorator, below ``@property``, for one that appears in JSON. An ``optional`` one is absent if None."""

    def mark(function: Function) -> Function:
        setattr(function, _RULE, _Rule(key, convert, optional=optional))
        return function

    return mark


MILLISECONDS = in_json(convert=partial(round, ndigits=3))
"""The metadata of a field with seconds."""


class Document:
    """A dataclass that is a JSON document, or a part of one.

    ``JSON_ORDER`` names the fields and properties that come first, separated by spaces.
    """

    JSON_ORDER: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """Return the document; see ``docs/json.md``."""
        return _to_object(self)


class ReadableDocument(Document):
    """A document that can be read back. Its keys, and those of its parts, are the names of the fields."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the object that has this document. Raise TypeError if its keys are not those of the class."""
        made: Self = _read_object(cls, document)
        return made


def to_json(value: Any) -> Any:
    """Return a value as plain JSON values: a dataclass or a mapping as an object, a sequence as a list."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Document):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if isinstance(value, Enum):
        return value.value
    return _to_object(value) if is_dataclass(value) else value


def _to_object(value: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    kind: Any = type(value)
    for name, key, rule, default in _members(kind):
        found = getattr(value, name)
        if rule.optional and found == default:
            continue
        made = to_json(found if rule.convert is None else rule.convert(found))
        if rule.inline:
            document |= made
        else:
            document[key] = made
    return document


@cache
def _members(kind: Any) -> tuple[_Member, ...]:
    """Return the members of a dataclass that are in JSON, in the order of their keys."""
    found = {}
    for field in fields(kind):
        rule = field.metadata.get(_RULE, _Rule())
        if not rule.hidden:
            found[field.name] = _Member(field.name, rule.key or field.name, rule, field.default)
    for ancestor in reversed(kind.__mro__):
        for name, member in vars(ancestor).items():
            if isinstance(member, property) and (rule := getattr(member.fget, _RULE, None)) is not None:
                found[name] = _Member(name, rule.key or name, rule, None)
    first = getattr(kind, "JSON_ORDER", "").split()
    return tuple(found[name] for name in dict.fromkeys((*first, *found)))


def _read_object(kind: Any, document: Mapping[str, Any]) -> Any:
    constants, readers = _reading(kind)
    values = {**document}
    for name in constants:
        values.pop(name, None)
    for name, read in readers.items():
        if name in values:
            values[name] = read(values[name])
    return kind(**values)


@cache
def _reading(kind: Any) -> tuple[frozenset[str], dict[str, Convert]]:
    """Return the fields of a dataclass that are constants, and the functions that make the values of others."""
    types, readers = get_type_hints(kind), {}
    for field in fields(kind):
        read = field.metadata.get(_RULE, _Rule()).read or _reader(types[field.name])
        if read is not None:
            readers[field.name] = read
    return frozenset(field.name for field in fields(kind) if not field.init), readers


@cache
def _reader(kind: Any) -> Convert | None:
    """Return the function that makes a value of a type from JSON; None if JSON has that value already."""
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        readers = [read for argument in arguments if (read := _reader(argument)) is not None]
        return _or_none(*readers) if readers else None
    if get_origin(kind) is tuple:
        item = _reader(arguments[0])
        return tuple if item is None else lambda values: tuple(map(item, values))
    return partial(_read_object, kind) if is_dataclass(kind) else None


def _or_none(read: Convert) -> Convert:
    return lambda value: None if value is None else read(value)
