"""The pages of ``--report html=FILE``: where they may be, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ttlsnap.cli.output import is_special, write_whole
from ttlsnap.errors import UsageError
from ttlsnap.versions import VERSION

HTML = "html"
_PANEL = "Pages"
_STATE = ("offsets", "commits", "state", "_delta_log")

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
            help="Also write the result as a page for a browser, in one file that needs no network.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    show_keys: ShowKeysOption = False

    def parse(self, targets: Iterable[str], output: str | None = None) -> list[PageFile]:
        """Return the files of the pages, before anything is done. ``output`` is that of the command.

        Raise UsageError for another kind of report, and for a file that cannot be written or replaced.
        """
        files = []
        for text in self.report or ():
            kind, _, name = text.partition("=")
            if kind != HTML or name in ("", "-"):
                raise UsageError(f"--report is html=FILE, not {text!r}; a page is the only report of this command")
            files.append(Path(name))
        return check_pages(files, self.show_keys, targets, output)


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
    files: Sequence[Path], show_keys: bool, targets: Iterable[str], output: str | None = None
) -> list[PageFile]:
    """Return these files as pages. Raise UsageError for one that cannot be written or replaced."""
    from ttlsnap.extras import require_package

    if not files:
        if show_keys:
            raise UsageError("--show-keys is for a page; add --report html=FILE")
        return []
    require_package("jinja2")
    targets = list(targets)
    for path in files:
        require_place(path, f"--report html={path}")
        require_outside(path, f"--report html={path}", targets, output)
        _require_replaceable(path)
        if [other_path.resolve() for other_path in files].count(path.resolve()) > 1:
            raise UsageError(f"--report html={path} is given twice")
    return [PageFile(path, show_keys, tuple(targets)) for path in files]


def write_pages(files: Iterable[PageFile], command: str, document: Any) -> None:
    """Write the pages of a command's JSON document; see ``PageFile.write``."""
    for file in files:
        file.write(command, document)


def require_place(path: Path, option: str) -> None:
    """Raise UsageError if a path cannot be a file, or is in a folder that does not exist."""
    try:
        is_folder = path.is_dir()
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise UsageError(f"{option}: this cannot be a file: {error}") from error
    if is_folder:
        raise UsageError(f"{option}: {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: there is no folder {path.parent}; make it first")


def require_outside(path: Path, option: str, targets: Iterable[str] = (), output: str | None = None) -> None:
    """Raise UsageError if a file would be in a checkpoint or a table, also in a damaged target or in ``output``."""
    from ttlsnap.checkpoint.recognize import find_owner
    from ttlsnap.storage.open import open_local
    from ttlsnap.storage.uris import is_local

    place, owner = path.resolve(), find_owner(path)
    enclosing_target = None if owner is None else str(owner)
    for target in filter(is_local, targets):
        root = Path(open_local(target).root)
        if place.is_relative_to(root) and any((root / name).is_dir() for name in _STATE):
            enclosing_target = target
    if output is not None and is_local(output) and place.is_relative_to(Path(open_local(output).root).resolve()):
        enclosing_target = output
    if enclosing_target is not None:
        raise UsageError(f"{option} is inside {enclosing_target}, whose files ttlsnap must not mix with others")


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
