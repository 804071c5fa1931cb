"""ttlsnap's commands. Each is a process that takes one step at a time, and can be killed between any two steps.

compact    plan, stage, preserve, journal, fence, check, move..., recheck, end, done, forget
rollback   plan, journal, fence, check, move..., recheck, end, done
repair     the same: ``doctor --fix hidden-batch`` moves to a backup the snapshots that hide a batch which was run again
recover    settle, then move..., recheck, end, done; or undo..., lower, undone, discard
undo       ``recover --undo``
prune      ``history --prune``, in one step
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .disk import (
    LOST,
    MIXED,
    PARTITIONS,
    Disk,
    Full,
    Journal,
    Move,
    N,
    V,
    activity,
    backup,
    commits,
    delta,
    find_held_tables,
    full,
    has_state,
    is_done,
    is_snapshot,
    is_state,
    load_all,
    named_tables,
    offsets,
    rewritten,
    shadows,
    staged,
    table,
    temporary,
    unclear,
    was_run_again,
)
from .world import Process, Scenario, World

Step = Callable[[Scenario, World, Process], tuple[World, Process | None]]
Next = tuple[World, Process | None]


def advance(scenario: Scenario, world: World, process: Process) -> Next:
    """Return the world after the process's next step, and the process, or None if it has ended."""
    return STEPS[process.step](scenario, world, process)


def start(command: str) -> Process:
    """Return a command before its first step."""
    return Process(command, "settle" if _is_recovery(command) else "plan")


def _is_recovery(command: str) -> bool:
    return command in ("recover", "undo")


def next_move(process: Process) -> str:
    """Return the path that the process's next step moves, or an empty string."""
    if process.journal is None:
        return ""
    moves = {"move": process.journal.moves, "undo": _undoing(process.journal)}.get(process.step, ())
    return "" if process.at >= len(moves) else _live(moves[process.at])


def _live(move: Move) -> str:
    """Return the end of a move that is not in a run's folder."""
    return move.source if move.target.startswith("runs/") else move.target


def _undoing(journal: Journal) -> Sequence[Move]:
    return [*reversed(journal.new), *reversed(journal.to_backup)]


def _to(process: Process, step: str) -> Process:
    return process._replace(step=step, at=0)


def _journal(process: Process) -> Journal:
    assert process.journal is not None
    return process.journal


def _on(world: World, disk: Disk) -> World:
    return world._replace(disk=disk)


def _put_log(world: World, path: str, text: str) -> World:
    return world._replace(disk=world.disk.put(path, text), quiet=False)


# Planning


def plan(scenario: Scenario, world: World, process: Process) -> Next:
    """Refuse, or plan the moves."""
    disk = _discard_leftovers(scenario, world.disk)
    is_young = not world.quiet and (world.query is not None and scenario.assumes.stopped_is_true)
    if is_young or disk.open_journal is not None or disk.fence is not None:
        return world, None
    if disk.journals and world.query is not None and not scenario.rules.tables_stay:
        return world, None  # this query may still name tables that were moved away
    if process.command == "prune":
        ended = [journal.run for journal in disk.journals]
        is_refused = scenario.rules.prune_asks and any(find_held_tables(disk, run) for run in ended)
        return (world if is_refused else _on(world, _forget(scenario, disk, ended))), None
    planner = {"compact": _plan_compaction, "rollback": _plan_rollback, "repair": _plan_repair}[process.command]
    known = [*disk.journals, *(other.journal for other in (world.a, world.b) if other is not None and other.journal)]
    journal = planner(scenario, disk, max((other.run for other in known), default=0) + 1)
    if journal is None:
        return world, None
    step = "stage" if process.command == "compact" else _first_of(scenario)
    return _on(world, disk), process._replace(step=step, journal=journal, seen=activity(disk))


def _discard_leftovers(scenario: Scenario, disk: Disk) -> Disk:
    """Remove the folders of runs that were interrupted before their journal."""
    for run in {int(path.split("/")[1]) for path in disk if path.startswith("runs/")}:
        if f"runs/{run}/journal" not in disk:
            disk = _discard(scenario, disk, run)
    return disk


