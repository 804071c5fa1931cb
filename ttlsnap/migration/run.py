"""``migrate``: another number of partitions, or another state store, for the same state.

Each old partition is split by the new partitions of its keys, and each new partition is built from its parts (see
``ttlsnap.engines.moving``). Between the two, the entries are on disk, so memory does not grow with the state.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import log2
from typing import Any, Protocol

from ttlsnap.checkpoint import Checkpoint, layout, open_checkpoint
from ttlsnap.clock import clock_at
from ttlsnap.compaction.copy import (
    begin_copy,
    check_destination,
    describe_copy,
    discard_copy,
    finish_copy,
    share_copy,
    staging_directory,
)
from ttlsnap.compaction.given_schemas import check_given_schemas
from ttlsnap.compaction.listener import SilentListener as NoListener
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.plan import Plan, plan_or_foresee
from ttlsnap.compaction.publish import check_listing
from ttlsnap.compaction.run import open_archive
from ttlsnap.compaction.runner import Runner
from ttlsnap.compaction.scratch import claim_scratch, discard_old_scratch, existing_folder
from ttlsnap.compaction.staged import rename_staged, settle
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.engines.listener import SilentWorkListener, WorkListener
from ttlsnap.engines.moving import Move, MovingEngine, Target
from ttlsnap.errors import FencedError, RefusedError, UnsupportedError, UsageError
from ttlsnap.evolution.model import Evolution
from ttlsnap.evolution.unused import drop_unused, require_consent
from ttlsnap.migration.changes import Changes
from ttlsnap.migration.copy import write_copy
from ttlsnap.migration.formats import find_format_changes
from ttlsnap.migration.plan import MigrationPlan, StoreMigration, plan_migration
from ttlsnap.migration.publish import publish, refuse_unmovable
from ttlsnap.migration.report import MigrationReport, NewPartition, StoreReport
from ttlsnap.migration.sorting import GONE, OldPartition, Split
from ttlsnap.migration.task import BuildTask, Built, SplitResult, SplitTask, require_all
from ttlsnap.migration.times import LedgerTask
from ttlsnap.operators.links import Link
from ttlsnap.operators.placement import STRICT
from ttlsnap.operators.registry import links_of
from ttlsnap.printable import shell_word
from ttlsnap.publishing.cleanup import discard_after_error, discard_leftovers, discard_run, tidy_up
from ttlsnap.publishing.first_run import describe_first_run
from ttlsnap.publishing.journal import report_path, scratch_path, staged_path
from ttlsnap.publishing.preflight import refuse_in_place, refuse_running
from ttlsnap.publishing.runs import refuse_if_interrupted
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StagedFile, Staging
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory
from ttlsnap.written.keeping import renew_ledgers

PROOF = 20  # bits: one in a million that all keys are in the right partitions by chance


class MigrationListener(WorkListener, Protocol):
    """A listener to the progress of a migration. ``confirm`` returns whether to publish.

    It may also have ``asks``, as a listener to a compaction.
    """

    def confirm(self, report: MigrationReport) -> bool: ...


class SilentListener(SilentWorkListener):
    """A listener that prints nothing and agrees."""

    def confirm(self, report: MigrationReport) -> bool:
        return True


def migrate(
    target: str,
    changes: Changes,
    transformers: Sequence[StateSnapshotTransformerFactory],
    options: CompactOptions,
    engine: MovingEngine,
    listener: MigrationListener | None = None,
) -> MigrationReport:
    """Make ``changes`` to the checkpoint ``target``, run ``transformers`` over its state, and publish the result.

    ``options`` are as for ``compact``, except that ``parts`` and ``rewrite`` do not apply. ``scratch`` is a local
    folder with room for the whole state, uncompressed. The placement of the keys shows whether given schemas of the
    keys are right.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    started = time.monotonic()
    if options.visits_some_partitions:
        raise UsageError("a migration reads every partition; its rules cannot be incremental")
    if options.scratch is not None:
        options = replace(options, scratch=existing_folder(options.scratch))
    files = open_directory(target)
    with suppress(FencedError):  # a run that is publishing holds the lock
        open_checkpoint(for_reading(files), schemas=options.schemas)  # fail before locking if this is not a checkpoint
    archive = open_archive(target, options, files)
    listener = listener or SilentListener()
    only_read = options.output is not None
    with nullcontext() if options.dry_run else files.lock(shared=only_read):
        refuse_if_interrupted(files)
        checkpoint = replace(open_checkpoint(for_reading(files), schemas=options.schemas), files=files)
        compaction: Plan | None = None
        refusals: tuple[str, ...] = ()
        if transformers:
            clock = clock_at(options.now, checkpoint.batch)
            compaction, refusals = plan_or_foresee(checkpoint, transformers, clock, options)
            check_given_schemas(compaction, options.schemas or {}, options.scratch)
        evolution = find_format_changes(checkpoint, changes.settings)
        if changes.new_query is not None:
            evolution = changes.new_query.evolve(checkpoint)
        evolution = _without_unused(checkpoint, evolution, changes, options)
        plan = plan_migration(checkpoint, changes, compaction, evolution)
        if only_read and plan.history is not None:
            plan = replace(plan, history=plan.history.for_copy())
        runner = None
        if compaction is not None:
            runner = Runner(compaction, options, engine, NoListener(), archive, started)
        elif archive is not None:
            raise UsageError("an archive of dropped entries needs a transformer that drops some")
        run = _Run(plan, options, engine, listener, runner, started)
        if plan.is_done:
            if options.output is not None:
                raise UsageError(f"{files.root} already has these settings, so --output would only be a copy")
            return replace(run.report([], []), published=False, backup=None)
        destination = check_destination(files.root, options.output) if options.output is not None else None
        refusals += refuse_running(files, checkpoint.query_id, options.stopped, only_read, options.dry_run)
        if destination is None:
            refuse_unmovable(plan)
            new_files = [*_new_snapshots(plan), layout.offset_file(checkpoint.logs.offsets[-1] + 1)]
            refusals += refuse_in_place(
                checkpoint, new_files, planned_batch=options.planned_batch, dry_run=options.dry_run
            )
        if options.dry_run:
            return run.dry(refusals)
        return run.to_copy(files, destination) if destination is not None else run.in_place(files)


