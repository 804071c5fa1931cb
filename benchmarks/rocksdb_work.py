"""RocksDB: the baselines for ttlsnap's work, and partitions that are too large to let Spark write them."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from ttlsnap import compact
from ttlsnap.compaction.engine import Engine
from ttlsnap.compaction.task import PartitionTask
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import Rewrite
from ttlsnap.stores.rocksdb import archive
from ttlsnap.stores.rocksdb.database import (
    Settings,
    assemble,
    database,
    ingest,
    live_tables,
    new_table,
    scan,
    settings_of,
)
from ttlsnap.stores.rocksdb.store import RocksDbStore
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
_STRING_AT = 1 + 8 + 8  # in a key: after the encoding, the null bits, and the offset and size of the string


def compaction(source: Path, target: Path, engine: Engine, timestamp: str, ttl: str, now: str) -> Callable[[], Any]:
    """Copy a checkpoint. Return a function that runs ``compact`` on the copy."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), timestamp=timestamp)
    return lambda: compact(str(target), [factory], now=now, engine=engine, rewrite="full", stopped=True)


class StateRewriter:
    """Spark 4.2's internal rewriter, with py4j: it keeps half of the entries, by the bytes of their keys."""

    def __init__(self, session: SparkSession) -> None:
        self._session: Any = session
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._session.sparkContext._gateway)
        # Reading ``streams`` creates the coordinator of state stores, without which the reader fails.
        session.streams.active  # noqa: B018

    def prepared(self, source: Path, target: Path) -> Callable[[], Any]:
        """Copy a checkpoint with offsets of one more batch. Return a function that writes the state of that batch."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        last = max(int(path.name) for path in (source / "offsets").glob("[0-9]*"))
        shutil.copy(source / "offsets" / str(last), target / "offsets" / str(last + 1))
        jvm = self._session._jvm
        nothing = jvm.scala.Option.empty
        rewriter = jvm.org.apache.spark.sql.execution.streaming.state.StateRewriter(
            self._session._jsparkSession,
            last,
            last + 1,
            str(target),
            self._session._jsc.hadoopConfiguration(),
            nothing(),
            jvm.scala.Option.apply(_Half()),
            nothing(),
        )
        return lambda: rewriter.run()


class _Half:
    """A Scala function that returns half of the rows of a DataFrame."""

    def apply(self, frame: Any) -> Any:
        return frame.filter("abs(hash(key_bytes)) % 2 = 0")

    class Java:
        implements = ("scala.Function1",)


def assembled(task: PartitionTask, folder: Path) -> Path:
    """Return the folder with the database of a task's partition, as ttlsnap opens it."""
    snapshot = task.stores[0].lineage.snapshot
    assert isinstance(task.state_store, RocksDbStore) and snapshot is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    assemble(open_directory(task.root), snapshot.path, folder, task.state_store.delimiter)
    return folder


def library_limit(databases: list[Path], folder: Path) -> Callable[[], float] | None:
    """Return a function that runs librocksdb alone (``limit.c``) on these databases, and returns its CPU seconds.

    None without gcc, and on other platforms than Linux on x86-64.
    """
    if shutil.which("gcc") is None or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("rocksdbjni-*.jar")
    with zipfile.ZipFile(jar) as archive:
        archive.extract("librocksdbjni-linux64.so", folder)
    program = folder / "limit"
    library = folder / "librocksdbjni-linux64.so"
    words = ["gcc", "-O2", str(HERE / "limit.c"), "-o", str(program), str(library), f"-Wl,-rpath,{folder}"]
    subprocess.run([*words, "-Wl,--unresolved-symbols=ignore-all"], check=True)

    def run() -> float:
        total = 0.0
        for path in databases:
            done = subprocess.run(
                [program, path, folder / "limit.sst", "5"], check=True, capture_output=True, text=True
            )
            total += float(done.stdout.split()[1])
        return total

    return run


def binding_limit(databases: list[Path], settings: Settings, folder: Path) -> None:
    """Do the least work that is possible from Python: rocksdict's iterator into its writer, with nothing between."""
    for path in databases:
        with database(path, settings, str(path)) as opened:
            writer = new_table(folder / "binding.sst", settings)
            for number, (key, value) in enumerate(opened.items()):
                if number % 2 == 0:
                    writer[key] = value
            writer.finish()


def one_large_partition(source: Path, target: Path, tiles: int) -> Path:
    """Make the checkpoint ``target`` with one partition: that of ``source`` ``tiles`` times, each with other keys."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("SSTs", "*.zip", ".*.crc"))
    for other in (target / "state/0").glob("[1-9]*"):
        shutil.rmtree(other)
    home = target / "state/0/0"
    (home / "SSTs").mkdir(parents=True, exist_ok=True)
    files = open_directory(str(source))
    newest = max((source / "state/0/0").glob("*.zip"), key=lambda path: int(path.stem))
    store = RocksDbStore("lz4", False, b"", 5)
    old, new = target / "old", target / "new"
    for folder in (old, new):
        folder.mkdir()
    assemble(files, f"state/0/0/{newest.name}", old, store.delimiter)
    settings = settings_of(old)
    tables, count = [], 0
    with database(old, settings, "old") as opened:
        for tile in range(tiles):
            tables.append(target / f"tile-{tile}.sst")
            writer = new_table(tables[-1], settings)
            for keys, values in scan(opened, "old"):
                count += len(keys)
                for key, value in zip(keys.to_list(), values.to_list(), strict=True):
                    writer[key[:_STRING_AT] + b"%04d" % tile + key[_STRING_AT + 4 :]] = value
            writer.finish()
    with database(new, settings, "new", new=True) as opened:
        ingest(opened, tables)
        names = live_tables(opened)
    listed = []
    for name in names:
        stored = f"{name.removesuffix('.sst')}-{uuid.uuid4()}.sst"
        listed.append({"localFileName": name, "dfsSstFileName": stored, "sizeBytes": (new / name).stat().st_size})
        (new / name).rename(home / "SSTs" / stored)
    options = max(path.name for path in new.glob("OPTIONS-*"))
    current = (new / "CURRENT").read_text().strip()
    archive.write(home / newest.name, new, [current, "CURRENT", options], {"sstFiles": listed, "numKeys": count}, "v1")
    for folder in (old, new):
        shutil.rmtree(folder)
    for log in ("metadata", f"offsets/{int(newest.stem) - 1}"):
        path = target / ("state/0/_metadata/metadata" if log == "metadata" else log)
        text = path.read_text().replace('"numPartitions":4', '"numPartitions":1')
        path.write_text(text.replace('"spark.sql.shuffle.partitions":"4"', '"spark.sql.shuffle.partitions":"1"'))
    return target


def by_way(tasks: list[PartitionTask], rewrite: Rewrite) -> list[PartitionTask]:
    """Return the same tasks, written in this way."""
    return [replace(task, rewrite=rewrite) for task in tasks]
