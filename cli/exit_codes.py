"""The exit codes of dry runs: with ``--exit-code``, those of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from ttlsnap.errors import Foreseen, UsageError

ExitCodeOption = Annotated[
    bool,
    typer.Option(
        "--exit-code",
        help="With a dry run: end with the exit code that a run without a terminal would have, such as 4 if it "
        "would be refused.",
    ),
]


def require_dry_run(*, wanted: bool, dry_run: bool, options: str = "--dry-run") -> None:
    """Raise UsageError if ``--exit-code`` is given without a dry run, which one of ``options`` asks for."""
    if wanted and not dry_run:
        raise UsageError(f"--exit-code needs {options}. A run always ends with its exit code")


def code_of_run(warnings: Iterable[str]) -> int:
    """Return the exit code of a run, if its dry run has these ``warnings``."""
    kind = Foreseen.first_in(warnings)
    return 0 if kind is None else kind.exit_code


def end_as_run(warnings: Iterable[str]) -> None:
    """End the command as a run would, if its dry run has these ``warnings``."""
    if code := code_of_run(warnings):
        raise typer.Exit(code)
