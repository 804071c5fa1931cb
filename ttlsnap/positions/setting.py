"""The public function ``set_positions``: a query goes on at other positions of its sources, with its state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, BinaryIO

from ttlsnap.checkpoint import Checkpoint, Logs, layout, open_checkpoint
from ttlsnap.checkpoint.listing import list_activity
from ttlsnap.checkpoint.logs import (
    batch_start,
    named_offsets,
    named_positions,
    parse_offset,
    plan_next,
    read_file_logs,
    with_offsets,
)
from ttlsnap.checkpoint.source_logs import list_source_log
from ttlsnap.errors import BusyError, RefusedError, UsageError
from ttlsnap.keywords import takes
from ttlsnap.positions.delta_tables import open_tables, resolve_version
from ttlsnap.positions.edited_logs import EditedLog
from ttlsnap.positions.file_logs import FileLogs, explain_with_log, find_log, require_entries
from ttlsnap.positions.kafka import connect, require_existing, require_kafka, resolve
from ttlsnap.positions.kinds import find_kind, require_source
from ttlsnap.positions.log_edits import LogEdit
from ttlsnap.positions.log_rules import rules_of
from ttlsnap.positions.meaning import as_offset, parse_position
from ttlsnap.positions.renaming import RenamedSources
from ttlsnap.positions.report import PositionChange, PositionsReport
from ttlsnap.printable import shell_word
from ttlsnap.publishing.first_run import describe_first_run
from ttlsnap.publishing.in_progress import find_written
from ttlsnap.publishing.journal import Journal, staged_path
from ttlsnap.publishing.preflight import (
    describe_unplannable,
    foresee,
    refuse_immovable,
    refuse_in_place,
    refuse_running,
    refuse_unsettled,
)
from ttlsnap.publishing.runs import Runs, new_run_id, refuse_if_interrupted
from ttlsnap.storage.directory import each
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.stores.protocols import StagedFile
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.steps import Run, WorkPlace, change_in_place

_COMPARED = 20
"""The newest batches whose offsets are compared."""

Confirm = Callable[[PositionsReport], bool]
"""A function that returns whether the positions may be changed as the report says."""


@dataclass(frozen=True, kw_only=True)
class PositionsRequest:
    """The arguments of ``set_positions``.

    ``target`` is the checkpoint: a path, or a URI of an object store or HDFS. ``positions`` has the new position of
    each source that gets one, by its name or number, in the form in which ``sources`` shows it. For a source of Kafka
    it may also be ``earliest``, ``latest``, or a time in ISO 8601: then ``bootstrap_servers`` and ``kafka_options`` are
    needed, as for ``sources``, and ``topics`` has the new name of each topic that has another one now. With a
    connection, offsets that the topics do not have are refused. For a source of Delta, it may also be the number of the
    first version that is read, or ``earliest``, ``latest`` or a time: then ``tables`` is needed, as for ``sources``. A
    position that its table does not have is then refused. ``log_edits`` has changes of what sources of files have
    recorded, by the names of the sources: a ``Forget``, ``Record``, ``Move`` or ``Trim``. ``new_names`` has other names
    of sources, by their names or numbers, for a query with source evolution; with numbers as names, for one without.
    ``stopped`` and ``planned_batch`` are as for ``compact``. ``confirm`` is called before anything is changed, with the
    report that a dry run returns; nothing is changed if it returns False.
    """

    target: str = field(kw_only=False)
    positions: Mapping[str, Any] | None = field(kw_only=False, default=None)
    log_edits: Mapping[str, LogEdit] | None = None
    new_names: Mapping[str, str] | None = None
    dry_run: bool = False
    stopped: bool = False
    planned_batch: bool = True
    topics: Mapping[str, str] | None = None
    bootstrap_servers: str | None = None
    kafka_options: Mapping[str, str] | None = None
    tables: Mapping[str, str] | None = None
    confirm: Confirm | None = None


@takes(PositionsRequest)
def set_positions(request: PositionsRequest) -> PositionsReport:
    """Let the query of the checkpoint ``target`` go on at other positions of its sources, with the state that it has.

    Its query must be stopped. Rows that it reads again are counted twice by its state, and rows that it skips are lost
    to it; ``rewind`` sets the state back together with the positions. ``rollback`` undoes the run.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    started = time.monotonic()
    files, dry_run = open_directory(request.target), request.dry_run
    with nullcontext() if dry_run else files.lock():
        runs = refuse_if_interrupted(files)
        checkpoint = replace(open_checkpoint(for_reading(files)), files=files)
        run = Repositioning(checkpoint, runs, request)
        refusals = run.refusals()
        if dry_run:
            run.warnings += refusals
            return replace(run.report, refused=bool(refusals), seconds=time.monotonic() - started)
        run.published = change_in_place(run)
        first_run = describe_first_run(run.runs) if run.published else None
    return replace(run.report, first_run=first_run, seconds=time.monotonic() - started)