def _without_unused(
    checkpoint: Checkpoint, evolution: Evolution, changes: Changes, options: CompactOptions
) -> Evolution:
    """Return the evolution that also removes the unused state variables of ``changes``."""
    if not changes.drops:
        return evolution
    evolution = drop_unused(checkpoint, evolution, changes.drops)
    may_drop, dry_run = changes.may_drop, options.dry_run
    notes = require_consent(checkpoint.target, evolution, may_drop=may_drop, dry_run=dry_run)
    return replace(evolution, notes=(*evolution.notes, *notes))


def _new_snapshots(plan: MigrationPlan) -> list[str]:
    return [store.new_snapshot(partition) for store in plan.stores for partition in range(store.partitions)]


@dataclass
class _Run:
    plan: MigrationPlan
    options: CompactOptions
    engine: MovingEngine
    listener: MigrationListener
    runner: Runner | None
    started: float
    expired: Counter[str] = field(default_factory=Counter)
    unused: Counter[str] = field(default_factory=Counter)
    ledgers: list[str] = field(default_factory=list)
    merged: dict[str, int] = field(default_factory=dict)

    def dry(self, refusals: Sequence[str]) -> MigrationReport:
        report = self.report(*self._move(None, self.plan.checkpoint.target, None))
        if self.runner is not None and report.compaction is not None:
            refusals = (*refusals, *self.runner.refusals(report.compaction))
            excess = self.runner.warnings_of_excess(report.compaction)
            report = replace(report, warnings=(*report.warnings, *excess))
        return replace(report, warnings=(*report.warnings, *refusals), refused=bool(refusals))

    def in_place(self, files: Directory) -> MigrationReport:
        plan, staged = self.plan, staged_path(self.plan.run, "")
        discard_leftovers(files)
        warnings = self.runner.deliver_waiting(files) if self.runner is not None else []
        # On a local disk, the work is in the run's own folder, so that its files need only be renamed.
        place = f"{files.root}/{scratch_path(plan.run)}" if is_local(files.root) else None
        with discard_after_error(files, plan.run):
            files.mkdirs(layout.run_directory(plan.run))
            built, compacted = self._move(place, files.root, staged)
            report = self.report(built, compacted)
            report = replace(report, warnings=(*report.warnings, *warnings))
            self._require_wanted(files, report, compacted)
            if not self.listener.confirm(report):
                discard_run(files, plan.run)
                return _declined(report)
            files.replace(report_path(plan.run), json.dumps(report.to_json(), indent=1).encode())
            self._renew_ledgers(Staging(files, staged))
            publish(plan, _settled(files, staged, built), self.ledgers, planned_batch=self.options.planned_batch)
        report = self._delivered(files, report)
        tidied = tidy_up(files, plan.run)
        report = replace(report, warnings=(*report.warnings, *tidied.warnings), made_final=tidied.made_final)
        return replace(report, seconds=time.monotonic() - self.started, first_run=describe_first_run(files))

    def to_copy(self, files: Directory, destination: LocalDirectory) -> MigrationReport:
        plan, staging = self.plan, staging_directory(destination, self.plan.run)
        try:
            begin_copy(files, staging)
            built, compacted = self._move(f"{staging.root}/{OWN}/scratch", staging.root, "")
            report = replace(self.report(built, compacted), backup=None, output=destination.root)
            self._require_wanted(staging, report, compacted)
            if not self.listener.confirm(report):
                discard_copy(staging)
                return _declined(report)
            _settled(staging, "", built)
            write_copy(plan, staging, destination.root, report.to_json())
            self._renew_ledgers(Staging(staging, ""))
            refuse_if_interrupted(files)  # the lock may not keep out other machines
            check_listing(plan.checkpoint, plan.listing)
            given = share_copy(files, staging)
            finish_copy(staging, destination)
        except BaseException:
            discard_copy(staging)
            raise
        report = self._delivered(destination, report)
        report = replace(report, warnings=(*report.warnings, *describe_copy(files, destination, given=given)))
        return replace(report, seconds=time.monotonic() - self.started)

    def _renew_ledgers(self, staging: Staging) -> None:
        """Stage the ledgers of operators that do not get new files."""
        migrated = {store.operator for store in self.plan.stores}
        checkpoint, run = self.plan.checkpoint, self.plan.run
        self.ledgers += renew_ledgers(checkpoint, self.plan.history, staging, run, operators=migrated)

    def _require_wanted(self, files: Directory, report: MigrationReport, compacted: Sequence[PartitionResult]) -> None:
        """Raise RefusedError if transformers would drop too much, and CorruptionError if the archive is incomplete."""
        if self.runner is not None and report.compaction is not None:
            self.runner.require_limit(report.compaction, self.listener)
            self.runner.require_matched(report.compaction)
            self.runner.check_archive(files, report.compaction, compacted)

    def _delivered(self, files: Directory, report: MigrationReport) -> MigrationReport:
        """Archive what was dropped. Return the report with a warning if that failed."""
        if self.runner is None:
            return report
        return replace(report, warnings=(*report.warnings, *self.runner.deliver(files)))

    def _move(
        self, scratch: str | None, staging_root: str, below: str | None
    ) -> tuple[list[list[Built]], list[PartitionResult]]:
        """Return the new partitions of each store, and the results of the transformers.

        ``scratch`` is the folder for the work if the user named none.
        """
        plan = self.plan
        if self.options.scratch is not None:
            discard_old_scratch(self.options.scratch, plan.checkpoint.target)
            scratch = claim_scratch(self.options.scratch, plan.checkpoint.target, plan.run)
        sources = list(self._sources(staging_root, below))
        targets: list[Target] = [
            self._target(first, group, n, staging_root, below)
            for first, group in self._groups
            for n in range(group[0].partitions)
        ]
        targets += self._ledger_tasks(staging_root, below)
        self.listener.planned(len(sources) + len(targets))
        try:
            move = Move(sources, targets, self._check, scratch)
            found, made = self.engine.move(move, self.listener.partition_done, self.listener.progress)
        finally:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
        results: list[SplitResult] = found
        built: list[list[Built]] = [made[first : first + group[0].partitions] for first, group in self._groups]
        self.ledgers += [path for paths in made[self._partitions :] for path in paths]
        self.ledgers += [path for mine in built for partition in mine for path in partition.ledgers]
        by_store = iter(self._by_store(results))
        for group, mine in zip(plan.groups, built, strict=True):
            store, parts = group[0], [split for _ in group for split in next(by_store)]
            if not store.stays:
                require_all(f"{plan.checkpoint.target}: {store.states[0]}", parts, mine)
            elif any(lineage.snapshot is None for lineage in store.lineages):
                self._require_same_families(store, [(bool(found.entries), found.families) for found in mine])
            self._require_fits(mine)
            for partition in mine:
                self.unused.update(partition.unused)
            merged = sum(found.received - found.entries for found in mine)
            if merged and store.merged is not None:
                self.merged[f"{store.operator}.{store.store.name}.{store.states[0].state}"] = merged
        for split in (split for result in results for split in result.splits):
            self.expired.update(split.expired)
            self.unused.update(split.unused)
        pairs = [
            (source.compaction, result)
            for source, found_ in zip(sources, results, strict=True)
            if source.compaction is not None
            for result in found_.compacted
        ]
        compacted = each(open_directory(staging_root), lambda pair: rename_staged(*pair), pairs) if pairs else []
        if below is not None:
            check_listing(plan.checkpoint, plan.listing)
        return built, compacted

    @property
    def _groups(self) -> list[tuple[int, tuple[StoreMigration, ...]]]:
        """The stores, those together that become one, each group with the number of its first target."""
        groups = self.plan.groups
        firsts = accumulate((group[0].partitions for group in groups), initial=0)
        return list(zip(firsts, groups, strict=False))

    @property
    def _partitions(self) -> int:
        """The number of new partitions, which is the number of the first ledgers."""
        return sum(group[0].partitions for group in self.plan.groups)

    def _ledger_tasks(self, staging_root: str, below: str | None) -> Iterator[LedgerTask]:
        """Yield a target for the ledgers of each new partition, in their order, if times are kept."""
        history = self.plan.history
        if history is None or below is None:
            return
        facts = history.facts_for(self.plan.run)
        for _, group in self._groups:
            # Where entries stay, the partition's own target writes the ledgers.
            kept = None if group[0].stays else self.plan.kept(group[0])
            states = kept.new if kept is not None else ()
            for n in range(group[0].partitions):
                yield LedgerTask(group[0].new_snapshot(n), states, facts, staging_root, below)

    @property
    def _with_first(self) -> list[tuple[int, StoreMigration]]:
        """The stores, each with the number of its first target."""
        return [(first, store) for first, group in self._groups for store in group]

    def _sources(self, staging_root: str, below: str | None) -> Iterator[SplitTask]:
        """Yield a task for each old partition; linked stores that transformers see or that become one share theirs."""
        plan, options = self.plan, self.options
        left = {(store.operator, store.store.name): (first, store) for first, store in self._with_first}
        transformed = []
        if plan.compaction is not None:
            expired = options.expired_to is not None
            transformed = plan.compaction.tasks(staging_root, below, expired=expired)
        for task in transformed:
            places = [(task.operator, store.name) for store in task.stores]
            yield self._source([left[place] for place in places], task.partition, task)
        seen = {(task.operator, store.name) for task in transformed for store in task.stores}
        for first, group in self._groups:
            mine = [(first, store) for store in group if (store.operator, store.store.name) not in seen]
            for partition in range(len(mine[0][1].lineages) if mine else 0):
                yield self._source(mine, partition, None, stay=mine[0][1].stays)

    def _source(
        self,
        stores: Sequence[tuple[int, StoreMigration]],
        partition: int,
        compaction: PartitionTask | None,
        *,
        stay: bool = False,
    ) -> SplitTask:
        plan = self.plan
        old = tuple(self._old(store, first, partition) for first, store in stores)
        operator = stores[0][1].operator
        links: tuple[Link, ...] = ()
        if operator in plan.evolution.new_stores:
            links = links_of(plan.checkpoint, next(o for o in plan.checkpoint.operators if o.id == operator))
        return SplitTask(plan.checkpoint.target, old, plan.state_store, plan.new_store, compaction, stay, links)

    def _old(self, store: StoreMigration, first: int, partition: int) -> OldPartition:
        kept = None if self.options.dry_run else self.plan.kept(store)
        return OldPartition(
            where=f"{self.plan.checkpoint.target}/{store.store.directory(partition)}",
            name=store.store.name,
            partition=partition,
            before=len(store.lineages),
            partitions=store.partitions,
            first=first,
            states=store.states,
            new_states=store.new_states,
            lineage=store.lineages[partition],
            evolutions=store.evolutions,
            families=self.plan.evolution.families(store.operator, store.store.name),
            kept=kept,
            ledgers=None if kept is None or store.stays else self._partitions + first,
        )

    def _target(
        self, first: int, group: tuple[StoreMigration, ...], partition: int, staging_root: str, below: str | None
    ) -> BuildTask:
        store = group[0]
        return BuildTask(
            root=self.plan.checkpoint.target,
            target=store.new_snapshot(partition),
            like=self._model(store, partition),
            old=self._old(store, first, partition) if store.stays else None,
            old_store=self.plan.state_store,
            merged=store.merged,
            unique=any(state.key is not None for state in store.evolutions),
            lists=any(state.timed for store in group for state in store.evolutions),
            families=self.plan.evolution.families(store.operator, store.store.name),
            facts=self.plan.history.facts_for(self.plan.run) if self.plan.history is not None else None,
            state_store=self.plan.new_store,
            staging_root=staging_root,
            staged_below=below,
        )

    def _model(self, store: StoreMigration, partition: int) -> Lineage:
        """Return the old partition whose settings the new ones get; an empty one if they come from another provider."""
        if self.plan.new_store.provider != self.plan.state_store.provider:
            return Lineage(store.lineages[0].version, None, (), (), "")
        if store.stays and store.lineages[partition].snapshot is not None:
            return store.lineages[partition]
        return store.lineages[_number_of_model(store)]

    def _by_store(self, results: Sequence[SplitResult]) -> list[list[Split]]:
        """Return what became of the old partitions of each store, in their order; nothing where entries stay."""
        found = {(split.first, split.name, split.partition): split for result in results for split in result.splits}
        return [
            [] if store.stays else [found[first, store.store.name, p] for p in range(len(store.lineages))]
            for first, store in self._with_first
        ]

    def _check(self, results: list[SplitResult]) -> None:
        """Raise RefusedError unless the keys show that Spark places them by their hash.

        Raise UnsupportedError if a column family has different ids in two partitions.
        """
        by_store = self._by_store(results)
        for store, parts in zip(self.plan.stores, by_store, strict=True):
            where = self._describe(store)
            self._require_fits(parts)
            misplaced = sum(part.misplaced for part in parts)
            if misplaced:
                example = next(part.example for part in parts if part.misplaced)
                raise RefusedError(
                    f"{where}: {misplaced:,} keys are not in the partition that Spark's hash gives, so ttlsnap does "
                    "not know where Spark would look for them. For example, " + example + ". Nothing was changed. Run: "
                    f"ttlsnap doctor {shell_word(self.plan.checkpoint.target)}"
                )
            self._require_same_families(store, [(any(part.entries), part.families) for part in parts])
        if self.plan.checkpoint.batch.conf.get(STRICT) != "true":
            self._require_proof(by_store)

    def _require_same_families(self, store: StoreMigration, parts: Sequence[tuple[bool, Mapping[int, str]]]) -> None:
        """Raise UnsupportedError if partitions with entries do not have the column families of the model."""
        if self.plan.new_store.provider != self.plan.state_store.provider:
            return
        if store.operator in self.plan.evolution.new_stores:
            return  # all keys get new ids
        model = _number_of_model(store)
        for number, (has_entries, families) in enumerate(parts):
            if has_entries and families != parts[model][1]:
                raise UnsupportedError(
                    f"{self._describe(store)}: partitions {model} and {number} have different ids for their column "
                    "families; migrating such a store is not supported"
                )

    def _require_fits(self, parts: Sequence[Split] | Sequence[Built]) -> None:
        """Raise RefusedError if values do not fit their new types."""
        misfits: Counter[str] = Counter()
        for part in parts:
            misfits.update(part.misfits)
        if lost := [place for place in misfits if place.endswith(GONE)]:
            counts = ", ".join(f"{misfits[place]:,} in {place.removesuffix(GONE)}" for place in lost)
            raise RefusedError(
                f"{self.plan.checkpoint.target}: there are timers of the old time mode: {counts}. Nothing was changed. "
                "Let them fire first, with the old query"
            )
        if misfits:
            told = ", ".join(f"{count:,} of {place}" for place, count in sorted(misfits.items()))
            raise RefusedError(
                f"{self.plan.checkpoint.target}: some values do not fit the new schema: {told}. Nothing was changed. "
                "Drop or rewrite these entries first (ttlsnap compact --transformer), or keep the old type"
            )

    def _require_proof(self, by_store: Sequence[Sequence[Split]]) -> None:
        """Raise RefusedError if keys may be in the right partitions by chance.

        In a query that was started before Spark 3.3, keys can be placed by some of their columns. With n partitions, a
        key is then in the partition of its hash with a probability of 1 / n.
        """
        proven: dict[int, float] = {}
        stores = [(store, parts) for store, parts in zip(self.plan.stores, by_store, strict=True) if parts]
        for store, parts in stores:
            keys = sum(part.hashes for part in parts)
            proven[store.operator] = max(proven.get(store.operator, 0), keys * log2(len(parts)))
        for store, parts in stores:
            keys = sum(part.hashes for part in parts)
            if keys and proven[store.operator] < PROOF:
                some = "1 partition" if len(parts) == 1 else f"{len(parts)} partitions"
                raise RefusedError(
                    f"{self._describe(store)}: the query was started before Spark 3.3, which may place keys by only "
                    f"some of their columns. {keys} different keys in {some} do not show whether it "
                    "does. So the number of partitions cannot be changed. Nothing was changed"
                )

    def _describe(self, store: StoreMigration) -> str:
        return f"{self.plan.checkpoint.target}: operator {store.operator}, store {store.store.name}"

    def report(self, built: Sequence[Sequence[Built]], compacted: Sequence[PartitionResult]) -> MigrationReport:
        plan, dry_run = self.plan, self.options.dry_run
        backup = f"{plan.checkpoint.target}/{layout.run_directory(plan.run)}/backup"
        compaction = None
        if self.runner is not None and built:
            sizes = {
                (store.operator, store.store.name): sum(partition.size for partition in mine)
                for group, mine in zip(plan.groups, built, strict=True)
                for store in group[:1]
            }
            # The new partitions are not those of the results, but their sum is the size of the store.
            results = [
                replace(r, bytes_after=0 if r.partition else sizes.get((r.operator, r.store), 0)) for r in compacted
            ]
            compaction = self.runner.report(results, dry_run=dry_run)
            in_place = None if dry_run or self.options.output is not None else backup
            compaction = replace(compaction, published=not dry_run, output=self.options.output, backup=in_place)
        return MigrationReport(
            run=plan.run,
            target=plan.checkpoint.target,
            dry_run=dry_run,
            published=not dry_run,
            engine=self.engine.name,
            engine_reason=getattr(self.engine, "reason", None),
            batch=plan.checkpoint.batch.id,
            fingerprint=plan.fingerprint,
            partitions=plan.partitions,
            provider_before=plan.state_store.provider,
            provider=plan.new_store.provider,
            settings=dict(plan.target.pinned),
            session_settings=dict(plan.target.session),
            stores=tuple(map(_report_store, plan.groups, built)) if built else (),
            single=plan.single,
            backup=None if dry_run else backup,
            output=None,
            seconds=time.monotonic() - self.started,
            expired_to=compaction.expired_to if compaction is not None else None,
            compaction=compaction,
            plan=tuple(step.to_json() for step in plan.evolution.steps),
            expired={place: count for place, count in self.expired.items() if count},
            merged=self.merged,
            unused=dict(self.unused),
            warnings=plan.evolution.notes,
            destination=self.options.output,
        )


