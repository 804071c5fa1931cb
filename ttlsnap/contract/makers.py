"""What Python itself puts into dataclasses, enums, named tuples, protocols and typed dicts.

It differs between versions of Python. It follows from what the user wrote: fields, settings, members and functions.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

_ADDED = {
    "_member_names_": (
        *("_member_map_", "_value2member_map_", "_unhashable_values_map_"),
        *("_hashable_values_", "_unhashable_values_"),
    ),
    "_is_protocol": ("__protocol_attrs__", "__callable_proto_members_only__", "__non_callable_proto_members__"),
    "__total__": ("__mutable_keys__", "__readonly_keys__"),
}
"""The attributes that some versions of Python add to a class that has another attribute."""
_MAKERS = frozenset({"collections", "dataclasses", "enum", "reprlib", "typing"})
_NOT_DUNDER = frozenset({"_make", "_replace", "_asdict", "_generate_next_value_"})
_SETTINGS = {
    # Python 3.12 stores more of them. What those change is in the fields and in other attributes of the class.
    "dataclasses._DataclassParams": ("init", "repr", "eq", "order", "unsafe_hash", "frozen"),
    "dataclasses.Field": (
        *("name", "type", "default", "default_factory", "repr", "hash", "init", "compare", "metadata", "kw_only"),
        "_field_type",
    ),
    "functools.cached_property": ("func",),
    "typing.ForwardRef": ("__forward_arg__",),
}
_OF_A_MEMBER = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})


def members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class that do not follow from others."""
    attributes = vars(kind)
    added = {name for maker, names in _ADDED.items() if maker in attributes for name in names}
    enum_members: Mapping[str, Any] = kind.__members__ if isinstance(kind, enum.EnumMeta) else {}
    for name, member in attributes.items():
        if not (name in added or (name == "__annotations__" and not member) or _is_generated(kind, name, member)):
            yield name, enum_members.get(name, member)


def settings_of(value: Any) -> dict[str, Any] | None:
    """Return what counts of an object of Python's own that describes a part of a class. None for any other object."""
    if isinstance(value, enum.Enum):
        others = {name: inner for name, inner in vars(value).items() if name not in _OF_A_MEMBER}
        return {"name": value._name_, "value": value._value_, **others}
    names = _SETTINGS.get(f"{type(value).__module__}.{type(value).__qualname__}")
    return None if names is None else {name: getattr(value, name) for name in names}


def _is_generated(kind: type, name: str, member: Any) -> bool:
    """Return whether a function of a class comes from one of Python's modules that make classes."""
    if type(member).__name__ == "_tuplegetter":
        return True
    function = inspect.unwrap(getattr(member, "__func__", member))
    if not isinstance(function, types.FunctionType) or not (name.startswith("__") or name in _NOT_DUNDER):
        return False
    if function.__code__.co_filename == "<string>":
        return "__dataclass_fields__" in vars(kind) or "_fields" in vars(kind)
    return function.__globals__.get("__name__") in _MAKERS
