"""Other names for the sources of a query: in the offset log, and for their folders.

With source evolution (from Spark 4.2 on), each source has a name, by which Spark finds its offset and its folder. A
source with another name is a new one, and Spark reads its input from the beginning. Without source evolution, a source
has only a number. Spark 4.3 refuses to give names to the sources of a checkpoint that has none.

The names are in all retained entries of the offset log, so that ``rewind`` finds them, too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from functools import cached_property
from typing import BinaryIO

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.checkpoint.logs import (
    SOURCE_EVOLUTION,
    batch_start,
    named_offsets,
    named_positions,
    with_source_names,
)
from ttlsnap.checkpoint.source_logs import log_number
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.positions.file_logs import FileLogs
from ttlsnap.positions.kinds import find_kind, require_source
from ttlsnap.positions.report import NewName
from ttlsnap.storage.directory import Directory, FileInfo, each
from ttlsnap.storage.open import for_reading

_MOST = 200  # the names of files are limited, too
_NAME = re.compile(f"[A-Za-z0-9_]{{1,{_MOST}}}")


class RenamedSources:
    """The sources of a checkpoint with their ``names``: the new name of each source by its old name or number."""

    def __init__(self, checkpoint: Checkpoint, names: Mapping[str, str]) -> None:
        """Raise UsageError for names that Spark would not take, and RefusedError if a folder cannot be renamed."""
        self._files, self._batch = for_reading(checkpoint.files), checkpoint.batch.id
        self._entries = checkpoint.logs.offsets
        self._positions = named_positions(self._files, self._batch)
        for name in names:
            require_source(name, self._positions)
        self.names = {name: names.get(name, name) for name in self._positions} if names else {}
        self._had_names = checkpoint.batch.conf.get(SOURCE_EVOLUTION, "false").lower() == "true"
        self._was_numbered = checkpoint.batch.log_version == 1
        self.have_names = _require_new(self.names, had_names=self._had_names and not self._was_numbered)
        if names and not self._was_numbered:
            self._require_unused()
        self._folders = self._find_folders() if names else {}
        self._moved = {folder: new for folder, new in self._folders.items() if folder != new}
        self._listed = {folder: self._list(folder) for folder in {*self._moved, *self._moved.values()}}
        is_renamed = bool(self._moved) or any(old != new for old, new in self.names.items())
        self.is_change = is_renamed or (bool(names) and self._was_numbered and self.have_names)

    def _require_unused(self) -> None:
        """Raise UsageError if retained batches have another source, and it or all sources would have wrong names."""
        for number in self._entries:
            gone = named_offsets(self._files, number).keys() - self.names.keys()
            if used := sorted(gone & set(self.names.values())):
                raise UsageError(
                    f"another source had the name {used[0]} in batch {number}, which is still retained. Choose another "
                    "name"
                )
            if gone and not self.have_names:
                raise UsageError(
                    f"batch {number}, which is still retained, has another source, {min(gone)}. Its number would be "
                    "that of a source that the query has now. Let the query run until this batch is not retained"
                )

    def _find_folders(self) -> dict[str, str]:
        """Return the new name of each folder that a source has, by its old one."""
        listed = {info.name: info for info in self._files.list(layout.SOURCES)}
        for new in self.names.values():
            if new in listed and not listed[new].is_dir:
                raise RefusedError(
                    f"{self._files.root}/{layout.SOURCES}/{new} is not a folder, so no source can have this name. "
                    "Nothing was changed. Remove the file"
                )
        present = {name for name, info in listed.items() if info.is_dir}
        if not self._was_numbered:
            return {old: new for old, new in self.names.items() if old in present}
        logs = FileLogs(self._files, self._batch)
        if not logs.are_separate:
            raise RefusedError(
                f"{self._files.root}: the query uses a source twice, and Spark takes each name only once. Nothing was "
                "changed"
            )
        owners = {old: logs.find(old) if old in logs.positions else old for old in self.names}
        # Spark 4.2 has folders with names also if the offset log has none. Nothing shows which other source has which.
        unclear = present - set(owners.values()) if self._had_names else set[str]()
        folders = {}
        for old, new in self.names.items():
            owner = owners[old]
            if owner is None or (owner not in present and unclear):
                owner = new if new in unclear else None
            if owner is None:
                raise UsageError(
                    f"source {old}: nothing shows which of the folders in {layout.SOURCES} it has. First give the "
                    "sources the names that they have"
                )
            if owner != new and owner in self.names.values() and owner in present:
                raise UsageError(f"source {old} cannot get the name {new}: {layout.SOURCES}/{owner} is its folder")
            if owner in present:
                folders[owner] = new
        return folders

    def _list(self, folder: str) -> dict[str, FileInfo]:
        path = f"{layout.SOURCES}/{folder}"
        infos = {info.name: info for info in self._files.list(path)}
        for name, info in infos.items():
            if not _is_of_log(name) and (info.is_dir or not _is_temporary(name)):
                raise UnsupportedError(
                    f"{self._files.root}/{path}/{name} has no form that is known, so the source cannot get another "
                    "name. Nothing was changed. If the file is not Spark's, move it to another place"
                )
        return infos

    @cached_property
    def documents(self) -> dict[str, bytes]:
        """The entries of the offset log with the new names, by their paths."""
        if not self.is_change:
            return {}
        texts = each(self._files, lambda number: batch_start(self._files, number).text, self._entries)
        return {
            layout.offset_file(number): self.rename(text).encode()
            for number, text in zip(self._entries, texts, strict=True)
        }

    def rename(self, text: str) -> str:
        """Return an entry of the offset log with the new names."""
        return with_source_names(text, self.names, have_names=self.have_names)

    @property
    def set_aside(self) -> list[str]:
        """The files in the old folders, and those that a source without a position has left in the new ones."""
        folders = dict.fromkeys([*self._moved, *self._moved.values()])
        # Spark fails on a stale checksum, also if its file is missing.
        paths = (
            f"{layout.SOURCES}/{folder}/{name}"
            for folder in folders
            for name in filter(_is_of_log, self._listed[folder])
        )
        return sorted(paths, key=lambda path: not path.endswith(".crc"))

    @property
    def kept(self) -> list[str]:
        """The other files in these folders, which Spark had not finished when it ended."""
        folders = [*self._moved, *self._moved.values()]
        return [
            f"{layout.SOURCES}/{one}/{name}" for one in folders for name in self._listed[one] if not _is_of_log(name)
        ]

    @cached_property
    def copies(self) -> dict[str, str]:
        """The files of the folders, by their paths under the new names."""
        return {
            f"{layout.SOURCES}/{new}/{name}": f"{layout.SOURCES}/{folder}/{name}"
            for folder, new in self._moved.items()
            for name in self._logs_in(folder)
        }

    def write(self, target: str, file: BinaryIO) -> None:
        """Write what the file with this new path has. Raise CorruptionError if its checksum differs."""
        with open_checked(self._files, self.copies[target]) as old:
            shutil.copyfileobj(old, file)

    def _logs_in(self, folder: str) -> list[str]:
        return [name for name in self._listed[folder] if log_number(name) is not None]

    def find_changed(self, files: Directory) -> str | None:
        """Return the path of a folder that has changed since it was listed; None if there is none."""
        for folder, listed in self._listed.items():
            if {info.name: info for info in files.list(f"{layout.SOURCES}/{folder}")} != listed:
                return f"{layout.SOURCES}/{folder}"
        return None

    @property
    def report(self) -> tuple[NewName, ...]:
        """The old and the new name and folder of each source."""
        folders = {new: folder for folder, new in self._folders.items()}
        return tuple(
            NewName(
                name=old,
                new_name=new,
                kind=find_kind(self._positions[old]),
                position=self._positions[old],
                folder=f"{layout.SOURCES}/{folders[new]}" if new in folders else None,
                new_folder=f"{layout.SOURCES}/{new}" if new in folders else None,
            )
            for old, new in (self.names.items() if self.is_change else ())
        )


def _is_of_log(name: str) -> bool:
    """Return whether a file is one of the log of a source, or the checksum of one."""
    return log_number(layout.strip_checksum(name)) is not None


def _is_temporary(name: str) -> bool:
    """Return whether a file is one that Spark had not finished when it ended."""
    return name.startswith(".") and name.endswith(".tmp")


def _require_new(names: Mapping[str, str], *, had_names: bool) -> bool:
    """Return whether the sources have names, and not numbers. Raise UsageError for what Spark would not take."""
    for old, new in names.items():
        if _NAME.fullmatch(new) is None:
            raise UsageError(
                f"source {old} cannot have the name {new[:80]}: Spark allows letters, digits and underscores, and "
                f"ttlsnap {_MOST} of them"
            )
    if len(set(names.values())) < len(names):
        raise UsageError("two sources would have the same name")
    all_numbers = {str(number) for number in range(len(names))}
    if had_names and names.keys() & all_numbers:
        raise UsageError("a source has a number as its name, so nothing shows which sources have none")
    # A name such as 2025 is one if the source has it already.
    numbers = [
        new for old, new in names.items() if layout.parse_number(new) is not None and not (had_names and old == new)
    ]
    if not numbers:
        return True
    if len(numbers) < len(names):
        unnamed = ", ".join(old for old, new in names.items() if new in numbers)
        named = ", ".join(old for old, new in names.items() if new not in numbers)
        raise UsageError(
            f"all sources of a query have names, or none has one. Without one would be: {unnamed}. With one: {named}"
        )
    if set(numbers) != all_numbers:
        raise UsageError(
            "a name must not be a number. To take the names away, give the sources their numbers from 0 to "
            f"{len(names) - 1}"
        )
    return False
