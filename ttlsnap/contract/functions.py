"""Digests of Python functions and classes, by which a change of what they do is seen.

What counts is the syntax tree: not comments, docstrings nor layout, which change nothing. A function's digest takes
in what it names: functions and classes of the same project, those of libraries by their names, and constants whole. Of
a class each method has a digest of its own. What a constructor does, and ``init`` of a transformWithState processor, is
seen in the attributes that it leaves.
"""

from __future__ import annotations

import ast
import copyreg
import dis
import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ttlsnap.contract.declared import Declared

BODY, ATTRIBUTES, NAMES = "body", "attributes", "names"
NOT_WHOLE = "?"
"""How a digest ends of what imports a module that was not to be had where the digest was made."""
_NOTHING, _UNSEEN = object(), object()
_FRAMES = ("builtins", "abc", "typing", "collections", "pyspark", "ttlsnap")
_PLAIN = (str, bytes, int, float, complex, type(None))
# What these hold differs from one process to the next, or is not in the process at all.
_OPAQUE = ("random.", "numpy.random.", "secrets.", "pyspark.core.", "pyspark.context.", "pyspark.sql.session.", "py4j.")
_BUILT_IN = ("built-in", "frozen")
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_DEEPEST = 100  # levels of what is within one another; Python itself goes no deeper than some hundred
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
    """Collects what something is made of; ``own`` is the package that is the user's own."""

    def __init__(self, own: str, depth: int = 0) -> None:
        self._own = own
        self._depth = depth
        self._parts: list[str] = []
        self._seen: dict[int, tuple[int, Any]] = {}  # with what is seen, so that no number is given twice
        self._unseen = False

    @property
    def digest(self) -> str:
        digest = hashlib.sha256("\n".join(self._parts).encode()).hexdigest()[:16]
        return f"{digest}{NOT_WHOLE}" if self._unseen else digest

    def add_value(self, name: str, value: Any) -> None:
        """What goes by a name: a constant, a function, a class, an object, or a collection of such."""
        if isinstance(value, _PLAIN):
            self._parts.append(f"{name} = {_plain(value)}")
            return
        if isinstance(value, types.ModuleType):
            return
        if value is _UNSEEN:
            self._parts.append(f"{name} is not here")
            self._unseen = True
            return
        if not isinstance(value, tuple):  # of two that are equal, Python may make one
            if id(value) in self._seen:
                self._parts.append(f"{name} is {self._seen[id(value)][0]}")
                return
            self._seen[id(value)] = (len(self._seen), value)
        if self._depth == _DEEPEST:
            self._parts.append(f"{name}: {type(value).__qualname__}")
            return
        self._depth += 1
        self._add_made(name, value)
        self._depth -= 1

    def _add_made(self, name: str, value: Any) -> None:
        if isinstance(value, types.MethodType):
            self.add_value(name, value.__func__)
            self.add_value(f"{name}.self", value.__self__)
        elif isinstance(value, types.FunctionType | type):
            library = self._is_library(value)
            # The user's own may be called what one likes; one of a library is what its name says.
            self._parts.append(f"{name}: {value.__qualname__ if library else type(value).__name__}")
            if not library and isinstance(value, types.FunctionType):
                self._add_function(value)
            elif not library and isinstance(value, type):
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
        """Its source, and then all that it names; of a decorator's wrapper what it wraps, too."""
        self._parts.append(_source(function))
        for number, value in enumerate(function.__defaults__ or ()):
            self.add_value(f"default {number}", value)
        for name, value in sorted((function.__kwdefaults__ or {}).items()):
            self.add_value(f"default {name}", value)
        for name, value in sorted(_named(function, self._is_library_module), key=lambda pair: pair[0]):
            self.add_value(name, value)

    def _inside(self, value: Any) -> Iterable[tuple[str, Any]]:
        """What a collection or an object consists of."""
        if type(value) in (dict, types.MappingProxyType):
            keyed = [(_plain(key) if isinstance(key, _PLAIN) else self._alone(key), v) for key, v in value.items()]
            return sorted(keyed, key=lambda pair: pair[0])
        if type(value) in (list, tuple):
            return [(str(number), inner) for number, inner in enumerate(value)]
        if type(value) in (set, frozenset):
            return [("element", inner) for inner in sorted(map(self._alone, value))]
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # as functools.lru_cache makes
            return [("wrapped", wrapped)]
        return self._pickled(value)

    def _alone(self, value: Any) -> str:
        """The digest of something by itself, by which what has no order is put into one."""
        walk = _Walk(self._own, self._depth)
        walk.add_value("", value)
        self._unseen |= walk._unseen
        return walk.digest

    def _pickled(self, value: Any) -> Iterable[tuple[str, Any]]:
        """What pickle would keep of an object: it can be made anew from that, so that there is nothing else to it."""
        if f"{type(value).__module__}.".startswith(_OPAQUE) or isinstance(value, _DESCRIPTORS):
            return []
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            made = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:  # it is asked of any class, and means that there is no way
            # A lock, a connection: what of it is not for all to see stays unknown, and never was in a process of Spark.
            return [] if self._is_library(type(value)) else sorted(getattr(value, "__dict__", {}).items())
        if isinstance(made, str):
            return [("name", made)]
        arguments, state, items, pairs = (*made[1:5], None, None, None)[:4]
        if isinstance(state, dict):
            state = {name: inner for name, inner in state.items() if name != "__doc__"}
        return [
            ("arguments", arguments),
            ("state", state),
            ("items", list(items or ())),
            ("pairs", list(pairs or ())),
        ]

    def _is_library(self, subject: Any) -> bool:
        """Whether something belongs to Python or to an installed package that is not the user's own."""
        return self._is_library_module(getattr(subject, "__module__", None) or "")

    def _is_library_module(self, name: str) -> bool:
        package = name.partition(".")[0]
        if package in (self._own, *_FRAMES):
            return package != self._own
        if package in ("", "__main__"):
            return not package
        place = _place(name, package)
        return place in _BUILT_IN or (place is not None and str(Path(place).resolve()).startswith(_LIBRARIES))


