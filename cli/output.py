"""The output of results: JSON documents and tables.

Everything that people read passes through this module, which makes names harmless (``ttlsnap.printable``).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from ttlsnap.amounts import MISSING as MISSING
from ttlsnap.amounts import number as number
from ttlsnap.amounts import share as share
from ttlsnap.amounts import size as size
from ttlsnap.cli.tabular import TextTable
from ttlsnap.errors import StorageError, TtlsnapError
from ttlsnap.naming import without_policy
from ttlsnap.printable import printable, printable_json, printable_output
from ttlsnap.whole_files import is_special as is_special
from ttlsnap.whole_files import write_whole as write_whole


@dataclass
class Verbosity:
    """The amount of output: ``quiet`` only errors, warnings, questions and JSON; ``verbose`` also the plan.

    ``keys`` also the keys of a policy, which stand in messages beside the options of the command line.
    """

    quiet: bool = False
    verbose: bool = False
    keys: bool = False


verbosity = Verbosity()


class OutputError(StorageError):
    """The standard output cannot be written."""


class StandardOutput(io.TextIOWrapper):
    """The standard output of the process, which raises OutputError if it cannot be written, as on a full disk."""

    @classmethod
    def of(cls, stream: io.TextIOWrapper) -> StandardOutput:
        """Return the output in place of ``stream``, which cannot be used any more."""
        encoding, line_buffering, write_through = stream.encoding, stream.line_buffering, stream.write_through
        # A path may have bytes that are not text, which Python holds as surrogates. JSON escapes these in the same way.
        return cls(
            stream.detach(), encoding, "backslashreplace", line_buffering=line_buffering, write_through=write_through
        )

    def write(self, text: str) -> int:
        """See ``io.TextIOWrapper``."""
        with self._errors():
            return super().write(text)

    def flush(self) -> None:
        """See ``io.TextIOWrapper``."""
        with self._errors():
            super().flush()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise  # the reader has enough
        except OSError as error:
            raise OutputError(f"cannot write to the standard output: {error.strerror or error}") from error


def say(line: str) -> None:
    """Print a line for people on stdout."""
    if not verbosity.quiet:
        typer.echo(printable_output(printable(line)))


def tell(text: str) -> None:
    """Print a text on stderr, if that can be written."""
    with suppress(OSError):
        typer.echo(printable_output(text), err=True)


def ask_person(question: str, *, stopped: bool = True) -> bool:
    """Return whether a person on the terminal agrees. Unless the query is ``stopped``, tell them to stop it."""
    if not stopped:
        question += " Stop the query first."
    return typer.confirm(printable_output(question), err=True)


def print_json(document: Any) -> None:
    """Print one document on stdout."""
    # Characters that stdout cannot encode are escaped as in JSON.
    only_ascii = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(printable_json(json.dumps(document, indent=2, ensure_ascii=only_ascii)) + "\n")


def print_error(error: TtlsnapError, target: str | None = None) -> None:
    """Print an error on stderr with the advice of its kind, and the name of its ``target`` if there are several."""
    text = name_target(error.text, target) + (f"\n{error.advice}" if error.advice else "")
    print_marked("Error:", "bold red", text)


def print_warning(text: str, target: str | None = None) -> None:
    """Print a warning on stderr, with the name of its ``target`` if there are several."""
    print_marked("Warning:", "yellow", name_target(text, target))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on stderr."""
    for warning in warnings:
        print_warning(warning)


class WarningPrinter:
    """Prints the warnings about one target, each of them once: before the question that it informs, or at the end.

    The target is named if it is one of several.
    """

    def __init__(self, target: str | None = None) -> None:
        self._target = target
        self._printed: set[str] = set()

    def print(self, warnings: Iterable[str]) -> None:
        """Print those of the warnings that were not printed yet."""
        for warning in warnings:
            if warning not in self._printed:
                self._printed.add(warning)
                print_warning(warning, self._target)


def print_marked(mark: str, style: str, text: str) -> None:
    """Print a message on stderr, if that can be written. Only its mark has a colour."""
    text = text if verbosity.keys else without_policy(text)
    with suppress(OSError):
        console(stderr=True).print(Text.assemble((mark, style), " ", printable_output(text)))


def name_target(text: str, target: str | None) -> str:
    """Return a message that begins with the target's name, unless it does already or has no target."""
    if target is None:
        return text
    from ttlsnap.storage.open import open_directory

    root = open_directory(target).root
    return text if text.startswith((f"{target}:", f"{root}:", f"{root} ", f"{root}/")) else f"{target}: {text}"


class HarmlessConsole(Console):
    """A console that makes names harmless. A ``str`` is one line, and a ``Text`` may have several."""

    def print(self, *objects: Any, **options: Any) -> None:
        """See ``Console.print``."""
        if self.file.isatty():
            objects = tuple(_fit(each, self.width) for each in objects)
        super().print(*map(_make_harmless, objects), **options)


def _fit(renderable: Any, width: int) -> Any:
    """Return a table or a sentence that fits a terminal. A line with a command or JSON stays whole, to be copied."""
    if isinstance(renderable, TextTable):
        return renderable.fitted(width)
    if not isinstance(renderable, str) and not (isinstance(renderable, Text) and not renderable.spans):
        return renderable
    line = str(renderable)
    if len(line) <= width or width < _NARROWEST or any(mark in line for mark in ("ttlsnap ", "{", "\n")):
        return renderable
    indent = " " * (len(line) - len(line.lstrip()))
    lines = wrap(printable(line.strip()), width, initial_indent=indent, subsequent_indent=indent + "  ", **_AT_SPACES)
    style = renderable.style if isinstance(renderable, Text) else ""
    return Text("\n".join(lines), style)


_NARROWEST = 60
"""The width below which sentences stay as they are."""

_AT_SPACES: Any = {"break_long_words": False, "break_on_hyphens": False}


def _make_harmless(renderable: Any) -> Any:
    if isinstance(renderable, TextTable):
        renderable = renderable.__rich__()
    text = (
        printable(renderable)
        if isinstance(renderable, str)
        else renderable.plain
        if isinstance(renderable, Text)
        else None
    )
    if text is None:
        return renderable
    harmless_text = printable_output(text)
    return renderable if isinstance(renderable, Text) and harmless_text == text else Text(harmless_text)


def console(*, stderr: bool = False, always: bool = False) -> HarmlessConsole:
    """Return a console that interprets no markup and folds no paths. It is wide if it is not a terminal.

    With ``--quiet`` it prints nothing, except with ``stderr`` or ``always``.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    quiet = verbosity.quiet and not stderr and not always
    return HarmlessConsole(
        quiet=quiet, file=stream, highlight=False, markup=False, soft_wrap=True, emoji=False, width=width
    )


def table(*columns: str, right: tuple[str, ...] = (), spare: tuple[str, ...] = (), indent: str = "") -> TextTable:
    """Return an empty table with these columns, those in ``right`` aligned to the right.

    A narrow terminal gets it without those in ``spare``.
    """
    return TextTable(columns, right, spare, indent)


def place(target: str) -> str:
    """Return a path relative to the current folder if it is within; other paths and URIs stay as they are."""
    try:
        return target.removeprefix(f"{Path.cwd()}{os.sep}")
    except FileNotFoundError:  # somebody has removed the current folder
        return target
