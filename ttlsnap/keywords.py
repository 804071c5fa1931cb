"""Functions whose parameters are the fields of a dataclass, which declares each option once.

``inspect.signature``, ``help`` and type checkers see the fields as parameters. Those of base classes are parameters,
too, so functions can share options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

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

    def decorate(function: Callable[[Request], Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                declared.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(request(*args, **kwargs))

        result = inspect.signature(function).return_annotation
        call.__signature__ = declared.replace(return_annotation=result)  # type: ignore[attr-defined]
        return call

    return decorate


def fields_of(request: DataclassInstance, base: type[DataclassInstance]) -> dict[str, Any]:
    """Return the values of the fields that a request has from its ``base`` class."""
    return {field.name: getattr(request, field.name) for field in fields(base)}
