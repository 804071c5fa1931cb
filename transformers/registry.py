"""The search for transformers by name, and the creation of their factories from ``--set`` options.

    name               in the entry-point group ``ttlsnap.transformers``
    module:attribute   anything importable

Both lead to a factory object, a class with ``from_options(dict)`` or without arguments, or a function of
``(key, value)`` that returns ``Keep``, ``Drop`` or ``Replace``. ``for_new_query`` functions, and classes with
``convert``, give values in the schema of a new query.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ttlsnap.archives.receivers import TABLE, ExpiredCallback
from ttlsnap.errors import USERS_ERRORS, UsageError
from ttlsnap.suggestions import did_you_mean
from ttlsnap.transform.converters import ConvertsValues, EntryConverter, is_for_new_query
from ttlsnap.transform.protocols import CollectionStrategy, EntryTransformerFactory, StateSnapshotTransformerFactory
from ttlsnap.user_code import import_named

GROUP = "ttlsnap.transformers"


@dataclass(frozen=True)
class TransformerInfo:
    """An installed transformer, as ``ttlsnap transformers`` lists it."""

    name: str
    location: str
    summary: str
    options: str


def list_installed() -> list[TransformerInfo]:
    """Return the transformers in the entry-point group, by name; one that cannot be loaded says so."""
    return [
        _info(entry_point)
        for entry_point in sorted(entry_points(group=GROUP), key=lambda entry_point: entry_point.name)
    ]


def _info(entry_point: EntryPoint) -> TransformerInfo:
    try:
        loaded = entry_point.load()
    except Exception as error:  # somebody else's package
        return TransformerInfo(entry_point.name, entry_point.value, f"cannot be loaded: {error}", "")
    from_options = getattr(loaded, "from_options", None)
    return TransformerInfo(entry_point.name, entry_point.value, _first_line(loaded), _first_line(from_options))


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0] if documented is not None else ""


def load_factory(name: str, options: dict[str, str]) -> StateSnapshotTransformerFactory:
    """Return the factory ``name`` with its options; see ``load_transformer``.

    Raise UsageError also for what gives values for a new query.
    """
    transformer = load_transformer(name, options)
    if isinstance(transformer, ConvertsValues):
        raise UsageError(f"{name} gives values for a new query; use it with ttlsnap migrate --to")
    return transformer


def load_transformer(name: str, options: dict[str, str]) -> StateSnapshotTransformerFactory | ConvertsValues:
    """Return the factory or converter ``name`` with its options. Importing it runs its author's code.

    Raise UsageError if it cannot be found or loaded, or does not accept the options.
    """
    loaded = _load(name)
    if hasattr(loaded, "from_options"):
        return _check(name, _make(name, options, lambda: loaded.from_options(dict(options))))
    is_function = callable(loaded) and not inspect.isclass(loaded) and not _is_factory(loaded)
    unknown = sorted(options.keys() - ({"strategy"} if is_function else set()))
    if unknown and is_function:
        raise UsageError(
            f"transformer {name!r} is a function, whose only option is strategy ({' or '.join(CollectionStrategy)}), "
            f"not {', '.join(unknown)}. A factory with from_options takes others"
        )
    if unknown:
        raise UsageError(f"transformer {name!r} takes no options: it has no from_options")
    if inspect.isclass(loaded):
        return _check(name, _make(name, options, loaded))
    if _is_factory(loaded):
        return _check(name, loaded)
    if is_function and is_for_new_query(loaded):
        return EntryConverter(loaded)
    if is_function:
        strategy = options.get("strategy", CollectionStrategy.TRANSFORM_ALL)
        return EntryTransformerFactory(loaded, CollectionStrategy.parse(strategy))
    raise UsageError(f"{name!r} is {type(loaded).__name__}, not a factory, class or function")


def _load(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            named_entry_points = [entry_point for entry_point in entry_points(group=GROUP) if entry_point.name == name]
            if not named_entry_points:
                names = sorted(entry_point.name for entry_point in entry_points(group=GROUP))
                hint = f"{did_you_mean(name, names)}; installed: {', '.join(names)}; or give module:attribute"
                raise UsageError(f"there is no transformer {name!r}{hint}")
            return named_entry_points[0].load()
        return _import(module, attribute)
    except UsageError:
        raise
    except USERS_ERRORS as error:  # its author's code runs here
        raise UsageError(f"transformer {name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def _import(module: str, attribute: str) -> Any:
    value: Any = import_named(module)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value


def load_callback(name: str) -> ExpiredCallback:
    """Return the function ``module:attribute``, which will be called with dropped entries.

    Importing it runs its author's code. Raise UsageError if it cannot be loaded.
    """
    module, _, attribute = name.partition(":")
    try:
        function = _import(module, attribute)
    except USERS_ERRORS as error:  # its author's code runs here
        raise UsageError(f"the function {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UsageError(f"{name!r} is {type(function).__name__}, which cannot be called")
    return ExpiredCallback(name, function)


def is_function(text: str) -> bool:
    """Return whether ``text`` is ``module:function``, and not a path, a URI or a Delta table."""
    if text.startswith(TABLE):
        return False
    module, colon, attribute = text.partition(":")
    words = (*module.split("."), *attribute.split("."))
    is_path = os.path.exists(text)  # noqa: PTH110 - also for a text that is too long for a path
    return bool(colon) and all(word.isidentifier() for word in words) and not is_path


def _make(name: str, options: dict[str, str], make: Callable[[], Any]) -> Any:
    try:
        return make()
    except UsageError:
        raise
    except USERS_ERRORS as error:
        options_text = " ".join(f"--set {key}=..." for key in options) or "no --set"  # values may be secrets
        raise UsageError(
            f"transformer {name!r} cannot be made with {options_text}: {type(error).__name__}: {error}"
        ) from error


def _check(name: str, factory: Any) -> StateSnapshotTransformerFactory | ConvertsValues:
    if not _is_factory(factory):
        raise UsageError(f"{name!r} gives {type(factory).__name__}, which has no create(state, clock)")
    checked: StateSnapshotTransformerFactory | ConvertsValues = factory
    return checked


def _is_factory(candidate: object) -> bool:
    return hasattr(candidate, "create") or isinstance(candidate, ConvertsValues)
