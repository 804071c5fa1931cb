"""Digests of Python functions and classes, which show that their code changed.

The syntax tree counts. Comments, docstrings and layout do not. The digest of a function includes everything that it
names: functions and classes of the same project, names of those in libraries, and whole constants. Each method of a
class has its own digest. The code of a constructor, and of a transformWithState processor's ``init``, does not count;
the attributes that it sets do.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import importlib.util
import json
import re
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from ttlsnap.contract.code import DYNAMIC, UNAVAILABLE, closure, constant, find_names, text_of, tree_of
from ttlsnap.contract.declared import Declared
from ttlsnap.contract.makers import members_of, settings_of
from ttlsnap.contract.parts import DigestPart, digest_of

BODY, ATTRIBUTES, NAMES, BASES = "body", "attributes", "names", "bases"
INCOMPLETE = "?"
"""The end of a digest that is not complete: the code names, imports or holds something that was not available."""
_FRAMES = ("builtins", "abc", "typing", "collections", "pyspark", "ttlsnap")
_PLAIN = (str, bytes, bool, int, float, complex, type(None))
# The content of these objects differs between processes, or is not in the process at all.
_OPAQUE = (
    *("random.", "numpy.random.", "secrets.", "os._Environ", "_thread.", "weakref."),
    *("pyspark.core.", "pyspark.context.", "pyspark.sql.session.", "py4j."),
)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_DYNAMIC = frozenset(map(id, DYNAMIC))
# Attributes that Python and libraries generate for a class or a module in each process. Facts in them that count are
# read elsewhere.
_GENERATED = frozenset(
    {
        *("__module__", "__qualname__", "__name__", "__doc__", "__dict__", "__weakref__", "__abstractmethods__"),
        *("_abc_impl", "__slotnames__", "__signature__", "__firstlineno__", "__static_attributes__"),
        *("__annotations_cache__", "__builtins__", "__cached__", "__file__", "__loader__", "__package__", "__path__"),
        *("__spec__", "__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__"),
        *("__pydantic_setattr_handlers__", "__pydantic_complete__"),
    }
)
_MOST = 1_000_000  # parts; an object may create new ones without end
_INSTALLED = frozenset({"site-packages", "dist-packages"})
LIBRARIES = tuple(
    {f"{Path(path).resolve()}/" for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")}
)
_ADDRESS = re.compile(r"\d{9,}")


def digests(subject: Any, declared: Declared | None = None) -> dict[str, str]:
    """Return a digest for each part of a function, a class or an object.

    A function has ``body``. A class has a part for every method and constant, and ``bases`` if it has library classes
    as bases. An object also has ``attributes``. For a processor with its ``declared`` variables, ``attributes`` are
    those after ``init``, without the names of the variables. ``names`` are the same with these names.
    """
    own_packages = _find_own_packages(subject)
    kind = subject if isinstance(subject, type) else type(subject)
    if _is_library(kind.__module__, own_packages):
        return {BODY: _Walk(own_packages).digest(subject)}
    part_digests = {}
    for ancestor in reversed(kind.__mro__):
        if not _is_library(ancestor.__module__, own_packages):
            for name, member in list(members_of(ancestor)):
                in_attributes = (name == "__init__" and kind is not subject) or (
                    name == "init" and declared is not None
                )
                if name not in _GENERATED and not in_attributes:
                    part_digests[name] = _Walk(own_packages).digest(member)
    if bases := _bases(kind, own_packages):
        part_digests[BASES] = _Walk(own_packages).digest(bases)
    if kind is not subject:
        part_digests[ATTRIBUTES] = _Walk(own_packages, True).digest(subject if declared is None else declared.nameless)
    if declared is not None:
        part_digests[NAMES] = _Walk(own_packages, True).digest(declared.named)
    return part_digests


def digest_of_rules(rules: Iterable[object]) -> str:
    """Return one digest for transformers and callbacks: of their code and their options."""
    descriptions = [[type(rule).__qualname__, digests(rule)] for rule in rules]
    return hashlib.sha256(json.dumps(descriptions, sort_keys=True).encode()).hexdigest()


def name_of(subject: Any) -> str:
    """Return the name of a function or a class, or of an object's class."""
    definition = subject if isinstance(subject, types.FunctionType | types.MethodType | type) else type(subject)
    return str(definition.__qualname__).replace("<locals>.", "")


