"""The receivers of dropped entries: a folder, a Delta table, or a function that is called with each entry."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.archives.writing import SCHEMA, SUFFIX
from ttlsnap.checkpoint.outside import access_outside, folder_access, limit
from ttlsnap.clock import FIRST_US, LAST_US
from ttlsnap.errors import CorruptionError, RefusedError, StorageError, TransformerError, TtlsnapError, UsageError
from ttlsnap.extras import require_package
from ttlsnap.quoting import quote
from ttlsnap.storage.access import PRIVATE_FOLDER, Access, umask
from ttlsnap.storage.directory import SCRATCH, Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.new_access import access_of_new
from ttlsnap.storage.open import open_directory
from ttlsnap.storage.uris import is_local, is_within

if TYPE_CHECKING:
    from deltalake import DeltaTable

TABLE = "delta:"
"""The beginning of a path that names a Delta table."""

_COLUMNS = {
    "run": "string",
    "operator": "integer",
    "store": "string",
    "state": "string",
    "partition": "integer",
    "key": "string",
    "value": "string",
    "timestamp": "timestamp",
}
_MAKING = threading.RLock()  # several targets may use one table at the same time
_FACTS = ("run", "operator", "store", "state", "partition", "timestamp")
_LOG = "_delta_log"
_PIECE = 8 << 20


class Receiver(Protocol):
    """A receiver of the dropped entries of runs. Reports have its ``name``, by which later runs recognize it."""

    @property
    def name(self) -> str: ...

    def check(self, *, make: bool, source: Directory | None = None) -> None:
        """Raise UsageError or StorageError if it cannot receive entries. With ``make``, create it if it is missing.

        A new one is not more readable than ``source``.
        """

    def take(self, files: Directory, paths: Sequence[str], run: str) -> None:
        """Take a run's files. A repetition after a crash does only what is left."""

    def require(self) -> None:
        """Raise RefusedError if its entries of the run could not be removed."""

    def take_back(self, run: str) -> None:
        """Remove the entries of a rolled back run."""


class Folder:
    """A folder of Parquet files. Their names begin with the run's id, so a repeated move gives the same files."""

    def __init__(self, path: str) -> None:
        self._folder = open_directory(path)
        self.name = self._folder.root

    def check(self, *, make: bool, source: Directory | None = None) -> None:
        info = self._folder.stat("")
        if info is not None and not info.is_dir:
            raise UsageError(
                f"{self.name} is not a folder; ttlsnap writes dropped entries to Parquet files in a folder"
            )
        _require_place(self.name)
        if make and info is None:
            _make_folder(self._folder, source)

    def take(self, files: Directory, paths: Sequence[str], run: str) -> None:
        self.check(make=True, source=files)
        for path in paths:
            name = f"{run}-{path.rpartition('/')[2]}"
            hidden_name = f".{name}{SCRATCH}"  # Spark ignores names that begin with a dot
            with files.open(path) as source_file, self._folder.writer(hidden_name) as target_file:
                shutil.copyfileobj(source_file, target_file, _PIECE)
            access = files.effective_access(path)
            self._folder.set_access(hidden_name, access_outside([]) if access is None else limit(access))
            if self._folder.stat(name) is not None and not self._are_same(hidden_name, name):
                self._folder.remove(hidden_name)
                raise StorageError(
                    f"{self.name}/{name} already exists, with other entries. Move that file away, or choose another "
                    "place"
                )
            self._folder.rename(hidden_name, name, overwrite=True)  # the same entries
            self._folder.sync("")
            files.remove(path)

    def _are_same(self, first_name: str, second_name: str) -> bool:
        with self._folder.open(first_name) as first_file, self._folder.open(second_name) as second_file:
            while piece := first_file.read(_PIECE):
                if piece != second_file.read(_PIECE):
                    return False
            return not second_file.read(1)

    def require(self) -> None:
        _require_there(self._folder, self.name)

    def take_back(self, run: str) -> None:
        for info in self._folder.list("", (SUFFIX,)):
            if info.name.startswith(f"{run}-"):
                self._folder.remove(info.name)
        for info in self._folder.list("", (SCRATCH,)):
            if info.name.startswith(f".{run}-"):
                self._folder.remove(info.name)