class Repositioning(Run):
    """A run that gives sources other positions: in the offsets of the last batch, and in those of a planned one."""

    replaces_backups = True

    def __init__(self, checkpoint: Checkpoint, runs: Runs, request: PositionsRequest) -> None:
        super().__init__(runs, new_run_id(), list_activity(runs.files))
        self._checkpoint, self._request = checkpoint, request
        wanted = [one for one in (request.positions, request.log_edits, request.new_names) if one]
        if len(wanted) != 1:
            raise UsageError(
                "change the positions of sources, what they have recorded, and their names in runs of their own"
                if wanted
                else "nothing is to be changed: give positions, log_edits or new_names"
            )
        self._changes, self._offsets = _compare(checkpoint, request)
        self._logs = {name: self._open_log(name, edit) for name, edit in (request.log_edits or {}).items()}
        if len({log.folder for log in self._logs.values()}) < len(self._logs):
            raise UsageError("log_edits: two of the sources have the same log. Change it in one way")
        self.warnings += [words for log in self._logs.values() for words in log.warnings]
        self._renamed = RenamedSources(checkpoint, request.new_names or {})
        self._staged: list[StagedFile] = []
        self.published = not request.dry_run

    def _open_log(self, name: str, edit: LogEdit) -> EditedLog:
        """Return the log of a source, with what an edit does to it."""
        if not isinstance(edit, LogEdit):
            raise UsageError(f"log_edits: {edit!r} is not a Forget, Record, Move or Trim")
        files, logs = for_reading(self._checkpoint.files), self._checkpoint.logs
        file_logs = FileLogs(files, self._checkpoint.batch.id)
        owner = find_log(file_logs, name)
        # A source that was set back has a lower position than after the oldest batch.
        retained = each(files, lambda number: read_file_logs(files, number, {}).get(name, -1), logs.offsets)
        position = file_logs.positions[name]
        return EditedLog(files, list_source_log(files, owner, position), edit, position, min(retained))

    @property
    def _next_is_begun(self) -> bool:
        return self._checkpoint.logs.offsets[-1] > self._checkpoint.batch.id

    def refusals(self) -> list[str]:
        """Raise a TtlsnapError if the positions cannot be changed now; in a dry run, return what it would say."""
        request, files, logs, dry_run = self._request, self.files, self._checkpoint.logs, self._request.dry_run
        newest, batch = logs.offsets[-1], self._checkpoint.batch.id
        refuse_unsettled(self._checkpoint, self.before, self.runs)
        moved = list(dict.fromkeys([layout.offset_file(newest), *self._renamed.documents, *self._renamed.set_aside]))
        return [
            *foresee(self._refuse_without_plan, dry_run=dry_run),
            *refuse_running(self.runs, self._checkpoint.query_id, request.stopped, False, dry_run),
            *foresee(self._refuse_written, dry_run=dry_run),
            *foresee(partial(refuse_immovable, files, moved), dry_run=dry_run),
            # A batch that was begun is replaced, too, by one without data.
            *refuse_in_place(
                replace(self._checkpoint, logs=Logs((batch,), (batch,), None)),
                [layout.offset_file(newest + 1)],
                planned_batch=request.planned_batch,
                moved=None,
                dry_run=dry_run,
            ),
        ]

    def _refuse_without_plan(self) -> None:
        """Raise RefusedError if no batch is planned, or none can be, and Spark would not start."""
        reason = describe_unplannable(self._checkpoint)
        change = next((change for change in self._changes if change.kind not in ("kafka", "rate-micro-batch")), None)
        if change is not None and (reason is not None or not self._request.planned_batch):
            raise RefusedError(
                f"{self.files.root}: source {change.name} needs a planned batch. Without it, Spark also looks at the "
                "offsets before the last batch when it starts, and only Kafka and rate-micro-batch surely stand that. "
                + (f"But {reason}. Nothing was changed" if reason else "Nothing was changed. Omit --no-planned-batch")
            )

    def _refuse_written(self) -> None:
        """Raise RefusedError for a batch that has written state from its own input, but has no commit."""
        files, batch = self.files, find_written(self._checkpoint.logs, self.before)
        if batch is not None and not self._renamed.is_change:
            raise RefusedError(
                f"{files.root}: batch {batch} was begun and not committed, and has written state. With other positions "
                "it would run again on other rows, and a sink that has it already would skip them. Nothing was "
                "changed. Start the query, let it commit the batch, and stop it. If it cannot start, first go back to "
                f"the last committed batch: ttlsnap rewind {shell_word(files.root)} --batch {batch - 1} --stopped"
            )

    def stage(self, place: WorkPlace) -> None:
        """Write the logs of sources. The other logs are documents of the journal."""
        for log in self._logs.values():
            for name in log.changed_names:
                self._stage(f"{log.folder}/{name}", partial(log.write, name))
        for target in self._renamed.copies:
            self._stage(target, partial(self._renamed.write, target))

    def _stage(self, target: str, write: Callable[[BinaryIO], None]) -> None:
        path = staged_path(self.id, target)
        self.files.mkdirs(path.rpartition("/")[0])
        with self.files.writer(path) as file:
            write(file)
        info = self.files.stat(path)
        assert info is not None
        self._staged.append(StagedFile(path, target, info.size, ""))

    def is_wanted(self) -> bool:
        is_change = bool(self._changes or any(log.changed for log in self._logs.values()) or self._renamed.is_change)
        return is_change and (self._request.confirm is None or self._request.confirm(self.report))

    def check(self) -> None:
        """Raise BusyError if a log of a source has changed since it was read."""
        changed_paths = [log.find_changed(self.files) for log in self._logs.values()]
        for changed_path in (*changed_paths, self._renamed.find_changed(self.files)):
            if changed_path is not None:
                raise BusyError(
                    f"{self.files.root}/{changed_path} was changed while ttlsnap worked: the query is running. Nothing "
                    "was changed. Stop the query first"
                )

    def document(self) -> dict[str, Any]:
        return self.report.to_json()

    def journal(self) -> Journal:
        files, batch = self.files, self._checkpoint.batch
        source = for_reading(files)
        offsets = self._offsets
        documents = {layout.offset_file(batch.id): with_offsets(batch_start(source, batch.id).text, offsets).encode()}
        planned, next_offsets = with_offsets(plan_next(source, batch), offsets), layout.offset_file(batch.id + 1)
        if self._renamed.is_change:
            documents, planned = self._renamed.documents, self._renamed.rename(planned)
        plans_batch = self._request.planned_batch
        is_begun = self._next_is_begun
        # A batch that was begun has written nothing yet. The fence is after it, so that a rollback brings it back. With
        # other names it reads the same, so it stays.
        replaces_next = is_begun and not self._renamed.is_change
        if replaces_next and plans_batch:
            documents[next_offsets] = planned.encode()
        change = Change(
            kind="sources",
            batch=batch.id,
            staged=self._staged,
            documents=documents,
            set_aside=[
                *([next_offsets] if replaces_next and not plans_batch else []),
                *self._renamed.set_aside,
            ],
            kept_logs=[*(path for log in self._logs.values() for path in log.kept), *self._renamed.kept],
            planned=planned if plans_batch and not is_begun else None,
        )
        return change.journal(self.runs, self.id, self._checkpoint.logs, self.before)

    @property
    def report(self) -> PositionsReport:
        """The report, with the warnings that were collected so far."""
        root, is_published = self.files.root, self.published
        return PositionsReport(
            run=self.id,
            target=root,
            batch=self._checkpoint.batch.id,
            dry_run=self._request.dry_run,
            published=is_published,
            backup=f"{root}/{layout.run_directory(self.id)}/backup" if is_published else None,
            warnings=tuple(self.warnings),
            made_final=self.made_final,
            changes=self._changes,
            log_changes=tuple(log.describe(name) for name, log in self._logs.items()),
            new_names=self._renamed.report,
            options=tuple(_options(self._request)),
        )


