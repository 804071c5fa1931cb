"""The conditions that hold in every world.

whole        a query that is started now loads the old state or the new state, never a mixture
kept         no file is lost that a committed version or an undo needs
copied       some copy exists of version V, and of every table that a version needs, in its place or elsewhere
delivered    the sink has the rows of every committed batch
taken back   after a rollback, nothing of the run that it undoes is in place
recovered    ``whole`` and ``kept`` hold after all processes are killed and ``recover`` or ``recover --undo`` has run
named        the command that a fence or a warning names succeeds
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import commands, spark
from .disk import (
    LOST,
    PARTITIONS,
    Disk,
    Journal,
    N,
    V,
    commits,
    delta,
    full,
    has_state,
    is_done,
    is_snapshot,
    load_all,
    named_tables,
    offsets,
    shadows,
    table,
    version_of,
)
from .world import Process, Scenario, World

Invariant = Callable[[Scenario, World], str | None]


def violation(scenario: Scenario, world: World, names: Sequence[str]) -> str | None:
    """Return the first violation in a world, beginning with the name of the invariant, or None."""
    for name in names:
        wrong = INVARIANTS[name](scenario, world)
        if wrong is not None:
            return f"{name}: {wrong}"
    return None


def whole(scenario: Scenario, world: World) -> str | None:
    """Return what is wrong with the state that a new query would load, or None.

    Spark does not notice a snapshot of ttlsnap that hides a rerun, but ttlsnap must be able to recognise it.
    """
    disk = world.disk
    if disk.fence is not None or (scenario.assumes.fence_stays and spark.is_unfenced(scenario, world)):
        return None
    begun, committed = disk.begun, disk.committed
    if begun - committed not in (0, 1) or (begun > committed and offsets(begun - 1) not in disk):
        return f"batch {begun} is the newest and {committed} the last committed, with which Spark does not start"
    flavour = load_all(disk, committed + 1, scenario.kind)
    is_right = flavour.startswith("again" if world.again else "old")
    if is_right or (flavour != LOST and shadows(disk)):
        return None
    return f"a query that starts loads {flavour}" + (" instead of the rerun" if world.again else "")


def kept(scenario: Scenario, world: World) -> str | None:
    """Return which file is lost that a committed version or an undo needs, or None.

    While a run moves files behind its fence, an undo needs all of them.
    """
    disk = world.disk
    for journal in disk.journals:
        if not _is_moving(disk, journal):
            continue
        ends = {move.source: move.target for move in journal.moves}
        for path, content in journal.before:
            # A version that is not committed is written again when its batch runs again.
            is_committed = version_of(path[path.find("state") :]) <= journal.batch + 1
            if is_committed and content not in (disk.get(path), disk.get(ends.get(path, path))):
                return f"{path} is gone, and an undo needs it"
    for number in _needed_tables(disk) if scenario.kind == "zip" else ():
        if table(0, number) not in disk:
            return f"table {number} is gone, and a committed version names it"
    return None


def _needed_tables(disk: Disk) -> set[int]:
    """Return the tables that a committed version names, except those that a run is moving."""
    moving = [journal for journal in disk.journals if _is_moving(disk, journal)]
    in_flux = [end for journal in moving for move in journal.moves for end in move]
    later = [full(0, version, "zip") for version in range(disk.committed + 2, disk.committed + 4)]
    return named_tables(disk, 0, [*later, *in_flux])


def _is_moving(disk: Disk, journal: Journal) -> bool:
    done = [is_done(disk, move) for move in journal.moves]
    return journal.status == "open" and any(done) and not (all(done) and disk.fence != journal.run)


def copied(scenario: Scenario, world: World) -> str | None:
    """Return which version or table has no copy, or None. A copy may be in its place, staged, or in a backup."""
    for partition in PARTITIONS if world.disk.committed == N else ():
        names = (full(partition, V, scenario.kind), delta(partition, V))
        if not any(path.endswith(names) for path in world.disk):
            return f"no copy of {names[0]} is left"
    for number in _needed_tables(world.disk):
        if not any(path.endswith(table(0, number)) for path in world.disk):
            return f"no copy of table {number} is left, and a version names it"
    return None


def named(scenario: Scenario, world: World) -> str | None:
    """Return why the command that a fence or a warning names would not help, or None.

    A fence names ``recover``, which can always end the run. The warning of a hidden batch names its own command.
    """
    disk, stopped = world.disk, world._replace(quiet=True, a=None, b=None, query=None)
    journal, run = disk.open_journal, disk.fence
    if run is not None and (journal is None or journal.run != run):
        return f"the fence of run {run} has no open journal"
    if journal is None:
        command = _advised(disk)
        if command is not None and shadows(run_alone(scenario, stopped, command).disk):
            return f"a batch is hidden, and {command} does not help"
        return None
    # The user may wait for the files that recover names, or move them away.
    appeared = [move.source for move in journal.to_backup if move.source in disk and move.target in disk]
    waiting = {move.source for move in journal.to_backup if move.target not in disk}
    appeared += [m.target for m in journal.new if m.source in disk and m.target in disk and m.target not in waiting]
    cleared = stopped._replace(disk=disk.without(*appeared, *([] if run == journal.run else [journal.fence])))
    for before in (world, stopped, cleared):
        for command in ("recover", "undo"):
            after = run_alone(scenario, before, command)
            if after.disk.open_journal is None and (before is not cleared or whole(scenario, after) is None):
                return None
    return f"neither recover nor undo ends run {journal.run}"


def _advised(disk: Disk) -> str | None:
    """Return the command that the warning of a hidden batch names, or None."""
    last = disk.last_done
    if not shadows(disk) or last is None:
        return None
    is_last = last.kind == "compact" and any(path in shadows(disk) for path, _ in last.published)
    can_roll_back = is_last and all(move.target in disk for move in last.to_backup)
    return "rollback" if can_roll_back and offsets(last.batch) not in disk else "repair"


def recovered(scenario: Scenario, world: World) -> str | None:
    """Return what is wrong after every process is killed and ``recover`` or ``recover --undo`` has run, or None."""
    for command in ("recover", "undo") if world.disk.open_journal is not None else ():
        after = run_alone(scenario, world, command)
        wrong = None if after.disk.open_journal is not None else whole(scenario, after) or kept(scenario, after)
        if wrong is not None:
            return f"after {command} {wrong}"
    return None


def delivered(scenario: Scenario, world: World) -> str | None:
    """Return which committed batch the sink does not have, or None.

    A sink skips a batch that it already has, even if the rows differ.
    """
    disk = world.disk
    for batch in range(N, disk.committed + 1):
        text, taken = disk.get(commits(batch)), disk.get(f"sink/{batch}")
        if text is not None and taken != text:
            return f"{text!r} is committed as batch {batch}, and the sink has {taken!r} as that batch"
    return None


def taken_back(scenario: Scenario, world: World) -> str | None:
    """Return which planned batch a rollback has left, or None. It may stay if Spark has begun to run it."""
    disk, last = world.disk, world.disk.last_done
    if last is None or last.kind != "rollback" or disk.open_journal is not None:
        return None
    is_begun = (
        f"sink/{last.batch + 1}" in disk
        or has_state(disk, last.batch + 1)
        or any(is_snapshot(move.source, V + 1) for move in last.moves)
    )
    if disk.get(offsets(last.batch + 1)) == f"planned by {last.undoes}" and not is_begun:
        return f"the planned batch of run {last.undoes} is still there"
    return None


def run_alone(scenario: Scenario, world: World, command: str) -> World:
    """Return the world after a command that nobody disturbs."""
    process: Process | None = commands.start(command)
    while process is not None:
        world, process = commands.advance(scenario, world, process)
    return world


INVARIANTS: dict[str, Invariant] = {
    "whole": whole,
    "kept": kept,
    "copied": copied,
    "delivered": delivered,
    "taken back": taken_back,
    "recovered": recovered,
    "named": named,
}
ALL = tuple(INVARIANTS)
