"""The archive of dropped entries, as the command line names it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.cli.output import ask_person
from ttlsnap.user_code import search_in, search_in_current_folder

if TYPE_CHECKING:
    from ttlsnap.archives.places import Confirm
    from ttlsnap.archives.receivers import ExpiredCallback

ArchiveOption = Annotated[
    str | None,
    typer.Option(
        "--expired-to",
        metavar="PLACE",
        help="The archive that earlier runs on this target used. Their entries that are not there yet are added, and "
        "those of a run that is undone are removed. ttlsnap changes no other archive.",
    ),
]


def parse_archive(expired_to: str | None) -> str | ExpiredCallback | None:
    """Return the receiver of ``--expired-to``. Importing a function runs its author's code."""
    from ttlsnap.transformers.registry import is_function, load_callback

    if expired_to is None or not is_function(expired_to):
        return expired_to
    search_in_current_folder()
    return load_callback(expired_to)


def look_beside(policy: str) -> None:
    """Let a policy name modules in its own folder. Installed modules have precedence."""
    search_in(os.path.dirname(policy))  # noqa: PTH120 - as text


def confirm_on_terminal() -> Confirm | None:
    """Return a function that asks a person; None without a terminal."""
    if not sys.stdin.isatty():
        return None
    return ask_person
