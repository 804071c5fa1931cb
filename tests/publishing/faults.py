"""The faults that tests inject, and the conditions that a checkpoint must meet after each fault."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..matrix import FULL, rotating
from .commands import KILLED, Commands, Ended, Traced
from .syscalls import Call
from .trees import Tree, copy, differences, is_fenced, tree

KILL, ENOSPC, EIO = "signal=SIGKILL", "error=ENOSPC", "error=EIO"
Argv = Callable[[Path], list[str]]
_PUBLISHES = ("rename", "link", "unlink", "fsync", "mkdir", "chmod", "chown")
_FREES = {"unlink", "unlinkat", "rmdir", "rename"}


@dataclass(frozen=True)
class Step:
    """A command on a checkpoint: its start, the old and the new files, and each call that changes something.

    ``end`` is the result without a further fault. ``given`` are faults that every run of the command meets.
    """

    name: str
    start: Path
    argv: Argv
    old: Tree
    new: Tree
    end: Tree
    calls: list[Call]
    given: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A fault at one call."""

    call: Call
    fault: str

    def __str__(self) -> str:
        return f"{self.fault} at {self.call}"


def publishing_calls(step: Step) -> list[Call]:
    """Return the calls that stage and publish files, without RocksDB's own calls in its scratch folder."""
    return [call for call in step.calls if call.name in _PUBLISHES and "/scratch" not in call.path]


Faults = Callable[[Sequence[Call]], list[Point]]
"""A function that chooses faults for the calls of a command."""


def kills(calls: Sequence[Call], *, thin: bool = not FULL) -> list[Point]:
    """Return a kill at each call. The thin set has only kills that find the disk in a new state.

    A kill comes before its call. So a kill that follows a call without effect shows nothing new.
    """
    before = [None, *calls]
    return [Point(c, KILL) for b, c in zip(before, calls, strict=False) if not thin or b is None or b.changed]


def errors(calls: Sequence[Call]) -> list[Point]:
    """Return both errors at each call."""
    return [Point(call, error) for call in calls for error in (ENOSPC, EIO)]


def faults(calls: Sequence[Call]) -> list[Point]:
    """Return kills and errors."""
    return [*kills(calls), *errors(calls)]


MOST = 3
"""The points of a step that run in a slice of the matrix, besides those that are pinned."""

PINNED: tuple[tuple[str, str], ...] = ()
"""Parts of steps' names, with patterns of the points that run every time, because they found a bug before.

For example ``("compact", r"error=EIO at fsync #5")``, in the words of a failure.
"""


def is_pinned(step: str, point: Point) -> bool:
    """Return whether a point runs every time."""
    return any(named in step and re.search(pattern, str(point)) for named, pattern in PINNED)


_ATTEMPTS = 3
"""Runs until a fault meets its call. On a busy machine, Python or a library may open more files than usual."""


