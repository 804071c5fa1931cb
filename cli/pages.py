"""The pages of ``--report html=FILE``: where they may be, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ttlsnap.cli.output import is_special, write_whole
from ttlsnap.cli.written_files import Output, require_files
from ttlsnap.errors import UsageError
from ttlsnap.versions import VERSION

HTML = "html"
_PANEL = "Pages"

ShowKeysOption = Annotated[
    bool,
    typer.Option(
        "--show-keys",
        help="Show keys and values of entries on the page, and texts that may quote them. Default: leave them out.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class PageOptions:
    """The pages that a command writes beside its result."""

    report: Annotated[
        list[str] | None,
        typer.Option(
            "--report",
            metavar="html=FILE",
            help="Also write the result as a page for a browser, in one file that needs no network. Needs the extra "
            "html.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    show_keys: ShowKeysOption = False

    def parse(
        self,
        targets: Iterable[str],
        output: str | None = None,
        *,
        others: Iterable[Output] = (),
        inputs: Iterable[str] = (),
    ) -> list[PageFile]:
        """Return the files of the pages, before anything is done. The other arguments are those of ``check_pages``.

        Raise UsageError for another kind of report, and for a file that cannot be written or replaced.
        """
        files = []
        for text in self.report or ():
            kind, _, name = text.partition("=")
            if kind != HTML or name in ("", "-"):
                raise UsageError(f"--report is html=FILE, not {text!r}; a page is the only report of this command")
            files.append(Path(name))
        return check_pages(files, self.show_keys, targets, output, others=others, inputs=inputs)


@dataclass(frozen=True)
class PageFile:
    """The file of a page. ``show_keys`` is whether it shows keys and values of the entries of ``targets``."""

    path: Path
    show_keys: bool
    targets: tuple[str, ...]

    def write(self, command: str, document: Any) -> None:
        """Write the page of a command's JSON document, completely or not at all.

        Raise UsageError if the file has become another one than a page of ttlsnap, and StorageError if it cannot be
        written.
        """
        from datetime import UTC, datetime

        from ttlsnap.pages.render import render

        page = render(command, document, show_keys=self.show_keys, version=VERSION, at=datetime.now(UTC))
        _require_replaceable(self.path)
        write_whole(self.path, page, self.targets if self.show_keys else ())


def check_pages(
    pages: Sequence[Path],
    show_keys: bool,
    targets: Iterable[str],
    output: str | None = None,
    *,
    others: Iterable[Output] = (),
    inputs: Iterable[str] = (),
) -> list[PageFile]:
    """Return these files as pages. Raise UsageError for one that cannot be written or replaced.

    ``others`` are the other files that the command writes. They are checked in the same way; see ``require_files``.
    """
    from ttlsnap.extras import require_package

    if not pages and show_keys:
        raise UsageError("--show-keys is for a page; add --report html=FILE")
    if pages:
        require_package("jinja2")
    targets = list(targets)
    require_files([*others, *((f"--report html={path}", path) for path in pages)], inputs, targets, output)
    for path in pages:
        _require_replaceable(path)
    return [PageFile(path, show_keys, tuple(targets)) for path in pages]


def write_pages(files: Iterable[PageFile], command: str, document: Any) -> None:
    """Write the pages of a command's JSON document; see ``PageFile.write``."""
    for file in files:
        file.write(command, document)


def _require_replaceable(path: Path) -> None:
    """Raise UsageError if a file exists that is not a page of ttlsnap."""
    from ttlsnap.pages.render import MARK

    if not path.exists() or is_special(path):
        return
    try:
        with path.open("rb") as file:
            is_page = file.read(len(MARK)) == MARK
    except OSError as error:
        raise UsageError(f"--report html={path}: the file exists and cannot be read: {error.strerror}") from error
    if not is_page:
        raise UsageError(
            f"--report html={path}: the file exists and is not a page of ttlsnap. Name another file, or remove it"
        )
