"""A breadth-first explorer of every reachable world, which returns the shortest trace to a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")
Successors = Callable[[S], Iterable[tuple[str, S]]]
Check = Callable[[S], str | None]


@dataclass(frozen=True)
class Explored(Generic[S]):
    """The result of an exploration: its size, the steps that occurred, the first violation, and the trace to it."""

    worlds: int
    steps: int
    violation: str | None = None
    trace: tuple[str, ...] = ()
    labels: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.violation is None:
            return f"{self.worlds:,} worlds, {self.steps:,} steps: no violation"
        return f"{self.violation}\n" + "\n".join(f"  {n:2} {step}" for n, step in enumerate(self.trace, 1))


def explore(start: S, successors: Successors[S], check: Check[S], limit: int = 10_000_000) -> Explored[S]:
    """Visit every world that is reachable from ``start``. Stop at the first violation that ``check`` returns.

    Raise RuntimeError beyond ``limit`` worlds, because then a bound of the scenario is missing.
    """
    came: dict[S, tuple[S, str] | None] = {start: None}
    labels: set[str] = set()
    level, steps = [start], 0
    while level:
        following: list[S] = []
        for world in level:
            violation = check(world)
            if violation is not None:
                return Explored(len(came), steps, violation, _trace(came, world), frozenset(labels))
            for label, successor in successors(world):
                steps += 1
                if successor not in came:
                    came[successor] = (world, label)
                    following.append(successor)
                    labels.add(label)
        if len(came) > limit:
            raise RuntimeError(f"more than {limit:,} worlds")
        level = following
    return Explored(len(came), steps, labels=frozenset(labels))


def _trace(came: dict[S, tuple[S, str] | None], world: S) -> tuple[str, ...]:
    labels: list[str] = []
    while (step := came[world]) is not None:
        world, label = step
        labels.append(label)
    return tuple(reversed(labels))
