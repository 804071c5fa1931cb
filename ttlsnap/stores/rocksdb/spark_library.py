"""Spark's own RocksDB, which PySpark brings along, through its C interface: many entries in one call.

``rocksdict`` makes Python objects of every entry, one at a time. This library reads and writes the same files in half
the time. It only reads databases that rocksdict has prepared, and only writes tables without deletes. It needs
``ttlsnap.native`` for the loops over entries. Without it, and where it cannot open a database, rocksdict does all the
work.

The library is read from PySpark's jar into memory, which takes 0.1 s. So it is not used for small partitions.

Source: RocksDB's ``include/rocksdb/c.h``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rocksdict import Rdict

from ttlsnap import native
from ttlsnap.native import loops
from ttlsnap.stores.rocksdb.database import (
    OPEN_FILES,
    READAHEAD,
    Pairs,
    RocksDbError,
    end_of_prefix,
    keep_harmless_options,
    newest_options,
    rocksdb_errors,
)
from ttlsnap.unsaferow.rows import Rows

_FILES = {"x86_64": "librocksdbjni-linux64.so", "aarch64": "librocksdbjni-linux-aarch64.so"}
_MOST_BYTES = 64 << 20  # of the library; those of Spark 3.5 to 4.3 have 15 MB
_WORTH_IT = 8 << 20  # bytes of tables whose reading takes longer than loading the library
BATCH_ENTRIES = 16384
_BATCH_BYTES = 2 << 20
_BLOCK_CACHE = 8 << 20
_ITERATOR = ("valid", "next", "key", "value")
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t


class SparkDatabase:
    """A database that is open for reading.

    ``close`` ends its scans first, because an iterator must not outlive its database. After an error, a generator can:
    its frame is in the traceback.
    """

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library, self._handle = library, handle
        self._scans: list[contextlib.ExitStack] = []

    def close(self) -> None:
        """Free the iterators of all scans, and the database. A scan that continues afterwards raises RocksDbError."""
        for scan in list(self._scans):
            scan.close()
        self._library.rocksdb_close(self._handle)
        self._handle = 0

    def scan(self, where: str, prefix: bytes | None) -> Generator[Pairs, None, None]:
        """Yield all entries in the order of their keys, or those whose keys begin with ``prefix``.

        Raises CorruptionError if RocksDB cannot continue.
        """
        library = self._library
        calls = (_pointer * len(_ITERATOR))(*(_address(getattr(library, f"rocksdb_iter_{name}")) for name in _ITERATOR))
        with contextlib.ExitStack() as stack:
            self._scans.append(stack)
            stack.callback(self._scans.remove, stack)
            options = library.rocksdb_readoptions_create()
            stack.callback(library.rocksdb_readoptions_destroy, options)
            library.rocksdb_readoptions_set_fill_cache(options, 0)  # each block is read once
            library.rocksdb_readoptions_set_readahead_size(options, READAHEAD)
            start = prefix or b""
            if prefix is not None:
                end = end_of_prefix(prefix)
                library.rocksdb_readoptions_set_iterate_upper_bound(options, end, len(end))
            iterator = library.rocksdb_create_iterator(self._handle, options)
            stack.callback(library.rocksdb_iter_destroy, iterator)
            library.rocksdb_iter_seek(iterator, start, len(start))
            while True:
                if not self._handle:
                    raise RocksDbError(f"{where}: the database was closed during a scan")
                keys, values = loops.read_entries(iterator, calls, _BATCH_BYTES, BATCH_ENTRIES)
                if not len(keys[1]):
                    break
                yield Rows(*keys), Rows(*values)
            with rocksdb_errors(where):
                _call(library, library.rocksdb_iter_get_error, iterator)


class SparkTable:
    """A writer of a sorted table at ``path``, with the options of the database in ``folder``."""

    def __init__(self, library: ctypes.CDLL, folder: Path, path: Path, delimiter: bytes) -> None:
        self._library = library
        with contextlib.ExitStack() as stack:
            options = stack.enter_context(_options_of(library, folder, delimiter))
            environment = library.rocksdb_envoptions_create()
            stack.callback(library.rocksdb_envoptions_destroy, environment)
            self._writer = library.rocksdb_sstfilewriter_create(environment, options)
            stack.callback(library.rocksdb_sstfilewriter_destroy, self._writer)
            _call(library, library.rocksdb_sstfilewriter_open, self._writer, os.fsencode(path))
            self._stack = stack.pop_all()

    def put(self, keys: Rows, values: Rows) -> None:
        """Write entries, in the order of their keys."""
        put = _address(self._library.rocksdb_sstfilewriter_put)
        buffers = (keys.data, keys.start, keys.size), (values.data, values.start, values.size)
        _call(self._library, loops.put_entries, self._writer, put, *buffers)

    def file_size(self) -> int:
        """Return the bytes written so far."""
        size = ctypes.c_uint64()
        self._library.rocksdb_sstfilewriter_file_size(self._writer, ctypes.byref(size))
        return size.value

    def finish(self) -> None:
        """Complete the table."""
        _call(self._library, self._library.rocksdb_sstfilewriter_finish, self._writer)
        self.close()

    def close(self) -> None:
        """Free the writer's memory. A table that is not complete stays as it is."""
        self._stack.close()