class Table:
    """A Delta table: each run is one commit, and its transaction identifier shows that it exists already.

    It is written without Spark, so that every engine can do it.
    """

    def __init__(self, path: str) -> None:
        require_package("deltalake")
        self._folder = open_directory(path)
        self.name = TABLE + self._folder.root
        self._options: dict[str, str] = {}
        if not is_local(path):
            from ttlsnap.storage.objects import storage_options

            self._options = storage_options(self._folder.root)

    def check(self, *, make: bool, source: Directory | None = None) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        with self._translate_errors(), _MAKING:
            delta_table = self._open_table()
            if delta_table is None and self._folder.list(""):
                raise UsageError(f"{self._folder.root} contains files, and is not a Delta table")
            _require_place(self._folder.root)
            if delta_table is None and not make:
                return
            if delta_table is None:
                _make_folder(self._folder, source)
                try:
                    with _write_privately(self._folder, access_of_new(self._folder, "new")):
                        delta_table = DeltaTable.create(
                            self._folder.root, SCHEMA, mode="ignore", storage_options=self._options
                        )
                except DeltaError:  # another process was faster
                    delta_table = self._open_table()
                    if delta_table is None:
                        raise
            columns = {
                field.name: str(getattr(field.type, "type", field.type)) for field in delta_table.schema().fields
            }
        if columns != _COLUMNS:
            columns_text = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
            raise UsageError(
                f"{self.name} is not a table for dropped entries; such a table has the columns {columns_text}"
            )

    def take(self, files: Directory, paths: Sequence[str], run: str) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        self.check(make=True, source=files)
        if not paths:
            return
        access = files.effective_access(paths[0])
        access = None if access is None else limit(access)
        with self._translate_errors(), _write_privately(self._folder, access):
            delta_table = self._open_table()
            assert delta_table is not None
            if delta_table.transaction_version(_application(run)) is not None:
                return
            rows = pa.RecordBatchReader.from_batches(SCHEMA, _batches(files, paths))
            commit_properties = CommitProperties(app_transactions=[Transaction(_application(run), 1)])
            write_deltalake(delta_table, rows, mode="append", commit_properties=commit_properties)

    def require(self) -> None:
        with self._translate_errors():
            _require_there(self._folder, self.name)
            delta_table = self._open_table()
            if (
                delta_table is not None
                and delta_table.metadata().configuration.get("delta.appendOnly", "").lower() == "true"
            ):
                raise RefusedError(
                    f"{self.name} has delta.appendOnly = true, so a rollback cannot remove entries from it. Nothing "
                    "was changed. Set the property to false"
                )

    def take_back(self, run: str) -> None:
        with self._translate_errors():
            delta_table = self._open_table()
            if delta_table is not None:
                with _write_privately(self._folder, access_of_new(self._folder, f"new{SUFFIX}")):
                    delta_table.delete(f"run = '{run}'")

    def _open_table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        has_log = self._folder.stat(_LOG) is not None
        return DeltaTable(self._folder.root, storage_options=self._options) if has_log else None

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn the errors of the library into errors of ttlsnap."""
        try:
            yield
        except TtlsnapError:
            raise
        except Exception as error:  # the library raises errors of several unrelated classes
            raise StorageError(f"{self.name}: {str(error)[:500]}") from error


@dataclass(frozen=True)
class ExpiredCallback:
    """A function that is called with each dropped entry after its run is published. Later runs recognize its ``name``.

    It is called with the key and the value, as their JSON is in Python. It also gets those of ``run``, ``operator``,
    ``store``, ``state``, ``partition`` and ``timestamp`` (an aware datetime, or None) for which it has parameters.
    After a crash it is called again for the entries of the file that it had reached.
    """

    name: str
    function: Callable[..., object]

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Call the function. Raise TransformerError with the entry for which it raised an error."""
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError) as error:
            raise TransformerError(f"{self.name}: {error}") from error
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        fact_names = [name for name in _FACTS if takes_all or name in {parameter.name for parameter in parameters}]
        for row in rows:
            try:
                self.function(
                    json.loads(row["key"]), json.loads(row["value"]), **{name: row[name] for name in fact_names}
                )
            except (Exception, SystemExit) as error:  # the user's code may raise anything
                problem = f"{self.name}, key " + quote(row["key"]) + f": {type(error).__name__}: " + quote(error)
                raise TransformerError(problem) from error

    def check(self, *, make: bool, source: Directory | None = None) -> None:
        """Do nothing: the function is loaded."""

    def take(self, files: Directory, paths: Sequence[str], run: str) -> None:
        for path in paths:
            for batch in _batches(files, [path]):
                self(_rows(batch))
            files.remove(path)

    def require(self) -> None:
        """Do nothing."""

    def take_back(self, run: str) -> None:
        """Do nothing: ttlsnap cannot undo what the function did."""


