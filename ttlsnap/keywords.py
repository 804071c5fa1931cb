"""The functions of the Python API.

The parameters of most are the fields of a dataclass, which declares and describes each option once.
``inspect.signature``, ``help`` and type checkers see the fields as parameters. Those of base classes are parameters,
too, so functions can share options.

A call checks the types of its arguments, and raises UsageError for a wrong one. In the text of an error, it names
parameters in place of the options of the command line.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ttlsnap.errors import TtlsnapError
from ttlsnap.parameters import convert

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Parameters = ParamSpec("Parameters")
Request = TypeVar("Request")
Result = TypeVar("Result")


def takes(
    request: Callable[Parameters, Request],
) -> Callable[[Callable[[Request], Result]], Callable[Parameters, Result]]:
    """Return a decorator for a function of a ``request``, which is called with the fields of that dataclass.

    A call raises TypeError for other arguments, as that of any function.
    """
    declared = inspect.signature(request)
    hints = cache(partial(_hints_of_class, request))

    def decorate(function: Callable[[Request], Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            bound = _bind(function.__name__, declared, args, kwargs)
            with name_parameters():
                return function(request(**_convert(bound.arguments, hints())))  # type: ignore[call-arg]

        result = inspect.signature(function).return_annotation
        parameters = [one.replace(annotation=_Plain(one.annotation)) for one in declared.parameters.values()]
        signature = declared.replace(parameters=parameters, return_annotation=_Plain(result))
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = "\n\n".join([inspect.getdoc(function) or "", *_describe(request)])
        return call

    return decorate


class _Plain(str):
    """An annotation that ``help`` shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _describe(request: Any) -> Iterator[str]:
    """Yield what a request and its base classes say about their fields."""
    for kind in request.__mro__:
        first, separator, rest = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")
        if vars(kind).get("__annotations__") and separator:
            yield rest if first.startswith("The arguments of ") else f"{first}\n\n{rest}"


def public(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function of the public API whose parameters are its own."""
    declared = inspect.signature(function)
    hints = cache(partial(_resolve, function.__annotations__, function.__globals__))

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        bound = _bind(function.__name__, declared, args, kwargs)
        with name_parameters():
            bound.arguments.update(_convert(bound.arguments, hints()))
            return function(*bound.args, **bound.kwargs)

    return call


def _bind(
    name: str, declared: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        return declared.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


@contextmanager
def name_parameters() -> Iterator[None]:
    """Let an error of the block name parameters in its text, and not options of the command line."""
    try:
        yield
    except TtlsnapError as error:
        error.names_parameters = True
        raise


def _convert(arguments: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    return {name: convert(name, value, hints[name]) if name in hints else value for name, value in arguments.items()}


def _hints_of_class(request: Any) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(request.__mro__):
        hints |= _resolve(vars(base).get("__annotations__", {}), vars(sys.modules[base.__module__]))
    return hints


def _resolve(annotations: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """Return the types of annotations. Those with names that only type checkers import are left out."""
    hints = {}
    for name, annotation in annotations.items():
        with suppress(NameError):
            hints[name] = eval(annotation, names) if isinstance(annotation, str) else annotation
    return hints


def fields_of(request: DataclassInstance, base: type[DataclassInstance]) -> dict[str, Any]:
    """Return the values of the fields that a request has from its ``base`` class."""
    return {field.name: getattr(request, field.name) for field in fields(base)}
