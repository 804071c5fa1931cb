"""Spark and its operator: a query, its maintenance, and the person who sets a batch back.

A query runs a batch in these steps. It writes the offsets, or stops if they exist. Each partition loads the state, and
writes the next version through a temporary file. The sink takes the rows, unless it already has that batch. The query
writes the commit, or stops if it exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from .disk import (
    LOST,
    PARTITIONS,
    Delta,
    Disk,
    Full,
    N,
    commits,
    delta,
    full,
    load,
    load_all,
    offsets,
    shadows,
    table,
    temporary,
    version_of,
)
from .world import Query, Scenario, World

Steps = Iterator[tuple[str, World]]


def steps(scenario: Scenario, world: World) -> Steps:
    """Yield everything that Spark, its operator, or time can do next."""
    if world.query is not None:
        yield from _batch(scenario, world, world.query)
        yield from _stop(world, world.query)
        yield from _upload(world, world.query)
        yield from _clean_up(world, world.query)
    else:
        yield from _start(scenario, world)
        yield from _set_back(scenario, world)
    yield from _tamper(world)
    if not world.quiet and not _is_busy(scenario, world):
        yield "time passes", world._replace(quiet=True)


def is_unfenced(scenario: Scenario, world: World) -> bool:
    """Return whether somebody has removed the fence of an open run by hand."""
    journal = world.disk.open_journal
    return journal is not None and journal.fence not in world.disk and world.left.unfences < scenario.left.unfences


def _is_busy(scenario: Scenario, world: World) -> bool:
    """Return whether the query will change a file before the logs count as old."""
    query = world.query
    if query is None:
        return False
    in_batch = scenario.assumes.batches_end and query.step != "idle"
    is_uploading = scenario.assumes.uploads_end and any(True for _ in _upload(world, query))
    return in_batch or is_uploading


def _batch(scenario: Scenario, world: World, query: Query) -> Steps:
    disk, batch = world.disk, query.batch
    writer = world.left.starts  # differs for each query
    unfinished = f"state/0/.{batch + 1}.{writer}.tmp"

    def then(label: str, step: str, new: Disk | None = None, quiet: bool | None = None, **changes: object) -> Steps:
        after = query._replace(step=step, **changes)  # type: ignore[arg-type]
        is_quiet = world.quiet if quiet is None else quiet
        yield f"query: {label}", world._replace(disk=disk if new is None else new, quiet=is_quiet, query=after)

    if query.step == "idle":
        if batch > scenario.last_batch or (scenario.assumes.fence_stays and is_unfenced(scenario, world)):
            return
        if offsets(batch) in disk:
            yield f"query: finds batch {batch} taken, and stops", world._replace(query=None)
            return
        text = f"batch {batch}" + (" again" if batch == N else "")
        yield from then(f"starts batch {batch}", "load", disk.put(offsets(batch), text), quiet=False, text=text)
    elif query.step == "load":
        missing = [partition for partition in PARTITIONS if query.memory[partition] is None]
        if not missing:
            yield from then("opens a temporary file", "write 0", disk.put(unfinished, batch), quiet=False)
            return
        for misread in (False, True) if world.left.misreads else (False,):
            flavour = load(disk, missing[0], batch, scenario.kind, misread=misread)
            if flavour == LOST:
                yield "query: cannot load its state, and stops", world._replace(query=None)
                continue
            memory = tuple(flavour if partition == missing[0] else query.memory[partition] for partition in PARTITIONS)
            is_zip = scenario.kind == "zip" and missing[0] == 0
            tables = disk[full(0, batch, "zip")].tables if is_zip else query.tables
            label = f"loads partition {missing[0]} ({flavour})" + " from an older snapshot" * misread
            for words, after in then(label, "load", memory=memory, tables=tables):
                yield words, after.spend("misreads") if misread else after
    elif query.step.startswith("write"):
        partition = int(query.step[-1])
        base = query.memory[partition]
        assert base is not None
        result = "again" if batch == N else base
        if scenario.kind == "zip":
            tables = query.tables if partition == 0 else ()
            written = disk.put(full(partition, batch + 1, "zip"), Full(result, tables, writer))
        else:
            written = disk.put(delta(partition, batch + 1), Delta(base, result, writer))
        memory = tuple(result if p == partition else query.memory[p] for p in PARTITIONS)
        if partition == PARTITIONS[-1]:
            written = written.without(unfinished)
        step = "write 1" if partition == 0 else "sink"
        yield from then(f"writes version {batch + 1} of partition {partition}", step, written, memory=memory)
    elif query.step == "sink":
        there = disk.get(f"sink/{batch}")
        label = "the sink takes the rows" if there is None else f"the sink skips the rows, it has {there!r}"
        yield from then(label, "commit", disk.put(f"sink/{batch}", there or query.text))
    else:
        if commits(batch) in disk:
            yield f"query: finds batch {batch} committed, and stops", world._replace(query=None)
            return
        for label, after in then(
            f"commits batch {batch}",
            "idle",
            disk.put(commits(batch), query.text),
            quiet=False,
            batch=batch + 1,
            is_rerun=False,
            text="",
        ):
            yield label, after._replace(again=after.again or batch == N)


def _stop(world: World, query: Query) -> Steps:
    if query.step == "idle":
        yield "query: is stopped", world._replace(query=None)
    elif world.left.crashes:
        yield "query: is killed", world.spend("crashes")._replace(query=None)


def _start(scenario: Scenario, world: World) -> Steps:
    disk = world.disk
    if not world.left.starts or disk.fence is not None:
        return
    if scenario.assumes.fence_stays and is_unfenced(scenario, world):
        return
    batch, committed = disk.begun, disk.committed
    is_hidden = world.again and not load_all(disk, committed + 1, scenario.kind).startswith("again")
    if is_hidden and shadows(disk) and scenario.assumes.warned:
        return
    if batch == committed:
        yield "query: starts", world.spend("starts")._replace(query=Query("idle", batch + 1))
    elif batch == committed + 1 and batch <= scenario.last_batch:
        query = Query("load", batch, text=disk[offsets(batch)], is_rerun=True)
        yield f"query: starts, to run batch {batch} again", world.spend("starts")._replace(query=query)


def _upload(world: World, query: Query) -> Steps:
    """Yield uploads of maintenance: a snapshot of the newest version in memory, if there is none (HDFS-backed)."""
    disk = world.disk
    if query.upload is not None:
        path, content = query.upload
        done = disk.without(temporary(path)).put(path, content)
        yield f"maintenance: has uploaded {path}", world._replace(disk=done, query=query._replace(upload=None))
        return
    if not world.left.uploads or any(path.endswith(".zip") for path in disk):
        return
    for partition in PARTITIONS:
        flavour = query.memory[partition]
        last = max(version_of(path) for path in disk if path.startswith(f"state/{partition}/"))
        has_written = {"write 1": partition == 0, "sink": True, "commit": True}.get(query.step, False)
        path = full(partition, last, "snapshot")
        if flavour is None or query.batch + has_written != last or path in disk:
            continue
        begun, uploading = disk.put(temporary(path), "a snapshot"), query._replace(upload=(path, Full(flavour)))
        after = world.spend("uploads")._replace(disk=begun, quiet=False, query=uploading)
        yield f"maintenance: begins to upload {path}", after


def _clean_up(world: World, query: Query) -> Steps:
    """Yield a cleanup, which retains the last two committed versions and the files that they need.

    It removes tables that no zip names if they are older than every table that a zip names.
    """
    disk, retained = world.disk, world.disk.committed
    if not world.left.cleanups or retained <= N:
        return
    gone: list[str] = []
    for partition in PARTITIONS:
        files = {path: version_of(path) for path in disk if path.startswith(f"state/{partition}/") and version_of(path)}
        snapshots = {path: v for path, v in files.items() if not path.endswith("delta")}
        first = max((v for v in snapshots.values() if v <= retained), default=0)
        gone += (path for path, v in files.items() if v < first)
        kept = {number for path, v in snapshots.items() if v >= first for number in disk[path].tables}
        kept |= set(query.tables) if partition == 0 else set()
        last_used = {number for path, v in snapshots.items() if v < first for number in disk[path].tables}
        there = {int(path.rpartition("/")[2]) for path in disk if path.startswith(f"state/{partition}/SSTs")}
        orphans = {number for number in there - last_used if number < min(kept | last_used, default=0)}
        gone += (table(partition, number) for number in (last_used | orphans) - kept)
    if gone:
        yield f"maintenance: removes {', '.join(gone)}", world.spend("cleanups")._replace(disk=disk.without(*gone))


def _set_back(scenario: Scenario, world: World) -> Steps:
    """Yield how an operator of a stopped query sets a batch back: its logs and its rows in the sink disappear.

    Two cases need an operator's care even without ttlsnap, so they are omitted. A snapshot of Spark itself hides a
    rerun, too. A query cannot run a batch again from a version that is not retained.
    """
    if not world.left.set_backs or world.disk.fence is not None:
        return
    for batch in (N, N + 1):
        has_snapshot = scenario.kind == "snapshot" and (scenario.snapshotted or scenario.uncommitted)
        if commits(batch) not in world.disk or (batch == N and has_snapshot):
            continue
        if load_all(world.disk, batch, scenario.kind) != LOST:
            later = range(batch, N + 3)
            disk = world.disk.without(*(f"{log}/{n}" for log in ("offsets", "commits", "sink") for n in later))
            again = world.again and batch > N
            yield f"operator: sets batch {batch} back", world.spend("set_backs")._replace(disk=disk, again=again)


def _tamper(world: World) -> Steps:
    run = world.disk.fence
    if run is not None and world.left.unfences:
        disk = world.disk.without(offsets(world.disk.begun))
        yield "operator: removes the fence by hand", world.spend("unfences")._replace(disk=disk)
    is_idle = world.a is None and world.b is None and world.disk.open_journal is None
    if is_idle and world.left.removals and any(path.startswith("runs/") for path in world.disk):
        disk = Disk({path: content for path, content in world.disk.items() if not path.startswith("runs/")})
        yield "operator: removes the folder _ttlsnap", world.spend("removals")._replace(disk=disk)