def _discard(scenario: Scenario, disk: Disk, run: int) -> Disk:
    """Remove a run's files except its journal, unless its backup has a file that is missing in its place."""
    prefix = backup(run, "")
    held = [path for path in disk if path.startswith(prefix) and path.removeprefix(prefix) not in disk]
    return disk if held and scenario.rules.keep_backup else _remove_files(disk, run)


def _remove_files(disk: Disk, run: int) -> Disk:
    return disk.without(*(path for path in disk if path.startswith(f"runs/{run}/") and not path.endswith("/journal")))


def _move_to_backup(disk: Disk, run: int, paths: Iterable[str]) -> list[Move]:
    return [Move(path, backup(run, path)) for path in dict.fromkeys(paths) if path in disk]


def _fence(disk: Disk) -> str:
    return offsets(max(disk.begun, disk.committed) + 1)


def _facts(disk: Disk, paths: Iterable[str]) -> tuple[tuple[str, object], ...]:
    return tuple((path, disk[path]) for path in paths if path in disk)


def _before(disk: Disk, moves: Sequence[Move]) -> tuple[tuple[str, object], ...]:
    return _facts(disk, [move.source for move in moves])


def _plan_compaction(scenario: Scenario, disk: Disk, run: int) -> Journal | None:
    kind, rules = scenario.kind, scenario.rules
    flavour = load_all(disk, V, kind)
    if disk.committed != N or flavour in (MIXED, LOST) or (rules.recognise and shadows(disk)):
        return None
    targets = [full(partition, V, kind) for partition in PARTITIONS]
    outliving = [path for path in sorted(disk) if is_snapshot(path, V + 1)] if rules.leftovers_to_backup else []
    old: tuple[int, ...] = disk[targets[0]].tables if kind == "zip" else ()
    superseded = [table(0, number) for number in old if number not in named_tables(disk, 0, [targets[0], *outliving])]
    made = {targets[0]: Full(f"{flavour}/{run}", (10 + run,) if kind == "zip" else ())}
    made |= {targets[1]: Full(f"{flavour}/{run}")}
    new = [*([table(0, 10 + run)] if kind == "zip" else []), *targets]
    moved = [] if rules.tables_stay else superseded
    deltas = [delta(partition, V) for partition in PARTITIONS] if rules.deltas_to_backup else []
    to_backup = _move_to_backup(disk, run, [*targets, *deltas, *outliving, *moved])
    come = [Move(staged(run, path), path) for path in new]
    logs = (offsets(N), commits(N)) if rules.recognise else ()
    return Journal(
        run=run,
        kind="compact",
        batch=N,
        fence=_fence(disk),
        moves=(*to_backup, *come) if rules.old_first else tuple(come),
        published=tuple((path, made.get(path, "a table")) for path in new),
        logs=_facts(disk, logs),
        preserved=tuple(superseded) if rules.tables_stay else (),
        plans=rules.planned_batch and disk.begun == N,
        before=_before(disk, to_backup),
    )


def _plan_rollback(scenario: Scenario, disk: Disk, run: int) -> Journal | None:
    last, rules, committed = disk.last_done, scenario.rules, disk.committed
    if last is None or last.kind != "compact" or (rules.spare_committed and committed > last.batch):
        return None
    if rules.rollback_compares and (rewritten(disk, last) or (committed == last.batch and was_run_again(disk, last))):
        return None
    if not rules.set_back_allowed and committed < last.batch:
        return None
    # A snapshot of a version that was set back would hide what its batch writes when it runs again.
    kept = [move for move in last.to_backup if committed >= last.batch or not is_snapshot(move.source, last.batch + 1)]
    lost = [path for path in last.preserved if path not in disk]
    back = [*(Move(m.target, m.source) for m in kept), *(Move(backup(last.run, path), path) for path in lost)]
    if any(move.source not in disk for move in back):
        return None
    is_ours = last.plans and disk.get(last.fence) == f"planned by {last.run}"
    is_spared = not rules.take_plan_back or (rules.begun_plan_stays and has_state(disk, last.batch + 1))
    ours = [last.fence] if is_ours and not is_spared else []
    newer = [path for path in sorted(disk) if is_snapshot(path, last.batch + 2)]
    in_the_way = [*newer, *([] if rules.fence_on_plan else ours)]
    replaced = [*(move.target for move in last.new), *in_the_way, *(move.target for move in back)]
    moves = (*_move_to_backup(disk, run, replaced), *sorted(back, key=lambda move: "SSTs" not in move.target))
    return Journal(
        run=run,
        kind="rollback",
        batch=last.batch,
        fence=ours[0] if ours and rules.fence_on_plan else _fence(disk),
        moves=moves,
        undoes=last.run,
        replaces=disk[ours[0]] if ours and rules.fence_on_plan else "",
        published=tuple((move.target, disk[move.source]) for move in back),
        logs=_facts(disk, (offsets(last.batch), commits(last.batch))),
        before=_before(disk, moves),
    )