@contextlib.contextmanager
def spark_database(
    folder: Path, size: int, delimiter: bytes, opened_database: Rdict | None = None
) -> Iterator[SparkDatabase | None]:
    """Open the database in ``folder`` for reading, even while rocksdict has it open as ``opened_database``.

    ``size`` is that of its tables, and ``delimiter`` is what Spark puts between merged values. Yield None if there is
    no library, if it is not worth it, or if it cannot open the database.
    """
    library = find_library(size)
    if library is None:
        yield None
        return
    if opened_database is not None:
        opened_database.flush()  # the library sees only what is in files
    with contextlib.ExitStack() as stack:
        handle = None
        with contextlib.suppress(RocksDbError):
            options = stack.enter_context(_options_of(library, folder, delimiter))
            handle = _call(library, library.rocksdb_open_for_read_only, options, os.fsencode(folder), 0)
            opened_library = SparkDatabase(library, handle)
            stack.callback(opened_library.close)
        yield None if handle is None else opened_library


def spark_table(folder: Path, path: Path, size: int, delimiter: bytes) -> SparkTable | None:
    """Return a writer of a table with the options of the database in ``folder``; see ``spark_database`` for None."""
    library = find_library(size)
    try:
        return None if library is None else SparkTable(library, folder, path, delimiter)
    except RocksDbError:
        return None


def find_library(size: int) -> ctypes.CDLL | None:
    """Return the library, or None if it is missing, or not worth it for ``size`` bytes of tables."""
    return _load() if native.is_available() and (size >= _WORTH_IT or native.is_wanted()) else None


@cache
def _load() -> ctypes.CDLL | None:
    jar_and_name = find_jar()
    if jar_and_name is None:
        return None
    jar, name = jar_and_name
    try:
        with zipfile.ZipFile(jar) as archive:
            content = archive.read(name) if archive.getinfo(name).file_size <= _MOST_BYTES else b""
        # Not a file on a disk: the temporary folder may forbid programs.
        with os.fdopen(os.memfd_create("rocksdb"), "wb") as file:
            file.write(content)
            file.flush()
            library = ctypes.CDLL(f"/proc/self/fd/{file.fileno()}")
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, KeyError, AttributeError, zipfile.BadZipFile):
        return None  # another file than expected; rocksdict can do the work
    return library


def find_jar() -> tuple[Path, str] | None:
    """Return PySpark's jar with RocksDB, and the name of the library for this machine in it."""
    name = _FILES.get(platform.machine())
    spark = importlib.util.find_spec("pyspark")
    if name is None or spark is None or spark.origin is None or platform.libc_ver()[0] != "glibc":
        return None
    jars = list((Path(spark.origin).parent / "jars").glob("rocksdbjni-*.jar"))
    return (jars[0], name) if len(jars) == 1 else None


