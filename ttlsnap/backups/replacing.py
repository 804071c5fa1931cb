"""``copy --replace``: a checkpoint gets the state and the positions of a copy, in a run that can be rolled back.

``rewind`` does the same with an earlier batch of the checkpoint itself, which it still retains.

The numbers of batches do not go back (see ``numbers``). If the checkpoint is at batch M and the copy at N:

    state of version N + 1          becomes version M + 1, in new files
    offsets/N, commits/N            become offsets/M and commits/M
    all other files of the copy     keep their names

The query's id stays. What the checkpoint had in these places moves to the run's backup.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

from ttlsnap.archives.places import AllowedPlaces
from ttlsnap.backups.earlier_sources import describe_lost_changes
from ttlsnap.backups.numbers import number_batches
from ttlsnap.backups.source_logs import AdvancedLogs, advance_logs, describe_left_out
from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.checkpoint.checkpoint import query_id
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.checkpoint.logs import (
    MAX_LOG_BYTES,
    Logs,
    named_positions,
    plan_next,
    read_logs,
    with_file_logs,
    with_unique_ids,
)
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.compaction.engine import settle
from ttlsnap.compaction.task import Progress
from ttlsnap.copies.access import share_copy
from ttlsnap.copies.manifest import Manifest, read_begun, read_manifest
from ttlsnap.copies.report import CopyReport
from ttlsnap.copies.run import CopyListener, CopyRequest, SilentCopyListener, require_apart
from ttlsnap.copies.selection import SelectedFile, Selection, find_changed, find_replaced, select_files
from ttlsnap.copies.transfer import Sender
from ttlsnap.copies.verify import is_unused, refuse_altered
from ttlsnap.engines.local import PartitionReading, read_all
from ttlsnap.engines.progress import SilentWorkListener
from ttlsnap.errors import (
    AlteredCopyError,
    BusyError,
    CorruptionError,
    RefusedError,
    UsageError,
    explain_errors,
    tidy_after_error,
)
from ttlsnap.printable import shell_word
from ttlsnap.publishing.archives import deliver_all
from ttlsnap.publishing.first_run import describe_first_run
from ttlsnap.publishing.in_progress import find_written
from ttlsnap.publishing.journal import Journal, staged_path
from ttlsnap.publishing.liveness import has_begun
from ttlsnap.publishing.preflight import (
    describe_unplannable,
    foresee,
    refuse_immovable,
    refuse_in_place,
    refuse_running,
)
from ttlsnap.publishing.runs import Runs, new_run_id, refuse_if_interrupted
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import StagedFile, Staging, Written
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.scratch import existing_folder
from ttlsnap.transaction.steps import Run, WorkPlace, change_in_place
from ttlsnap.written.ledger import list_ledgers

_REST = {OWN, layout.METADATA, *layout.checksum_files(layout.METADATA)}


def require_replaceable(target: str, last_batch: int | None = None) -> None:
    """Raise UsageError unless a place has a checkpoint, or what is left of one. An unfinished copy is not one.

    If the user knows the ``last_batch``, nothing needs to be left.
    """
    files = open_directory(target)
    if read_begun(files) is not None:
        raise UsageError(f"{files.root} is an unfinished copy. To go on with it, leave out --replace")
    if any(layout.batch_of(path) is not None for path in list_activity(files)) or files.list(layout.RUNS):
        return
    if last_batch is not None and {info.name for info in files.list("")} <= {*_REST, *layout.CONTENT}:
        return
    with explain_errors(
        "If nothing is left of a checkpoint, add --last-batch N, where N is the last batch that its sink has"
    ):
        require_checkpoint(files)
        raise UsageError(f"{files.root} has nothing of a checkpoint that could be replaced")


def replace_state(request: CopyRequest) -> CopyReport:
    """Give the checkpoint ``target`` the state and the positions of the checkpoint ``source``. Return a report.

    Raise a ``TtlsnapError``. The checkpoint is then as it was, unless the message names ``ttlsnap recover``.
    """
    source, files = open_directory(request.source), open_directory(request.target)
    require_apart(source, files)
    return _replace(request, source, files)


def rewind_state(request: CopyRequest, warnings: Sequence[str]) -> CopyReport:
    """Give the checkpoint ``target``, which is also the ``source``, the state and the positions of its ``batch``.

    Return a report, which also has the ``warnings``. Raise a ``TtlsnapError`` as ``replace_state`` does.
    """
    files = open_directory(request.target)
    return _replace(request, files, files, warnings)


def go_back(files: Directory, request: CopyRequest) -> Run:
    """Do what ``rewind_state`` does, for a repair that holds the lock already. Return the published run.

    The backups of earlier runs stay. Where Spark cannot run a batch without data, none is planned.
    """
    scratch = existing_folder(request.scratch) if request.scratch is not None else None
    selection, _ = _select(request, files, files)
    request = replace(request, planned_batch=describe_unplannable(selection.checkpoint) is None)
    run = Replacement(files, selection, refuse_if_interrupted(files), request)
    run.replaces_backups = False
    run.refusals()
    change_in_place(run, scratch)
    return run


def _replace(request: CopyRequest, source: Directory, files: Directory, warnings: Sequence[str] = ()) -> CopyReport:
    started = time.monotonic()
    scratch = existing_folder(request.scratch) if request.scratch is not None else None
    is_new = files.stat("") is None and not request.dry_run
    if is_new:
        files.mkdirs("")
        share_copy(source, files)
    with (
        tidy_after_error(partial(files.remove_folder, "")) if is_new else nullcontext(),
        nullcontext() if request.dry_run else files.lock(),
    ):
        selection, warnings_of_copy = _select(request, source, files)
        run = Replacement(source, selection, refuse_if_interrupted(files), request)
        run.warnings += (*warnings_of_copy, *warnings)
        if source is files:
            _refuse_last_batch(run.runs, run.before, selection.batch)
        refusals = run.refusals()
        if request.dry_run:
            run.stage(WorkPlace(files.root, None, scratch))
            run.warnings += refusals
            return replace(run.report, refused=bool(refusals), seconds=_since(started))
        run.published = change_in_place(run, scratch)
        first_run = describe_first_run(run.runs) if run.published else None
    return replace(run.report, first_run=first_run, seconds=_since(started))


def _select(request: CopyRequest, source: Directory, files: Directory) -> tuple[Selection, list[str]]:
    """Return what the source has, and warnings."""
    with _blame_copy(source, files):
        lost_id = _lost_id(files, read_manifest(for_reading(source))) if source is not files else None
        selection = select_files(for_reading(source), request.batch, files.root, lost_id)
    altered = refuse_altered(for_reading(source), selection, "Nothing was changed.")
    return selection, [*altered, *selection.warnings]


@contextmanager
def _blame_copy(source: Directory, files: Directory) -> Iterator[None]:
    """Raise AlteredCopyError for damage of a source that is another checkpoint than ``files``."""
    try:
        yield
    except CorruptionError as error:
        if source is files:
            raise
        raise AlteredCopyError(f"{error.message}. Nothing was changed. Use another copy") from error


def _refuse_last_batch(runs: Runs, listing: Listing, batch: int | None) -> None:
    """Raise UsageError if nothing was committed or begun after the batch, except what ttlsnap has planned."""
    files, logs = runs.files, read_logs(runs.files)
    last_batch = max(logs.commits, default=None)
    if batch == last_batch and not has_begun(runs, logs, listing):
        raise UsageError(
            f"batch {last_batch} is the last one of {files.root} that is committed, so there is nothing to rewind. "
            "Name an earlier batch. To undo a run of ttlsnap, use ttlsnap rollback"
        )


def _since(started: float) -> float:
    return time.monotonic() - started


@dataclass(frozen=True)
class _Partition(PartitionReading):
    """A partition of the source, and the path of its new snapshot. It gets the settings of the partition ``like``."""

    like: StorePartition
    target: str


class Replacement(Run):
    """A run that gives a checkpoint the state of a copy, which ``selection`` describes."""

    replaces_backups = True

    def __init__(self, source: Directory, selection: Selection, runs: Runs, request: CopyRequest) -> None:
        super().__init__(runs, new_run_id(), list_activity(runs.files))
        self._source, self._selection, self._request = source, selection, request
        self._listener: CopyListener = request.listener or SilentCopyListener()
        manifest = read_manifest(for_reading(source))
        self._query_id = _require_same_query(self.files, source, selection, manifest)
        is_copy_of_this = manifest is not None and manifest.facts.source == self.files.root
        if self._query_id is None and not self.before and not is_copy_of_this:
            self.warnings.append(
                f"{source.root} is not a copy of {self.files.root}, and nothing of that checkpoint is left, so nothing "
                "shows whether they are of the same query"
            )
        self._logs = read_logs(self.files)
        if source is not self.files and request.last_batch is None:
            self._refuse_unknown_sink(selection.batch)
        self._numbers = number_batches(runs, self._logs, self.before, selection.batch, request.last_batch)
        if self._numbers.batch > self._numbers.known:
            self.warnings.append(self._describe_raised_number())
        positions = named_positions(for_reading(source), selection.batch)
        made_at = None
        if source is not self.files:
            # A folder that is not a copy of ttlsnap may be from any time.
            made_at = manifest.facts.made_at if manifest is not None else ""
            if manifest is not None and not is_unused(manifest, selection.runs, selection.checkpoint.logs):
                self.warnings.append(
                    f"a query or a run of ttlsnap has worked on {source.root} since it was copied, so its files cannot "
                    "be compared with its manifest"
                )
        self.warnings += describe_lost_changes(runs, self.files.root, selection.batch, positions, made_at)
        self.warnings += describe_left_out(for_reading(source), selection.batch, for_reading(self.files))
        self._partitions, self._unique_ids = _renumber(selection, self._numbers.batch + 1)
        self._staged: list[StagedFile] = []
        self.published = not request.dry_run

    def _refuse_unknown_sink(self, source_batch: int) -> None:
        """Raise UsageError if the checkpoint lacks commits, so that nothing shows what the sink of the query has."""
        last_committed = max(self._logs.commits, default=-1)
        if source_batch <= last_committed:
            return
        lost = (
            "has lost its log of commits, which shows what the sink of the query has"
            if last_committed < 0
            else f"ends with batch {last_committed}, and the copy with batch {source_batch}, so the checkpoint is from "
            "before the copy, or has lost a part of its logs. Nothing shows what the sink of the query has"
        )
        raise UsageError(
            f"{self.files.root} {lost}. Add --last-batch N, where N is the last batch that the sink has: a file sink "
            "or a Delta table skips new batches with numbers that it has, and their rows are lost. Nothing was changed"
        )

    def _describe_raised_number(self) -> str:
        batch, written = self._numbers.batch, find_written(self._logs, self.before)
        if batch == self._request.last_batch:
            reason = f"--last-batch names a later batch than the last one of the checkpoint, {self._numbers.known}"
        elif written is not None:
            reason = f"batch {written} was not committed, but has written state, so the sink may have it"
        else:
            reason = f"a file or a run of the checkpoint names batch {batch}, and the sink may have none of that number"
        return (
            f"{reason}. So the last batch of the checkpoint gets the number {batch}. If the query writes files, the "
            "folder _spark_metadata of its output needs a file for each number from its last .compact file up to "
            f"{batch}. Before you start the query, create those that are missing. An empty .compact file would lose "
            "all earlier output: the documentation has the commands under Sinks, A gap in the log of a file sink"
        )

    def refusals(self) -> list[str]:
        """Raise a TtlsnapError if the checkpoint cannot be replaced now; in a dry run, return what it would say."""
        request, files, dry_run = self._request, self.files, self._request.dry_run
        new_files = [*(partition.target for partition in self._partitions), layout.offset_file(self._numbers.planned)]
        in_place = partial(refuse_in_place, self._at_its_last_batch, new_files, moved=None, dry_run=dry_run)
        return [
            *refuse_running(self.runs, self._query_id, request.stopped, False, dry_run),
            *foresee(partial(refuse_immovable, files, self._old_paths), dry_run=dry_run),
            *in_place(planned_batch=request.planned_batch),
        ]

    def deliver_waiting(self) -> list[str]:
        return deliver_all(self.runs, AllowedPlaces(None))

    def stage(self, place: WorkPlace) -> None:
        """Build the state, and send the other files."""
        with _blame_copy(self._source, self.files):
            others, size = self._advanced.files, sum(file.info.size for file in self._others)
            if self._advanced.going_back:
                self.warnings.append(_describe_going_back(self._advanced.going_back))
            self._listener.chosen(self._selection.batch, len(self._selection.files), self._selection.size)
            self._build_state(place)
        if place.below is not None:
            self._send(others, place.below)
        self._listener.arrived(len(others), size)

    def is_wanted(self) -> bool:
        return self._listener.confirm(self.report)

    def document(self) -> dict[str, Any]:
        return self.report.to_json()

    def journal(self) -> Journal:
        files, selection, numbers = self.files, self._selection, self._numbers
        source = for_reading(self._source)
        planned = plan_next(source, selection.checkpoint.batch) if self._request.planned_batch else None
        if planned is not None:
            planned = with_file_logs(planned, self._advanced.positions)
        documents = self._new_logs(source)
        logs = self._logs
        files.mkdirs(layout.OFFSETS)  # a damaged checkpoint may have lost it
        if numbers.begun and planned is not None:
            # The fence is after it. So a rollback brings the old offsets back, as every other replaced file.
            documents[layout.offset_file(numbers.planned)] = planned.encode()
            planned = None
        elif not numbers.begun:
            logs = replace(logs, offsets=(*logs.offsets, numbers.batch))
        staged = each(files, lambda file: settle(files, file, staged_path(self.id, file.target)), self._staged)
        return Change(
            kind="restore",
            batch=numbers.batch,
            staged=staged,
            documents=documents,
            set_aside=self._old_paths,
            kept_logs=(),
            planned=planned,
        ).journal(self.runs, self.id, logs, self.before)

    def check(self) -> None:
        if self._source is self.files:
            if (changed_path := find_replaced(self.files, self._selection)) is not None:
                raise BusyError(
                    f"{self.files.root}/{changed_path} was replaced while ttlsnap worked: the query is running. "
                    "Nothing was changed. Stop the query first"
                )
            return
        changed_path = find_changed(self._source, self._selection)
        if changed_path is not None:
            raise BusyError(
                f"{self._source.root}/{changed_path} was removed or replaced while ttlsnap read it. Nothing was "
                "changed. Copy that checkpoint to a new place first, and use the copy"
            )

    @property
    def report(self) -> CopyReport:
        """The report, with the warnings that were collected so far."""
        selection, request = self._selection, self._request
        return CopyReport(
            source=self._source.root,
            target=self.files.root,
            batch=self._numbers.batch,
            source_batch=selection.batch,
            query_id=self._query_id or selection.query_id,
            new_id=False,
            dry_run=request.dry_run,
            complete=self.published,
            files=len(selection.files),
            bytes=selection.size,
            replaced=True,
            run=self.id,
            backup=f"{self.files.root}/{layout.run_directory(self.id)}/backup" if self.published else None,
            warnings=tuple(self.warnings),
            made_final=self.made_final,
        )

    @cached_property
    def _advanced(self) -> AdvancedLogs:
        """The other files, with logs of sources that go on where those of the checkpoint end."""
        source = for_reading(self._source)
        return advance_logs(source, self._selection.batch, self._others, self._old_paths)

    @cached_property
    def _others(self) -> list[SelectedFile]:
        """The files of the copy that are sent: all but state, logs, and the id of the query if there is one."""
        state_paths = {file.path for partition in self._partitions for file in partition.source.lineage.files}
        folders = (layout.OFFSETS, layout.COMMITS)

        def is_other(path: str) -> bool:
            if path == layout.METADATA:
                return self._query_id is None
            return path not in state_paths and path.split("/")[0] not in folders

        return [file for file in self._selection.files if is_other(layout.strip_checksum(file.path))]

    @cached_property
    def _old_paths(self) -> list[str]:
        """What moves to the run's backup: the logs, the state, and each folder that the copy has, too."""
        files = self.files
        folders = {*layout.CONTENT, *(file.path.split("/")[0] for file in self._others if "/" in file.path)}
        paths = [path for folder in sorted(folders) for path in files.list_tree(folder)]
        staying = set(map(layout.offset_file, self._staying))
        return [*(path for path in paths if layout.strip_checksum(path) not in staying), *list_ledgers(files)]

    @cached_property
    def _staying(self) -> list[int]:
        """The batches whose offsets stay: a query that is idle since before an earlier run may begin one of them.

        Without commits, any may be one.
        """
        taken = self.runs.taken_batches(self._logs) if self._logs.commits else self._logs.offsets
        return [batch for batch in taken if batch < self._numbers.batch - 1]

    def _build_state(self, place: WorkPlace) -> None:
        def build(partition: _Partition, progress: Progress) -> Written:
            written = _build(partition, place, progress)
            self._listener.arrived(len(partition.source.lineage.files), partition.size)
            return written

        results = read_all(build, self._partitions, self._request.parallelism, SilentWorkListener())
        self._staged += [file for written in results for file in written.files]

    def _send(self, others: Sequence[SelectedFile], below: str) -> None:
        staging = open_directory(f"{self.files.root}/{below}")
        staging.mkdirs("")
        copied_files, changed_paths = Sender(self._source, staging, self._request.parallelism).send(others)
        if changed_paths:
            raise BusyError(f"{self._source.root}/{changed_paths[0]} was removed or replaced while ttlsnap read it")
        self._staged += [StagedFile(f"{below}/{file.path}", file.path, file.size, file.digest) for file in copied_files]

    def _new_logs(self, source: Directory) -> dict[str, bytes]:
        """Return the logs of the restored checkpoint, by path."""
        selection, numbers = self._selection, self._numbers
        checkpoint, batch = selection.checkpoint, selection.batch
        earlier_batch = batch - 1 if batch - 1 in checkpoint.logs.offsets else batch
        offsets, earlier_offsets = (
            with_file_logs(
                source.read(layout.offset_file(number), MAX_LOG_BYTES).decode(), self._advanced.positions
            ).encode()
            for number in (batch, earlier_batch)
        )
        documents = {layout.offset_file(numbers.batch): offsets}
        if numbers.batch > 0:  # a query that restarts after a batch also reads the offsets before it
            documents[layout.offset_file(numbers.batch - 1)] = earlier_offsets
        for blocked in set(numbers.blocked).difference(self._staying):
            documents.setdefault(layout.offset_file(blocked), offsets)
        documents[layout.commit_file(numbers.batch)] = with_unique_ids(source, batch, self._unique_ids).encode()
        return documents

    @property
    def _at_its_last_batch(self) -> Checkpoint:
        """The copy's checkpoint as the restored one will be: no batch is begun."""
        checkpoint = self._selection.checkpoint
        batch = (checkpoint.batch.id,)
        return replace(checkpoint, files=self.files, logs=Logs(batch, batch, None))


