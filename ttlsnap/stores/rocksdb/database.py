"""RocksDB databases in a scratch folder: put together out of a checkpoint's files, scanned, and written.

Nothing here can change the checkpoint: of its SST files the folder has symbolic links, which RocksDB, even where it
opens the database for writing, follows only to read. Two traps are dealt with here. RocksDB loads the merge operator
from the OPTIONS file, which names no delimiter, and would put commas between values that Spark joins with nothing. And
an iterator that meets damage just ends, as one does that has no merge operator and meets a merge: ``scan`` asks it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
from collections.abc import Generator, Iterator, Sequence
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

from ttlsnap.errors import CorruptionError, StorageError, TtlsnapError

_MERGE_OPERATOR = re.compile(rb"(?m)^(\s*merge_operator=).*StringAppend.*$")
_CHUNK = 256  # entries, between looks at how many bytes have come together
_BATCH_ENTRIES = 8192
_BATCH_BYTES = 1 << 20
_READAHEAD = 2 << 20
_BLOOM_BITS = 10  # for each key, as Spark's databases have

Pairs = tuple[list[bytes], list[bytes]]
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
        raise CorruptionError(f"{where}: RocksDB says: {text}") from error


def set_delimiter(folder: Path, delimiter: bytes) -> None:
    """Write into the OPTIONS files in ``folder`` what Spark's merge operator puts between two values."""
    for path in folder.glob("OPTIONS-*"):
        operator = rb"\g<1>{id=StringAppendOperator;delimiter=" + delimiter + rb";}"
        path.write_bytes(_MERGE_OPERATOR.sub(operator, path.read_bytes()))


@dataclass(frozen=True)
class Settings:
    """Options of a database, and of its one column family: how its tables are written."""

    database: Options
    tables: Options

    def __post_init__(self) -> None:
        for options in (self.database, self.tables):
            options.create_if_missing(True)
            # What RocksDB compacts by itself would be new tables where the old ones can be shared.
            options.set_disable_auto_compactions(True)


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
def database(folder: Path, settings: Settings, where: str) -> Iterator[Rdict]:
    """Open the database in ``folder``, or make one there."""
    with rocksdb_errors(where):
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


def scan(opened: Rdict, where: str, before: bytes | None = None) -> Generator[Pairs, None, None]:
    """All entries in the order of their keys, some thousand at a time; with ``before`` only those of lesser keys.

    Raises CorruptionError where RocksDB cannot go on.
    """
    options = ReadOptions()
    options.set_readahead_size(_READAHEAD)
    if before is not None:
        options.set_iterate_upper_bound(before)
    last = None
    with _no_garbage():
        items = opened.items(read_opt=options)
        while True:
            pairs: list[Any] = []
            size = 0
            while len(pairs) < _BATCH_ENTRIES and size < _BATCH_BYTES:
                some: list[Any] = list(islice(items, _CHUNK))
                if not some:
                    break
                size += sum(len(key) + len(value) for key, value in some)
                pairs += some
            if not pairs:
                break
            keys, values = zip(*pairs, strict=True)
            last = keys[-1]
            yield list(keys), list(values)
    # The iterator does not say why it ended. Another one is asked at the same place.
    ended = opened.iter(options)
    if last is None:
        ended.seek_to_first()
    else:
        ended.seek(last)
        if ended.valid():
            ended.next()
    with rocksdb_errors(where):
        ended.status()
    if ended.valid():
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