def _place(name: str, package: str) -> str | None:
    """The file or folder of a module, or of the package that it would be found in; None if it is nowhere."""
    module = sys.modules.get(name) or sys.modules.get(package)
    if module is not None:
        return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), _BUILT_IN[0])
    spec = importlib.util.find_spec(package)
    return None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _own(subject: Any) -> str:
    """The package that what is given to Spark is of; it may be installed like any other."""
    while isinstance(subject, functools.partial):
        subject = subject.func
    return str(getattr(subject, "__module__", None) or "").partition(".")[0]


def _plain(value: Any) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else repr(value)


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
        return _dump(lambdas[0]) if len(lambdas) == 1 else _code(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _without_docstring(node)
    top = tree.body[0]
    if isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef):
        top.name, top.returns = "", None  # a function may be called what one likes
        top.decorator_list = []
    return _dump(tree)


def _dump(node: Any) -> str:
    """A syntax tree as text, without what is empty: ast.dump writes that in some versions of Python only."""
    if isinstance(node, list):
        return f"[{', '.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [f"{name}={_dump(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({', '.join(fields)})"


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:] or [ast.Pass()]


def _code(code: types.CodeType) -> str:
    inner = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{sys.version_info[:2]} {code.co_code.hex()} {code.co_names} {inner}"


def _named(function: types.FunctionType, is_library: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """The globals, the imports and the closure that a function, or one within it, names."""
    for code in _codes(function.__code__):
        found = [(name, function.__globals__[name]) for name in code.co_names if name in function.__globals__]
        for name, value in (*found, *_imported(code, function.__globals__.get("__package__"), is_library)):
            if isinstance(value, types.ModuleType):
                yield from _of_module((name,), (value,), code.co_names, is_library)
            else:
                yield name, value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _of_module(
    path: tuple[str, ...],
    modules: tuple[types.ModuleType, ...],
    names: Sequence[str],
    is_library: Callable[[str], bool],
) -> Iterator[tuple[str, Any]]:
    """What code with these names may mean of the last module and of those within, which it does not tell apart."""
    if is_library(modules[-1].__name__):
        return
    for name in names:
        value = vars(modules[-1]).get(name, _NOTHING)
        if isinstance(value, types.ModuleType):
            if value not in modules:
                yield from _of_module((*path, name), (*modules, value), names, is_library)
        elif value is not _NOTHING:
            yield ".".join((*path, name)), value


def _imported(
    code: types.CodeType, package: str | None, is_library: Callable[[str], bool]
) -> Iterator[tuple[str, Any]]:
    """The modules of the user's own that code imports when it runs; of one that is not to be had, that it is not."""
    before: list[Any] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level, wanted = before[-2:]
            name = "." * level + step.argval
            try:
                name = importlib.util.resolve_name(name, package)
                if is_library(name):
                    continue
                module = importlib.import_module(name)
                for inner in wanted or ():
                    if not hasattr(module, inner):  # a module that was not loaded yet
                        importlib.import_module(f"{name}.{inner}")
                yield name, module if wanted else sys.modules[name.partition(".")[0]]
            except (Exception, SystemExit):  # a module of the user's own may raise what it likes
                yield name, _UNSEEN
        before.append(step.argval)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


Digests = Mapping[str, Mapping[str, str]]