def _options(request: PositionsRequest) -> Iterator[str]:
    """Yield the options of the command that does the same, without those of the client of Kafka."""
    for name, wanted in (request.positions or {}).items():
        text = wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)
        yield from ("--set", name, "--to", text)
    pairs = {"--topic": request.topics, "--table": request.tables, "--rename": request.new_names}
    for option, values in pairs.items():
        for old, new in (values or {}).items():
            yield from (option, f"{old}={new}")
    for name, edit in (request.log_edits or {}).items():
        yield from rules_of(edit).options(name)
    if request.bootstrap_servers is not None:
        yield from ("--bootstrap-servers", request.bootstrap_servers)


def _compare(checkpoint: Checkpoint, request: PositionsRequest) -> tuple[tuple[PositionChange, ...], dict[str, str]]:
    """Return the changes of positions, and the new offsets as text, by the names of their sources.

    Raise UsageError for a source that does not exist, or a position that cannot be one of it.
    """
    files, batch, positions = for_reading(checkpoint.files), checkpoint.batch.id, request.positions or {}
    kafka, topics = connect(request.bootstrap_servers, request.kafka_options), request.topics or {}
    old_offsets = named_offsets(files, batch)
    old_positions = named_positions(files, batch)
    tables = open_tables(request.tables, old_positions)
    if kafka is not None:
        require_kafka(old_positions.values())
    for name in positions:
        require_source(name, old_positions)
    changes, offsets, logs = [], {}, FileLogs(files, batch)
    for name, wanted in positions.items():
        before = old_positions[name]
        if find_kind(before) == "delta":
            wanted = resolve_version(name, before, wanted, tables.get(name))
        elif find_kind(before) == "kafka" and isinstance(wanted, str):
            wanted = resolve(name, before, wanted, topics, kafka)
        elif topics:
            raise UsageError(f"source {name}: --topic needs a --to that is earliest, latest, or a time")
        after = parse_position(name, before, wanted)
        if find_kind(before) == "kafka" and kafka is not None:
            require_existing(name, after, kafka)
        if name in tables:
            tables[name].require(name, after)
        if before != after:
            offsets[name] = as_offset(name, after, old_offsets[name])
            meaning = tuple(explain_with_log(logs, name, before, after))
            kind = find_kind(before)
            changes.append(PositionChange(name=name, kind=kind, before=before, after=after, meaning=meaning))
    _require_together(checkpoint, logs, {**old_offsets, **offsets}, list(offsets))
    require_entries(logs, {one.name: one.after["logOffset"] for one in changes if one.kind == "files"})
    return tuple(changes), offsets


def _require_together(checkpoint: Checkpoint, logs: FileLogs, offsets: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise UsageError if two offsets may be those of one source, and are to differ.

    A source that a query uses twice has two offsets, and Spark takes the last one for both.
    """

    def may_be_one(name: str, other: str) -> bool:
        if not (name.isdigit() and other.isdigit()) or offsets[name] == offsets[other]:
            return False
        return not (find_kind(parse_offset(offsets[name])) == "files" and logs.are_separate)

    pairs = [pair for pair in product(names, offsets) if may_be_one(*pair)]
    if not pairs:
        return
    batches = [number for number in checkpoint.logs.offsets if number <= checkpoint.batch.id][-_COMPARED:]
    history = each(logs.files, lambda number: named_offsets(logs.files, number), batches)
    for name, other in pairs:
        if all(of_batch.get(name) == of_batch.get(other) for of_batch in history):
            raise UsageError(
                f"sources {name} and {other} have had the same offset after each batch, so they may be one source that "
                "the query uses twice. Give both the same position"
            )