@contextlib.contextmanager
def _options_of(library: ctypes.CDLL, folder: Path, delimiter: bytes) -> Iterator[int]:
    """Yield the options of the database in ``folder``, from its newest OPTIONS file.

    That of rocksdict names no delimiter, so a copy of it gets one.
    """
    count, names, family = _size(), _pointer(), _pointer()
    database_options, families = _pointer(), ctypes.POINTER(_pointer)()
    with contextlib.ExitStack() as stack:
        environment = library.rocksdb_create_default_env()
        stack.callback(library.rocksdb_env_destroy, environment)
        blocks = library.rocksdb_cache_create_lru(_BLOCK_CACHE)
        stack.callback(library.rocksdb_cache_destroy, blocks)
        outputs = map(ctypes.byref, (database_options, count, names, families))
        own_folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder.parent)))
        shutil.copy(newest_options(folder), own_folder)
        keep_harmless_options(own_folder, delimiter, str(folder))
        _call(library, library.rocksdb_load_latest_options, os.fsencode(own_folder), environment, 1, blocks, *outputs)
        stack.callback(library.rocksdb_load_latest_options_destroy, database_options, names, families, count)
        family = families[0]
        # As in ``database.Settings``.
        library.rocksdb_options_set_skip_stats_update_on_db_open(family, 1)
        library.rocksdb_options_set_max_file_opening_threads(family, 1)
        library.rocksdb_options_set_max_open_files(family, OPEN_FILES)
        yield family


def _call(library: ctypes.CDLL, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function whose last argument is for an error; raise RocksDbError if it sets one."""
    error = ctypes.c_char_p()
    result = function(*arguments, ctypes.byref(error))
    if error.value is None:
        return result
    text = error.value.decode(errors="replace")
    library.rocksdb_free(error)
    raise RocksDbError(text)


def _address(function: Any) -> int:
    address = ctypes.cast(function, _pointer).value
    assert address is not None
    return address


_error = ctypes.POINTER(ctypes.c_char_p)
_text, _flag, _number = ctypes.c_char_p, ctypes.c_ubyte, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    # The result, then the arguments.
    "rocksdb_cache_create_lru": (_pointer, _size),
    "rocksdb_cache_destroy": (None, _pointer),
    "rocksdb_close": (None, _pointer),
    "rocksdb_create_default_env": (_pointer,),
    "rocksdb_create_iterator": (_pointer, _pointer, _pointer),
    "rocksdb_env_destroy": (None, _pointer),
    "rocksdb_envoptions_create": (_pointer,),
    "rocksdb_envoptions_destroy": (None, _pointer),
    "rocksdb_free": (None, _pointer),
    "rocksdb_iter_destroy": (None, _pointer),
    "rocksdb_iter_get_error": (None, _pointer, _error),
    "rocksdb_iter_key": (_pointer, _pointer, _pointer),
    "rocksdb_iter_next": (None, _pointer),
    "rocksdb_iter_seek": (None, _pointer, _text, _size),
    "rocksdb_iter_valid": (_flag, _pointer),
    "rocksdb_iter_value": (_pointer, _pointer, _pointer),
    "rocksdb_load_latest_options": (None, _text, _pointer, ctypes.c_bool, *[_pointer] * 5, _error),
    "rocksdb_load_latest_options_destroy": (None, _pointer, _pointer, _pointer, _size),
    "rocksdb_open_for_read_only": (_pointer, _pointer, _text, _flag, _error),
    "rocksdb_options_set_max_file_opening_threads": (None, _pointer, _number),
    "rocksdb_options_set_max_open_files": (None, _pointer, _number),
    "rocksdb_options_set_skip_stats_update_on_db_open": (None, _pointer, _flag),
    "rocksdb_readoptions_create": (_pointer,),
    "rocksdb_readoptions_destroy": (None, _pointer),
    "rocksdb_readoptions_set_fill_cache": (None, _pointer, _flag),
    "rocksdb_readoptions_set_iterate_upper_bound": (None, _pointer, _text, _size),
    "rocksdb_readoptions_set_readahead_size": (None, _pointer, _size),
    "rocksdb_sstfilewriter_create": (_pointer, _pointer, _pointer),
    "rocksdb_sstfilewriter_destroy": (None, _pointer),
    "rocksdb_sstfilewriter_file_size": (None, _pointer, ctypes.POINTER(ctypes.c_uint64)),
    "rocksdb_sstfilewriter_finish": (None, _pointer, _error),
    "rocksdb_sstfilewriter_open": (None, _pointer, _text, _error),
    "rocksdb_sstfilewriter_put": (None, _pointer, _text, _size, _text, _size, _error),
}