def _bases(kind: type, own_packages: frozenset[str]) -> tuple[type, ...]:
    """Return the library classes from which a class is derived, and its metaclass.

    Classes of ``abc`` and PySpark are left out, because all processors have them.
    """
    library_ancestors = [ancestor for ancestor in kind.__mro__ if _is_library(ancestor.__module__, own_packages)]
    return tuple(
        base
        for base in (*library_ancestors, type(kind))
        if base not in (object, type) and base.__module__.partition(".")[0] not in ("abc", "pyspark")
    )


class _Walk:
    """A walk over everything that a value consists of. ``own`` are the packages of the user.

    ``only_attributes`` leaves out the class of the value, and the order of its attributes.
    """

    def __init__(self, own_packages: frozenset[str], only_attributes: bool = False) -> None:
        self._own_packages = own_packages
        self._only_attributes = only_attributes
        self._values: list[Any] = []  # keeps the values alive, so that Python uses no id twice
        self._numbers: dict[int, int] = {}
        self._tuples: dict[int, tuple[Any, Any]] = {}
        self._first_tuples: dict[Any, Any] = {}
        self._roots: set[str] = set()
        self._unseen = False

    def digest(self, subject: Any) -> str:
        parts = [DigestPart("", [("", self._target(subject))])]
        for value in self._values:  # the loop appends to the list
            if len(parts) > _MOST:
                self._unseen = True
            parts.append(DigestPart("", []) if len(parts) > _MOST else self._part(value))
        self._settle(parts)
        return f"{digest_of(parts)}{INCOMPLETE if self._unseen else ''}"

    def _part(self, value: Any) -> DigestPart:
        kind = type(value)
        contents = list(self._within(value))
        self._unseen |= any(inner is UNAVAILABLE for _, inner in contents)
        # The name of a class of the user's own does not count.
        label = _full_name(kind) if self._is_library(kind) else "own"
        inner = [(name, self._target(inner)) for name, inner in contents if inner is not UNAVAILABLE]
        return DigestPart(label, inner, not issubclass(kind, set | frozenset))

    def _target(self, value: Any) -> int | str:
        """Return a constant as text, and for any other value the number of its part."""
        kind = type(value)
        if kind in _PLAIN:
            return constant(value)
        if issubclass(kind, PurePath) and self._is_library(kind):
            return repr(value)
        if kind is tuple:
            value = self._first(value)
        if id(value) not in self._numbers:
            self._values.append(value)
            self._numbers[id(value)] = len(self._values)
        return self._numbers[id(value)]

    def _first(self, value: tuple[Any, ...]) -> Any:
        """Return one tuple for all equal tuples, because Python itself may merge two equal ones."""
        pending = [value]
        while pending:
            top = pending[-1]
            if inner_tuples := [inner for inner in top if type(inner) is tuple and id(inner) not in self._tuples]:
                pending += inner_tuples
                continue
            inner_values = (self._tuples[id(inner)][1] if type(inner) is tuple else inner for inner in top)
            key = tuple(constant(inner) if type(inner) in _PLAIN else id(inner) for inner in inner_values)
            self._tuples[id(top)] = top, self._first_tuples.setdefault(key, top)
            pending.pop()
        return self._tuples[id(value)][1]

    def _within(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the contents of a value with their names."""
        kind = type(value)
        if not self._is_library(kind):
            yield "class", kind
        if id(value) in _DYNAMIC:
            yield "named", UNAVAILABLE
        elif (settings := settings_of(value)) is not None:
            yield from settings.items()
        elif issubclass(kind, type):
            yield from self._of_class(value)
        elif kind is types.FunctionType:
            yield from self._of_function(value)
        elif issubclass(kind, types.ModuleType):
            yield from self._of_module(value)
        elif kind is types.MethodType:
            yield from (("function", value.__func__), ("self", value.__self__))
        elif issubclass(kind, staticmethod | classmethod):
            yield "function", value.__func__
        elif issubclass(kind, property):
            yield from (("get", value.fget), ("set", value.fset), ("delete", value.fdel))
        elif kind is types.CodeType:
            yield "code", constant(value)
        elif kind in (dict, types.MappingProxyType):
            for key, inner in value.items():
                yield from (("key", key), ("value", inner))
        elif kind in (list, tuple):
            yield from (("", inner) for inner in value)
        elif issubclass(kind, set | frozenset):
            yield from (("", inner) for inner in value)
            yield "state", self._state(value, object.__getstate__(value))
        elif kind not in _DESCRIPTORS and not _full_name(kind).startswith(_OPAQUE):
            yield from self._yield_pickled_state(value)

    def _of_class(self, kind: type) -> Iterator[tuple[str, Any]]:
        if self._is_library(kind):
            yield "name", _full_name(kind)
        elif not (self._only_attributes and kind is type(self._values[0])):
            yield from (("base", base) for base in kind.__bases__)
            members = [(name, member) for name, member in members_of(kind) if name not in _GENERATED]
            # The order of functions changes nothing.
            yield from sorted(members, key=lambda pair: pair[0] if type(pair[1]) is types.FunctionType else "")

    def _of_module(self, module: types.ModuleType) -> Iterator[tuple[str, Any]]:
        if self._is_library(module):
            yield "name", module.__name__
        else:
            self._roots |= _roots(vars(module))
            yield from _by_name((name, value) for name, value in vars(module).items() if name not in _GENERATED)

    def _of_function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield the source of a function, and everything that it names.

        For a library's function, yield its name. If it is a local function, also yield the variables it was made with.
        """
        module = function.__globals__.get("__name__") or function.__module__
        if _is_library(module, self._own_packages):
            yield "name", f"{module}.{function.__code__.co_qualname}"
            if "<locals>" not in function.__code__.co_qualname:
                return
            yield from closure(function)
        else:
            self._roots |= _roots(function.__globals__)
            tree = tree_of(function)
            yield "source", hashlib.sha256(text_of(function, tree).encode()).hexdigest()
            yield from _by_name(find_names(function, tree, lambda name: _is_library(name, self._own_packages)))
        yield "defaults", function.__defaults__
        yield "keywords", function.__kwdefaults__
        yield from _by_name(vars(function).items())

    def _yield_pickled_state(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield what pickle would store of an object. This is everything, because pickle can recreate the object."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced = reduce(value) if reduce else value.__reduce_ex__(4)
            name, parts = (reduced, ()) if isinstance(reduced, str) else ("", tuple(reduced))
        except Exception:  # any class may raise here: the object cannot be pickled
            yield "state", UNAVAILABLE
            name, parts = "", (None, None, getattr(value, "__dict__", None))
        if name and "__wrapped__" in getattr(value, "__dict__", {}):  # a function with functools.lru_cache
            parts = None, None, vars(value)
        elif name:
            yield "name", f"{getattr(value, '__module__', None)}.{name}"
        for part, inner in zip(("by", "arguments", "state", "items", "pairs"), parts, strict=False):
            if part == "state":
                inner = self._state(value, inner)
            if inner is not None:
                yield part, list(inner) if isinstance(inner, Iterator) else inner

    def _state(self, value: Any, state: Any) -> Any:
        """Return an object's attributes, without copied metadata of functions and cached properties."""
        if type(state) is tuple:  # the attributes, and those in slots
            return tuple(self._state(value, inner) for inner in state)
        if type(state) is not dict:
            return state
        skipped = {*functools.WRAPPER_ASSIGNMENTS, *_find_cached_properties(type(value).__mro__)}
        kept = [(name, inner) for name, inner in state.items() if name not in skipped]
        return dict(_by_name(kept) if self._only_attributes and value is self._values[0] else kept) or None

    def _settle(self, parts: list[DigestPart]) -> None:
        """Remove two things from texts: the folders of the user's modules, and addresses in this process."""
        roots = "|".join(re.escape(root) for root in sorted(self._roots, key=len, reverse=True))
        root = re.compile(rf"(?<![\w.-])(?:{roots})(?![\w.-])")
        for part in parts:
            for position, (name, target) in enumerate(part.inner):
                if isinstance(target, str) and not target.isalnum():
                    text = root.sub("\0", target) if roots else target
                    text = _ADDRESS.sub(lambda address: "" if int(address[0]) in self._numbers else address[0], text)
                    part.inner[position] = name, text

    def _is_library(self, subject: Any) -> bool:
        return _is_library(
            subject.__name__ if isinstance(subject, types.ModuleType) else subject.__module__, self._own_packages
        )


def _is_library(module: Any, own_packages: frozenset[str]) -> bool:
    """Return whether a module belongs to Python, or to an installed package that is not the user's own."""
    if not isinstance(module, str):
        return False
    package = module.partition(".")[0]
    if package in own_packages or package in ("", "__main__"):
        return False
    if package in _FRAMES:
        return True
    place = _place(module, package)
    if place is None:
        return package in sys.stdlib_module_names
    path = _resolve(place)
    return path.startswith(LIBRARIES) or not _INSTALLED.isdisjoint(Path(path).parts)


def _place(name: str, package: str) -> str | None:
    """Return the file or folder of a module, or else of the package in which it would be; None if there is neither."""
    for module in filter(None, (sys.modules.get(name), sys.modules.get(package))):
        if place := getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None):
            return str(place)
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None:
        return None
    return spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)


