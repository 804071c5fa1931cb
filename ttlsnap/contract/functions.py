"""Digests of Python functions and classes, by which a change of what they do is seen.

What counts is the syntax tree: not comments, docstrings nor layout, which change nothing, and not the version of
Python. A function's digest takes in the functions, classes and plain constants of the same project that it names. Of
a class each method has a digest of its own. What a constructor does, and ``init`` of a transformWithState processor, is
seen in the attributes that it leaves.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ttlsnap.contract.declared import Declared

BODY, ATTRIBUTES, NAMES = "body", "attributes", "names"
_NOTHING = object()
_FRAMES = ("builtins", "abc", "typing", "collections", "pyspark", "ttlsnap")
_PLAIN = (str, bytes, int, float, bool, type(None))
_LIBRARIES = tuple(
    {
        str(Path(path).resolve())
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "purelib", "platlib")
    }
)


def digests(subject: Any, declared: Declared | None = None) -> dict[str, str]:
    """A digest of each part: ``body`` of a function, every method and constant of a class, ``attributes`` of an object.

    Of a processor with what it has ``declared``, ``attributes`` are those after ``init`` but for the names of its
    state variables; ``names`` takes these in.
    """
    if isinstance(subject, types.FunctionType | types.MethodType | functools.partial):
        return {BODY: _digest(subject, _own(subject))}
    kind = subject if isinstance(subject, type) else type(subject)
    own = _own(kind)
    found = {}
    for ancestor in reversed(kind.__mro__):
        if _is_frame(ancestor):
            continue
        for name, member in vars(ancestor).items():
            if (name == "__init__" and kind is not subject) or (name == "init" and declared is not None):
                continue
            if not (name.startswith("__") and name.endswith("__")) or isinstance(member, types.FunctionType):
                found[name] = _digest(member, own)
    if kind is not subject:
        found[ATTRIBUTES] = _attributes(subject if declared is None else declared.nameless, own)
    if declared is not None:
        found[NAMES] = _attributes(declared.named, own)
    return found


def _attributes(subject: Any, own: str) -> str:
    walk = _Walk(own)
    for name, value in sorted(getattr(subject, "__dict__", {}).items()):
        walk.add_value(name, value)
    return walk.digest


def name_of(subject: Any) -> str:
    """What a function or a class is called."""
    named = subject if isinstance(subject, types.FunctionType | types.MethodType | type) else type(subject)
    return str(named.__qualname__).replace("<locals>.", "")


def _digest(subject: Any, own: str) -> str:
    walk = _Walk(own)
    walk.add_value("", subject)
    return walk.digest


class _Walk:
    """Collects what something is made of, as far as it is of the user's own; ``own`` is the package that is."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._parts: list[str] = []
        self._seen: dict[int, Any] = {}  # with what is seen, so that no number is given twice

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self._parts).encode()).hexdigest()[:16]

    def add_value(self, name: str, value: Any) -> None:
        """What goes by a name: a constant, something of the user's own, or a collection of such."""
        if isinstance(value, _PLAIN):
            self._parts.append(f"{name} = {value!r}")
            return
        if isinstance(value, types.ModuleType) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, types.MethodType):
            self.add_value(name, value.__func__)
            self.add_value(f"{name}.self", value.__self__)
        elif isinstance(value, types.FunctionType):
            if not self._is_library(value):
                self._parts.append(name)
                self._add_function(value)
        elif isinstance(value, type):
            if not self._is_library(value):
                self._parts.append(name)
                self._add_class(value)
        elif isinstance(value, staticmethod | classmethod):
            self.add_value(name, value.__func__)
        elif isinstance(value, property):
            for part, function in (("get", value.fget), ("set", value.fset), ("delete", value.fdel)):
                if function is not None:
                    self.add_value(f"{name}.{part}", function)
        elif isinstance(value, functools.partial):
            self._parts.append(f"{name}: partial")
            for part, inner in (("function", value.func), ("args", value.args), ("keywords", value.keywords)):
                self.add_value(f"{name}.{part}", inner)
        else:
            self._parts.append(f"{name}: {type(value).__qualname__}")
            if not self._is_library(type(value)):
                self.add_value(f"{name}.class", type(value))
            for key, inner in self._inside(value):
                self.add_value(f"{name}.{key}", inner)

    def _add_class(self, kind: type) -> None:
        for ancestor in kind.__mro__:
            if not self._is_library(ancestor):
                for name, member in sorted(vars(ancestor).items()):
                    if not (name.startswith("__") and name.endswith("__")) or isinstance(member, types.FunctionType):
                        self.add_value(name, member)

    def _add_function(self, function: types.FunctionType) -> None:
        """Its source, and then all it names that is of the user's own; of a decorator's wrapper what it wraps, too."""
        self._parts.append(_source(function))
        for number, value in enumerate(function.__defaults__ or ()):
            self.add_value(f"default {number}", value)
        for name, value in sorted((function.__kwdefaults__ or {}).items()):
            self.add_value(f"default {name}", value)
        for name, value in sorted(_named(function, self._is_library_module), key=lambda pair: pair[0]):
            self.add_value(name, value)

    def _inside(self, value: Any) -> list[tuple[str, Any]]:
        """What a collection or an object of the user's own consists of; of others only the type stays the same."""
        if isinstance(value, Mapping):
            pairs = [(repr(key), inner) for key, inner in value.items() if isinstance(key, _PLAIN)]
            return sorted(pairs, key=lambda pair: pair[0])
        if isinstance(value, list | tuple):
            return [(str(number), inner) for number, inner in enumerate(value)]
        if isinstance(value, set | frozenset):
            plain = sorted((inner for inner in value if isinstance(inner, _PLAIN)), key=repr)
            return [(str(number), inner) for number, inner in enumerate(plain)]
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # as functools.lru_cache makes
            return [("wrapped", wrapped)]
        if self._is_library(type(value)):
            return []
        return sorted(getattr(value, "__dict__", {}).items())

    def _is_library(self, subject: Any) -> bool:
        """Whether something belongs to Python or to an installed package that is not the user's own."""
        return self._is_library_module(getattr(subject, "__module__", None) or "")

    def _is_library_module(self, name: str) -> bool:
        package = name.partition(".")[0]
        if package in (self._own, *_FRAMES):
            return package != self._own
        path = getattr(sys.modules.get(name), "__file__", None)
        if path is None:
            return name != "__main__"
        return str(Path(path).resolve()).startswith(_LIBRARIES)


def _own(subject: Any) -> str:
    """The package that what is given to Spark is of; it may be installed like any other."""
    while isinstance(subject, functools.partial):
        subject = subject.func
    return str(getattr(subject, "__module__", None) or "").partition(".")[0]


def _is_frame(ancestor: type) -> bool:
    """Whether a class is Python's or Spark's, and not the user's."""
    return (ancestor.__module__ or "").partition(".")[0] in _FRAMES


def _source(function: types.FunctionType) -> str:
    """The syntax tree of a function; of one whose source is not to be had, its byte code."""
    try:
        # Of the code itself: of a function that is wrapped, inspect would give the wrapped one's.
        text = textwrap.dedent(inspect.getsource(function.__code__))
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


def _named(function: types.FunctionType, is_library: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """The globals and the closure that a function, or one within it, names."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            value = function.__globals__.get(name, _NOTHING)
            if isinstance(value, types.ModuleType) and not is_library(value.__name__):
                # Which of these names is meant of the module, its code does not tell apart.
                yield from ((f"{name}.{inner}", vars(value)[inner]) for inner in code.co_names if inner in vars(value))
            elif value is not _NOTHING:
                yield name, value
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


Digests = Mapping[str, Mapping[str, str]]
