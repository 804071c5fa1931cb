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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from html import escape
from types import UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from ttlsnap.naming import for_python

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


_MOST_ROWS = 20


class Result(Document):
    """A document that a function of the Python API returns.

    Its text has a line for each fact. A notebook shows a table.
    """

    def __init_subclass__(cls) -> None:
        """Keep the text also in a dataclass, which would make its own."""
        super().__init_subclass__()
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def summary(self) -> Mapping[str, Any]:
        """Return the facts to show."""
        return self.to_json()

    def __repr__(self) -> str:
        return "\n".join([type(self).__name__, *_lines(self.summary())])

    def _repr_html_(self) -> str:
        """Return the facts as HTML, for notebooks."""
        return f"<b>{type(self).__name__}</b>{_html(self.summary())}"


def _shown(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in document.items() if value not in (None, "") and value != [] and value != {})


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and not any(isinstance(inner, list | dict) for _, inner in _shown(value))


def _in_words(value: Any) -> str:
    """Return a value as text. Warnings in it name parameters, because the caller of a function reads them."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_in_words(inner)}" for key, inner in _shown(value))
    if isinstance(value, list):
        return ", ".join(map(_in_words, value[:_MOST_ROWS])) + _more(value)
    text = str(value)
    return text if text.startswith("--") else for_python(text)  # an option of the command line


def _more(items: list[Any]) -> str:
    return f", and {len(items) - _MOST_ROWS} more" if len(items) > _MOST_ROWS else ""


def _lines(document: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    for key, value in _shown(document):
        if isinstance(value, list) and isinstance(value[0], dict):
            yield f"{indent}{key}: {len(value)}"
            yield from (f"{indent}  {_in_words(item)}" for item in value[:_MOST_ROWS])
        elif isinstance(value, dict) and not _is_flat(value):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {_in_words(value)}"


def _html(value: Any) -> str:
    if isinstance(value, Mapping):
        rows = (f"<tr><th>{escape(str(key))}</th><td>{_html(inner)}</td></tr>" for key, inner in _shown(value))
        return f"<table>{''.join(rows)}</table>"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        columns = dict.fromkeys(key for item in value for key, _ in _shown(item))
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        rows = ("".join(f"<td>{_html(item.get(column))}</td>" for column in columns) for item in value[:_MOST_ROWS])
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>{escape(_more(value))}"
    return "" if value is None else escape(_in_words(value))


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