class Workshop:
    """A folder with copies of checkpoints, on which commands run with or without faults."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self._folder = commands, folder
        self._numbers = itertools.count()

    def copy(self, checkpoint: Path) -> Path:
        """Copy a checkpoint, including its times, into its own folder."""
        return copy(checkpoint, self._folder / f"{next(self._numbers)}" / "checkpoint")

    def after(self, start: Path, *commands: Argv) -> Path:
        """Copy a checkpoint, and run these commands on the copy. They must succeed."""
        path = self.copy(start)
        for ended in self.commands.run_all([argv(path) for argv in commands]):
            assert ended.code == 0, ended.err
        return path

    def step(self, name: str, start: Path, argv: Argv, *, old: Tree | None = None, given: tuple[str, ...] = ()) -> Step:
        """Trace a command from beginning to end. It must succeed, unless faults are given."""
        path = self.copy(start)
        traced = self.commands.trace(argv(path), path, *given)
        assert given or traced.ended.code == 0, traced.ended.err
        assert traced.calls
        end = tree(path)
        return Step(name, start, argv, tree(start) if old is None else old, end, end, traced.calls, given)

    def cut(self, step: Step, point: Point) -> tuple[Path, Traced]:
        """Run the command with the fault at that call. Return the checkpoint and the trace."""
        call = point.call
        fault = f"{call.name}:{point.fault}:when={call.number}"
        for _ in range(_ATTEMPTS):
            path = self.copy(step.start)
            traced = self.commands.trace(step.argv(path), path, *step.given, fault)
            met = [c for c in traced.calls if (c.name, c.number) == (call.name, call.number)]
            # A tree may be removed in any order.
            if met and (met[0] == call or "unlink" in call.name):
                break
        else:
            raise AssertionError(f"{met} instead of {call}")
        if point.fault == KILL:
            assert traced.ended.code == KILLED
            assert traced.calls[-1] == met[0]
        else:
            assert any(call.injected for call in met), f"strace did not inject {fault}"
        return path, traced

    def check(
        self,
        step: Step,
        points: Sequence[Point],
        judge: Callable[[Step, Point], None] | None = None,
        *,
        most: int = MOST,
    ) -> None:
        """Run the step once for each of some points, which rotate, and report all failures."""
        points = rotating(points, most, step.name, pinned=lambda point: is_pinned(step.name, point))

        def run(point: Point) -> str | None:
            try:
                (judge or self.judge)(step, point)
            except AssertionError as failure:
                return f"{step.name}, {point}: {failure}"
            return None

        assert points
        print(f"{step.name}: {len(points)} faults, {sum(point.fault == KILL for point in points)} of them kills")
        wrong = [found for found in self.commands.together(run, points) if found]
        assert not wrong, f"{len(wrong)} of {len(points)}\n" + "\n".join(wrong)

    def judge(self, step: Step, point: Point) -> None:
        """Assert that the checkpoint is old, new or fenced, that recover makes it old or new, and that commands run."""
        path, traced = self.cut(step, point)
        found, fenced = tree(path), is_fenced(path)
        if not fenced:
            assert found in (step.old, step.new), f"neither old nor new, and no fence: {differences(found, step.old)}"
        twin = self.copy(path)
        recover, again = ["recover", str(twin), "--format", "json"], step.argv(path)
        first, second, third = self.commands.run_all([recover, recover, again])
        assert first.code == 0, f"recover: {first.err}"
        assert (second.code, second.json["outcome"]) == (0, "nothing"), f"a second recover: {second}"
        recovered = tree(twin)
        assert not is_fenced(twin)
        assert recovered in (step.old, step.new), f"recover left neither: {differences(recovered, step.old)}"
        assert fenced or recovered == found, "recover changed what was whole"
        litter = [str(left) for left in (twin / "_ttlsnap").rglob("*.tmp")]
        assert not litter, litter
        if point.fault != KILL:
            needs_recover = first.json["outcome"] != "nothing"
            command = step.argv(path)[0]
            told_well(traced.ended, command, point, needs_recover=needs_recover, is_done=found == step.end)
        went_on(step, path, third, found, fenced=fenced)
        shutil.rmtree(path.parent)
        shutil.rmtree(twin.parent)


_DONE = {"rewind": "is not retained", "sources": "has recorded no file|has no source 0"}
"""What the second of two equal commands says if the first one is done; nothing for one that can be repeated."""


def went_on(step: Step, path: Path, again: Ended, found: Tree, *, fenced: bool) -> None:
    """Assert that the same command, repeated without recover, worked, or was refused and changed nothing."""
    command = step.argv(path)[0]
    if command == "doctor":  # a second time there is nothing to repair
        assert tree(path) in ((found,) if fenced else (step.old, step.new))
        assert not fenced or f"ttlsnap recover {path}" in again.err, again.err
    elif command == "recover":
        assert again.code == 0
        assert tree(path) in (step.old, step.new)
    elif again.code:
        is_done = tree(path) == step.new and re.search(_DONE.get(command, "\n\n"), again.err) is not None
        assert again.code == 4 or is_done, again.err
        assert tree(path) == found
        nothing_left = is_done or (command == "rollback" and not fenced)
        assert nothing_left or f"ttlsnap recover {path}" in again.err, again.err
    else:
        assert not fenced, "a fence was passed over"
        assert tree(path) == step.new


_LISTED = ("compact", "recover", "rewind", "rollback", "sources")
"""The commands for which ``_may_be_ignored`` lists all errors that they may ignore."""


def _may_be_ignored(command: str, point: Point) -> bool:
    """Return whether a command may end well after this error.

    Each may leave files that it no longer needs. ``recover`` works without a lock if the disk is full, because it needs
    no more room, and it ends a run that it has undone without recording that.
    """
    if point.call.name in _FREES:
        return True
    path, is_full = point.call.path, point.fault == ENOSPC
    is_lock = path == "_ttlsnap" or path.startswith("_ttlsnap/lock.")
    is_record = path == "_ttlsnap/runs/RUN" or path.startswith("_ttlsnap/runs/RUN/journal.json.")
    return command == "recover" and (is_record or (is_lock and is_full))


def told_well(ended: Ended, command: str, point: Point, *, needs_recover: bool, is_done: bool) -> None:
    """Assert that a command that met an error has the right exit code, and a message that names the remedy."""
    if ended.code == 0:
        assert command not in _LISTED or _may_be_ignored(command, point), f"{point} was passed over"
        assert is_done and not needs_recover, "an error was passed over"
        return
    assert ended.code in (4, 5), ended
    assert ended.err.startswith("Error: "), ended.err
    assert "Traceback" not in ended.err and "unexpected" not in ended.err, ended.err
    if needs_recover:
        assert re.search(r"(Run \S+ is (still )?interrupted|Nothing was changed), and Spark ", ended.err), ended.err
        assert "ttlsnap recover" in ended.err, ended.err
