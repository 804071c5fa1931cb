"""Which faults are injected where, and what has to be true of a checkpoint after each."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import KILLED, Commands, Ended, Traced
from .syscalls import Call
from .trees import Tree, copy, differences, is_fenced, tree

FULL = os.environ.get("TTLSNAP_MATRIX") == "full"
KILL, ENOSPC, EIO = "signal=SIGKILL", "error=ENOSPC", "error=EIO"
_FREES = {"unlink", "unlinkat", "rmdir", "rename"}


@dataclass(frozen=True)
class Step:
    """A command on a checkpoint: where it starts, what the checkpoint was before all and is after all, each call."""

    name: str
    start: Path
    argv: Callable[[Path], list[str]]
    old: Tree
    new: Tree
    calls: list[Call]


def kills(calls: Sequence[Call]) -> list[Call]:
    """The calls to be killed at: in the thin set those that find a disk that none before them found.

    A kill comes before its call is carried out, so that one after a call that changed nothing shows nothing new.
    """
    return [
        call for before, call in itertools.pairwise([None, *calls]) if call and (FULL or not before or before.changed)
    ]


def errors(calls: Sequence[Call]) -> list[tuple[Call, str]]:
    """Each call with the errors it returns: in the thin set ENOSPC where space is taken, else EIO."""
    if FULL:
        return [(call, error) for call in calls for error in (ENOSPC, EIO)]
    return [(call, EIO if call.name in _FREES or "sync" in call.name else ENOSPC) for call in calls]


class Workshop:
    """Copies of checkpoints, commands run on them, and faults put into these."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self._folder = commands, folder
        self._numbers = itertools.count()

    def copy(self, checkpoint: Path) -> Path:
        """A copy of a checkpoint, times and all."""
        return copy(checkpoint, self._folder / f"{next(self._numbers)}" / "checkpoint")

    def step(self, name: str, start: Path, argv: Callable[[Path], list[str]], old: Tree | None = None) -> Step:
        """Watch a command from beginning to end; it has to succeed."""
        path = self.copy(start)
        traced = self.commands.trace(argv(path), path)
        assert traced.ended.code == 0, traced.ended.err
        assert traced.calls
        found = Step(name, start, argv, old if old is not None else tree(start), tree(path), traced.calls)
        shutil.rmtree(path)
        return found

    def cut(self, start: Path, argv: Callable[[Path], list[str]], call: Call, fault: str) -> tuple[Path, Traced]:
        """A copy of ``start`` on which the command met the fault at that very call."""
        path = self.copy(start)
        traced = self.commands.trace(argv(path), path, f"{call.name}:{fault}:when={call.number}")
        assert call in traced.calls, f"{call} was not reached: {[str(c) for c in traced.calls[-3:]]}"
        if fault == KILL:
            assert traced.ended.code == KILLED
            assert traced.calls[-1] == call
        return path, traced

    def faults(self, step: Step, points: Sequence[tuple[Call, str]]) -> None:
        """Run the step once for each point; what is not as it has to be is told of all of them."""

        def run(point: tuple[Call, str]) -> str | None:
            call, fault = point
            try:
                self.judge(step, call, fault)
            except AssertionError as failure:
                return f"{step.name}, {fault} at {call}: {failure}"
            return None

        wrong = [found for found in self.commands.together(run, points) if found]
        assert not wrong, f"{len(wrong)} of {len(points)}\n" + "\n".join(wrong)

    def judge(self, step: Step, call: Call, fault: str) -> None:
        """The checkpoint is old, new, or fenced; recover makes it old or new; and then all goes on."""
        path, traced = self.cut(step.start, step.argv, call, fault)
        found = tree(path)
        fenced = is_fenced(path)
        if not fenced:
            assert found in (step.old, step.new), f"neither old nor new, and no fence: {differences(found, step.old)}"
        twin = self.copy(path)
        first, second = self.commands.run_all([["recover", str(twin), "--format", "json"]] * 2)
        assert first.code == 0, f"recover: {first.err}"
        assert second.code == 0 and second.json["outcome"] == "nothing", f"a second recover: {second}"
        recovered = tree(twin)
        assert not is_fenced(twin)
        assert recovered in (step.old, step.new), f"recover left neither: {differences(recovered, step.old)}"
        assert fenced or recovered == found, "recover changed what was whole"
        litter = [str(left) for left in (twin / "_ttlsnap").rglob("*.tmp")]
        assert not litter, litter
        if fault != KILL:
            told_well(traced.ended, needs_recover=first.json["outcome"] != "nothing", is_new=found == step.new)
        self.goes_on(step, path, found, fenced)
        shutil.rmtree(path.parent)
        shutil.rmtree(twin.parent)

    def goes_on(self, step: Step, path: Path, found: Tree, fenced: bool) -> None:
        """The same command again, without recover: it works, or says that recover is needed and changes nothing."""
        if step.argv(path)[0] != "compact":
            return
        again = self.commands.run(*step.argv(path))
        if fenced or again.code:
            assert again.code == 4, again.err
            assert f"ttlsnap recover {path}" in again.err
            assert tree(path) == found
        else:
            assert tree(path) == step.new


def told_well(ended: Ended, *, needs_recover: bool, is_new: bool) -> None:
    """A command that met an error says so, in a sentence, with the code for it and the way out."""
    if ended.code == 0:
        assert is_new, "an error was passed over"
        return
    assert ended.code in (4, 5), ended
    assert ended.err.startswith("Error: "), ended.err
    assert "Traceback" not in ended.err and "unexpected" not in ended.err, ended.err
    assert "ttlsnap recover" in ended.err or not needs_recover, ended.err
    assert not is_new or "is in place" in ended.err or "is published" in ended.err, ended.err
