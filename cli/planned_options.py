"""The options of a migration in its plan, so that ``--apply`` needs no other option."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Group = TypeVar("Group", bound=DataclassInstance)

_PATHS = ("to", "old", "output", "expired_to")
_ELSEWHERE = re.compile(r"[a-z0-9+]{2,}:", re.IGNORECASE)


def record_options(groups: Sequence[DataclassInstance]) -> dict[str, Any]:
    """Return the options of ``groups`` that do not have their defaults, as JSON. Local paths become absolute."""
    return {
        field.name: make_absolute(value) if field.name in _PATHS else value
        for group in groups
        for field in fields(group)
        if (value := getattr(group, field.name)) != field.default
    }


def require_known(recorded: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise UsageError if a plan has an option that ``record_options`` does not record, such as ``stopped``."""
    if unknown := sorted(recorded.keys() - set(names)):
        raise UsageError(
            f"the options in the plan cannot be read: a plan cannot have {', '.join(unknown)[:200]}. Make a new plan "
            "with --plan-out"
        )


def restore_options(group: Group, recorded: Mapping[str, Any]) -> Group:
    """Return the group with the values that ``record_options`` has recorded. Raise UsageError for other values."""
    hints = get_type_hints(type(group))
    values = {field.name: recorded[field.name] for field in fields(group) if field.name in recorded}
    try:
        return replace(group, **{name: _parse(hints[name], value) for name, value in values.items()})
    except (TypeError, ValueError) as error:
        raise UsageError(f"the options in the plan cannot be read: {error}. Make a new plan with --plan-out") from error


def make_absolute(path: str) -> str:
    """Return a local path as an absolute one, so that it means the same in another folder. URIs and functions stay."""
    from ttlsnap.transformers.registry import is_function

    kind = "delta:" if path.startswith("delta:") else ""
    place = path.removeprefix(kind)
    return path if is_function(path) or _ELSEWHERE.match(place) else f"{kind}{os.path.abspath(place)}"  # noqa: PTH100


def _parse(hint: Any, value: Any) -> Any:
    """Return a value of JSON as the type of an option. Raise TypeError or ValueError if it has another type."""
    kinds = get_args(hint) or (hint,)
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return kind(value)
        if kind == list[str] or kind == list[int]:
            (item,) = get_args(kind)
            if isinstance(value, list) and all(isinstance(part, item) for part in value):
                return value
        elif isinstance(kind, type) and isinstance(value, kind):
            return value
    raise TypeError(f"{value!r} is not {hint}")