def _declined(report: MigrationReport) -> MigrationReport:
    """Return the report of a run that the listener has refused to publish."""
    facts: dict[str, Any] = {"published": False, "backup": None, "output": None}
    compaction = replace(report.compaction, **facts) if report.compaction is not None else None
    return replace(report, compaction=compaction, **facts)


def _number_of_model(store: StoreMigration) -> int:
    """Return the old partition whose settings the new ones get."""
    return next((number for number, lineage in enumerate(store.lineages) if lineage.snapshot is not None), 0)


def _report_store(group: Sequence[StoreMigration], built: Sequence[Built]) -> StoreReport:
    store = group[0]
    return StoreReport(
        operator=store.operator,
        operator_name=store.states[0].operator_name,
        store=store.becomes.name,
        partitions_before=len(store.lineages),
        bytes_before=sum(store.size for store in group),
        partitions=tuple(NewPartition(n, found.entries, found.size) for n, found in enumerate(built)),
    )


def _settled(files: Directory, below: str, built: Sequence[Sequence[Built]]) -> list[StagedFile]:
    """Give the staged files their final names."""
    staging = Staging(files, below)
    staged = [file for partitions in built for partition in partitions for file in partition.files]
    return each(files, lambda file: settle(files, file, staging.place(file.target)), staged)