def _plan_repair(scenario: Scenario, disk: Disk, run: int) -> Journal | None:
    to_backup = _move_to_backup(disk, run, shadows(disk))
    return (
        Journal(run, "repair", disk.committed, _fence(disk), tuple(to_backup), before=_before(disk, to_backup))
        if to_backup
        else None
    )


# Publishing


def stage(scenario: Scenario, world: World, process: Process) -> Next:
    """Write the new files."""
    journal = _journal(process)
    new = {staged(journal.run, path): content for path, content in journal.published}
    return _on(world, Disk({**world.disk, **new})), _to(process, "preserve")


def preserve(scenario: Scenario, world: World, process: Process) -> Next:
    """Give superseded tables a second name in the backup."""
    journal = _journal(process)
    links = {backup(journal.run, path): world.disk[path] for path in journal.preserved if path in world.disk}
    return _on(world, Disk({**world.disk, **links})), _to(process, _first_of(scenario))


def _first_of(scenario: Scenario) -> str:
    return "journal" if scenario.rules.journal_first else "fence"


def write_journal(scenario: Scenario, world: World, process: Process) -> Next:
    """Write the journal, which is open."""
    journal = _journal(process)
    disk = world.disk.put(f"runs/{journal.run}/journal", journal)
    return _on(world, disk), _to(process, "fence" if scenario.rules.journal_first else "check")


def fence(scenario: Scenario, world: World, process: Process) -> Next:
    """Create the fence, unless its place has a file other than the planned batch that it replaces."""
    journal = _journal(process)
    if world.disk.get(journal.fence, "") != journal.replaces:
        return world, _to(process, "undone")
    disk = world.disk.put(journal.fence, f"fence of {journal.run}")
    return _on(world, disk), _to(process, "check" if scenario.rules.journal_first else "journal")


def _logs(seen: Iterable[tuple[str, object]]) -> set[tuple[str, object]]:
    return {(path, content) for path, content in seen if not is_state(path)}


def check(scenario: Scenario, world: World, process: Process) -> Next:
    """Compare everything, behind the fence, with the plan."""
    journal = _journal(process)
    if not scenario.rules.check:
        return world, _to(process, "move")
    now, then = ({(p, c) for p, c in seen if p != journal.fence} for seen in (activity(world.disk), process.seen))
    same = now == then if scenario.rules.check_files else _logs(now) == _logs(then)
    is_there = all(move.source in world.disk for move in journal.moves)
    return world, _to(process, "move" if same and is_there else _first_of_undoing(scenario))


def move(scenario: Scenario, world: World, process: Process) -> Next:
    """Carry out the next open move, without overwriting a file."""
    journal, disk = _journal(process), world.disk
    if process.at == len(journal.moves):
        is_checked = scenario.rules.recover_rechecks or not _is_recovery(process.command)
        return world, _to(process, "recheck" if is_checked else "end")
    following = process._replace(at=process.at + 1)
    one = journal.moves[process.at]
    if is_done(disk, one):
        return advance(scenario, world, following)
    is_taken = one.target in disk and scenario.rules.old_first
    if is_taken or one.source not in disk:
        return world, None if _is_recovery(process.command) else _to(process, "undo")
    return _on(world, disk.moved(*one)), following


