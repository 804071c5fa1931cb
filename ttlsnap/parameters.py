"""The check of arguments by the types of parameters, for the functions of the Python API."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from ttlsnap.errors import UsageError

_LONGEST = 200
_KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number from 0 on",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
    Callable: "a function",
}


def convert(name: str, value: Any, hint: Any) -> Any:
    """Return a value for a parameter with the type ``hint``. Raise UsageError if it has another type.

    A path becomes a text, and the text of a member of an enumeration that member.
    """
    if _fits(value, hint):
        return value
    kinds = _kinds(hint)
    if isinstance(value, os.PathLike) and str in kinds:
        return os.fspath(value)
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum) and value in [member.value for member in kind]:
            return kind(value)
    if any(_is_item(value, kind) for kind in kinds):
        item = type(value).__name__
        raise UsageError(f"{name} is one {item}; pass a list: [{item}(...)]")
    expected = " or ".join(dict.fromkeys(map(_describe, kinds)))
    text = repr(value)
    raise UsageError(f"{name} is {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}; it must be {expected}")


def _is_item(value: Any, hint: Any) -> bool:
    """Return whether a value is an object that belongs into a list of the type ``hint``."""
    origin, items = get_origin(hint), get_args(hint)
    if not isinstance(origin, type) or not issubclass(origin, Sequence) or type(value).__module__ == "builtins":
        return False
    return _fits(value, items[0])


def _kinds(hint: Any) -> Sequence[Any]:
    """Return the members of a union; any other type alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a type, as far as that can be seen without reading it."""
    kinds = _kinds(hint)
    if len(kinds) > 1:
        return any(_fits(value, kind) for kind in kinds)
    origin, items = get_origin(hint), get_args(hint)
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0  # they are counts and batches
    if origin is Literal:
        return isinstance(value, tuple({type(item) for item in items}))  # the function says which values there are
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable):
        if isinstance(value, str | bytes):
            return False
        if issubclass(origin, Mapping):
            is_named = items[:1] == (str,)
            return isinstance(value, Mapping) and not (is_named and any(not isinstance(key, str) for key in value))
        is_many = isinstance(value, Collection) or (isinstance(value, Iterable) and not issubclass(origin, Collection))
        return is_many and (items[0] not in (str, int) or all(_fits(item, items[0]) for item in value))
    if origin is Callable:
        return callable(value)
    if getattr(hint, "__module__", "") == "typing" and isinstance(hint, type):
        return hasattr(value, "close")  # a file
    if getattr(hint, "_is_protocol", False):
        members = [name for name in dir(hint) if not name.startswith("_")]
        # A listener may lack methods that are never called.
        found = [name for name in members if hasattr(value, name)]
        return len(found) * 2 >= len(members) and not isinstance(value, type)
    return not isinstance(hint, type) or is_typeddict(hint) or origin is not None or isinstance(value, hint)


def _describe(hint: Any) -> str:
    """Return a type in words."""
    if hint in _KINDS:
        return _KINDS[hint]
    origin, items = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, items))
    if origin is not None and origin in _KINDS:
        return _KINDS[origin]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dict with texts as keys" if items[:1] == (str,) else "a dict"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        item = {str: "texts", int: "whole numbers"}.get(items[0], f"{getattr(items[0], '__name__', 'values')} objects")
        return f"a list of {item}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"{hint.__name__} ({', '.join(repr(member.value) for member in hint)})"
    if getattr(hint, "_is_protocol", False):
        members = ", ".join(f"{name}()" for name in dir(hint) if not name.startswith("_"))
        return f"an object with {members} ({hint.__name__})"
    name = str(getattr(hint, "__name__", hint))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
