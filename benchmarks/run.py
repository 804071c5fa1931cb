"""The benchmarks of ttlsnap, which print the tables of ``docs/performance.md``.

    python benchmarks/run.py                     everything; Spark first writes missing checkpoints
    python benchmarks/run.py --cache DIR         keep the checkpoints in DIR for the next time
    python benchmarks/run.py --markdown FILE     also put the tables into FILE, between the marks of each part
    python benchmarks/run.py --only engines      one part: engines, large, states, memory, rocksdb, migrations,
                                             operators, exports, imports, inspect, check, tables, maintain, cluster,
                                             objects or costs

This script judges nothing: it prints goals beside the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from checkpoints import SHAPES, half_expired, make_checkpoints, spark_session
from cluster_work import cluster, seconds
from copy_work import Copying
from cost_work import EXECUTORS, Model, Run, application, spread
from export_work import export_with_spark, export_with_ttlsnap, peak_of_export
from import_work import importing, peak_of_import
from maintenance_work import SMALL, maintenance
from measuring import Comparison, compare, measure
from migration_work import OtherSchema, migration, repartition
from object_work import AT_ONCE, LATENCY, late_store
from object_work import compaction as remote_compaction
from profiling import profile
from queries import NOW, OWN_TTL, TIMESTAMP, TTL
from rocksdb_work import (
    StateRewriter,
    assembled,
    binding_limit,
    by_way,
    compaction,
    library_limit,
    one_large_partition,
)
from tiling import tiled
from work import (
    CodecLimit,
    count,
    load_with_spark,
    planned,
    run_command,
    run_engine,
    run_serially,
)

from ttlsnap import inspect as inspect_state
from ttlsnap.compaction.engine import Engine
from ttlsnap.compaction.task import PartitionTask
from ttlsnap.engines.local import LocalEngine
from ttlsnap.engines.spark import SparkEngine
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.rocksdb.database import settings_of

HERE = Path(__file__).parent
MB = 1 << 20
OTHER = {"main": "rocksdb", "rocksdb": "hdfs"}
"""The provider that a benchmark checkpoint does not have."""

Row = tuple[str, ...]
Table = tuple[str, list[Row]]


def engines(cache: Path, runs: int) -> list[Table]:
    """Measure the engines on 2M entries, against Spark's load of the same state and against the codec."""
    checkpoint = make_checkpoints(cache, ["main"])["main"]
    cores = len(os.sched_getaffinity(0))
    with planned(checkpoint) as tasks:
        results = run_serially(tasks)
        entries, dropped = sum(r.entries for r in results), sum(r.dropped for r in results)
        limit = CodecLimit(tasks)
        session = None

        def start() -> None:
            nonlocal session
            session = spark_session()
            session.range(1).count()

        started = measure(start)
        assert session is not None
        assert load_with_spark(session, checkpoint) == entries
        spark = SparkEngine(session)
        first = measure(lambda: run_engine(spark, tasks))
        done = compare(
            {
                "serial": lambda: run_engine(LocalEngine(1), tasks),
                "local": lambda: run_engine(LocalEngine(), tasks),
                "start": lambda: run_engine(LocalEngine(), [_nothing(task) for task in tasks]),
                "load": lambda: load_with_spark(session, checkpoint),
                "spark": lambda: run_engine(spark, tasks),
                "limit": limit.run,
            },
            runs,
            warm_up=2,
        )
        session.stop()

    def row(name: str, what: str) -> Row:
        return what, f"{done.wall(name):.2f}", f"{done.cpu(name):.2f}", f"{done.cpu(name) / entries * 1e9:.0f}"

    costs = [
        ("", "wall, s", "CPU, s", "CPU, ns per entry"),
        row("serial", "local engine, one thread"),
        row("local", f"local engine, {cores} threads"),
        row("start", "of that, starting them"),
        row("limit", "codec limit, one thread"),
        row("load", "Spark 4.2, warm: load and count the same state"),
        row("spark", "Spark engine, warm"),
        ("Spark engine, first run in a session", f"{first.wall:.2f}", f"{first.cpu:.2f}", "-"),
        ("starting a Spark session", f"{started.wall:.2f}", f"{started.cpu:.2f}", "-"),
    ]
    ratios = [
        ("", "wall", "CPU", "goal"),
        _ratio("local engine / Spark's load and count", done, "local", "load", "wall at most 0.6"),
        _ratio("local engine, one thread / codec limit", done, "serial", "limit", "CPU at most 3"),
        _ratio("Spark engine, warm / local engine", done, "spark", "local", "wall at most 1.2"),
        _ratio(f"one thread / {cores} threads", done, "serial", "local", ""),
    ]
    facts = (
        f"{entries:,} entries, {dropped:,} of them expired; {limit.raw_in / MB:.0f} MiB decompressed from "
        f"{sum(r.bytes_before for r in results) / MB:.0f} MiB of files, {limit.raw_out / MB:.0f} MiB staged as "
        f"{sum(r.bytes_after for r in results) / MB:.0f} MiB"
    )
    return [(facts, costs), ("Ratios, each the median over rounds that ran everything in turn", ratios)]


