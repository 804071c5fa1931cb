"""``compact``: a full scan of a checkpoint's state with transformers, published or copied.

It plans, runs and publishes. A dry run is the same run without staged files and without publishing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ttlsnap.archives.receivers import Receiver
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.clock import clock_at
from ttlsnap.compaction.engine import Engine
from ttlsnap.compaction.given_schemas import check_given_schemas
from ttlsnap.compaction.listener import Listener, SilentListener, asks_a_person
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.plan import Plan, plan_or_foresee
from ttlsnap.compaction.planned_run import PlannedRun
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.compaction.runner import Runner
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.steps import WorkPlace, write_new_state
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory
from ttlsnap.written.keeping import place_ledgers


def compact(
    target: str,
    transformers: Sequence[StateSnapshotTransformerFactory],
    options: CompactOptions,
    engine: Engine,
    listener: Listener | None = None,
) -> CompactionReport:
    """Run ``transformers`` over the state of the checkpoint ``target``, and publish the result.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``); the checkpoint is then unchanged, unless the message names
    ``ttlsnap recover``.
    """

    def begin(checkpoint: Checkpoint, runs: Runs, archive: Receiver | None) -> Compaction:
        clock = clock_at(options.now, checkpoint.batch)
        plan, refusals = plan_or_foresee(checkpoint, runs, transformers, clock, options)
        check_given_schemas(plan, options.schemas or {}, options.scratch)
        return Compaction(plan, runs, options, engine, listener or SilentListener(), archive, refusals)

    return write_new_state(target, options, begin, options.expired_to)


class Compaction(PlannedRun[CompactionReport]):
    """A run of ``compact``."""

    kind = "compact"

    def __init__(
        self,
        plan: Plan,
        runs: Runs,
        options: CompactOptions,
        engine: Engine,
        listener: Listener,
        archive: Receiver | None,
        refusals: tuple[str, ...],
    ) -> None:
        super().__init__(plan, runs, options, archive)
        self._runner = Runner(self.plan, runs, options, engine, listener, archive)
        self._listener, self.refusals = listener, refusals
        # A limit never changes.
        self.plans_batch = not all(operator.is_global_limit for operator in self.checkpoint.operators)

    def work(self, place: WorkPlace) -> CompactionReport:
        self.results = self._runner.partitions(place)
        return self._runner.report(self.results)

    def refuse_unwanted(self, files: Directory) -> None:
        asks = asks_a_person(self._listener)
        self._runner.refuse_unwanted(files, self.report, self.results, asks=asks)

    def foresee(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._runner.foresee(self.report)

    def confirm(self, report: CompactionReport) -> bool:
        return self._listener.confirm(report)

    def keep(self) -> None:
        failures = place_ledgers(self.files, self.id, self.ledgers)
        self.warnings += failures
        self.report = replace(self.report, ledger_updated=bool(self.ledgers) and not failures)
        self._runner.note_visited(None)

    def change(self) -> Change:
        self._runner.note_visited(self.id)
        return super().change()

    def deliver(self, files: Directory) -> list[str]:
        return self._runner.deliver(files)
