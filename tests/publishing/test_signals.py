"""SIGTERM works like Ctrl-C: the checkpoint is old or new, and not fenced, after one or many signals at any step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..judge.spark import Checkpoint
from ..matrix import FULL
from .faults import EIO, Point, Step, Workshop, kills
from .stories import compact
from .syscalls import Call
from .trees import copy, differences, is_fenced, tree

pytestmark = pytest.mark.slow

TERM, INT = "signal=SIGTERM", "signal=SIGINT"
CODES = {TERM: 143, INT: 130}


@pytest.fixture(scope="module")
def compaction(workshop: Workshop, rich: Checkpoint) -> Step:
    return workshop.step("compact", rich.path, compact)


@pytest.fixture(scope="module")
def published(workshop: Workshop, rich: Checkpoint) -> Path:
    return workshop.after(rich.path, compact)


def moments(calls: Sequence[Call], signal: str) -> list[Point]:
    """Return the calls at which a signal arrives."""
    return [Point(point.call, signal) for point in kills(calls)]


def judge_signals(workshop: Workshop, *, again: bool = False, given: Sequence[str] = (), fenced: bool = False):  # type: ignore[no-untyped-def]
    """Return a check of the checkpoint after a signal at one call, or with ``again`` at each call from that one on."""

    def judge(step: Step, point: Point) -> None:
        path = workshop.copy(step.start)
        fault = f"{point.call.name}:{point.fault}:when={point.call.number}{'+' if again else ''}"
        ended = workshop.commands.trace(step.argv(path), path, *given, fault).ended
        # A signal that arrives after the command has ended kills the process directly.
        assert ended.code in ((CODES[point.fault], -CODES[point.fault] + 128) if again else (CODES[point.fault],)), (
            ended
        )
        assert "Traceback" not in ended.err, ended.err
        assert ("Stopped by SIGTERM" in ended.err) is (point.fault == TERM)
        assert ("Stopped by Ctrl-C" in ended.err) is (point.fault == INT)
        found = tree(path)
        if fenced:  # the checkpoint was fenced when the command began
            assert is_fenced(path) is (found not in (step.old, step.new))
        else:
            assert not is_fenced(path)
            assert found in (step.old, step.new), differences(found, step.old)
        recovered = workshop.commands.run("recover", str(path), "--format", "json")
        assert recovered.code == 0, recovered.err
        assert fenced or recovered.json["outcome"] == "nothing"
        assert not is_fenced(path) and tree(path) in (step.old, step.new)
        assert fenced or tree(path) == found
        litter = [str(left) for left in (path / "_ttlsnap").rglob("*.tmp")]
        assert not litter, litter
        shutil.rmtree(path.parent)

    return judge


@pytest.mark.parametrize("signal", [TERM, INT] if FULL else [TERM])
def test_a_signal_at_any_step_of_a_compaction_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, signal: str
) -> None:
    workshop.check(compaction, moments(compaction.calls, signal), judge_signals(workshop))


def test_repeated_signals_leave_the_old_or_the_new_state(workshop: Workshop, compaction: Step) -> None:
    # Signals also arrive while the run is being undone.
    workshop.check(compaction, moments(compaction.calls, TERM), judge_signals(workshop, again=True))


def test_signals_during_an_undo_leave_the_old_state(workshop: Workshop, compaction: Step) -> None:
    # The disk fails once all files are moved, and the signals arrive while they are moved back.
    last = max(
        n for n, call in enumerate(compaction.calls) if call.name == "rename" and call.to and call.to[:5] == "state"
    )
    broken = next(call for call in compaction.calls[last:] if call.name == "fsync")
    given = (f"fsync:{EIO}:when={broken.number}",)
    step = workshop.step("undo", compaction.start, compact, given=given)
    assert step.end == step.old
    undoing = [call for call in step.calls[step.calls.index(broken) + 1 :] if call.name != "fsync"]
    judge = judge_signals(workshop, given=given)
    workshop.check(step, moments(undoing, TERM), judge)


@pytest.mark.parametrize("fenced", [False, True])
def test_an_error_is_reported_even_if_a_signal_arrived(workshop: Workshop, compaction: Step, fenced: bool) -> None:
    # The signal must not hide that the checkpoint stays fenced if the disk fails to remove the fence.
    moved = [call for call in compaction.calls if call.name == "rename" and not call.path.endswith(".tmp")]
    first = next(call for call in moved if call.to and "/backup/" in call.to)
    fence = next(call for call in compaction.calls if call.name == "unlink" and call.path.startswith("offsets/"))
    path = workshop.copy(compaction.start)
    faults = [f"rename:error=EIO:signal=SIGTERM:when={first.number}+"]
    if fenced:  # the removal of the lock fails, too
        faults.append(f"unlink:error=EIO:signal=SIGTERM:when={fence.number}+")
    ended = workshop.commands.trace(compact(path), path, *faults).ended
    assert ended.code in (143, -15), ended
    assert ended.err.startswith("Error: ")
    assert is_fenced(path) is fenced
    assert (f"ttlsnap recover {path}" in ended.err) is fenced, ended.err
    assert workshop.commands.run("recover", str(path)).code == 0
    assert tree(path) in (compaction.old, compaction.new)


@pytest.mark.parametrize("signal", [TERM, INT] if FULL else [INT])
def test_a_signal_at_any_step_of_a_rollback_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, published: Path, signal: str
) -> None:
    step = workshop.step("rollback", published, lambda path: ["rollback", str(path)])
    workshop.check(step, moments(step.calls, signal), judge_signals(workshop, again=True))


@pytest.mark.parametrize("options", [(), ("--undo",)])
def test_recover_works_after_a_signal_at_any_step_of_a_recovery(
    workshop: Workshop, compaction: Step, options: tuple[str, ...]
) -> None:
    moves = [call for call in compaction.calls if call.name == "rename" and not call.path.endswith(".tmp")]
    start, _ = workshop.cut(compaction, Point(moves[len(moves) // 2], "signal=SIGKILL"))
    assert is_fenced(start)
    step = workshop.step("recover", start, lambda path: ["recover", str(path), *options], old=compaction.old)
    old_or_new = Step(step.name, start, step.argv, compaction.old, compaction.new, step.end, step.calls)
    workshop.check(old_or_new, moments(step.calls, TERM), judge_signals(workshop, again=True, fenced=True))


def test_a_signal_at_any_step_of_a_copy_leaves_no_partial_copy(
    workshop: Workshop, rich: Checkpoint, tmp_path: Path
) -> None:
    def argv(folder: Path) -> list[str]:
        return compact(folder / "source", "--output", str(folder / "copies" / "new"))

    (tmp_path / "copies").mkdir()
    source = copy(rich.path, tmp_path / "source")
    step = workshop.step("copy", tmp_path, argv)

    def judge(step: Step, point: Point) -> None:
        folder = workshop.copy(step.start)
        fault = f"{point.call.name}:{point.fault}:when={point.call.number}+"
        ended = workshop.commands.trace(argv(folder), folder, fault).ended
        assert ended.code in (143, -15), ended
        assert tree(folder / "source") == tree(source)
        assert not list((folder / "copies").glob("*.ttlsnap"))
        shutil.rmtree(folder.parent)

    workshop.check(step, moments(step.calls, TERM), judge)