def _describe_going_back(sources: Sequence[str]) -> str:
    names = ", ".join(sources)
    return (
        "the logs of these sources of files end with a lower number than before, because nothing shows which offsets "
        f"they have: {names}. If a query with this checkpoint is idle, it writes a later number when it finds "
        "a file, and Spark then does not start, because numbers are missing. Make sure that no query is running"
    )


def _renumber(selection: Selection, version: int) -> tuple[list[_Partition], dict[int, list[list[str]]]]:
    """Return the partitions of all stores as they will be at ``version``, and the ids in the names of their files.

    There is an id for each store, for each operator and partition; there are none in checkpoint format 1.
    """
    checkpoint = selection.checkpoint
    partitions: list[_Partition] = []
    unique_ids: dict[int, list[list[str]]] = {}
    for operator in checkpoint.operators:
        ids_of_stores: list[list[str]] = []
        for store in operator.stores:
            place = (operator.id, store.name)
            sources = [source for source in selection.partitions if (source.operator, source.name) == place]
            model = next((source for source in sources if source.lineage.snapshot is not None), sources[0])
            ids = [str(uuid4()) if checkpoint.batch.unique_ids else None for _ in sources]
            ids_of_stores.append(list(filter(None, ids)))
            for source, unique_id in zip(sources, ids, strict=True):
                like = source if source.lineage.snapshot is not None else model
                name = source.state_store.snapshot_name(version, unique_id)
                partitions.append(_Partition(source, like, f"{store.directory(source.partition)}/{name}"))
        if checkpoint.batch.unique_ids:
            unique_ids[operator.id] = [list(ids) for ids in zip(*ids_of_stores, strict=True)]
    return partitions, unique_ids


