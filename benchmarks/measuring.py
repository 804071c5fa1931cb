"""Costs and their comparison: wall and CPU time, medians, ratios of subjects that run in turn, and peaks of memory.

CPU time is that of this process and all processes below it, such as a JVM and its Python workers. Linux counts it in
``/proc`` in steps of 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """The cost of one run in seconds."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Comparison:
    """The costs of several subjects that ran in turn: round ``i`` of each is ``costs[name][i]``."""

    costs: Mapping[str, list[Cost]]

    def wall(self, name: str) -> float:
        return statistics.median(cost.wall for cost in self.costs[name])

    def cpu(self, name: str) -> float:
        return statistics.median(cost.cpu for cost in self.costs[name])

    def wall_ratio(self, name: str, base: str) -> float:
        """Return the median of the rounds' ratios: a machine that slows down slows both subjects of a round."""
        return statistics.median(a.wall / b.wall for a, b in self._pairs(name, base))

    def cpu_ratio(self, name: str, base: str) -> float:
        return statistics.median(a.cpu / b.cpu for a, b in self._pairs(name, base))

    def _pairs(self, name: str, base: str) -> list[tuple[Cost, Cost]]:
        return list(zip(self.costs[name], self.costs[base], strict=True))


def compare(
    subjects: Mapping[str, Callable[[], Any]], runs: int, warm_up: int = 1, *, prepare: bool = False
) -> Comparison:
    """Run the subjects one after another, ``runs`` times; the ``warm_up`` rounds before do not count.

    With ``prepare``, a subject first prepares its run, which does not count either, and returns the measured function.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in subjects}
    for number in range(-warm_up, runs):
        for name, subject in subjects.items():
            cost = measure(subject() if prepare else subject)
            if number >= 0:
                costs[name].append(cost)
    return Comparison(costs)


def measure(subject: Callable[[], object]) -> Cost:
    """Return the cost of one call."""
    cpu, wall = _cpu_of_tree(), time.perf_counter()
    subject()
    return Cost(time.perf_counter() - wall, _cpu_of_tree() - cpu)


def peak_memory(command: str) -> int:
    """Return the largest peak, in bytes, of a process below this one whose command line contains ``command``."""
    peaks = []
    for process in _tree():
        with contextlib.suppress(OSError):
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            if command in (process / "cmdline").read_text():
                peaks.append(int(status["VmHWM"].split()[0]) << 10)
    return max(peaks)


def _cpu_of_tree() -> float:
    """Return the CPU seconds of this process and all processes below it, running or waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _tree().values()) * _TICK


def _tree() -> dict[Path, list[str]]:
    """Return this process and all processes below it: their folders in ``/proc``, with what follows their names."""
    found: dict[int, list[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            # The name in parentheses may have any characters. State, parent and, later, four times follow it.
            found[int(process.name)] = (process / "stat").read_text().rpartition(")")[2].split()

    def is_ours(process: int) -> bool:
        while process in found and process != os.getpid():
            process = int(found[process][1])
        return process == os.getpid()

    return {Path(f"/proc/{process}"): fields for process, fields in found.items() if is_ours(process)}
