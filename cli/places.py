"""Where dropped entries go, as the command line names it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from ttlsnap.expired.places import Confirm
    from ttlsnap.expired.receivers import ExpiredCallback

ArchiveOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--expired-to",
        metavar="PLACE",
        help="The place that runs on this target got with --expired-to. What waits for it is delivered there, and what "
        "a rolled back run put there is taken back. Other places that the target names are left alone.",
    ),
]


def place_given(expired_to: str | None) -> str | ExpiredCallback | None:
    """Return what ``--expired-to`` means; importing a function runs its author's code."""
    from ttlsnap.transformers.registry import is_function, load_callback

    if expired_to is None or not is_function(expired_to):
        return expired_to
    look_in_current_folder()
    return load_callback(expired_to)


def look_in_current_folder() -> None:
    """Let ``module:attribute`` name a module in the current folder.

    What is installed comes first, since that folder may be the checkpoint itself, whose files are never run.
    """
    sys.path.append(os.getcwd())  # noqa: PTH109 - sys.path takes text


def confirm_on_terminal() -> Confirm | None:
    """Return what asks a person; None if there is no terminal."""
    if not sys.stdin.isatty():
        return None
    return lambda question: typer.confirm(question, err=True)