def _build(partition: _Partition, place: WorkPlace, progress: Progress) -> Written:
    """Build the new snapshot of a partition from the entries of the copy's one, as they are stored."""
    source = for_reading(open_directory(partition.root))
    staging = Staging(open_directory(place.root), place.below) if place.below is not None else None
    store = partition.source.state_store
    with (
        store.build(source, partition.like.lineage, partition.target, staging, place.scratch) as builder,
        closing(partition.source.scan(source, {}, scratch=place.scratch)) as batches,
    ):
        for batch, _ in batches:
            keys, values, _ = batch.stored
            builder.put(keys, values)
            progress(len(keys), 0)  # here, a run can be stopped
        return builder.finish()


def _require_same_query(
    files: Directory, source: Directory, selection: Selection, manifest: Manifest | None
) -> str | None:
    """Return the id of the checkpoint's query, if it has one. ``manifest`` is that of the source.

    Raise RefusedError if the source is neither a copy of this checkpoint, nor its original, nor a copy of that.
    """
    advice = (
        "Nothing was changed. If you cannot repair that file, move it out of the checkpoint, and repeat the command"
    )
    with explain_errors(advice, CorruptionError):
        target_id = query_id(files)
        known_ids = _related_ids(target_id, read_manifest(for_reading(files)))
    if source is files:
        return target_id
    if target_id is None:
        _require_same_origin(files, source, manifest)
        return None
    if _related_ids(selection.query_id, manifest) & known_ids:
        return target_id
    advice = "Name a copy of this checkpoint"
    if manifest is not None and manifest.facts.source == files.root:
        command = f"ttlsnap copy {shell_word(source.root)} {shell_word(files.root)} --replace --last-batch N"
        advice = (
            "It was copied from this place, so the checkpoint was probably lost, and the query has begun from nothing. "
            f"Then stop the query, move {files.root} to another place, and run: {command}, where N is the last batch "
            "that the sink has, also from the query that has begun from nothing"
        )
    raise RefusedError(
        f"{source.root} is of another query (id {selection.query_id}) than {files.root} (id {target_id}). Nothing was "
        f"changed. {advice}"
    )


