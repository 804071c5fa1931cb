"""The help of commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

_WORDS = (
    (r"Input should be a valid integer.*", "it is not a whole number."),
    (r"Input should be a valid number.*", "it is not a number."),
    (r"Input should be greater than or equal to (\S+)", r"it must be at least \1."),
    (r"Input should be less than or equal to (\S+)", r"it must be at most \1."),
    (r"Value error, ", ""),
)
"""Patterns of Typer's messages about the value of an option, and words for people."""


class Commands(TyperGroup):
    """All commands. Their help shows no types of flags."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


class Command(TyperCommand):
    """A command whose help keeps the lines of its epilog, which are examples, and wraps those of its description.

    The help shows the first long name of an option. The others are older names, which work, too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for pattern, words in _WORDS:
                error.message = re.sub(pattern, words, error.message)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # Some versions of Typer join the lines of an epilog, and others do not.
        epilog, self.epilog = self.epilog, None
        names = {parameter: parameter.opts for parameter in self.params}
        for parameter in self.params:
            parameter.opts = _shown_names(parameter.opts)
        try:
            super().format_help(ctx, formatter)
        finally:
            self.epilog = epilog
            for parameter, all_names in names.items():
                parameter.opts = all_names
        if epilog is not None:
            text = Text(epilog.strip())
            text.highlight_regex(r"(?m)^[A-Z][^:\n]*:", "bold")
            text.highlight_regex(r"(?m)^ +#.*$", "dim")
            Console(highlight=False).print(Padding(text, (0, 1, 1, 1)))


def _without_types(parameters: Iterable[Any]) -> list[Any]:
    """Return parameters whose help does not have ``<bool>`` after a flag, which takes no value."""
    parameters = list(parameters)
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _shown_names(names: Sequence[str]) -> list[str]:
    """Return the names of a parameter without those after its first long name, except short ones."""
    long_names = [name for name in names if name.startswith("--")]
    return [name for name in names if name not in long_names[1:]]
