"""What a run shows while it goes on: on stderr, and only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ttlsnap.cli.output import console, number, place, print_warning

if TYPE_CHECKING:
    from ttlsnap.drop_limit import StateDrop
    from ttlsnap.plan import Plan
    from ttlsnap.report import CompactionReport


class TerminalListener:
    """Shows a run's progress and, when ``ask`` is set, its result and a question before it is published.

    ``show`` prints a report; ``shown`` says whether it has been, so that it is not shown twice. ``target`` is named
    where it is one of several.
    """

    def __init__(
        self, show: Callable[..., None] | None, *, ask: bool, max_drop: float | None = None, target: str | None = None
    ) -> None:
        self._show, self._max_drop, self._target = show, max_drop, target
        self.asks = ask
        self.shown = False
        self._started = time.monotonic()
        self._entries = self._dropped = 0
        self._task: TaskID | None = None
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("partitions  {task.fields[counts]}"),
            )
            self._progress = Progress(*columns, console=console(stderr=True), transient=True)

    def __enter__(self) -> TerminalListener:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def planned(self, plan: Plan) -> None:
        if self._progress is not None:
            partitions = sum(len(store.partitions) for store in plan.stores if store.offered)
            self._progress.start()
            what = f"scanning {place(self._target)}" if self._target is not None else "scanning"
            self._task = self._progress.add_task(what, total=partitions, counts="starting")

    def progress(self, entries: int, dropped: int) -> None:
        self._entries += entries
        self._dropped += dropped
        self._update()

    def partition_done(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def confirm(self, report: CompactionReport) -> bool:
        self._stop()
        if not self.asks:
            return True
        if self._show is not None:
            from ttlsnap.cli.compact import _show_counts

            _show_counts(console(), report)
            self.shown = True
        warn_of_excess(report.drops, self._max_drop, self._target)
        return typer.confirm(_question(report), err=True)

    def _update(self) -> None:
        if self._progress is not None and self._task is not None:
            rate = self._entries / max(time.monotonic() - self._started, 0.001)
            counts = f"{number(self._entries)} entries, {number(int(rate))}/s, {number(self._dropped)} dropped"
            self._progress.update(self._task, counts=counts)

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def warn_of_excess(drops: Sequence[StateDrop], max_drop: float | None, target: str | None) -> None:
    """Say before the question that more is dropped than a run drops unasked."""
    from ttlsnap.drop_limit import tell_excess

    told = tell_excess(drops, max_drop)
    if told is not None:
        print_warning(told, target)


def _question(report: CompactionReport) -> str:
    counts = report.totals
    share = f" ({counts.dropped / counts.entries:.0%})" if counts.entries else ""
    what = f"Drop {number(counts.dropped)} of {number(counts.entries)} entries{share} from {report.target}"
    return f"{what} in the new checkpoint {report.output}?" if report.output else f"{what}? Stop the query first."


class ReadingProgress:
    """Shows how far a reading has come; see ``DoctorListener``."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._entries = 0
        if sys.stderr.isatty():
            columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"))
            self._progress = Progress(*columns, console=console(stderr=True), transient=True)

    def __enter__(self) -> ReadingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal to a question."""
        if self._progress is not None:
            self._progress.stop()

    def planned(self, partitions: int) -> None:
        self._entries = 0
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._progress.start()
            self._task = self._progress.add_task("reading", total=partitions, counts="")

    def progress(self, entries: int, dropped: int) -> None:
        self._entries += entries
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, counts=f"{number(self._entries)} entries")

    def partition_done(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)
