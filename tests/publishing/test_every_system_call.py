"""Every system call that changes a checkpoint, one run each: killed there, out of space there, broken there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..judge.spark import Checkpoint
from .commands import Commands
from .faults import EIO, FULL, KILL, Step, Workshop, errors, kills
from .stories import compact
from .trees import is_fenced, tree


@pytest.fixture(scope="module")
def workshop(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(commands, tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module")
def compaction(workshop: Workshop, rich: Checkpoint) -> Step:
    """The first compaction of a checkpoint, with much to set aside."""
    step = workshop.step("compact", rich.path, lambda path: compact(path))
    assert step.old != step.new
    assert len([call for call in step.calls if call.name == "rename"]) > 18
    return step


@pytest.mark.parametrize("fault", ["kill", "error"])
def test_a_compaction_is_cut_off(workshop: Workshop, compaction: Step, fault: str) -> None:
    workshop.faults(compaction, points(compaction, fault))


def points(step, fault):
    return [(call, KILL) for call in kills(step.calls)] if fault == "kill" else errors(step.calls)
