"""ttlsnap relies on no change that a power cut could still undo. The tests check the order of system calls.

A killed process loses nothing that it has written. A power cut may lose everything that was not synced, in any order:
the bytes of a file until the file is synced, and a name until its folder is synced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..judge.spark import Checkpoint
from .faults import KILL, Point, Workshop
from .stories import compact
from .syscalls import Call


@dataclass
class Disk:
    """The changes that a power cut could still undo: bytes of files, and names in folders."""

    files: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def see(self, call: Call) -> None:
        """Follow one call."""
        match call.name:
            case "openat" | "write":
                self.files.add(call.path)
                if call.name == "openat":
                    self.names.add(call.path)
            case "fsync":
                self.files.discard(call.path)
                self.names -= {name for name in self.names if folder(name) == call.path}
            case "rename" if call.to is not None:
                self.names |= {call.path, call.to}
                if call.path in self.files:
                    self.files.add(call.to)
            case "link" if call.to is not None:
                self.names.add(call.to)
            case "mkdir" | "unlink":
                self.names |= {call.path} if call.changed else set()

    def unsafe(self, *prefixes: str) -> set[str]:
        """Return the changes below these prefixes that are not on the disk yet."""
        return {path for path in self.files | self.names if path.startswith(prefixes)}


def folder(path: str) -> str:
    return str(Path(path).parent)


def is_moved_to_backup(call: Call) -> bool:
    return call.name == "rename" and call.path.startswith("state/")


def is_put_in_place(call: Call) -> bool:
    return call.name == "rename" and (call.to or "").startswith("state/")


def is_closed(call: Call) -> bool:
    return call.name == "rename" and (call.to or "").endswith("/journal.json")


def is_fence(name: str) -> Callable[[Call], bool]:
    return lambda call: call.name == name and "offsets/4" in (call.path, call.to)


def walk(calls: list[Call], *barriers: tuple[Callable[[Call], bool], tuple[str, ...]]) -> None:
    """Assert that nothing below the places of a barrier is unsafe before each call to which the barrier applies."""
    disk, met = Disk(), set()
    for call in calls:
        for number, (applies, places) in enumerate(barriers):
            if applies(call):
                met.add(number)
                assert not disk.unsafe(*places), f"{call} relies on {disk.unsafe(*places)}"
        disk.see(call)
    assert met == set(range(len(barriers)))


RUNS = "_ttlsnap/runs"
STAGED, BACKUP, JOURNAL = f"{RUNS}/RUN/staged", f"{RUNS}/RUN/backup", f"{RUNS}/RUN/journal.json"


@pytest.mark.slow
def test_a_compaction_relies_only_on_synced_changes(workshop: Workshop, rich: Checkpoint) -> None:
    calls = workshop.step("compact", rich.path, compact).calls
    first_in_place = next(n for n, call in enumerate(calls) if is_put_in_place(call))
    fenced = next(n for n, call in enumerate(calls) if is_fence("link")(call))
    walk(calls, (is_fence("link"), ("state", RUNS)), (is_fence("unlink"), ("state", RUNS)))
    walk(calls[: first_in_place + 1], (is_moved_to_backup, ("offsets", JOURNAL)), (is_put_in_place, ("state", BACKUP)))
    walk(calls[fenced:], (is_closed, ("offsets", "state", BACKUP)))


def test_a_rollback_relies_only_on_synced_changes(workshop: Workshop, rich: Checkpoint) -> None:
    start = workshop.after(rich.path, compact)
    calls = workshop.step("rollback", start, lambda path: ["rollback", str(path)]).calls
    walk(calls, (is_fence("unlink"), ("state", "_ttlsnap/runs")), (is_fence("link"), ("state", "_ttlsnap/runs")))


@pytest.mark.parametrize("options", [(), ("--undo",)])
def test_a_recovery_relies_only_on_synced_changes(
    workshop: Workshop, rich: Checkpoint, options: tuple[str, ...]
) -> None:
    step = workshop.step("compact", rich.path, compact)
    half = [call for call in step.calls if is_moved_to_backup(call)][5]
    start, _ = workshop.cut(step, Point(half, KILL))
    calls = workshop.step("recover", start, lambda path: ["recover", str(path), *options]).calls
    walk(calls, (is_fence("unlink"), ("state", STAGED, BACKUP)), (is_closed, ("offsets", "state")))


def test_a_copy_appears_only_after_all_of_it_is_synced(workshop: Workshop, rich: Checkpoint) -> None:
    def argv(path: Path) -> list[str]:
        return compact(path, "--output", f"{path.parent}/new")

    path = workshop.copy(rich.path)
    calls = workshop.commands.trace(argv(path), path.parent).calls
    walk(calls, (lambda call: call.to == "new", ("new.RUN.ttlsnap/",)))
