"""Converters: transformers that give the values of a state in the schema of a new query, for ``migrate --to``.

``for_new_query`` marks a function of one entry, ``(key, value) -> value``, with dictionaries. ``ConvertsValues`` is for
whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import USERS_ERRORS, TransformerError
from ttlsnap.quoting import quote
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import StructType
from ttlsnap.transform.protocols import as_dictionaries, describe_failure, require_exact, require_whole
from ttlsnap.user_code import place_of_error

Conversion = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]
_MARK = "__ttlsnap_for_new_query__"
_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_Function = TypeVar("_Function", bound=Conversion)


@runtime_checkable
class ConvertsValues(Protocol):
    """A picklable object that gives values in the schema of a new query. Several threads may use it."""

    def converts(self, state: StateDescriptor, schema: StructType) -> bool:
        """Return whether it gives the values of ``state`` in the new ``schema``.

        Where it does not, ttlsnap finds the change itself.
        """
        ...

    def convert(self, entries: StateEntries, schema: StructType) -> pa.StructArray:
        """Return the new values of all entries, as structs with the fields of ``schema``."""
        ...


def for_new_query(function: _Function) -> _Function:
    """Mark a function that gets the key and the old value of an entry, and returns its new value.

    It gives the values of all states whose values have another schema in the new query.
    """
    setattr(function, _MARK, True)
    return function


def is_for_new_query(function: object) -> bool:
    """Return whether ``for_new_query`` has marked a function."""
    return getattr(function, _MARK, False) is True


@dataclass(frozen=True)
class EntryConverter:
    """The converter that calls a function for every entry; see ``for_new_query``."""

    function: Conversion

    def describe(self) -> str:
        """Return the function's name, with its module."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def converts(self, state: StateDescriptor, schema: StructType) -> bool:
        """See ``ConvertsValues``."""
        return state.value_schema != schema

    def convert(self, entries: StateEntries, schema: StructType) -> pa.StructArray:
        """See ``ConvertsValues``. Raise TransformerError for an error of the function, or a value that does not fit."""
        values = []
        keys, old = as_dictionaries(entries.key_structs), as_dictionaries(entries.value_structs)
        for key, value in zip(keys, old, strict=True):
            try:
                values.append(require_whole(self.function(key, value), schema, "value"))
            except (ValueError, *USERS_ERRORS) as error:
                raise TransformerError(describe_failure(key, error)) from error
        kind = arrow_type(schema)
        try:
            array = pa.array(values, type=kind)
        except _ARROW_ERRORS:
            for key, value in zip(keys, values, strict=True):
                try:
                    pa.array([value], type=kind)
                except _ARROW_ERRORS as error:
                    words = "key " + quote(repr(key)) + f": the new value does not fit {schema.simple_string}: "
                    raise TransformerError(words + quote(error)) from error
            raise
        require_exact(values, array)
        return array


def convert_values(converter: ConvertsValues, entries: StateEntries, schema: StructType) -> pa.StructArray:
    """Return what a converter gives; raise TransformerError if it is not one struct of ``schema`` for each entry."""
    try:
        structs = converter.convert(entries, schema)
    except TransformerError:
        raise
    except USERS_ERRORS as error:
        raise TransformerError(
            f"{entries.state}: {type(error).__name__}{place_of_error(error)}: " + quote(error)
        ) from error
    expected = f"{len(entries)} structs with the fields {', '.join(schema.names)}"
    if not isinstance(structs, pa.StructArray) or len(structs) != len(entries) or structs.null_count:
        raise TransformerError(f"{entries.state}: the converter returned {type(structs).__name__}; return {expected}")
    if [field.name for field in structs.type] != list(schema.names):
        raise TransformerError(f"{entries.state}: the converter returned {structs.type}; return {expected}")
    return structs
