"""Digests of Python functions and classes, by which a change of what they do is seen.

What counts is the syntax tree: not comments, docstrings nor layout, which change nothing, and not the version of
Python. A function's digest takes in the functions, classes and plain constants of the same project that it names. Of
a class each method has a digest of its own. What a constructor does, and ``init`` of a transformWithState processor, is
seen in the attributes that it leaves.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import sysconfig
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ttlsnap.contract.declared import Declared

BODY, ATTRIBUTES, NAMES = "body", "attributes", "names"
_PLAIN = (str, bytes, int, float, bool, type(None))
_LIBRARIES = tuple(
    {
        str(Path(path).resolve())
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "purelib", "platlib")
    }
)


def digests(subject: Any, declared: Declared | None = None) -> dict[str, str]:
    """A digest of each part: ``body`` of a function, every method of a class, ``attributes`` of an object.

    Of a processor with what it has ``declared``, ``attributes`` are those after ``init`` but for the names of its
    state variables; ``names`` takes these in.
    """
    if isinstance(subject, types.FunctionType | types.MethodType):
        return {BODY: _digest(subject)}
    kind = subject if isinstance(subject, type) else type(subject)
    found = {}
    for ancestor in reversed(kind.__mro__):
        if not _is_library(ancestor):
            for name, member in vars(ancestor).items():
                if (name == "__init__" and kind is not subject) or (name == "init" and declared is not None):
                    continue
                function = inspect.unwrap(getattr(member, "__func__", member))
                if isinstance(function, types.FunctionType):
                    found[name] = _digest(function)
    if kind is not subject:
        found[ATTRIBUTES] = _attributes(subject if declared is None else declared.nameless)
    if declared is not None:
        found[NAMES] = _attributes(declared.named)
    return found


def _attributes(subject: Any) -> str:
    parts: list[str] = []
    for name, value in sorted(getattr(subject, "__dict__", {}).items()):
        _add_value(name, value, parts, set())
    return _hash(parts)


def name_of(subject: Any) -> str:
    """What a function or a class is called."""
    named = subject if isinstance(subject, types.FunctionType | types.MethodType | type) else type(subject)
    return str(named.__qualname__).replace("<locals>.", "")


def _digest(function: Any) -> str:
    parts: list[str] = []
    _add(function, parts, set())
    return _hash(parts)


def _add(subject: Any, parts: list[str], seen: set[int]) -> None:
    """What ``subject`` is, and then all it names that is of the user's own."""
    subject = inspect.unwrap(subject) if callable(subject) else subject
    if id(subject) in seen:
        return
    seen.add(id(subject))
    if isinstance(subject, types.MethodType):
        subject = subject.__func__
    if isinstance(subject, type):
        for name, member in sorted(vars(subject).items()):
            if isinstance(member, types.FunctionType | staticmethod | classmethod):
                parts.append(name)
                _add(getattr(member, "__func__", member), parts, seen)
        return
    if not isinstance(subject, types.FunctionType):
        return
    parts.append(_source(subject))
    for number, value in enumerate(subject.__defaults__ or ()):
        _add_value(f"default {number}", value, parts, seen)
    for name, value in sorted(_named(subject), key=lambda pair: pair[0]):
        _add_value(name, value, parts, seen)


def _add_value(name: str, value: Any, parts: list[str], seen: set[int]) -> None:
    """What goes by a name in a function: a constant, something of the user's own, or a collection of such."""
    if isinstance(value, _PLAIN):
        parts.append(f"{name} = {value!r}")
    elif isinstance(value, types.FunctionType | types.MethodType | type):
        if not _is_library(value):
            parts.append(name)
            _add(value, parts, seen)
    elif isinstance(value, types.ModuleType):
        return
    elif id(value) not in seen:
        seen.add(id(value))
        parts.append(f"{name}: {type(value).__qualname__}")
        for key, inner in _inside(value):
            _add_value(f"{name}.{key}", inner, parts, seen)


def _inside(value: Any) -> list[tuple[str, Any]]:
    """What a collection or an object of the user's own consists of; of others only the type stays the same."""
    if isinstance(value, Mapping):
        pairs = [(repr(key), inner) for key, inner in value.items() if isinstance(key, _PLAIN)]
        return sorted(pairs, key=lambda pair: pair[0])
    if isinstance(value, list | tuple):
        return [(str(number), inner) for number, inner in enumerate(value)]
    if isinstance(value, set | frozenset):
        return [(str(n), inner) for n, inner in enumerate(sorted(v for v in value if isinstance(v, str)))]
    if _is_library(type(value)):
        return []
    return sorted(getattr(value, "__dict__", {}).items())


def _source(function: types.FunctionType) -> str:
    """The syntax tree of a function; of one whose source is not to be had, its byte code."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        # A lambda in the middle of an expression, or what was made without a file.
        return _code(function.__code__)
    if function.__name__ == "<lambda>":
        lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        return ast.dump(lambdas[0]) if len(lambdas) == 1 else _code(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _without_docstring(node)
    top = tree.body[0]
    if isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef):
        top.name, top.returns = "", None  # a function may be called what one likes
        top.decorator_list = []
    return ast.dump(tree)


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:] or [ast.Pass()]


def _code(code: types.CodeType) -> str:
    inner = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{sys.version_info[:2]} {code.co_code.hex()} {code.co_names} {inner}"


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals and the closure that a function, or one within it, names."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_library(subject: Any) -> bool:
    """Whether something belongs to Python or to an installed package."""
    module = sys.modules.get(getattr(subject, "__module__", ""))
    path = getattr(module, "__file__", None)
    if path is None:
        return getattr(subject, "__module__", None) != "__main__"
    return str(Path(path).resolve()).startswith(_LIBRARIES)


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


Digests = Mapping[str, Mapping[str, str]]