def _require_same_origin(files: Directory, source: Directory, manifest: Manifest | None) -> None:
    """Raise RefusedError if nothing shows that a source is of the query whose checkpoint has lost its id.

    It is a copy of the checkpoint in this place, or both have the offsets of a batch, or nothing is left here.
    """
    copy = for_reading(source)
    if (manifest is not None and manifest.facts.source == files.root) or not list_activity(files):
        return
    common_batches = set(read_logs(files).offsets) & set(read_logs(copy).offsets)
    paths = [layout.offset_file(batch) for batch in common_batches]
    is_same = any(files.read(path, MAX_LOG_BYTES) == copy.read(path, MAX_LOG_BYTES) for path in paths)
    if is_same and _lost_id(files, manifest) is None:  # a clone has the offsets of two queries
        return
    raise RefusedError(
        f"{files.root} has lost the id of its query ({layout.METADATA}), and nothing shows that {source.root} is of "
        f"this query. Nothing was changed. If it is, copy {source.root}/{layout.METADATA} to {files.root}, and repeat "
        "the command"
    )


def _lost_id(files: Directory, manifest: Manifest | None) -> str | None:
    """Return the id of the original, for a checkpoint without an id that gets a clone's state; None otherwise."""
    if manifest is None or files.stat(layout.METADATA) is not None:
        return None
    facts = manifest.facts
    return facts.source_query_id if facts.query_id != facts.source_query_id else None


def _related_ids(query_id: str | None, manifest: Manifest | None) -> set[str]:
    """Return the id of a checkpoint's query, and if the checkpoint is a copy, that of its original."""
    ids = {query_id, *((manifest.facts.source_query_id,) if manifest is not None else ())}
    return {known_id for known_id in ids if known_id is not None}
