"""Find the file and the line of a finding, if a contract is a file: the line that names the place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ttlsnap.check.findings import CheckReport
from ttlsnap.entries.place import Place

# Larger ones are named without a line; a contract of a hundred operators has a hundredth of that.
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class ContractFile:
    """A contract below the root of the repository: its path from there, and its lines."""

    path: str
    lines: tuple[str, ...]

    def line(self, place: Place) -> int:
        """Return the line (from 1) that names the place, or the longest part of it.

        `ttlsnap contract` indents by two, so depth tells an operator's key from a store's without parsing; a file that
        was formatted in another way gives line 1.
        """
        number = 0
        for depth, wanted_lines in _steps(place):
            next_number = self._find(number, depth, wanted_lines)
            if next_number is None:
                break
            number = next_number
        return number or 1

    def _find(self, start: int, depth: int, wanted_lines: tuple[str, ...]) -> int | None:
        """Return the number of the next line that is one of ``wanted_lines`` and has that indent.

        Only the block that began before ``start`` is searched.
        """
        outer = _depth(self.lines[start - 1]) if start else 0
        for number, line in enumerate(self.lines[start:], start + 1):
            if start and _depth(line) < outer:
                return None
            if _depth(line) == depth and line.strip().rstrip(",") in wanted_lines:
                return number
        return None


def contract_file(report: CheckReport) -> ContractFile | None:
    """Return the new contract, or else the old one, if it is a file in the repository, which a reviewer can open."""
    root = _root()
    for name in (report.new, report.old):
        path = Path(name)
        try:
            if not path.is_file() or not path.resolve().is_relative_to(root):
                continue
            is_small = path.stat().st_size <= _MAX_BYTES
            lines = path.read_text(errors="replace").splitlines() if is_small else []
        except (OSError, ValueError):
            continue
        return ContractFile(path.resolve().relative_to(root).as_posix(), tuple(lines))
    return None


def _root() -> Path:
    """Return the folder in which the build server has the repository, or else the current one."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        if folder := os.environ.get(name):
            return Path(folder).resolve()
    return Path.cwd().resolve()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _steps(place: Place) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Return the indent and the text of the line of each part of a place."""
    if place.operator is None:
        return
    yield 6, (f'"id": {place.operator}',)
    for depth, name in ((10, place.store), (14, place.state)):
        if name is None:
            return
        yield depth, (_name_pair(name),)
    side, _, name = (place.field or "").partition(".")
    if side in ("key", "value"):
        yield 14, (f'"{side}": [',)
        # A field's name may have a dot in it, or be followed by those of fields within it.
        yield 18, (_name_pair(name), _name_pair(name.partition(".")[0]))


def _name_pair(name: str) -> str:
    return f'"name": {json.dumps(name, ensure_ascii=False)}'
