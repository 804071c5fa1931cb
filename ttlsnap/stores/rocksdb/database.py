"""RocksDB databases in a scratch folder: put together out of a checkpoint's files, scanned, and written.

Nothing here can change the checkpoint: of its SST files the folder has symbolic links, which RocksDB, even where it
opens the database for writing, follows only to read. Three traps are dealt with here. RocksDB loads the merge operator
from the OPTIONS file, which names no delimiter, and would put commas between values that Spark joins with nothing. That
file may name folders, too, where RocksDB then writes. And an iterator that meets damage just ends, as one does that has
no merge operator and meets a merge: ``scan`` asks it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    ChecksumType,
    DbClosedError,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteOptions,
)

from ttlsnap.errors import CorruptionError, StorageError, TtlsnapError, UnsupportedError
from ttlsnap.filesystem import Directory
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata, extract
from ttlsnap.stores.rocksdb.footers import check_footer

_OPTIONS_KEPT = {
    b"[Version]": (b"rocksdb_version", b"options_file_version"),
    b"[DBOptions]": (),
    b'[CFOptions "default"]': (b"compression", b"merge_operator"),
    b'[TableOptions/BlockBasedTable "default"]': (b"filter_policy", b"format_version", b"block_size", b"checksum"),
}
_MAX_OPTIONS_BYTES = 16 << 20
_COMPARATORS = (b"leveldb.BytewiseComparator",)
_CHUNK = 128  # entries, between looks at how large they are
_SAMPLE = 32
_BATCH_ENTRIES = 2048  # what fits into a processor's cache
_BATCH_BYTES = 1 << 20
_READAHEAD = 2 << 20
_OPEN_FILES = 256  # of the 1024 that a process usually may have
_BLOOM_BITS = 10  # for each key, as Spark's databases have

Pairs = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""Keys and values of consecutive entries, as they are stored."""


@contextlib.contextmanager
def rocksdb_errors(where: str) -> Iterator[None]:
    """Tell RocksDB's errors, which are plain exceptions, as ours."""
    try:
        yield
    except (TtlsnapError, MemoryError, OSError):
        raise
    except Exception as error:
        text = str(error)
        if os.strerror(errno.ENOSPC) in text or os.strerror(errno.EDQUOT) in text:
            raise StorageError(f"{where}: there is no room left in the scratch folder ({text})") from error
        if type(error) is not Exception:  # what rocksdict raises for an error of RocksDB's
            raise
        # A file that is not there is one that the database should have; any other error of this kind is the machine's.
        kind = StorageError if text.startswith("IO error") and "No such file" not in text else CorruptionError
        raise kind(f"{where}: RocksDB says: {text}") from error


def require_room(folder: Path, need: int) -> None:
    """Raise StorageError unless the disk has as much left."""
    free = shutil.disk_usage(folder).free
    if need > free:
        raise StorageError(
            f"{folder.parent}: the work may need {need:,} bytes of scratch space, and {free:,} are free. Nothing was "
            "changed; give a folder with more room by --scratch (or TMPDIR, to look at entries)"
        )


@contextlib.contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Tell the errors of Python's own reading and writing in the scratch folder as ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{place}: {error.strerror or error}; give another folder by --scratch") from error


def keep_harmless_options(folder: Path, delimiter: bytes, where: str) -> None:
    """Write the OPTIONS files in ``folder`` anew, with what tells how tables are written and nothing else.

    What is left out could lead RocksDB to other folders: before Spark 3.4 it did. The merge operator gets the
    ``delimiter`` that Spark puts between two values. Raises UnsupportedError for keys in another order.
    """
    for path in folder.glob("OPTIONS-*"):
        kept: list[bytes] = []
        section = b""
        if path.stat().st_size > _MAX_OPTIONS_BYTES:
            raise CorruptionError(f"{where}: {path.name} is larger than options can be")
        for line in path.read_bytes().splitlines():
            if line.startswith(b"["):
                section = line.strip()
                kept += [section] if section in _OPTIONS_KEPT else []
                continue
            name, _, value = (part.strip() for part in line.partition(b"="))
            if name == b"comparator" and value not in _COMPARATORS:
                raise UnsupportedError(
                    f"{where}: {path.name} says that keys are ordered by {value[:80].decode(errors='replace')}"
                )
            if name not in _OPTIONS_KEPT.get(section, ()):
                continue
            if name == b"merge_operator" and b"StringAppend" in value:
                value = b"{id=StringAppendOperator;delimiter=" + delimiter + b";}"
            elif name == b"filter_policy" and b"loom" in value:
                value = b"bloomfilter:%d:false" % _BLOOM_BITS
            kept.append(b"  " + name + b"=" + value)
        path.write_bytes(b"\n".join(kept) + b"\n")


