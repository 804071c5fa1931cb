"""``migrate``: another number of partitions, or another state store, for the same state.

Each old partition is split by the new partitions of its keys, and each new partition is built from its parts (see
``ttlsnap.engines.moving``). Between the two, the entries are on disk, so memory does not grow with the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import log2
from typing import Protocol

from ttlsnap.amounts import quantity
from ttlsnap.archives.receivers import Receiver
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.clock import clock_at
from ttlsnap.compaction.drop_limit import warn_of_far_future
from ttlsnap.compaction.engine import reason_of, rename_staged, settle
from ttlsnap.compaction.given_schemas import check_given_schemas
from ttlsnap.compaction.listener import SilentListener as NoListener
from ttlsnap.compaction.listener import asks_a_person
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.plan import Plan, plan_or_foresee
from ttlsnap.compaction.runner import Runner
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.engines.moving import Move, MovingEngine, Target
from ttlsnap.engines.progress import SilentWorkListener, WorkListener
from ttlsnap.engines.proof import require_all
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.migration.changes import Changes
from ttlsnap.migration.evolution import Evolution
from ttlsnap.migration.formats import find_format_changes
from ttlsnap.migration.plan import MigrationPlan, StoreMigration, plan_migration, warn_of_numbers
from ttlsnap.migration.publish import change_of, fill_copy, refuse_unmovable
from ttlsnap.migration.report import MigrationReport, NewPartition, StoreReport
from ttlsnap.migration.sorting import GONE, OldPartition, Split
from ttlsnap.migration.task import BuildTask, Built, SplitResult, SplitTask
from ttlsnap.migration.times import LedgerTask
from ttlsnap.migration.unused import drop_unused, require_consent
from ttlsnap.operators.links import Link
from ttlsnap.operators.placement import STRICT
from ttlsnap.operators.registry import links_of
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import staged_path
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StagedFile, Staging
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.steps import StateRun, WorkPlace, write_new_state
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
    if options.visits_some_partitions:
        raise UsageError("a migration reads every partition; its rules cannot be incremental")

    def begin(checkpoint: Checkpoint, runs: Runs, archive: Receiver | None) -> Migration:
        compaction: Plan | None = None
        refusals: tuple[str, ...] = ()
        if transformers:
            clock = clock_at(options.now, checkpoint.batch)
            compaction, refusals = plan_or_foresee(checkpoint, runs, transformers, clock, options)
            check_given_schemas(compaction, options.schemas or {}, options.scratch)
        elif archive is not None:
            raise UsageError("an archive of dropped entries needs a transformer that drops some")
        evolution = find_format_changes(checkpoint, changes.settings)
        if changes.new_query is not None:
            evolution = changes.new_query.evolve(checkpoint)
        evolution = _without_unused(checkpoint, evolution, changes, options)
        plan = plan_migration(checkpoint, runs, changes, compaction, evolution)
        return Migration(plan, runs, options, engine, listener or SilentListener(), archive, refusals)

    return write_new_state(target, options, begin, options.expired_to)


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


class Migration(StateRun[MigrationReport]):
    """A run of ``migrate``."""

    names_schemas = True

    def __init__(
        self,
        plan: MigrationPlan,
        runs: Runs,
        options: CompactOptions,
        engine: MovingEngine,
        listener: MigrationListener,
        archive: Receiver | None,
        refusals: tuple[str, ...],
    ) -> None:
        super().__init__(plan.checkpoint, runs, plan.run, plan.listing, options, archive)
        if options.output is not None and plan.history is not None:
            plan = replace(plan, history=plan.history.for_copy())
        self.plan, self.refusals = plan, refusals
        self._engine, self._listener = engine, listener
        self._runner: Runner | None = None
        if plan.compaction is not None:
            self._runner = Runner(plan.compaction, runs, options, engine, NoListener(), archive)
        self._new_partitions: list[list[Built]] = []
        self._compacted: list[PartitionResult] = []
        self._expired: Counter[str] = Counter()
        self._unused: Counter[str] = Counter()
        self._merged: dict[str, int] = {}
        self._ledgers: list[str] = []

    def nothing_to_do(self) -> MigrationReport | None:
        if not self.plan.is_done:
            return None
        if self.options.output is not None:
            raise UsageError(f"{self.files.root} already has these settings, so --output would only be a copy")
        return self._report().unpublished()

    def refuse_unmovable(self) -> None:
        refuse_unmovable(self.plan)

    def new_files(self) -> list[str]:
        return [store.new_snapshot(partition) for store in self.plan.stores for partition in range(store.partitions)]

    def work(self, place: WorkPlace) -> MigrationReport:
        self._move(place)
        return self._report()

    def stage(self, place: WorkPlace) -> None:
        super().stage(place)
        if self.report.compaction is not None:
            output = self.options.output
            compaction = replace(
                self.report.compaction,
                published=True,
                output=output,
                backup=self.report.backup if output is None else None,
                seconds=self.seconds,
                destination=output,
            )
            self.report = replace(self.report, compaction=compaction)

    def refuse_unwanted(self, files: Directory) -> None:
        if self._runner is not None and self.report.compaction is not None:
            asks = asks_a_person(self._listener)
            self._runner.refuse_unwanted(files, self.report.compaction, self._compacted, asks=asks)

    def foresee(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self._runner is None or self.report.compaction is None:
            return (), ()
        return self._runner.foresee(self.report.compaction)

    def confirm(self, report: MigrationReport) -> bool:
        return self._listener.confirm(report)

    def change(self) -> Change:
        staging = Staging(self.files, staged_path(self.id, ""))
        self._renew_ledgers(staging)
        return change_of(self.plan, self._settle(staging), self._ledgers, planned_batch=self.options.planned_batch)

    def fill_copy(self, staging: Directory, home: str) -> None:
        place = Staging(staging, "")
        self._settle(place)
        fill_copy(self.plan, staging, home)
        self._renew_ledgers(place)

    def deliver(self, files: Directory) -> list[str]:
        return self._runner.deliver(files) if self._runner is not None else []

    def _settle(self, staging: Staging) -> list[StagedFile]:
        """Give the staged files their final names."""
        staged = [file for partitions in self._new_partitions for partition in partitions for file in partition.files]
        return each(staging.files, lambda file: settle(staging.files, file, staging.place(file.target)), staged)

    def _renew_ledgers(self, staging: Staging) -> None:
        """Stage the ledgers of operators that do not get new files."""
        migrated = {store.operator for store in self.plan.stores}
        self._ledgers += renew_ledgers(self.checkpoint, self.plan.history, staging, self.id, operators=migrated)

    def _move(self, place: WorkPlace) -> None:
        """Split the old partitions and build the new ones."""
        plan, staging_root, staged_below = self.plan, place.root, place.below
        sources = list(self._sources(staging_root, staged_below))
        targets: list[Target] = [
            self._target(first_target, group, number, staging_root, staged_below)
            for first_target, group in self._groups
            for number in range(group[0].partitions)
        ]
        targets += self._ledger_tasks(staging_root, staged_below)
        self._listener.planned(len(sources) + len(targets))
        move = Move(plan.checkpoint.target, plan.state_store, sources, targets, self._check, place.scratch)
        source_results, target_results = self._engine.move(move, self._listener.partition_done, self._listener.progress)
        results: list[SplitResult] = source_results
        new_partitions: list[list[Built]] = [
            target_results[first_target : first_target + group[0].partitions] for first_target, group in self._groups
        ]
        self._ledgers += [path for paths in target_results[self._partitions :] for path in paths]
        self._ledgers += [
            path for partitions in new_partitions for partition in partitions for path in partition.ledgers
        ]
        splits_of_stores = iter(self._by_store(results))
        for group, partitions in zip(plan.groups, new_partitions, strict=True):
            store, splits = group[0], [split for _ in group for split in next(splits_of_stores)]
            if not store.stays:
                where, description = f"{plan.checkpoint.target}: {store.states[0]}", "entries of the old ones"
                require_all(
                    where,
                    description,
                    [split.sent for split in splits],
                    [partition.received for partition in partitions],
                )
            elif any(lineage.snapshot is None for lineage in store.lineages):
                self._require_same_families(
                    store, [(bool(partition.entries), partition.families) for partition in partitions]
                )
            self._require_fits(partitions)
            for partition in partitions:
                self._unused.update(partition.unused)
            merged_count = sum(partition.received.entries - partition.entries for partition in partitions)
            if merged_count and store.merged is not None:
                self._merged[f"{store.operator}.{store.store.name}.{store.states[0].state}"] = merged_count
        for split in (split for result in results for split in result.splits):
            self._expired.update(split.expired)
            self._unused.update(split.unused)
        pairs = [
            (source.compaction, result)
            for source, source_result in zip(sources, results, strict=True)
            if source.compaction is not None
            for result in source_result.compacted
        ]
        self._new_partitions = new_partitions
        self._compacted = each(open_directory(staging_root), lambda pair: rename_staged(*pair), pairs) if pairs else []

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

    def _ledger_tasks(self, staging_root: str, staged_below: str | None) -> Iterator[LedgerTask]:
        """Yield a target for the ledgers of each new partition, in their order, if times are kept."""
        history = self.plan.history
        if history is None or staged_below is None:
            return
        facts = history.facts_for(self.plan.run)
        for _, group in self._groups:
            # Where entries stay, the partition's own target writes the ledgers.
            kept_states = None if group[0].stays else self.plan.kept(group[0])
            states = kept_states.new if kept_states is not None else ()
            for number in range(group[0].partitions):
                yield LedgerTask(group[0].new_snapshot(number), states, facts, staging_root, staged_below)

    @property
    def _with_first(self) -> list[tuple[int, StoreMigration]]:
        """The stores, each with the number of its first target."""
        return [(first_target, store) for first_target, group in self._groups for store in group]

    def _sources(self, staging_root: str, staged_below: str | None) -> Iterator[SplitTask]:
        """Yield a task for each old partition; linked stores that transformers see or that become one share theirs."""
        plan = self.plan
        stores_by_place = {
            (store.operator, store.store.name): (first_target, store) for first_target, store in self._with_first
        }
        compaction_tasks = []
        if plan.compaction is not None:
            compaction_tasks = plan.compaction.tasks(staging_root, staged_below, expired=self.archive is not None)
        for task in compaction_tasks:
            places = [(task.operator, store.name) for store in task.stores]
            yield self._source([stores_by_place[place] for place in places], task.partition, task)
        transformed_stores = {(task.operator, store.name) for task in compaction_tasks for store in task.stores}
        for first_target, group in self._groups:
            stores = [
                (first_target, store) for store in group if (store.operator, store.store.name) not in transformed_stores
            ]
            for partition in range(len(stores[0][1].lineages) if stores else 0):
                yield self._source(stores, partition, None, stay=stores[0][1].stays)

    def _source(
        self,
        stores: Sequence[tuple[int, StoreMigration]],
        partition: int,
        compaction: PartitionTask | None,
        *,
        stay: bool = False,
    ) -> SplitTask:
        plan = self.plan
        old_partitions = tuple(self._old(store, first_target, partition) for first_target, store in stores)
        operator = stores[0][1].operator
        links: tuple[Link, ...] = ()
        if operator in plan.evolution.new_stores:
            links = links_of(
                plan.checkpoint, next(candidate for candidate in plan.checkpoint.operators if candidate.id == operator)
            )
        return SplitTask(
            plan.checkpoint.target, old_partitions, plan.state_store, plan.new_store, compaction, stay, links
        )

    def _old(self, store: StoreMigration, first_target: int, partition: int) -> OldPartition:
        kept_states = None if self.options.dry_run else self.plan.kept(store)
        return OldPartition(
            where=f"{self.plan.checkpoint.target}/{store.store.directory(partition)}",
            name=store.store.name,
            partition=partition,
            before=len(store.lineages),
            partitions=store.partitions,
            first=first_target,
            states=store.states,
            new_states=store.new_states,
            lineage=store.lineages[partition],
            evolutions=store.evolutions,
            families=self.plan.evolution.families(store.operator, store.store.name),
            kept=kept_states,
            ledgers=None if kept_states is None or store.stays else self._partitions + first_target,
        )

    def _target(
        self,
        first_target: int,
        group: tuple[StoreMigration, ...],
        partition: int,
        staging_root: str,
        staged_below: str | None,
    ) -> BuildTask:
        store = group[0]
        return BuildTask(
            root=self.plan.checkpoint.target,
            target=store.new_snapshot(partition),
            like=self._model(store, partition),
            old=self._old(store, first_target, partition) if store.stays else None,
            old_store=self.plan.state_store,
            merged=store.merged,
            unique=any(state.key is not None for state in store.evolutions),
            lists=any(state.timed for store in group for state in store.evolutions),
            families=self.plan.evolution.families(store.operator, store.store.name),
            facts=self.plan.history.facts_for(self.plan.run) if self.plan.history is not None else None,
            state_store=self.plan.new_store,
            staging_root=staging_root,
            staged_below=staged_below,
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
        splits = {(split.first, split.name, split.partition): split for result in results for split in result.splits}
        return [
            []
            if store.stays
            else [splits[first_target, store.store.name, partition] for partition in range(len(store.lineages))]
            for first_target, store in self._with_first
        ]

    def _check(self, results: list[SplitResult]) -> None:
        """Raise RefusedError unless the keys show that Spark places them by their hash.

        Raise UnsupportedError if a column family has different ids in two partitions.
        """
        splits_of_stores = self._by_store(results)
        for store, splits in zip(self.plan.stores, splits_of_stores, strict=True):
            where = self._describe(store)
            self._require_fits(splits)
            misplaced = sum(split.misplaced for split in splits)
            if misplaced:
                example = next(split.example for split in splits if split.misplaced)
                raise RefusedError(
                    f"{where}: {quantity(misplaced, 'key is', 'keys are')} not in the partition that Spark's hash "
                    "gives, so ttlsnap does "
                    "not know where Spark would look for them. For example, " + example + ". Nothing was changed. Run: "
                    f"ttlsnap doctor {shell_word(self.plan.checkpoint.target)}"
                )
            self._require_same_families(store, [(any(split.sent.entries), split.families) for split in splits])
        if self.plan.checkpoint.batch.conf.get(STRICT) != "true":
            self._require_proof(splits_of_stores)

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
        if lost_places := [place for place in misfits if place.endswith(GONE)]:
            counts = ", ".join(f"{misfits[place]:,} in {place.removesuffix(GONE)}" for place in lost_places)
            raise RefusedError(
                f"{self.plan.checkpoint.target}: there are timers of the old time mode: {counts}. Nothing was changed. "
                "Let them fire first, with the old query"
            )
        if misfits:
            misfit_text = ", ".join(f"{count:,} of {place}" for place, count in sorted(misfits.items()))
            raise RefusedError(
                f"{self.plan.checkpoint.target}: some values do not fit the new schema: {misfit_text}. Nothing was "
                "changed. Drop these entries, or rewrite their values, first (ttlsnap compact --transformer), or keep "
                "the old type"
            )

    def _require_proof(self, splits_of_stores: Sequence[Sequence[Split]]) -> None:
        """Raise RefusedError if keys may be in the right partitions by chance.

        In a query that was started before Spark 3.3, keys can be placed by some of their columns. With n partitions, a
        key is then in the partition of its hash with a probability of 1 / n.
        """
        proven_bits: dict[int, float] = {}
        stores = [(store, splits) for store, splits in zip(self.plan.stores, splits_of_stores, strict=True) if splits]
        for store, splits in stores:
            keys = sum(split.hashes for split in splits)
            proven_bits[store.operator] = max(proven_bits.get(store.operator, 0), keys * log2(len(splits)))
        for store, splits in stores:
            keys = sum(split.hashes for split in splits)
            if keys and proven_bits[store.operator] < PROOF:
                raise RefusedError(
                    f"{self._describe(store)}: the query was started before Spark 3.3, which may place keys by only "
                    f"some of their columns. {quantity(keys, 'different key')} in {quantity(len(splits), 'partition')} "
                    f"{'does' if keys == 1 else 'do'} not show whether it does. So the number of partitions cannot "
                    "be changed. Nothing was changed"
                )

    def _describe(self, store: StoreMigration) -> str:
        return f"{self.plan.checkpoint.target}: operator {store.operator}, store {store.store.name}"

    def _report(self) -> MigrationReport:
        plan, new_partitions = self.plan, self._new_partitions
        compaction = None
        if self._runner is not None and new_partitions:
            sizes = {
                (store.operator, store.store.name): sum(partition.size for partition in partitions)
                for group, partitions in zip(plan.groups, new_partitions, strict=True)
                for store in group[:1]
            }
            # The new partitions are not those of the results, but their sum is the size of the store.
            results = [
                replace(result, bytes_after=0 if result.partition else sizes.get((result.operator, result.store), 0))
                for result in self._compacted
            ]
            compaction = self._runner.report(results)
        return MigrationReport(
            run=plan.run,
            target=plan.checkpoint.target,
            dry_run=self.options.dry_run,
            published=True,
            engine=self._engine.name,
            engine_reason=reason_of(self._engine),
            batch=plan.checkpoint.batch.id,
            fingerprint=plan.fingerprint,
            partitions=plan.partitions,
            provider_before=plan.state_store.provider,
            provider=plan.new_store.provider,
            settings=dict(plan.target.pinned),
            session_settings=dict(plan.target.session),
            stores=tuple(map(_report_store, plan.groups, new_partitions)) if new_partitions else (),
            single=plan.single,
            expired_to=compaction.expired_to if compaction is not None else None,
            compaction=compaction,
            plan=tuple(step.to_json() for step in plan.evolution.steps),
            expired={place: count for place, count in self._expired.items() if count},
            merged=self._merged,
            unused=dict(self._unused),
            warnings=(
                *plan.evolution.notes,
                *warn_of_numbers(plan),
                *(warn_of_far_future(compaction.drops) if compaction else ()),
            ),
        )


def _number_of_model(store: StoreMigration) -> int:
    """Return the old partition whose settings the new ones get."""
    return next((number for number, lineage in enumerate(store.lineages) if lineage.snapshot is not None), 0)


def _report_store(group: Sequence[StoreMigration], new_partitions: Sequence[Built]) -> StoreReport:
    store = group[0]
    return StoreReport(
        operator=store.operator,
        operator_name=store.states[0].operator_name,
        store=store.becomes.name,
        partitions_before=len(store.lineages),
        bytes_before=sum(store.size for store in group),
        partitions=tuple(
            NewPartition(number, partition.entries, partition.size) for number, partition in enumerate(new_partitions)
        ),
    )
