"""Printing results: JSON documents and tables."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ttlsnap.errors import StorageError, TtlsnapError

MISSING = "-"


def print_json(document: Any) -> None:
    """One document on stdout."""
    # What stdout cannot say has to be escaped as JSON does it.
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=plain) + "\n")


def print_error(error: TtlsnapError, target: str | None = None) -> None:
    """What went wrong, on stderr, with the advice of its kind; of one ``target`` among several, with its name."""
    typer.echo(f"Error: {named(str(error), target)}" + (f"\n{error.advice}" if error.advice else ""), err=True)


def print_warning(text: str, target: str | None = None) -> None:
    """Print a warning on stderr; of one ``target`` among several, with its name."""
    typer.echo(f"Warning: {named(text, target)}", err=True)


def named(text: str, target: str | None) -> str:
    """Return a message that begins with the target's name; as it is if it does already, or has no target."""
    if target is None:
        return text
    from ttlsnap.filesystem import open_directory

    root = open_directory(target).root
    return text if text.startswith((f"{target}:", f"{root}:", f"{root} ", f"{root}/")) else f"{target}: {text}"


def console(*, stderr: bool = False) -> Console:
    """A console that neither guesses at markup nor folds paths; as wide as it takes when it is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    return Console(file=stream, highlight=False, markup=False, soft_wrap=True, emoji=False, width=width)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table with these columns, those in ``right`` aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=column in right)
    return made


def place(target: str) -> str:
    """A path for people: from the current folder on, if it is within; a URI and any other as it is."""
    return target.removeprefix(f"{Path.cwd()}{os.sep}")


def number(value: int | None) -> str:
    """``1,234,567``; a dash for what is not known."""
    return MISSING if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes for people: ``512 B``, ``3.4 MB``."""
    if value is None:
        return MISSING
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and rename it there; a pipe or a terminal is written to as it is."""
    from ttlsnap.filesystem import scratch_name

    try:
        path = path.resolve()
        if is_special(path):
            path.write_bytes(data)
            return
        scratch = path.with_name(scratch_name(path.name))
        try:
            with scratch.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except BaseException:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def is_special(path: Path) -> bool:
    """Whether there is something that is no file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False
