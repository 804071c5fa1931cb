"""The steps that are possible in a world: the next step of every actor, at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import commands, spark
from .disk import Disk
from .invariants import ALL, violation
from .world import Process, Scenario, World

HOSTS = ("a", "b")


class Model:
    """A scenario with the successors of its worlds, and the invariants that must hold in them."""

    def __init__(self, scenario: Scenario, invariants: Sequence[str] = ALL) -> None:
        self.scenario, self._invariants = scenario, invariants
        self._disks: dict[Disk, Disk] = {}
        self._seen: dict[tuple[Disk, bool, bool, int], str | None] = {}

    def violation(self, world: World) -> str | None:
        """Return the violation in a world, or None."""
        seen = (world.disk, world.quiet, world.again, world.left.unfences)
        if seen not in self._seen:
            self._seen[seen] = violation(self.scenario, world, self._invariants)
        return self._seen[seen]

    def successors(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield every step that an actor can take, and the world after it."""
        for label, after in self._steps(world):
            # Equal disks share one object, so that its cached properties are computed once.
            yield label, after._replace(disk=self._disks.setdefault(after.disk, after.disk))

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        for host in HOSTS:
            process = world.process(host)
            if process is None:
                yield from self._begin(world, host)
                continue
            if not self._waits(world, process):
                yield _label(host, process), self._advance(world, host, process)
            if world.left.crashes:
                yield f"{host}: {process.command} is killed", world.spend("crashes").with_process(host, None)
        yield from spark.steps(self.scenario, world)

    def _begin(self, world: World, host: str) -> Iterator[tuple[str, World]]:
        """Yield the first step of each command. A refused command leaves the world unchanged, and is omitted."""
        other = world.b if host == "a" else world.a
        if not getattr(world.left, host) or (self.scenario.rules.lease and other is not None):
            return
        for command in self.scenario.commands:
            after = self._advance(world, host, commands.start(command))
            if after.process(host) is not None or after.disk != world.disk:
                yield f"{host}: {command}", after.spend(host)

    def _waits(self, world: World, process: Process) -> bool:
        """Return whether a process must wait, because Spark is faster by assumption."""
        query, assumes = world.query, self.scenario.assumes
        if query is None:
            return False
        if process.step == "recheck" and assumes.seen_by_recheck:
            return query.step != "idle" or query.upload is not None
        return process.step == "check" and assumes.starts_show and query.is_hidden

    def _advance(self, world: World, host: str, process: Process) -> World:
        after, following = commands.advance(self.scenario, world, process)
        return after.with_process(host, following)


def _label(host: str, process: Process) -> str:
    move = commands.next_move(process)
    return f"{host}: {process.command}: {process.step}" + (f" {move}" if move else "")