def recheck(scenario: Scenario, world: World, process: Process) -> Next:
    """Check that the published files exist, and that neither the logs nor the temporary files have changed."""
    journal, disk = _journal(process), world.disk
    if not scenario.rules.recheck:
        return world, _to(process, "end")
    ours = {journal.fence, *(end for move in journal.moves for end in move)}
    now, then = ({(path, c) for path, c in seen if path not in ours} for seen in (activity(disk), process.seen))
    is_quiet = _logs(now) == _logs(then) and not any(path.endswith(".tmp") for path, _ in now - then)
    is_there = all(move.target in disk for move in journal.moves)
    if scenario.rules.recover_compares or not _is_recovery(process.command):
        is_there &= not rewritten(disk, journal)
    is_old_state = journal.kind == "rollback" and disk.committed == journal.batch and scenario.rules.rollback_loads
    is_lost = is_old_state and load_all(disk, journal.batch + 1, scenario.kind) == LOST
    return world, _to(process, "end" if is_there and is_quiet and not is_lost else "undo")


def has_fence(disk: Disk, journal: Journal) -> bool:
    """Return whether the run's own fence is in place."""
    return disk.get(journal.fence) == f"fence of {journal.run}"


def end(scenario: Scenario, world: World, process: Process) -> Next:
    """Replace the fence with the planned batch in one step, or remove it."""
    journal, rules = _journal(process), scenario.rules
    if has_fence(world.disk, journal) and journal.plans and rules.atomic_plan:
        world = _put_log(world, journal.fence, f"planned by {journal.run}")
    elif has_fence(world.disk, journal):
        world = _on(world, world.disk.without(journal.fence))
    return world, _to(process, "done" if rules.atomic_plan else "plan late")


def plan_late(scenario: Scenario, world: World, process: Process) -> Next:
    """Create the planned batch where the fence was, if nothing is there."""
    journal = _journal(process)
    if journal.plans and journal.fence not in world.disk:
        world = _put_log(world, journal.fence, f"planned by {journal.run}")
    return world, _to(process, "done")


def done(scenario: Scenario, world: World, process: Process) -> Next:
    """Close the journal."""
    world = _close(world, process, "done")
    return world, _to(process, "forget") if process.command == "compact" else None


def _close(world: World, process: Process, status: str) -> World:
    journal = _journal(process)
    return _on(world, world.disk.put(f"runs/{journal.run}/journal", journal._replace(status=status)))


def forget(scenario: Scenario, world: World, process: Process) -> Next:
    """Remove the run's empty folder of staged files, and the backups of older runs, apart from journals."""
    disk, run = world.disk, _journal(process).run
    older = [journal.run for journal in disk.journals if journal.run != run and journal.status != "open"]
    disk = _forget(scenario, disk, older)
    return _on(world, disk.without(*(path for path in disk if path.startswith(staged(run, ""))))), None


def _forget(scenario: Scenario, disk: Disk, runs: Iterable[int]) -> Disk:
    is_undone = {journal.run: journal.status == "undone" for journal in disk.journals}
    for run in runs:
        if is_undone[run]:
            disk = _discard(scenario, disk, run)
        elif not (scenario.rules.prune_asks and find_held_tables(disk, run)):
            disk = _remove_files(disk, run)
    return disk


# Undoing


def undo(scenario: Scenario, world: World, process: Process) -> Next:
    """Take back the next move, new files first, without overwriting a file."""
    journal, disk = _journal(process), world.disk
    order = _undoing(journal)
    if process.at == len(order):
        return world, _to(process, _first_of_undoing(scenario))
    if process.at == 0 and (unclear(disk, journal) or _is_uploading(scenario, world, journal)):
        return world, None
    following = process._replace(at=process.at + 1)
    one = order[process.at]
    if not is_done(disk, one) or one.target not in disk:
        return advance(scenario, world, following)
    if one.source in disk:
        return world, None
    return _on(world, disk.moved(one.target, one.source)), following


def _is_uploading(scenario: Scenario, world: World, journal: Journal) -> bool:
    """Return whether Spark's maintenance is about to replace a new or old file. Its temporary file is young."""
    is_there = any(temporary(move.target) in world.disk for move in journal.new)
    return scenario.rules.uploads_awaited and not world.quiet and is_there


