"""RocksDB databases in a scratch folder: assembled from a checkpoint's files, scanned, and written.

Nothing here can change the checkpoint. The folder has symbolic links to its SST files. RocksDB only reads through them,
even if it opens the database for writing.

This module avoids three traps. RocksDB loads the merge operator from the OPTIONS file, which names no delimiter. It
would put commas between values that Spark joins without a delimiter. That file may also name folders, and RocksDB would
write there. Finally, an iterator that meets damage just ends, and so does one without a merge operator that meets a
merge. ``scan`` therefore asks for the iterator's status.
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
from typing import Any, Protocol

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

from ttlsnap.checkpoint.file_checksums import verify
from ttlsnap.errors import CorruptionError, StorageError, TtlsnapError, UnsupportedError
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata, extract
from ttlsnap.stores.rocksdb.footers import check_footer
from ttlsnap.unsaferow.rows import Rows

_OPTIONS_KEPT = {
    b"[Version]": (b"rocksdb_version", b"options_file_version"),
    b"[DBOptions]": (),
    b'[CFOptions "default"]': (b"compression", b"merge_operator"),
    b'[TableOptions/BlockBasedTable "default"]': (b"filter_policy", b"format_version", b"block_size", b"checksum"),
}
_MAX_OPTIONS_BYTES = 16 << 20
_COMPARATORS = (b"leveldb.BytewiseComparator",)
CHUNK = 128  # entries to read before their size is estimated
_SAMPLE = 32
BATCH_ENTRIES = 2048  # entries that fit into a processor's cache
_BATCH_BYTES = 1 << 20
READAHEAD = 2 << 20
OPEN_FILES = 256  # a process may usually open 1024
_BLOOM_BITS = 10  # for each key, as in Spark's databases

Pairs = tuple[Rows, Rows]
"""Keys and values of consecutive entries, as they are stored."""


class RocksDbError(Exception):
    """An error of RocksDB's C interface."""


@contextlib.contextmanager
def rocksdb_errors(where: str) -> Iterator[None]:
    """Raise RocksDB's errors, which are plain exceptions, as ttlsnap's errors."""
    try:
        yield
    except (TtlsnapError, MemoryError, OSError):
        raise
    except Exception as error:
        text = str(error)
        if os.strerror(errno.ENOSPC) in text or os.strerror(errno.EDQUOT) in text:
            raise StorageError(
                f"{where}: the scratch folder is full ({text}); name another one with --scratch"
            ) from error
        if type(error) not in (Exception, RocksDbError):  # rocksdict raises plain exceptions for RocksDB's errors
            raise
        # A missing file is damage to the database; any other error of this kind is a fault of the machine.
        kind = StorageError if text.startswith("IO error") and "No such file" not in text else CorruptionError
        raise kind(f"{where}: RocksDB says: {text}") from error


def require_room(folder: Path, need: int) -> None:
    """Raise StorageError unless the disk of ``folder`` has ``need`` bytes left."""
    free_bytes = shutil.disk_usage(folder).free
    if need > free_bytes:
        raise StorageError(
            f"{folder.parent}: the work may need {need:,} bytes of scratch space, but only {free_bytes:,} are free. "
            "Nothing was changed. Name a folder with more room with --scratch (for inspect: TMPDIR)"
        )


@contextlib.contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Raise the errors of Python's own reading and writing in the scratch folder as StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{place}: {error.strerror or error}; name another folder with --scratch") from error


