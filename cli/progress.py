"""The progress of a run: on stderr, and only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ttlsnap.amounts import quantity
from ttlsnap.cli.compact_report import show_counts
from ttlsnap.cli.output import WarningPrinter, ask_person, console, number, place, print_warning, share, size, verbosity
from ttlsnap.printable import printable

if TYPE_CHECKING:
    from ttlsnap.compaction.drop_limit import StateDrop
    from ttlsnap.compaction.plan import Plan
    from ttlsnap.compaction.report import CompactionReport


class TerminalListener:
    """The listener that shows a run's progress and, if ``ask`` is set, its result and a question before publishing.

    With ``text`` it prints the result before the question, and sets ``shown``. It also prints the ``warnings`` then.
    ``target`` is named if it is one of several.
    """

    def __init__(
        self, text: bool, *, ask: bool, stopped: bool, max_drop: float | None = None, target: str | None = None
    ) -> None:
        self._text, self._stopped, self._max_drop, self._target = text, stopped, max_drop, target
        self.asks = ask
        self.shown = False
        self.warnings = WarningPrinter(target)
        self._started = time.monotonic()
        self._entries = self._dropped = 0
        self._task: TaskID | None = None
        self._progress: Progress | None = None
        if sys.stderr.isatty() and not verbosity.quiet:
            columns = (
                TextColumn("{task.description}", markup=False),
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
        if verbosity.verbose:
            _show_plan(plan)
        if self._progress is not None:
            partitions = sum(len(store.partitions) for store in plan.stores if store.seen_states)
            self._progress.start()
            description = f"scanning {printable(place(self._target))}" if self._target is not None else "scanning"
            self._task = self._progress.add_task(description, total=partitions, counts="starting")

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
        if self._text:
            show_counts(console(always=True), replace(report, dry_run=True))  # nothing is dropped yet
            self.shown = True
        self.warnings.print(report.warnings)
        warn_of_excess(report.drops, self._max_drop, self._target)
        return ask_person(_question(report), stopped=self._stopped or report.output is not None)

    def _update(self) -> None:
        if self._progress is not None and self._task is not None:
            rate = self._entries / max(time.monotonic() - self._started, 0.001)
            counts = (
                f"{quantity(self._entries, 'entry', 'entries')}, {number(int(rate))}/s, {number(self._dropped)} dropped"
            )
            self._progress.update(self._task, counts=counts)

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _show_plan(plan: Plan) -> None:
    """Print the plan on stderr: the files of each store, and the states that a transformer sees."""
    out = console(stderr=True)
    out.print(f"plan: run {plan.run}, batch {plan.checkpoint.batch.id} of {plan.checkpoint.target}")
    for store in plan.stores:
        files = sum(len(partition.lineage.files) for partition in store.partitions)
        details = f"{quantity(len(store.partitions), 'partition')}, {quantity(files, 'file')}, {size(store.size)}"
        out.print(f"plan: operator {store.operator}, store {store.store}: {details}")
        for state in store.states:
            out.print(f"plan:   state {state.state.state}: {state.left_alone or 'is scanned'}")


def warn_of_excess(drops: Sequence[StateDrop], max_drop: float | None, target: str | None) -> None:
    """Print a warning before the question if a run without a question would refuse this."""
    from ttlsnap.compaction.drop_limit import describe_excess

    excess = describe_excess(drops, max_drop)
    if excess is not None:
        print_warning(excess, target)


def _question(report: CompactionReport) -> str:
    counts = report.totals
    share_text = f" ({share(counts.dropped, counts.entries)})" if counts.entries else ""
    entries = quantity(counts.entries, "entry", "entries")
    question = f"Drop {number(counts.dropped)} of {entries}{share_text} from {report.target}"
    if report.output:
        return f"{question} in the new checkpoint {report.output}?{unclosed_words(report)}"
    return f"{question}?{unclosed_words(report)}"


def unclosed_words(report: CompactionReport) -> str:
    """Return the part of a question about dropped entries that Spark has not closed; nothing if there are none."""
    from ttlsnap.pages.compact import describe_unclosed

    return "".join(f" {describe_unclosed(state.to_json())}." for state in report.states if state.unclosed)


class ReadingProgress:
    """The progress of reading; see ``WorkListener``. ``prints``: the command writes data to stdout during the work."""

    def __init__(self, activity: str = "reading", *, prints: bool = False) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._entries, self._activity = 0, activity
        shares_terminal = prints and sys.stdout.isatty()
        if sys.stderr.isatty() and not verbosity.quiet and not shares_terminal:
            columns = (TextColumn(activity), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"))
            self._progress = Progress(*columns, console=console(stderr=True), transient=True)

    def __enter__(self) -> ReadingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Hide the progress for a question."""
        if self._progress is not None:
            self._progress.stop()

    def planned(self, partitions: int) -> None:
        self._entries = 0
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._progress.start()
            self._task = self._progress.add_task(self._activity, total=partitions, counts="")

    def progress(self, entries: int, dropped: int) -> None:
        self._entries += entries
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, counts=f"{quantity(self._entries, 'entry', 'entries')}")

    def partition_done(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)