def assemble(
    files: Directory,
    path: str,
    folder: Path,
    delimiter: bytes,
    *,
    home: str | None = None,
    lying: Mapping[str, tuple[Directory, str]] | None = None,
) -> SnapshotMetadata:
    """Make in ``folder`` the database of the snapshot ``path``, its SST files by links where they are on a disk.

    For a staged one, ``home`` is the path where it belongs, and ``lying`` says for the path of each table where it is.
    Hadoop's checksums of tables are not looked at: RocksDB has one for each block.
    """
    metadata = extract(files, path, folder, home)
    for name, file in metadata.tables.items():
        there, place = lying[file.path] if lying else (files, file.path)
        there.provide(place, folder / name)
        check_footer(folder / name, f"{there.root}/{place}")
    keep_harmless_options(folder, delimiter, f"{files.root}/{path}")
    return metadata


@dataclass(frozen=True)
class Settings:
    """Options of a database, and of its one column family: how its tables are written."""

    database: Options
    tables: Options

    def __post_init__(self) -> None:
        for options in (self.database, self.tables):
            # What RocksDB compacts by itself would be new tables where the old ones can be shared.
            options.set_disable_auto_compactions(True)
        # A database here is opened, scanned and closed: what takes time to prepare for more is left out.
        self.database.set_skip_stats_update_on_db_open(True)
        self.database.set_max_file_opening_threads(1)
        self.database.set_max_background_jobs(1)
        self.database.set_max_open_files(_OPEN_FILES)


def settings_of(folder: Path) -> Settings:
    """Those of the database in ``folder``, for one whose tables shall be like its own."""
    options, families = Options.load_latest(str(folder))
    return Settings(options, families["default"])


def default_settings(format_version: int) -> Settings:
    """What Spark writes its tables with, where there is none to go by."""
    table = BlockBasedOptions()
    table.set_format_version(format_version)
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_checksum_type(ChecksumType.crc32c())  # the one that every version reads
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    return Settings(options, options)


@contextlib.contextmanager
def database(folder: Path, settings: Settings, where: str, *, new: bool = False) -> Iterator[Rdict]:
    """Open the database in ``folder``, or make a ``new`` one there."""
    with rocksdb_errors(where):
        settings.database.create_if_missing(new)
        # Without the second, the family's options would be those of the file.
        opened = Rdict(str(folder), settings.database, {"default": settings.tables}, AccessType.read_write())
        try:
            # What is lost in a crash is lost with the scratch folder anyway.
            unlogged = WriteOptions()
            unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
            opened.set_write_options(unlogged)
            yield opened
        finally:
            with contextlib.suppress(DbClosedError):
                opened.close()


def scan(
    opened: Rdict, where: str, prefix: bytes | None = None, *, before: bytes | None = None
) -> Generator[Pairs, None, None]:
    """All entries in the order of their keys, some thousand at a time.

    With ``before`` only those of lesser keys, with ``prefix`` those whose keys begin with it. Raises CorruptionError
    where RocksDB cannot go on.
    """
    options = _read_options()
    if prefix is not None:
        before = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
    if before is not None:
        options.set_iterate_upper_bound(before)
    last = None
    with _no_garbage():
        # Not by a lower bound: in rocksdict 0.3.29 that sets the upper one.
        items: Iterator[Any] = opened.items(from_key=prefix, read_opt=options)
        while pairs := _some(items):
            keys, values = zip(*pairs, strict=True)
            last = keys[-1]
            yield keys, values
    _require_end(opened, options, prefix, last, where)


def _some(items: Iterator[Any]) -> list[Any]:
    """The next entries, fewer where they are large; of the first large ones after small ones ``_CHUNK`` at most."""
    pairs: list[Any] = []
    size = 0
    while len(pairs) < _BATCH_ENTRIES and size < _BATCH_BYTES:
        chunk = list(islice(items, _CHUNK))
        if not chunk:
            break
        pairs += chunk
        # Counting each entry's bytes would take as long as reading them.
        size += sum(len(key) + len(value) for key, value in chunk[::_SAMPLE]) * _SAMPLE
    return pairs


def _read_options() -> ReadOptions:
    options = ReadOptions()
    options.set_readahead_size(_READAHEAD)
    options.fill_cache(False)  # type: ignore[call-arg]  # each block is read once
    return options


def _require_end(opened: Rdict, options: ReadOptions, first: bytes | None, last: Any, where: str) -> None:
    """An iterator does not say why it ended. Another one is asked, at the same place."""
    iterator = opened.iter(options)
    if last is None:
        iterator.seek(first or b"")
    else:
        iterator.seek(last)
        if iterator.valid():
            iterator.next()
    with rocksdb_errors(where):
        iterator.status()
    if iterator.valid():
        raise CorruptionError(f"{where}: RocksDB's iterator ended before the last entry")


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Millions of tuples that live for a moment make Python look for cycles all the time, and there are none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def new_table(path: Path, settings: Settings) -> SstFileWriter:
    """A writer of a sorted table at ``path``."""
    writer = SstFileWriter(settings.tables)
    writer.open(str(path))
    return writer


def ingest(opened: Rdict, tables: Sequence[Path]) -> None:
    """Move sorted tables into a database; what they hold replaces what it held."""
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    opened.ingest_external_file([str(path) for path in tables], options)


def live_tables(opened: Rdict) -> list[str]:
    """The names of the SST files that a database consists of."""
    return sorted({str(file["name"]).lstrip("/") for file in opened.live_files()})
