"""Groups of options: dataclasses whose fields are options of the command line.

A command takes each group as one parameter. ``separate`` gives Typer the options of the groups instead, so that each
option is declared only once, with its name, its default and its help. If a group has a ``PANEL``, help shows all of its
options there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from typer.models import OptionInfo

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def separate(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with a parameter for each option of its groups."""
    groups: dict[str, type[DataclassInstance]] = {}
    single: list[str] = []
    parameters: list[Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint) and isinstance(hint, type):
            groups[parameter.name] = hint
            parameters += _parameters(hint)
        else:
            single.append(parameter.name)
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        group_values = {
            name: group(**{field.name: values[field.name] for field in fields(group)}) for name, group in groups.items()
        }
        command(**{name: values[name] for name in single}, **group_values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _parameters(group: type[DataclassInstance]) -> list[Parameter]:
    hints, panel = get_type_hints(group, include_extras=True), getattr(group, "PANEL", None)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name] if panel is None else _in_panel(hints[field.name], panel),
        )
        for field in fields(group)
    ]


def _in_panel(hint: Any, panel: str) -> Any:
    """Return the annotation of an option that help shows in another panel."""
    kind, declared_option = get_args(hint)
    option = copy(declared_option)
    option.rich_help_panel = panel
    return Annotated[kind, option]


def values_of(group: DataclassInstance, *names: str) -> dict[str, Any]:
    """Return the values of a group by the names of its options, as ``--ttl``. ``names`` choose some of its fields."""
    options = _options(type(group))
    return {options[name]: getattr(group, name) for name in names or options}


def given(group: DataclassInstance, *names: str) -> list[str]:
    """Return the options of a group that have another value than the default. ``names`` choose some of its fields."""
    defaults = values_of(type(group)(), *names)
    return [option for option, value in values_of(group, *names).items() if value != defaults[option]]


@cache
def _options(group: type[DataclassInstance]) -> dict[str, str]:
    """Return the name of the option of each field."""
    hints = get_type_hints(group, include_extras=True)
    # In an annotation, the first argument of Option is a name, and not the default.
    return {
        field.name: next(str(part.default) for part in get_args(hints[field.name]) if isinstance(part, OptionInfo))
        for field in fields(group)
    }