def _require_place(root: str) -> None:
    """Raise UsageError for a receiver within a Delta table, whose ``VACUUM`` would remove its files.

    Also raise it if a part of the path is not a folder.
    """
    scheme, separator, path_text = root.partition("://") if "://" in root else ("", "", root)
    path_names = path_text.split("/")
    for count in range(len(path_names) - 1, 1 - bool(separator), -1):
        outer_folder = open_directory(f"{scheme}{separator}{'/'.join(path_names[:count])}")
        try:
            info = outer_folder.stat("")
            is_table = info is not None and info.is_dir and outer_folder.stat(_LOG) is not None
        except StorageError:
            if separator:  # the user may have no access to the folders above
                return
            raise
        if info is not None and not info.is_dir:
            raise UsageError(f"{root}: {outer_folder.root} is not a folder")
        if is_table:
            raise UsageError(
                f"{root} is inside the Delta table {outer_folder.root}, whose VACUUM would remove the archive. Choose "
                "another place"
            )


def _require_there(folder: Directory, name: str) -> None:
    if folder.stat("") is None:
        raise RefusedError(
            f"{name} does not exist, so the entries that the run dropped cannot be removed from it. Nothing was "
            "changed. Mount it; if it is lost, make a folder there with any file in it"
        )


def open_receiver(place: str | ExpiredCallback) -> Receiver:
    """Return the receiver that a user named: a path is a folder, unless a Delta table is there."""
    if isinstance(place, ExpiredCallback):
        return place
    if place.startswith(TABLE):
        return Table(place.removeprefix(TABLE))
    return Table(place) if open_directory(place).stat(_LOG) is not None else Folder(place)


def refuse_within(place: str | ExpiredCallback, *targets: str) -> None:
    """Raise UsageError for a receiver within the target: its files would look like the target's."""
    if isinstance(place, ExpiredCallback):
        return
    root = open_directory(place.removeprefix(TABLE)).root
    for target in targets:
        if is_within(root, open_directory(target).root):
            raise UsageError(f"{place} is inside {target}; name a place outside it for dropped entries")


def find_receiver(name: str) -> Receiver | None:
    """Return the receiver that a report names; None for a function, which only a command that names it calls."""
    return open_receiver(name) if _is_place(name) else None


def _is_place(name: str) -> bool:
    return name.startswith(("/", TABLE)) or "://" in name


def describe_place(name: str, run: str) -> str:
    """Return the place of the dropped entries of ``run``, in words."""
    if name.startswith(TABLE):
        return f"in the Delta table {name.removeprefix(TABLE)}, run = '{run}'"
    return f"in {name}/{run}-*{SUFFIX}" if _is_place(name) else f"told to {name}"


def _make_folder(folder: Directory, source: Directory | None) -> None:
    """Create a receiver's folder and missing folders above it, readable only for users who can read ``source``."""
    if not isinstance(folder, LocalDirectory):
        folder.mkdirs("")
        return
    missing_folders = [
        folder_path for folder_path in (Path(folder.root), *Path(folder.root).parents) if not folder_path.exists()
    ]
    folder.mkdirs("")
    access = source.effective_access("") if source is not None else None
    if access is not None:
        access = replace(access, mode=access.mode & ~umask() | PRIVATE_FOLDER)
        for new_folder in missing_folders:
            LocalDirectory(str(new_folder)).set_access("", access)


@contextlib.contextmanager
def _write_privately(folder: Directory, access: Access | None) -> Iterator[None]:
    """Let another library write files in a folder; only this user can read them until they have their ``access``."""
    if access is None or not isinstance(folder, LocalDirectory):
        yield
        return
    with _MAKING:
        paths_before = set(_all_below(folder, ""))
        old_umask = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(old_umask)
        for path, is_dir in sorted(set(_all_below(folder, "")) - paths_before):
            folder.set_access(path, folder_access(access) if is_dir else access)


def _all_below(folder: Directory, path: str) -> Iterator[tuple[str, bool]]:
    for info in folder.list(path):
        inner_path = f"{path}/{info.name}" if path else info.name
        yield inner_path, info.is_dir
        if info.is_dir:
            yield from _all_below(folder, inner_path)


def _application(run: str) -> str:
    return f"ttlsnap-{run}"


def _batches(files: Directory, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from ttlsnap.storage.parquet import ParquetRows, size_of

    for path in paths:
        try:
            with files.open(path) as stream:
                yield from ParquetRows(stream, size_of(files, path), f"{files.root}/{path}").batches()
        except pa.ArrowException as error:
            raise CorruptionError(f"{files.root}/{path} cannot be read again: {str(error)[:200]}") from error


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows in Python; times before year 1 or after 9999 are None, because Python has none."""
    times = batch.column("timestamp")
    micros = times.cast(pa.int64())
    is_known = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less_equal(micros, LAST_US))
    column = pc.if_else(is_known, times, pa.scalar(None, times.type))
    place = SCHEMA.get_field_index("timestamp")
    rows: list[dict[str, Any]] = batch.set_column(place, SCHEMA.field(place), column).to_pylist()
    return rows