def large(cache: Path, runs: int) -> list[Table]:
    """Measure the engines on 20M entries."""
    small = make_checkpoints(cache, ["small"])["small"]
    cores = len(os.sched_getaffinity(0))
    session = spark_session()
    with tempfile.TemporaryDirectory(dir=cache) as folder, planned(tiled(small, Path(folder, "c"), 40)) as tasks:
        spark = SparkEngine(session)
        done = compare(
            {
                "serial": lambda: run_engine(LocalEngine(1), tasks),
                "local": lambda: run_engine(LocalEngine(), tasks),
                "spark": lambda: run_engine(spark, tasks),
            },
            max(3, runs // 2),
        )
    session.stop()
    title = "20,000,000 entries", "wall, s", "CPU, s", "as fast as one thread", "goal", "CPU against one thread"
    rows: list[Row] = [title]
    for name, what, goal in (
        ("serial", "local engine, one thread", ""),
        ("local", f"local engine, {cores} threads", "at least 1.7 times"),
        ("spark", "Spark engine, warm", ""),
    ):
        ratios = f"{done.wall_ratio('serial', name):.2f} times", goal, f"{done.cpu_ratio(name, 'serial'):.2f}"
        rows.append((what, f"{done.wall(name):.2f}", f"{done.cpu(name):.2f}", *ratios))
    return [("The engines on ten times as many", rows)]


def states(cache: Path, runs: int) -> list[Table]:
    """Measure kinds of state in one thread, against the codec limit, and profile them."""
    # The name of a kind, and the kind that is like it but for one thing, with the goal.
    kinds = {
        "visits": ("visits, lz4", None, ""),
        "visits-checksums": ("visits, lz4, row checksums", "visits", "1.3"),
        "visits-zstd": ("visits, zstd", "visits", ""),
        "mixed": ("a key of 7 to 43 characters, lz4", "small", "1.3"),
        "mixed-checksums": ("a key of 7 to 43 characters, lz4, row checksums", "mixed", "1.3"),
        "small": ("a key of 12 characters, lz4", None, ""),
        "checksums": ("a key of 12 characters, lz4, row checksums", "small", "1.3"),
        "zstd": ("a key of 12 characters, zstd", "small", ""),
    }
    checkpoints = make_checkpoints(cache, kinds)
    with contextlib.ExitStack() as stack:
        tasks = {name: stack.enter_context(planned(checkpoints[name])) for name in kinds}
        entries = {name: sum(r.entries for r in run_serially(tasks[name])) for name in kinds}
        limits = {name: CodecLimit(tasks[name]) for name in kinds}
        subjects: dict[str, Callable[[], object]] = {name: _later(run_serially, tasks[name]) for name in kinds}
        done = compare({**subjects, **{f"limit of {name}": limits[name].run for name in kinds}}, runs)
        shares = {name: profile(subjects[name], runs) for name in kinds}
    costs = "wall, ns per entry", "CPU, ns per entry"
    ratios = "CPU / codec limit", "goal", "CPU / the same without that", "goal"
    rows: list[Row] = [("state", "bytes of an entry", *costs, *ratios)]
    for name, (what, base, goal) in kinds.items():
        cost = [f"{seconds / entries[name] * 1e9:.0f}" for seconds in (done.wall(name), done.cpu(name))]
        against = f"{done.cpu_ratio(name, base):.2f}" if base else ""
        limit = f"{done.cpu_ratio(name, f'limit of {name}'):.2f}"
        size = f"{limits[name].raw_in / entries[name]:.0f}"
        rows.append((what, size, *cost, limit, "" if "checksums" in name else "3", against, goal))
    stages: list[Row] = [("share of CPU time", *shares["visits"])]
    stages += [(kinds[name][0], *(f"{share:.0%}" for share in found.values())) for name, found in shares.items()]
    return [("One thread, HDFS-backed, 500,000 entries, half of them expired", rows), ("Where the time goes", stages)]


def memory(cache: Path, runs: int) -> list[Table]:
    """Measure a worker's peak memory and CPU time, from 1M to 20M entries."""
    small = make_checkpoints(cache, ["small"])["small"]
    nothing = _worker(small, -1)
    rows: list[Row] = [
        ("entries", "layout", "one of 4 partitions, MiB raw", "peak, MiB", "goal, MiB", "CPU, ns per entry")
    ]
    for tiles, snapshots in ((2, True), (10, True), (40, True), (2, False), (10, False), (40, False)):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            checkpoint = tiled(small, Path(folder, "checkpoint"), tiles, snapshots=snapshots)
            found = [_worker(checkpoint, 0) for _ in range(max(1, runs // 2))]
        raw, peak = found[0]["raw"], max(f["peak"] for f in found)
        rows.append(
            (
                f"{tiles * 500_000:,}",
                "snapshot, deltas" if snapshots else "deltas only",
                f"{raw / MB:.0f}",
                f"{peak / MB:.0f}",
                f"{2 * raw / MB + 200:.0f}",
                f"{statistics.median(f['cpu'] / f['entries'] for f in found) * 1e9:.0f}",
            )
        )
    return [(f"A process that compacts one partition ({nothing['peak'] / MB:.0f} MiB before it begins)", rows)]


def rocksdb(cache: Path, runs: int) -> list[Table]:
    """Measure the whole of ``compact`` against Spark's own rewriter, and its work against librocksdb's."""
    checkpoint = make_checkpoints(cache, ["rocksdb"])["rocksdb"]
    session = spark_session()
    with tempfile.TemporaryDirectory(dir=cache) as folder, planned(checkpoint) as tasks:
        here = Path(folder)
        rewriter = StateRewriter(session)
        first = measure(rewriter.prepared(checkpoint, here / "rewritten"))

        def whole(engine: Engine) -> Callable[[], Any]:
            return compaction(checkpoint, here / "compacted", engine, TIMESTAMP, TTL, NOW)

        done = compare(
            {
                "rewriter": lambda: rewriter.prepared(checkpoint, here / "rewritten"),
                "spark": lambda: whole(SparkEngine(session)),
                "local": lambda: whole(LocalEngine(1)),
            },
            runs,
            prepare=True,
        )
        session.stop()
        tasks = by_way(tasks, "full")
        databases = [assembled(task, here / f"database-{task.partition}") for task in tasks]
        settings = settings_of(databases[0])
        subjects: dict[str, Callable[[], Any]] = {
            "work": lambda: run_serially(tasks),
            "binding": lambda: binding_limit(databases, settings, here),
        }
        limit = library_limit(databases, here)
        if limit is not None:
            subjects["library"] = limit
        work = compare(subjects, runs)
        entries = sum(r.entries for r in run_serially(tasks))

    def row(found: Comparison, name: str, what: str) -> Row:
        return what, f"{found.wall(name):.2f}", f"{found.cpu(name):.2f}", f"{found.cpu(name) / entries * 1e9:.0f}"

    costs: list[Row] = [
        ("", "wall, s", "CPU, s", "CPU, ns per entry"),
        row(done, "local", "`compact`, local engine, one thread"),
        row(done, "spark", "`compact`, Spark engine, warm"),
        row(done, "rewriter", "Spark 4.2's `StateRewriter`, warm"),
        (
            "the same, first run in a session",
            f"{first.wall:.2f}",
            f"{first.cpu:.2f}",
            f"{first.cpu / entries * 1e9:.0f}",
        ),
        row(work, "work", "ttlsnap's work on the partitions, one thread"),
        row(work, "binding", "rocksdict's iterator into its table writer"),
    ]
    ratios: list[Row] = [
        ("", "wall", "CPU", "goal"),
        _ratio("`StateRewriter`, warm / `compact`, local engine", done, "rewriter", "local", ""),
        _ratio("`StateRewriter`, warm / `compact`, Spark engine", done, "rewriter", "spark", ""),
        (
            "`StateRewriter`, first run / `compact`, local engine",
            f"{first.wall / done.wall('local'):.2f}",
            f"{first.cpu / done.cpu('local'):.2f}",
            "8",
        ),
        _ratio("work / rocksdict's iterator and writer", work, "work", "binding", ""),
    ]
    if limit is not None:
        costs.append(row(work, "library", "librocksdb's iterator into its table writer, in C"))
        ratios.append(_ratio("work / librocksdb's iterator and writer", work, "work", "library", "CPU at most 1.5"))
    facts = f"RocksDB, {entries:,} entries of about 72 bytes in 4 partitions, half of them expired"
    return [(facts, costs), ("RocksDB: ratios", ratios), *_tombstones(checkpoint, runs), *_large_partition(cache, runs)]


def _tombstones(checkpoint: Path, runs: int) -> list[Table]:
    rows: list[Row] = [("expired", "whole: CPU, s", "MB", "tombstones: CPU, s", "MB", "CPU ratio", "auto")]
    for ttl in ("59d", "57d", "54d", "48d", "42d", "30d"):
        with planned(checkpoint, ttl) as tasks:
            whole, patch = by_way(tasks, "full"), by_way(tasks, "tombstones")
            found = {"whole": run_serially(whole), "patch": run_serially(patch)}
            chosen = {result.rewrite for result in run_serially(tasks)}
            done = compare(
                {"whole": _later(run_serially, whole), "patch": _later(run_serially, patch)}, max(3, runs // 2)
            )
        entries, dropped = sum(r.entries for r in found["whole"]), sum(r.dropped for r in found["whole"])
        size = {name: sum(r.bytes_after for r in results) / 1e6 for name, results in found.items()}
        rows.append(
            (
                f"{dropped / entries:.1%}",
                f"{done.cpu('whole'):.2f}",
                f"{size['whole']:.1f}",
                f"{done.cpu('patch'):.2f}",
                f"{size['patch']:.1f}",
                f"{done.cpu_ratio('patch', 'whole'):.2f}",
                ", ".join(sorted(filter(None, chosen))),
            )
        )
    return [("RocksDB: a partition written whole, and as tombstones over the old tables", rows)]


def _large_partition(cache: Path, runs: int) -> list[Table]:
    source = make_checkpoints(cache, ["rocksdb"])["rocksdb"]
    nothing = _worker(source, -1)
    rows: list[Row] = [("entries in one partition", "way", "peak, MiB", "CPU, ns per entry")]
    for tiles in (1, 10, 40):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            checkpoint = one_large_partition(source, Path(folder, "checkpoint"), tiles)
            for way in ("full", "tombstones"):
                found = [_worker(checkpoint, 0, way) for _ in range(max(1, runs // 5))]
                peak = max(f["peak"] for f in found) / MB
                cpu = statistics.median(f["cpu"] / f["entries"] for f in found) * 1e9
                rows.append((f"{found[0]['entries']:,}", way, f"{peak:.0f}", f"{cpu:.0f}"))
    return [(f"RocksDB: a process that compacts one partition ({nothing['peak'] / MB:.0f} MiB before it begins)", rows)]


def migrations(cache: Path, runs: int) -> list[Table]:
    """Measure migrations of 2M entries against rewriting them and against Spark's repartition, and their memory."""
    return [*_migrate_in_every_way(cache, runs), _measure_migrations(cache, runs)]


def _migrate_in_every_way(cache: Path, runs: int) -> list[Table]:
    checkpoints = make_checkpoints(cache, ["main", "rocksdb"])
    session = spark_session()
    rows: list[Row] = [("", "wall, s", "CPU, s", "CPU, ns per entry", "CPU / rewriting", "goal")]
    spark = ""
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        here = Path(folder)
        for name, what in (("main", "HDFS-backed"), ("rocksdb", "RocksDB")):
            source = checkpoints[name]

            def rewriting(source: Path = source) -> Callable[[], Any]:
                # Nearly all entries are written again, as in a migration.
                return compaction(source, here / "compacted", LocalEngine(1), TIMESTAMP, "59d", NOW)

            subjects: dict[str, Callable[[], Any]] = {
                "compact": rewriting,
                "migrate": partial(migration, source, here / "migrated", LocalEngine(1), partitions=7),
                "convert": partial(migration, source, here / "converted", LocalEngine(1), provider=OTHER[name]),
                "engine": partial(migration, source, here / "shuffled", SparkEngine(session), partitions=7),
                "add": partial(migration, source, here / "added", LocalEngine(1), new_query=OtherSchema(False)),
                "widen": partial(migration, source, here / "widened", LocalEngine(1), new_query=OtherSchema(True)),
            }
            if name == "rocksdb":
                subjects["spark"] = partial(repartition, session, source, here / "repartitioned", 7)
            done = compare(subjects, runs, prepare=True)
            entries = migration(source, here / "counted", LocalEngine(1), partitions=7)().entries
            words = {
                "compact": f"{what}: `compact --rewrite full`, one thread",
                "migrate": f"{what}: `migrate --partitions 7`, one thread",
                "convert": f"{what}: `migrate --provider {OTHER[name]}`, one thread",
                "engine": f"{what}: `migrate --partitions 7 --engine spark`, warm",
                "spark": f"{what}: Spark 4.2's offline repartition, warm",
                "add": f"{what}: `migrate --to`, a column added, one thread",
                "widen": f"{what}: `migrate --to`, a column widened, one thread",
            }
            for subject in subjects:
                ratio = "" if subject == "compact" else f"{done.cpu_ratio(subject, 'compact'):.2f}"
                goal = {"migrate": "at most 3", "add": "at most 2", "widen": "at most 2"}.get(subject, "")
                cost = f"{done.wall(subject):.2f}", f"{done.cpu(subject):.2f}"
                rows.append((words[subject], *cost, f"{done.cpu(subject) / entries * 1e9:.0f}", ratio, goal))
            if name == "rocksdb":
                spark = f"{done.cpu_ratio('spark', 'migrate'):.1f}"
        session.stop()
    ratios: list[Row] = [("", "CPU", "goal"), ("Spark's repartition / `migrate`", spark, "at least 3")]
    return [("2,000,000 entries in 4 partitions", rows), ("Spark's repartition compared with `migrate`", ratios)]


def _measure_migrations(cache: Path, runs: int) -> Table:
    """Measure the peak of memory on one thread, from 1M to 20M entries, beside that of a compaction."""
    small = make_checkpoints(cache, ["small"])["small"]
    rows: list[Row] = [("entries", "change", "peak, MiB", "peak of `compact`, MiB", "CPU, ns per entry")]
    for tiles in (2, 10, 40):
        for change in (("7", "hdfs"), ("4", "rocksdb"), ("7", "rocksdb")):
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                checkpoint = tiled(small, Path(folder, "checkpoint"), tiles)
                words = [sys.executable, str(Path(__file__).with_name("migration_work.py")), str(checkpoint), *change]
                compacting = _worker(checkpoint, 0)["peak"]
                found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            what = f"{change[0]} partitions, {change[1]}"
            peaks = f"{found['peak'] / MB:.0f}", f"{compacting / MB:.0f}"
            rows.append((f"{found['entries']:,}", what, *peaks, f"{found['cpu'] / found['entries'] * 1e9:.0f}"))
    return ("Migration of HDFS-backed state in 4 partitions, one thread", rows)


def operators(cache: Path, runs: int) -> list[Table]:
    """Measure operators with linked entries, against an aggregation of as many entries with the same provider."""
    kinds = {
        "aggregation": "aggregation",
        "join": "stream-stream join, state format {join_format}",
        "sessions": "session windows",
        "variables": "transformWithState, a value and a map",
    }
    tables = []
    for provider in ("hdfs", "rocksdb"):
        names = {kind: f"{provider}-{kind}" for kind in kinds if f"{provider}-{kind}" in SHAPES}
        checkpoints = make_checkpoints(cache, names.values())
        with contextlib.ExitStack() as stack:
            tasks = {kind: stack.enter_context(_half_dropped(kind, checkpoints[name])) for kind, name in names.items()}
            results = {kind: run_serially(tasks[kind]) for kind in names}
            done = compare({kind: _later(run_serially, tasks[kind]) for kind in names}, runs)
        per_entry = "CPU, ns per entry", "per stored one", "against the aggregation, per entry", "per stored one"
        rows: list[Row] = [("", "entries", "expired", "stored", "wall, s", *per_entry, "goal, per entry")]
        for kind, name in names.items():
            cpu, ratio = done.cpu(kind), done.cpu_ratio(kind, "aggregation")
            entries, dropped, stored = count(tasks[kind], results[kind])
            base, _, _ = count(tasks["aggregation"], results["aggregation"])
            rows.append(
                (
                    kinds[kind].format(join_format=SHAPES[name].join_format),
                    f"{entries:,}",
                    f"{dropped / entries:.0%}",
                    f"{stored:,}",
                    f"{done.wall(kind):.2f}",
                    f"{cpu / entries * 1e9:.0f}",
                    f"{cpu / stored * 1e9:.0f}",
                    f"{ratio * base / entries:.2f}",
                    f"{ratio * base / stored:.2f}",
                    "CPU at most 2" if kind != "aggregation" else "",
                )
            )
        tables.append((f"One thread, by operator, {'HDFS-backed' if provider == 'hdfs' else 'RocksDB'}", rows))
    return tables


def exports(cache: Path, runs: int) -> list[Table]:
    """Measure ``export`` to Parquet against Spark's reader and writer, and its memory."""
    titles = {"main": "HDFS-backed", "rocksdb": "RocksDB"}
    checkpoints = make_checkpoints(cache, [*titles, "small"])
    rows: list[Row] = [("state", "Spark, warm, s", "export, s", "Spark / export", "CPU, Spark / export", "goal")]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        here = Path(folder)
        session = spark_session()
        for name, title in titles.items():
            checkpoint = checkpoints[name]
            entries = export_with_ttlsnap(checkpoint, here / "ours")
            done = compare(
                {
                    "spark": partial(export_with_spark, session, checkpoint, here / "spark"),
                    "ours": partial(export_with_ttlsnap, checkpoint, here / "ours"),
                },
                runs,
            )
            ratios = f"{done.wall_ratio('spark', 'ours'):.2f}", f"{done.cpu_ratio('spark', 'ours'):.2f}"
            walls = (f"{done.wall(way):.2f}" for way in ("spark", "ours"))
            rows.append((f"{entries:,} entries, {title}", *walls, *ratios, "wall at least 3"))
        session.stop()
        peaks: list[Row] = [("entries in 4 partitions, HDFS-backed", "peak of a process with 2 threads, MiB")]
        for tiles in (2, 10, 40):
            large = tiled(checkpoints["small"], here / f"tiles-{tiles}", tiles)
            peaks.append((f"{tiles * 500_000:,}", f"{peak_of_export(large, here / 'ours') / MB:.0f}"))
            shutil.rmtree(large)
    return [("Export to Parquet on the same cores", rows), ("Memory of an export", peaks)]


def imports(cache: Path, runs: int) -> list[Table]:
    """Measure ``import`` of a state's own export against rewriting the state, and its memory."""
    titles = {"main": "HDFS-backed", "rocksdb": "RocksDB"}
    checkpoints = make_checkpoints(cache, [*titles, "small"])
    rows: list[Row] = [("state", "rewriting, s", "import, s", "CPU, import / rewriting", "goal")]
    peaks: list[Row] = [("rows into 4 partitions, HDFS-backed", "peak of a process with 1 thread, MiB")]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        here = Path(folder)
        for name, title in titles.items():
            source = checkpoints[name]
            entries = export_with_ttlsnap(source, here / "exported")
            done = compare(
                {
                    # Nearly all entries are written again, as in an import.
                    "compact": partial(compaction, source, here / "compacted", LocalEngine(1), TIMESTAMP, "59d", NOW),
                    "import": partial(importing, source, here / "imported", here / "exported"),
                },
                runs,
                prepare=True,
            )
            walls = (f"{done.wall(way):.2f}" for way in ("compact", "import"))
            ratio = f"{done.cpu_ratio('import', 'compact'):.2f}"
            rows.append((f"{entries:,} rows, {title}, one thread", *walls, ratio, "at most 2"))
        for tiles in (2, 10, 40):
            large = tiled(checkpoints["small"], here / f"tiles-{tiles}", tiles)
            export_with_ttlsnap(large, here / "exported")
            peaks.append((f"{tiles * 500_000:,}", f"{peak_of_import(large, here / 'exported') / MB:.0f}"))
            shutil.rmtree(large)
    return [
        ("Import from Parquet, and `compact --rewrite full` of the same state", rows),
        ("Memory of an import", peaks),
    ]


def inspect(cache: Path, runs: int) -> list[Table]:
    """Measure ``inspect`` and dry runs of ``compact`` as whole processes, on a few large and on many small files.

    ``inspect --sizes`` and ``explain`` are compared with a dry run.
    """
    checkpoints = make_checkpoints(cache, ["main", "many", "rocksdb"])
    nothing = ("--ttl", "36500d", "--timestamp", TIMESTAMP, "--now", NOW, "--dry-run", "--engine", "local")
    commands: dict[str, tuple[tuple[Any, ...], str]] = {
        "inspect, 2M entries in 4 partitions": (("inspect", checkpoints["main"]), "0.5"),
        "inspect, 200 partitions, 50 versions": (("inspect", checkpoints["many"]), "0.5"),
        "compact --dry-run, 200 partitions, 50 versions": (("compact", checkpoints["many"], *nothing), "2"),
    }
    done = compare({name: partial(run_command, *command) for name, (command, _) in commands.items()}, 2 * runs)
    rows: list[Row] = [("command", "wall, s", "CPU, s", "goal, wall under")]
    rows += [(name, f"{done.wall(name):.2f}", f"{done.cpu(name):.2f}", goal) for name, (_, goal) in commands.items()]
    scans: list[Row] = [("state", "command", "wall, s", "a dry run of compact, wall s", "ratio", "goal")]
    rule = ("--ttl", TTL, "--timestamp", TIMESTAMP, "--now", NOW)
    for name, title in (("main", "2M entries, HDFS-backed"), ("rocksdb", "2M entries, RocksDB")):
        target = checkpoints[name]
        samples = inspect_state(str(target), entries=1).samples
        assert samples
        key = json.dumps(samples[0]["key"])
        ways: dict[str, tuple[Any, ...]] = {
            "inspect --sizes": ("inspect", target, "--sizes", *rule),
            "explain": ("explain", target, "--key", key, *rule),
            "compact": ("compact", target, *rule, "--dry-run", "--engine", "local"),
        }
        done = compare({way: partial(run_command, *command) for way, command in ways.items()}, runs)
        for way, goal in (("inspect --sizes", "at most 2"), ("explain", "about 1")):
            walls = (f"{done.wall(each):.2f}" for each in (way, "compact"))
            scans.append((title, way, *walls, f"{done.wall_ratio(way, 'compact'):.2f}", goal))
    return [("From start to exit", rows), ("Sizes of a state, and the decision about one key, on all cores", scans)]


def checking(cache: Path, runs: int) -> list[Table]:
    """Measure ``check`` and ``contract`` as whole processes, and ``doctor`` against a dry run of ``compact``."""
    checkpoints = make_checkpoints(cache, ["main", "many", "rocksdb"])
    many = checkpoints["many"]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        contract = Path(folder, "contract.json")
        run_command("contract", many, "--output", contract)
        build = ("--schema", "user string, amount bigint", "--output-mode", "update")
        subjects: dict[str, tuple[tuple[Any, ...], str]] = {
            "--help": (("--help",), "wall under 0.2"),
            "check, two contracts": (("check", contract, contract), "wall under 0.3"),
            "check, two checkpoints, 200 partitions": (("check", many, many), "wall under 0.5"),
            "contract of a function": (("contract", "queries:by_user", *build), "a Spark start, and some seconds"),
        }
        done = compare({name: partial(run_command, *command) for name, (command, _) in subjects.items()}, runs)
        rows: list[Row] = [("command", "wall, s", "CPU, s", "goal")]
        for name, (_, goal) in subjects.items():
            rows.append((name, f"{done.wall(name):.2f}", f"{done.cpu(name):.2f}", goal))
    scans: list[Row] = [("checkpoint", "doctor, wall s", "a dry run of compact, wall s", "ratio", "goal")]
    for name, title in (("main", "2M entries, HDFS-backed"), ("rocksdb", "2M entries, RocksDB")):
        drop = ("--ttl", TTL, "--timestamp", TIMESTAMP, "--now", NOW, "--dry-run", "--engine", "local")
        ways = {"doctor": ("doctor", checkpoints[name]), "compact": ("compact", checkpoints[name], *drop)}
        done = compare({way: partial(run_command, *command) for way, command in ways.items()}, runs)
        walls = (f"{done.wall(way):.2f}" for way in ways)
        scans.append((title, *walls, f"{done.wall_ratio('doctor', 'compact'):.2f}", "about 1"))
    return [("`ttlsnap check` and `contract`, from start to exit", rows), ("`ttlsnap doctor`, on all cores", scans)]


def copying(cache: Path, runs: int) -> list[Table]:
    """Measure ``copy`` against ``cp``, ``sync`` and ``sha256sum`` of the same files, and a copy onto an earlier one."""
    checkpoints = make_checkpoints(cache, ["main", "rocksdb", "many"])
    rows: list[Row] = [
        ("checkpoint", "copy --verify, wall s", "by hand, wall s", "onto, wall s", "copy / by hand", "onto / copy")
    ]
    for name, title, tiles in (
        ("many", "HDFS-backed, 200 partitions", 1),
        ("rocksdb", "RocksDB", 1),
        ("main", "HDFS-backed", 1),
        ("main", "HDFS-backed", 32),
    ):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            source = checkpoints[name] if tiles == 1 else tiled(checkpoints[name], Path(folder, "source"), tiles)
            work = Copying(source, Path(folder))
            done = compare({"copy": work.copy, "cp": work.by_hand, "onto": work.onto}, runs)
            size = f"{len(work.sizes):,} files, {sum(work.sizes) / 1e6:.0f} MB"
            walls = (f"{done.wall(way):.2f}" for way in ("copy", "cp", "onto"))
            ratios = (f"{done.wall_ratio('copy', 'cp'):.2f}", f"{done.wall_ratio('onto', 'copy'):.2f}")
            rows.append((f"{title}: {size}", *walls, *ratios))
    return [("`ttlsnap copy` on one disk, from start to exit", rows)]


def tables(cache: Path, runs: int) -> list[Table]:
    """Measure Delta tables against Delta's own statements, in one session."""
    from table_work import FILES, ROWS, DeltaTable, session

    changed: list[Row] = [("table", "what", "ttlsnap, s", "by hand, s", "wall ratio", "goal")]
    looked: list[Row] = [("table", "dry run, s", "counting query, s", "wall ratio", "files opened", "goal")]
    with session() as spark, tempfile.TemporaryDirectory(dir=cache) as folder:
        for by_time in (False, True):
            for vectors in (False, True):
                table = DeltaTable(spark, cache, by_time, vectors)
                title = f"{'by time' if by_time else 'spread'}{', deletion vectors' if vectors else ''}"
                done = compare(
                    {"ours": table.restored(table.compact), "hand": table.restored(table.delete)}, runs, prepare=True
                )
                goal = "-" if by_time else "1.15"
                changed.append((title, "TTL, `DELETE`", *_against(done), goal))
                table.restored(table.count)()
                done = compare({"ours": partial(table.compact, dry_run=True), "hand": table.count}, runs)
                report = table.compact(dry_run=True)
                opened = f"{report.opened} of {report.files}"
                looked.append((title, *_against(done), opened, "0.1" if by_time else "-"))
                if not by_time:
                    changes = table.changes(Path(folder))
                    for what, compared in (("scan and `MERGE`", False), ("scan and comparing `MERGE`", True)):
                        by_hand = table.restored(partial(table.scan_and_merge, changes, compared=compared))
                        done = compare({"ours": table.restored(table.rewrite), "hand": by_hand}, runs, prepare=True)
                        changed.append((title, f"1 % rewritten, {what}", *_against(done), "-" if compared else "1.3"))
    of = f"{ROWS // 1_000_000}M rows in {FILES} files, half of them expired"
    return [(f"Delta tables, {of}", changed), ("Dry runs of a TTL on them", looked)]


def maintaining(cache: Path, runs: int) -> list[Table]:
    """Measure ``ttlsnap maintain``: the cost of a target, and several targets at a time."""
    per: list[Row] = [("engine", "1 target, s", "20 targets, s", "each further target, s", "goal")]
    beside: list[Row] = [("engine", "one partition at a time, s", "two, s", "wall ratio")]
    one = make_checkpoints(cache, ["one"])["one"]
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder = Path(name)
        for engine in ("local", "spark"):
            with_it = ("--engine", engine)
            some = {n: maintenance(folder / str(n), SMALL, n, "7d", *with_it) for n in (1, 20)}
            done = compare({str(n): ready for n, ready in some.items()}, runs, prepare=True)
            each = (done.wall("20") - done.wall("1")) / 19
            per.append((engine, f"{done.wall('1'):.2f}", f"{done.wall('20'):.2f}", f"{each:.2f}", "under 1"))
            ways = {
                str(n): maintenance(folder / f"p{n}", one, 8, TTL, *with_it, "--parallelism", str(n), now=NOW)
                for n in (1, 2)
            }
            done = compare(ways, runs, prepare=True)
            ratio = f"{done.wall_ratio('1', '2'):.2f}"
            beside.append((engine, f"{done.wall('1'):.2f}", f"{done.wall('2'):.2f}", ratio))
    return [
        ("`ttlsnap maintain`, small checkpoints of two partitions, from start to exit", per),
        ("`ttlsnap maintain`, eight targets of one partition with 2,000,000 entries", beside),
    ]


def clusters(cache: Path, runs: int) -> list[Table]:
    """Measure the Spark engine on a standalone cluster, with one executor and with two."""
    small = make_checkpoints(cache, ["small"])["small"]
    found: dict[int, list[float]] = {1: [], 2: []}
    tiles = 48
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder = Path(name)
        checkpoint = tiled(small, folder / "c", tiles)
        with cluster(2, folder) as master:
            for _ in range(runs):
                for executors, walls in found.items():
                    walls += seconds(master, executors, checkpoint, 1)
    entries = SHAPES["small"].entries * tiles
    rows: list[Row] = [("executors, a core each", "wall, s", "entries a second", "against one", "goal")]
    for executors, walls in found.items():
        wall = statistics.median(walls)
        ratio = statistics.median(a / b for a, b in zip(found[1], walls, strict=True))
        goal = "at least 1.7" if executors > 1 else ""
        rows.append((str(executors), f"{wall:.2f}", f"{entries / wall:,.0f}", f"{ratio:.2f}", goal))
    return [(f"A standalone cluster, {entries:,} entries in {4 * tiles} partitions", rows)]


def objects(cache: Path, runs: int) -> list[Table]:
    """Measure a small checkpoint in an object store, with one request at a time, and with many."""
    checkpoint = make_checkpoints(cache, ["some"])["some"]
    rows: list[Row] = [("requests at a time", "requests", "wall, s", "against one")]
    with late_store() as (bucket, proxy):
        ways = {str(n): remote_compaction(checkpoint, bucket, proxy, TIMESTAMP, TTL, NOW, n) for n in (1, AT_ONCE)}
        done = compare(ways, runs, prepare=True)
        for name in ways:
            rows.append((name, f"{len(proxy.seen):,}", f"{done.wall(name):.1f}", f"{done.wall_ratio('1', name):.1f}"))
    title = f"`compact` of 32 small partitions in S3, each request {1000 * LATENCY:.0f} ms away"
    return [(title, rows)]


def costs(cache: Path, runs: int) -> list[Table]:
    """Derive models of CPU time and of requests from small states, and test them on larger ones."""
    return [
        table for provider in ("", "rocksdb-") for table in (_cpu_model(cache, provider), _requests(cache, provider))
    ]


def _cpu_model(cache: Path, provider: str) -> Table:
    """Return what ``compact`` costs on a cluster, with a model of its CPU time."""
    names = {name: f"{provider}{name}" for name in ("some", "visits", "visits-large")}
    found = make_checkpoints(cache, names.values())
    rows: list[Row] = [("partitions", "entries", "wall, s", "CPU, s", "model, s", "ratio", "peak of a worker, MiB")]
    with tempfile.TemporaryDirectory(dir=cache) as name, cluster(EXECUTORS, Path(name)) as master:

        def run(source: str, partitions: int) -> Run:
            folders = Path(name, "first"), Path(name, "measured")
            with application(master) as spark:
                # The first run starts the Python workers, and lets Java compile.
                spark.compact(spread(found[names["some"]], folders[0], 64))
                done = spark.compact(spread(found[names[source]], folders[1], partitions))
            for folder in folders:
                shutil.rmtree(folder)
            return done

        model = Model.of([run("some", 8), run("some", 200), run("visits", 50), run("visits", 100)])
        for done in (run("visits", 25), run("visits", 200), run("visits-large", 200)):
            cpu = model.cpu(done.partitions, done.entries)
            costs = f"{done.cost.wall:.1f}", f"{done.cost.cpu:.1f}", f"{cpu:.1f}", f"{done.cost.cpu / cpu:.2f}"
            rows.append((str(done.partitions), f"{done.entries:,}", *costs, f"{done.worker_mib:.0f}"))
    words = (
        f"{model.run:.1f} s + {1000 * model.partition:.0f} ms a partition + {model.million:.2f} s per million entries"
    )
    return (f"{_store(provider)}, {EXECUTORS} executors with a core each. The model of CPU time: {words}", rows)


def _requests(cache: Path, provider: str) -> Table:
    """Return the requests and bytes of ``compact`` in an object store, with a model of the requests."""
    found = make_checkpoints(cache, [f"{provider}some", f"{provider}visits"])
    reading, writing = ("GET", "HEAD"), ("PUT", "POST", "DELETE")
    rows: list[Row] = [
        ("partitions", "MB of state", "reading requests", "writing requests", "model", "MB read", "MB written")
    ]
    with tempfile.TemporaryDirectory(dir=cache) as name, late_store() as (bucket, proxy):

        def run(source: str, partitions: int) -> tuple[float, list[int], tuple[float, float]]:
            checkpoint = spread(found[f"{provider}{source}"], Path(name, "checkpoint"), partitions, checksums=False)
            size = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()) / MB
            remote_compaction(checkpoint, bucket, proxy, TIMESTAMP, TTL, NOW, AT_ONCE, late=False)()()
            shutil.rmtree(checkpoint)
            counts = [sum(request.method in kinds for request in proxy.seen) for kinds in (reading, writing)]
            return size, counts, (proxy.downloaded / MB, proxy.uploaded / MB)

        few, more = (sum(run("some", partitions)[1]) for partitions in (8, 16))
        each = (more - few) / 8
        for source, partitions in (("some", 32), ("some", 128), ("visits", 16)):
            size, counts, moved = run(source, partitions)
            model = few + each * (partitions - 8)
            row = (partitions, f"{size:.0f}", *counts, f"{model:.0f}", *(f"{size:.0f}" for size in moved))
            rows.append(tuple(map(str, row)))
    words = f"{few - 8 * each:.0f} + {each:.0f} a partition"
    return (f"{_store(provider)} in S3. The model of requests: {words}", rows)


def _store(provider: str) -> str:
    return "RocksDB" if provider else "HDFS-backed"


PARTS: dict[str, Callable[[Path, int], list[Table]]] = {
    "engines": engines,
    "large": large,
    "states": states,
    "memory": memory,
    "rocksdb": rocksdb,
    "migrations": migrations,
    "operators": operators,
    "exports": exports,
    "imports": imports,
    "inspect": inspect,
    "check": checking,
    "copies": copying,
    "tables": tables,
    "maintain": maintaining,
    "cluster": clusters,
    "objects": objects,
    "costs": costs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures ttlsnap.")
    parser.add_argument("--cache", type=Path, help="where checkpoints are kept; left out: a temporary folder")
    parser.add_argument("--runs", type=int, default=5, help="rounds of each comparison")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--markdown", type=Path, help="a file whose tables to replace")
    options = parser.parse_args()
    with _cache(options.cache) as cache:
        for name, part in PARTS.items():
            if options.only not in (None, name):
                continue
            text = "\n".join(_markdown(*table) for table in part(cache, options.runs))
            print(text, flush=True)
            if options.markdown is not None:
                first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
                before, _, rest = options.markdown.read_text().partition(first)
                options.markdown.write_text(f"{before}{first}{text}\n{last}{rest.partition(last)[2]}")


@contextlib.contextmanager
def _cache(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="ttlsnap-benchmark-") as temporary:
        yield Path(temporary)


def _nothing(task: PartitionTask) -> PartitionTask:
    """Return a task without files, whose cost is that of the engine."""
    nothing = Lineage(task.stores[0].lineage.version, None, (), (), "")
    return replace(task, stores=(replace(task.stores[0], lineage=nothing),), staged_below=None)


def _half_dropped(query: str, checkpoint: Path) -> contextlib.AbstractContextManager[list[PartitionTask]]:
    """Return tasks that drop about half of the entries.

    They use the aggregation's own field, or the time that Spark stores.
    """
    if query in OWN_TTL:
        return planned(checkpoint, None, None, half_expired(checkpoint))
    return planned(checkpoint, timestamp=TIMESTAMP if query == "aggregation" else None)


def _later(function: Callable[[Any], object], argument: Any) -> Callable[[], object]:
    return lambda: function(argument)


def _worker(checkpoint: Path, partition: int, *way: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "worker.py"), str(checkpoint), str(partition), *way]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return figures


def _against(done: Comparison) -> tuple[str, str, str]:
    return f"{done.wall('ours'):.2f}", f"{done.wall('hand'):.2f}", f"{done.wall_ratio('ours', 'hand'):.2f}"


def _ratio(what: str, done: Comparison, name: str, base: str, goal: str) -> Row:
    return what, f"{done.wall_ratio(name, base):.2f}", f"{done.cpu_ratio(name, base):.2f}", goal


def _markdown(title: str, rows: list[Row]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join([f"{title}:", "", *lines, ""])


if __name__ == "__main__":
    main()