def lower(scenario: Scenario, world: World, process: Process) -> Next:
    """Remove the run's own fence, or restore the planned batch that it replaced."""
    journal = _journal(process)
    is_next = world.disk.begun == _number(journal.fence) - 1
    is_removed = is_next and not was_run_again(world.disk, journal)
    if journal.replaces and (has_fence(world.disk, journal) or is_removed):
        world = _put_log(world, journal.fence, journal.replaces)
    elif has_fence(world.disk, journal):
        world = _on(world, world.disk.without(journal.fence))
    return world, _to(process, "undone" if scenario.rules.close_last else "discard")


def undone(scenario: Scenario, world: World, process: Process) -> Next:
    """Close the journal of a run that changed nothing, or was undone."""
    if f"runs/{_journal(process).run}/journal" in world.disk:
        world = _close(world, process, "undone")
    return world, _to(process, "discard" if scenario.rules.close_last else "lower")


def discard(scenario: Scenario, world: World, process: Process) -> Next:
    """Remove the folder of an undone run. ``recover`` keeps the journal."""
    run = _journal(process).run
    disk = _discard(scenario, world.disk, run)
    if not _is_recovery(process.command) and not any(
        path.startswith(f"runs/{run}/") and not path.endswith("/journal") for path in disk
    ):
        disk = disk.without(f"runs/{run}/journal")
    return _on(world, disk), None


# Recovering


def settle(scenario: Scenario, world: World, process: Process) -> Next:
    """Decide whether the interrupted run is finished, undone, or neither."""
    disk, rules = world.disk, scenario.rules
    journal = process.journal or disk.open_journal
    if journal is None:
        return _on(world, _discard_leftovers(scenario, disk)), None
    process = process._replace(journal=journal, seen=activity(disk))
    is_each_done = [is_done(disk, move) for move in journal.moves]
    ends = [move.target if it_is else move.source for move, it_is in zip(journal.moves, is_each_done, strict=True)]
    lost = {move for move, end in zip(journal.moves, ends, strict=True) if end not in disk}
    can_finish, can_undo = not lost, not lost & set(journal.to_backup)
    if unclear(disk, journal):
        return world, None
    if not any(is_each_done) and (rules.unchecked_undone or not has_fence(disk, journal)):
        return world, _to(process, _first_of_undoing(scenario))
    if not has_fence(disk, journal):
        is_planned = disk.get(journal.fence) == f"planned by {journal.run}"
        is_over = is_planned or disk.begun >= _number(journal.fence)
        is_over |= rules.finished_closed and was_run_again(disk, journal)
        wants_undo = process.command == "undo" and not rules.finished_closed
        if all(is_each_done) and (is_over or (can_finish and not wants_undo)):
            is_refused = not is_over and journal.plans and rules.recover_compares and rewritten(disk, journal)
            return world, None if is_refused else _to(process, "done" if is_over else "plan late")
        if is_over:
            return world, None
        return world, _to(process, "fence again")
    is_later = rules.gone_on_undone and disk.committed > journal.batch
    if can_finish and not (process.command == "undo" or (is_later and can_undo)):
        is_foreign = rules.recover_compares and rewritten(disk, journal)
        return world, None if is_foreign or _is_uploading(scenario, world, journal) else _to(process, "move")
    return world, _to(process, "undo") if can_undo else None


def _first_of_undoing(scenario: Scenario) -> str:
    return "lower" if scenario.rules.close_last else "undone"


def _number(path: str) -> int:
    return int(path.partition("/")[2])


def fence_again(scenario: Scenario, world: World, process: Process) -> Next:
    """Create a fence that somebody removed again, or refuse if the query has continued."""
    journal = _journal(process)
    if journal.fence in world.disk:
        return world, None
    return _on(world, world.disk.put(journal.fence, f"fence of {journal.run}")), _to(process, "settle")


STEPS: dict[str, Step] = {
    "plan": plan,
    "stage": stage,
    "preserve": preserve,
    "journal": write_journal,
    "fence": fence,
    "check": check,
    "move": move,
    "recheck": recheck,
    "end": end,
    "plan late": plan_late,
    "done": done,
    "forget": forget,
    "undo": undo,
    "lower": lower,
    "undone": undone,
    "discard": discard,
    "settle": settle,
    "fence again": fence_again,
}
