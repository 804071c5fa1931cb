"""Real runs take the steps of the model in the same order, even if they are killed and recovered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

import pytest

from ...matrix import FULL
from . import commands
from .disk import Disk
from .tracing import Real, name_move, words
from .world import Process, Scenario, World, begin

pytestmark = pytest.mark.slow

SAMPLES = {
    "agg-snapshot-zstd-4.1": Scenario(),
    "agg-deltas-lz4-4.2": Scenario(snapshotted=False),
    "uncommitted-batch-4.2": Scenario(uncommitted=True, snapshotted=False),
    "rocksdb-4.2": Scenario(kind="zip"),
}
KILLED = SAMPLES if FULL else ("agg-snapshot-zstd-4.1", "rocksdb-4.2")


class Modelled:
    """A world of the model, in which commands run undisturbed."""

    def __init__(self, scenario: Scenario, world: World | None = None) -> None:
        self._scenario, self._world = scenario, begin(scenario) if world is None else world

    def copy(self) -> Modelled:
        """Return a copy of this world."""
        return Modelled(self._scenario, self._world)

    def run(self, command: str, cut_before: int | None = None) -> list[str]:
        """Run a command and return the steps it took."""
        steps: list[str] = []
        world, process = self._world._replace(quiet=True), commands.start(command)
        following: Process | None = process
        while following is not None:
            process = following
            after, following = commands.advance(self._scenario, world, process)
            step = name_step(process, world.disk, after.disk)
            if step is not None and len(steps) == cut_before:
                break
            steps += [step] if step is not None else []
            world = after
        self._world = world
        return steps


def name_step(process: Process, before: Disk, after: Disk) -> str | None:
    """Return the name of a step by what it changes, as ``tracing`` names real steps. Return None if it has no name."""
    if process.step in ("check", "recheck"):
        return "look"
    gone = before.keys() - after.keys()
    changed = [path for path, content in after.items() if before.get(path) != content]
    if not changed:
        return None if not gone else "clean up" if all(map(is_ours, gone)) else "remove log"
    path = changed[0]
    if path.endswith("/journal"):
        return f"journal {after[path].status}"
    if path.startswith("offsets"):
        return "fence" if after[path].startswith("fence") else "planned batch"
    if gone:
        return name_move(gone.pop(), path)
    return "preserve" if "/backup/" in path else "stage"


def is_ours(path: str) -> bool:
    """Return whether a file is in a run's folder."""
    return path.startswith("runs/")


@pytest.fixture(params=SAMPLES)
def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Real, Modelled]:
    return pair_of(request.param, tmp_path, monkeypatch)


def pair_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Real, Modelled]:
    """Return a checkpoint, and the corresponding world of the model."""
    return Real.of(name, folder, monkeypatch), Modelled(SAMPLES[name])


def test_real_runs_take_the_steps_of_the_model(pair: tuple[Real, Modelled]) -> None:
    real, modelled = pair
    for command in ("compact", "rollback", "compact"):
        found = words(real.run(command))
        print(command, found)
        assert found == words(modelled.run(command))


@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("command", ["compact", "rollback"])
def test_killed_and_recovered_runs_take_the_steps_of_the_model(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, modelled = pair_of(name, tmp_path, monkeypatch)
    if command == "rollback":
        real.run("compact")
        modelled.run("compact")
    cuts = list(matching(real.copy("whole").run(command), modelled.copy().run(command)))
    assert len(cuts) >= 8
    for number, (at, modelled_at) in enumerate(cuts):
        killed, modelled_killed = real.copy(f"killed-{number}"), modelled.copy()
        assert words(killed.run(command, at)) == words(modelled_killed.run(command, modelled_at))
        for way in ("recover", "undo"):
            found = words(killed.copy(f"{way}-{number}").run(way))
            print(f"{command} killed before step {at}, {way}: {found}")
            assert found == words(modelled_killed.copy().run(way))


def matching(real: Sequence[str], modelled: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of steps that both take: the start of each repetition, and its second step if both have one."""
    for (begin_real, size_real), (begin_modelled, size_modelled) in zip(groups(real), groups(modelled), strict=True):
        for offset in range(min(2, size_real, size_modelled)):
            yield begin_real + offset, begin_modelled + offset


def groups(steps: Sequence[str]) -> list[tuple[int, int]]:
    """Return the place and the size of each repetition, without the checks before and after all changes."""
    sizes = [len(list(same)) for _, same in groupby(steps)]
    found = list(zip(accumulate([0, *sizes]), sizes, strict=False))
    return found[steps[0] == "look" : len(found) - (steps[-1] == "look")]