def keep_harmless_options(folder: Path, delimiter: bytes, where: str) -> None:
    """Rewrite the OPTIONS files in ``folder`` with only the options that say how tables are written.

    Other options could make RocksDB use other folders: before Spark 3.4 they did. The merge operator gets the
    ``delimiter`` that Spark puts between two values.

    Raises UnsupportedError for keys in another order, and CorruptionError for a file that is too large.
    """
    for path in folder.glob("OPTIONS-*"):
        kept_lines: list[bytes] = []
        section = b""
        if path.stat().st_size > _MAX_OPTIONS_BYTES:
            raise CorruptionError(f"{where}: {path.name} is too large for an options file")
        for line in path.read_bytes().splitlines():
            if line.startswith(b"["):
                section = line.strip()
                kept_lines += [section] if section in _OPTIONS_KEPT else []
                continue
            name, _, value = (text.strip() for text in line.partition(b"="))
            # The comparator decides where a key belongs. Another one would make every sorted table wrong.
            if name == b"comparator" and value not in _COMPARATORS:
                raise UnsupportedError(
                    f"{where}: {path.name} orders keys with {value[:80].decode(errors='replace')}, which ttlsnap does "
                    "not know"
                )
            if name not in _OPTIONS_KEPT.get(section, ()):
                continue
            if name == b"merge_operator" and b"StringAppend" in value:
                value = b"{id=StringAppendOperator;delimiter=" + delimiter + b";}"
            elif name == b"filter_policy" and b"loom" in value:
                # RocksDB 6.20 (Spark 3.2) writes only a name, rocksdb.BuiltinBloomFilter, without the number of bits.
                value = b"bloomfilter:%d:false" % _BLOOM_BITS
            kept_lines.append(b"  " + name + b"=" + value)
        path.write_bytes(b"\n".join(kept_lines) + b"\n")


