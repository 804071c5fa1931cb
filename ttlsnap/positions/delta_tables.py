"""Which versions a Delta table still has, for the query that reads it. Only its log is read.

A query reads the changes of a version from the commit of it, which Delta removes after a while. Before that, a new
query reads the whole table as of a version.

Source: Delta's ``DeltaSource`` and ``DeltaSourceOffset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from urllib.parse import unquote

from ttlsnap.clock import to_micros
from ttlsnap.delta.log import (
    TableState,
    added_files,
    first_commit,
    first_since,
    first_whole,
    live_files,
    open_table,
    read_table,
)
from ttlsnap.errors import NotACheckpointError, UsageError
from ttlsnap.positions.kinds import BASES_OF_DELTA, find_kind, require_source
from ttlsnap.positions.report import TableVersions
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.types import TimestampType
from ttlsnap.storage.uris import split_uri


@dataclass(frozen=True)
class SourceTable:
    """A Delta table at ``path``.

    first           the first version whose changes it still has
    first_whole     the oldest version that can still be read as a whole
    """

    path: str
    state: TableState
    first: int
    first_whole: int

    @property
    def id(self) -> str:
        return self.state.metadata.id

    @property
    def newest(self) -> int:
        return self.state.version

    def versions(self, position: Mapping[str, Any]) -> TableVersions:
        """Return which versions the log has after a position."""
        version, is_new_table = position["reservoirVersion"], position["reservoirId"] != self.id
        is_begun = position["index"] not in BASES_OF_DELTA
        start, end = self.first, self.newest if is_begun else self.newest + 1
        if position["isStartingVersion"]:
            start, end = self.first_whole, self.newest
        is_lost = is_new_table or not start <= version <= end
        return TableVersions(
            path=self.path,
            id=self.id,
            first=self.first,
            newest=self.newest,
            behind=None if is_lost else self.newest - version + (not is_begun),
            is_lost=is_lost,
            lost_file=None,
        )

    def look(self, position: Mapping[str, Any]) -> TableVersions:
        """Return what ``versions`` does, after a look at the data files that are to be read after the position."""
        found = self.versions(position)
        return found if found.is_lost else replace(found, lost_file=self._find_lost_file(position))

    def _find_lost_file(self, position: Mapping[str, Any]) -> str | None:
        """Return a data file that is to be read after a position and does not exist; None if there is none.

        Only files in the folder of the table are looked for.
        """
        files, version = open_table(self.path), position["reservoirVersion"]
        if position["isStartingVersion"]:
            # Spark numbers them in this order (``DeltaSourceSnapshot``).
            live = sorted(live_files(files, version), key=lambda file: (file.modified_ms, file.path))
            paths = [file.path for file in live]
        else:
            paths = list(added_files(files, version)) if version <= self.newest else []
        unread = paths[max(position["index"] + 1, 0) :]
        later = chain.from_iterable(added_files(files, number) for number in range(version + 1, self.newest + 1))
        own = (unquote(path) for path in chain(unread, later) if not path.startswith("/") and not split_uri(path)[0])
        return next((path for path in own if files.stat(path) is None), None)

    def require(self, name: str, position: Mapping[str, Any]) -> None:
        """Raise UsageError for a position that the table does not have any more, or not yet, or not at all."""
        if position["reservoirId"] != self.id:
            raise UsageError(f"source {name}: the id of {self.path} is {self.id}, and not {position['reservoirId']}")
        found = self.look(position)
        if found.lost_file is not None:
            raise UsageError(
                f"source {name}: {self.path} has lost {found.lost_file}, which would be read after this position. "
                "VACUUM removes such files"
            )
        if found.is_lost:
            has = self.describe()
            if position["isStartingVersion"]:
                has = f"{self.path} can be read as a whole as of the versions {self.first_whole} to {self.newest}"
            raise UsageError(f"source {name}: {has}, and not of {position['reservoirVersion']}")

    def version_since(self, name: str, wanted: str) -> int:
        """Return the first version since a time in ISO 8601. Raise UsageError if an earlier one may be removed."""
        moment = parse_literal(wanted, TimestampType(), "--to", assume_utc=True)
        version = first_since(open_table(self.path), self.state, self.first, to_micros(moment) // 1000)
        if version == self.first > 0:
            raise UsageError(
                f"source {name}: {self.describe()}, and not of all since {wanted}. Give a later time, or the number of "
                f"a version: {self.first} is the first one"
            )
        return version

    def describe(self) -> str:
        """Return which versions it has, in words."""
        if self.first > self.newest:
            return f"{self.path} has the changes of no version, and is at version {self.newest}"
        return f"{self.path} has the changes of the versions {self.first} to {self.newest}"


def open_tables(tables: Mapping[str, str] | None, positions: Mapping[str, Any]) -> dict[str, SourceTable]:
    """Return the tables of sources, whose paths are given by the names of the sources. ``positions`` are all of theirs.

    Raise UsageError for a source that does not exist or reads no table, and for a folder that is not a table.
    """
    return {name: _open(name, path, positions) for name, path in (tables or {}).items()}


def _open(name: str, path: str, positions: Mapping[str, Any]) -> SourceTable:
    require_source(name, positions)
    if find_kind(positions[name]) != "delta":
        raise UsageError(f"--table {name}={path}: source {name} does not read a Delta table")
    files = open_table(path)
    try:
        state = read_table(files)
    except NotACheckpointError as error:
        raise UsageError(f"--table {name}={path}: {error}") from error
    first = first_commit(files, state.version)
    return SourceTable(files.root, state, first, first_whole(files, first))


def resolve_version(name: str, before: Mapping[str, Any], wanted: Any, table: SourceTable | None) -> Any:
    """Return the position of a source of Delta for a number of a version, a time, ``earliest`` or ``latest``.

    A number is the first version that is read. ``earliest`` is the whole table, as a new query reads it, and ``latest``
    only what comes later. Other positions are returned as they are.
    """
    if isinstance(wanted, str) and table is None:
        raise UsageError(
            f"source {name}: --to {wanted} needs --table {name}=PATH. Without it, give the number of a version"
        )
    if not isinstance(wanted, str | int) or isinstance(wanted, bool):
        return wanted
    version = wanted
    if isinstance(wanted, str):
        assert table is not None
        ends = {"earliest": table.newest, "latest": table.newest + 1}
        version = ends[wanted] if wanted in ends else table.version_since(name, wanted)
    # Each version of the offsets has its own number for a version that is not read at all.
    base = BASES_OF_DELTA[0] if before["sourceVersion"] == 1 else BASES_OF_DELTA[1]
    changed = {"reservoirVersion": version, "index": base, "isStartingVersion": wanted == "earliest"}
    return {**before, **changed, "reservoirId": before["reservoirId"] if table is None else table.id}