@functools.lru_cache(maxsize=4096)
def _resolve(place: str) -> str:
    return str(Path(place).resolve())


def _find_own_packages(subject: Any) -> frozenset[str]:
    """Return the packages of the code that Spark receives. They are the user's own even if they are installed."""
    pending, packages = [subject], set()
    for value in pending:  # the loop appends to the list
        packages.add(str(getattr(value, "__module__", None) or type(value).__module__).partition(".")[0])
        if isinstance(value, functools.partial):
            pending.append(value.func)
        elif isinstance(value, types.MethodType | types.BuiltinMethodType):
            pending.append(value.__self__)
        elif "__wrapped__" in getattr(value, "__dict__", {}):
            pending.append(value.__wrapped__)
    return frozenset(packages - sys.stdlib_module_names - {*_FRAMES, "numpy", "pandas", "pyarrow"})


def _roots(variables: Mapping[str, Any]) -> set[str]:
    """Return the folder from which a module is imported: its path as given, and with symbolic links resolved."""
    file = variables.get("__file__")
    if not isinstance(file, str):
        return set()
    depth = str(variables.get("__name__")).count(".") + ("__path__" in variables)
    roots = {Path(place).parents[depth] for place in (file, _resolve(file)) if len(Path(place).parents) > depth}
    return {str(root) for root in roots if len(root.parts) > 1}


@functools.lru_cache(maxsize=4096)
def _find_cached_properties(ancestors: tuple[type, ...]) -> frozenset[str]:
    """Return the names of cached properties, which an object stores as attributes after their first use."""
    members = [pair for ancestor in ancestors for pair in vars(ancestor).items()]
    return frozenset(name for name, member in members if isinstance(member, functools.cached_property))


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _by_name(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return sorted(pairs, key=lambda pair: str(pair[0]))


Digests = Mapping[str, Mapping[str, str]]