def newest_options(folder: Path) -> Path:
    """Return the newest OPTIONS file of the database in ``folder``."""
    return max(folder.glob("OPTIONS-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def assemble(
    files: Directory,
    path: str,
    folder: Path,
    delimiter: bytes,
    *,
    home: str | None = None,
    places_of_tables: Mapping[str, tuple[Directory, str]] | None = None,
) -> SnapshotMetadata:
    """Assemble the database of the snapshot ``path`` in ``folder``, with links to SST files that are on a disk.

    For a staged snapshot, ``home`` is its final path, and ``places_of_tables`` has the present place of each table by
    the table's path. Return the snapshot's metadata. Checksum files of tables are verified, too: Spark does not read a
    table that does not match, although RocksDB has a checksum for each block.
    """
    metadata = extract(files, path, folder, home)
    for name, file in metadata.tables.items():
        source_files, place = places_of_tables[file.path] if places_of_tables else (files, file.path)
        if is_local(source_files.root):
            verify(source_files, place)
        source_files.make_local(place, folder / name)
        check_footer(folder / name, f"{source_files.root}/{place}")
    keep_harmless_options(folder, delimiter, f"{files.root}/{path}")
    return metadata


@dataclass(frozen=True)
class Settings:
    """Options of a database and of its one column family; the latter say how its tables are written."""

    database: Options
    tables: Options

    def __post_init__(self) -> None:
        for options in (self.database, self.tables):
            # Automatic compaction would write new tables in place of old ones that can be shared.
            options.set_disable_auto_compactions(True)
        # A database here is only opened, scanned and closed, so preparations for more would waste time.
        self.database.set_skip_stats_update_on_db_open(True)
        self.database.set_max_file_opening_threads(1)
        self.database.set_max_background_jobs(1)
        self.database.set_max_open_files(OPEN_FILES)


def settings_of(folder: Path) -> Settings:
    """Return the settings of the database in ``folder``, for another database with similar tables."""
    options, families = Options.load_latest(str(folder))
    return Settings(options, families["default"])


def default_settings(format_version: int) -> Settings:
    """Return the settings of Spark's tables, for a database without an older snapshot."""
    table = BlockBasedOptions()
    table.set_format_version(format_version)
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_checksum_type(ChecksumType.crc32c())  # every version reads this type
    # Only in raw mode does rocksdict store bytes as they are. Otherwise it puts a type before each key and value.
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    return Settings(options, options)


@contextlib.contextmanager
def database(folder: Path, settings: Settings, where: str, *, new: bool = False) -> Iterator[Rdict]:
    """Open the database in ``folder``, or create a ``new`` one there."""
    with rocksdb_errors(where):
        settings.database.create_if_missing(new)
        # Without its own options, the family would get those of the OPTIONS file.
        opened_database = Rdict(str(folder), settings.database, {"default": settings.tables}, AccessType.read_write())
        try:
            # A crash loses the scratch folder anyway, so a write-ahead log would not help.
            unlogged = WriteOptions()
            unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
            opened_database.set_write_options(unlogged)
            yield opened_database
        finally:
            with contextlib.suppress(DbClosedError):
                opened_database.close()


class EntrySource(Protocol):
    """Anything else with entries to scan."""

    def scan(self, where: str, prefix: bytes | None) -> Iterator[Pairs]: ...


def scan(
    source: Rdict | EntrySource, where: str, prefix: bytes | None = None, *, before: bytes | None = None
) -> Generator[Pairs, None, None]:
    """Yield all entries in the order of their keys, some thousand at a time.

    ``before`` selects entries with lesser keys, and ``prefix`` those whose keys begin with it. Raises CorruptionError
    if RocksDB cannot continue.
    """
    if not isinstance(source, Rdict):
        assert before is None
        yield from source.scan(where, prefix)
        return
    options = _read_options()
    if prefix is not None:
        before = end_of_prefix(prefix)
    if before is not None:
        # RocksDB excludes the bound itself.
        options.set_iterate_upper_bound(before)
    last_key = None
    with _no_garbage():
        # A lower bound does not work: in rocksdict 0.3.29 it sets the upper bound.
        items: Iterator[Any] = source.items(from_key=prefix, read_opt=options)
        while pairs := _some(items):
            keys, values = zip(*pairs, strict=True)
            last_key = keys[-1]
            yield Rows.of(keys), Rows.of(values)
    _require_end(source, options, prefix, last_key, where)


def end_of_prefix(prefix: bytes) -> bytes:
    """Return the least key that is larger than all keys with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def _some(items: Iterator[Any]) -> list[Any]:
    """Return the next entries, fewer if they are large.

    When entries become large, at most ``CHUNK`` of the large ones follow the small ones.
    """
    pairs: list[Any] = []
    size = 0
    while len(pairs) < BATCH_ENTRIES and size < _BATCH_BYTES:
        chunk = list(islice(items, CHUNK))
        if not chunk:
            break
        pairs += chunk
        # Counting each entry's bytes would take as long as reading them.
        size += sum(len(key) + len(value) for key, value in chunk[::_SAMPLE]) * _SAMPLE
    return pairs


def _read_options() -> ReadOptions:
    options = ReadOptions()
    options.set_readahead_size(READAHEAD)
    options.fill_cache(False)  # type: ignore[call-arg]  # each block is read once
    return options


def _require_end(
    opened_database: Rdict, options: ReadOptions, first_key: bytes | None, last_key: Any, where: str
) -> None:
    """Raise CorruptionError unless the iterator ended after the last entry.

    An iterator does not say why it ended. Another iterator is therefore asked at the same place.
    """
    iterator = opened_database.iter(options)
    if last_key is None:
        iterator.seek(first_key or b"")
    else:
        iterator.seek(last_key)
        if iterator.valid():
            iterator.next()
    with rocksdb_errors(where):
        iterator.status()
    if iterator.valid():
        raise CorruptionError(f"{where}: RocksDB's iterator ended before the last entry")


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Disable garbage collection: it would search millions of short-lived tuples for cycles, and there are none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def new_table(path: Path, settings: Settings) -> SstFileWriter:
    """Return a writer of a sorted table at ``path``."""
    writer = SstFileWriter(settings.tables)
    writer.open(str(path))
    return writer


def ingest(opened_database: Rdict, tables: Sequence[Path]) -> None:
    """Move sorted tables into a database; their entries replace those with the same keys."""
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    opened_database.ingest_external_file([str(path) for path in tables], options)


def live_tables(opened_database: Rdict) -> list[str]:
    """Return the names of the SST files that a database consists of."""
    return sorted({str(file["name"]).lstrip("/") for file in opened_database.live_files()})
