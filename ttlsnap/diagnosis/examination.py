"""``doctor``: the logs, the state folder and every partition looked at, and what follows for each version."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from ttlsnap.checkpoint import Batch, Checkpoint, Operator, layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import partition_folders, query_id
from ttlsnap.checkpoint.logs import read_logs, shuffle_partitions
from ttlsnap.diagnosis.fixing import Confirm, refuse_unknown, repair
from ttlsnap.diagnosis.folders import examine_folders, examine_links, examine_schema_paths
from ttlsnap.diagnosis.logs import LogFindings, examine_logs
from ttlsnap.diagnosis.problems import Problem, Severity, is_cut_off, leads_outside, problem
from ttlsnap.diagnosis.reading import PartitionCheck, PartitionFindings, examine_partition
from ttlsnap.engines.local import spread, useful_processes
from ttlsnap.errors import CorruptionError, NotACheckpointError, RefusedError, UnsupportedError
from ttlsnap.filesystem import Directory, open_directory
from ttlsnap.operators import links_of, states_of
from ttlsnap.stores import state_store
from ttlsnap.stores.rocksdb import RocksDbStore

Restorable = Literal["yes", "no", "cleaned up", "unknown"]
"""Whether a version can be restored; of one that was ``cleaned up`` nothing is left, nor need be."""


@dataclass(frozen=True)
class VersionReport:
    """A retained version and the batch it is the state after; ``problems`` say why it cannot be restored."""

    version: int
    batch: int
    restorable: Restorable
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "batch": self.batch,
            "restorable": {"yes": True, "no": False}.get(self.restorable),
            "state": self.restorable,
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class DoctorReport:
    """What ``doctor`` found. ``batch`` is the last committed one, ``entries`` those of the newest version.

    ``fixed`` are the codes that were repaired, by the run ``run``; the rest is what was found after that.
    """

    target: str
    query_id: str | None
    batch: int
    versions: tuple[VersionReport, ...]
    problems: tuple[Problem, ...]
    entries: int = 0
    fixed: tuple[str, ...] = ()
    run: str | None = None

    @property
    def exit_code(self) -> int:
        """0 all is well, 1 something is not, 3 something could not be looked into."""
        found = {problem.severity for problem in self.problems}
        return 1 if found & {"error", "warning"} else 3 if "unknown" in found else 0

    def to_json(self) -> dict[str, Any]:
        """The document of ``doctor --format json``."""
        return {
            "target": self.target,
            "query_id": self.query_id,
            "batch": self.batch,
            "entries": self.entries,
            "versions": [version.to_json() for version in self.versions],
            "problems": [problem.to_json() for problem in self.problems],
            "fixed": list(self.fixed),
            "run": self.run,
        }


class DoctorListener(Protocol):
    """Hears how the reading goes on."""

    def planned(self, partitions: int) -> None: ...
    def progress(self, entries: int, dropped: int) -> None: ...
    def partition_done(self) -> None: ...


class _Silent:
    def planned(self, partitions: int) -> None:
        pass

    def progress(self, entries: int, dropped: int) -> None:
        pass

    def partition_done(self) -> None:
        pass


def doctor(
    target: str,
    *,
    fix: Sequence[str] = (),
    parallelism: int | None = None,
    scratch: str | None = None,
    stopped: bool = False,
    confirm: Confirm | None = None,
    listener: DoctorListener | None = None,
) -> DoctorReport:
    """Look at everything that the checkpoint ``target`` retains, and repair what ``fix`` names.

    Nothing is written without ``fix``, whose names are codes of problems that were found. A repair goes through the
    journal and the fence of ``compact``: ``rollback`` takes it back, and ``recover`` ends one that was cut off.
    ``confirm`` is asked before committed batches are given up; without it such a repair is refused.
    ``parallelism`` is how many processes read; by default as many as are worth it. ``scratch`` is a local folder for
    the work on RocksDB. Raises a ``TtlsnapError``: UsageError where ``target`` is no checkpoint or ``fix`` names no
    problem that is there, RefusedError where the query seems to run, StorageError where the disk refuses.
    """
    files = open_directory(target)
    _require_checkpoint(files)
    refuse_unknown(fix)
    listener = listener or _Silent()
    found = _examine(files, parallelism, scratch, listener)
    if not fix:
        return found
    with files.lock():
        run = repair(files, found, fix, stopped, confirm)
    if run is None:
        return found
    after = _examine(files, parallelism, scratch, listener)
    return replace(after, fixed=tuple(dict.fromkeys(fix)), run=run)


def _require_checkpoint(files: Directory) -> None:
    if files.stat("") is None:
        raise NotACheckpointError(f"{files.root} does not exist")
    missing = [name for name in (layout.OFFSETS, layout.STATE) if files.stat(name) is None]
    if missing:
        raise NotACheckpointError(
            f"{files.root} is not the checkpoint of a stateful query: it has no {' and no '.join(missing)} folder"
        )


def _examine(files: Directory, parallelism: int | None, scratch: str | None, listener: DoctorListener) -> DoctorReport:
    logs = examine_logs(files)
    problems = [*examine_links(files), *logs.problems]
    query = _query_id(files, problems)
    checkpoint, closed = _newest_that_opens(files, logs, problems)
    results: list[tuple[PartitionCheck, PartitionFindings]] = []
    if checkpoint is not None:
        problems += examine_schema_paths(checkpoint)
        problems += examine_folders(checkpoint, logs)
        with tempfile.TemporaryDirectory(prefix="ttlsnap-", dir=scratch) as folder:
            tasks = _tasks(checkpoint, logs, problems, folder)
            listener.planned(len(tasks))
            effort = state_store(checkpoint).effort if tasks else 1
            workers = parallelism or useful_processes(effort * sum(task.size for task in tasks))
            found = spread(examine_partition, tasks, workers, listener.partition_done, listener.progress)
        results = list(zip(tasks, found, strict=True))
    for _, each in results:
        problems += each.problems
    versions = _versions(logs, closed, [each for _, each in results])
    if is_cut_off(problems):
        problems = [_after_recovery(files, found) for found in problems]
    else:
        _outlook(files, logs, versions, problems)
    now = read_logs(files)
    if (now.offsets, now.commits) != (logs.logs.offsets, logs.logs.commits):
        words = f"{files.root}: its logs changed while they were looked at: the query runs"
        problems.append(problem(files.root, "query-at-work", layout.OFFSETS, words))
    return DoctorReport(
        target=files.root,
        query_id=query,
        batch=logs.logs.commits[-1],
        versions=tuple(versions),
        problems=tuple(_in_order(problems)),
        entries=sum(each.entries for _, each in results),
    )


def _query_id(files: Directory, problems: list[Problem]) -> str | None:
    """The query's id; that it cannot be read says nothing against the state."""
    try:
        if files.stat("metadata") is not None:
            return query_id(files)
    except CorruptionError as error:
        problems.append(problem(files.root, "damaged-metadata", "metadata", error))
    except UnsupportedError as error:
        problems.append(problem(files.root, "unsupported", "metadata", error))
    except RefusedError:
        problems.append(leads_outside(files.root, "metadata"))
    else:
        words = f"{files.root}/metadata is missing: Spark 4.2 refuses to start, an older one takes it for another query"
        problems.append(problem(files.root, "damaged-metadata", "metadata", words))
    return None


def _newest_that_opens(
    files: Directory, logs: LogFindings, problems: list[Problem]
) -> tuple[Checkpoint | None, dict[int, Restorable]]:
    """The checkpoint as of its newest batch that can be understood, and what is to be said of those that cannot."""
    told: set[str] = set()
    closed: dict[int, Restorable] = {}
    for batch in reversed(logs.batches):
        try:
            checkpoint = open_checkpoint(files, batch, spare=True)
            state_store(checkpoint)
            return checkpoint, closed
        except (CorruptionError, UnsupportedError) as error:
            closed[batch] = "unknown" if isinstance(error, UnsupportedError) else "no"
            if str(error) in told:
                continue
            told.add(str(error))
            unknown = isinstance(error, UnsupportedError)
            where = str(error).removeprefix(f"{files.root}/").split(": ")[0].split(" is ")[0]
            severity: Severity | None = None if unknown or batch == logs.logs.commits[-1] else "warning"
            problems.append(
                problem(files.root, "unsupported" if unknown else "damaged-metadata", where, error, severity)
            )
    return None, closed


def _tasks(checkpoint: Checkpoint, logs: LogFindings, problems: list[Problem], scratch: str) -> list[PartitionCheck]:
    tasks = []
    reader = state_store(checkpoint)
    if isinstance(reader, RocksDbStore):
        reader = replace(reader, before_4_2=False)  # who could read what is written anew does not matter here
    for operator in checkpoint.operators:
        stores = tuple(store.name for store in operator.stores)
        described = [state for store in operator.stores for state in states_of(checkpoint, operator, store)]
        if not described:
            words = f"operator {operator.id}: no schema is recorded, so its rows were not decoded"
            problems.append(problem(checkpoint.target, "no-schema", layout.operator_directory(operator.id), words))
        states = {state.place: state for state in described if state.opaque is None}
        partitions = {
            partition: versions
            for partition in _partitions(checkpoint, operator, logs)
            if (versions := _versions_of(checkpoint, operator, partition, logs, problems))
        }
        for partition, versions in partitions.items():
            tasks.append(
                PartitionCheck(
                    root=checkpoint.target,
                    operator=operator.id,
                    partition=partition,
                    stores=stores,
                    states=states,
                    links=links_of(checkpoint, operator),
                    state_store=reader,
                    versions=versions,
                    newest=checkpoint.version,
                    without_state=frozenset(batch + 1 for batch in logs.skipped),
                    size=_size(checkpoint.files, operator.id, partition),
                    scratch=scratch,
                )
            )
    return tasks


def _partition_count(checkpoint: Checkpoint, operator: Operator, batch: Batch) -> int:
    """How many partitions an operator had at a batch; Spark runs some in one."""
    now = len(operator.stores[0].partitions) if operator.stores else 0
    pinned, then = shuffle_partitions(checkpoint.batch.conf), shuffle_partitions(batch.conf)
    return then if then is not None and pinned is not None and then != pinned and now == pinned else now


def _partitions(checkpoint: Checkpoint, operator: Operator, logs: LogFindings) -> list[int]:
    """Return the partitions to look at: those that have a folder, and the first of those that lack one."""
    most = max((_partition_count(checkpoint, operator, batch) for batch in logs.batches.values()), default=0)
    folders = partition_folders(checkpoint.files, operator.id)
    missing = next((number for number, partition in enumerate(folders) if number != partition), len(folders))
    return sorted(partition for partition in {*folders, missing} if partition < most)


def _versions_of(
    checkpoint: Checkpoint, operator: Operator, partition: int, logs: LogFindings, problems: list[Problem]
) -> dict[int, dict[str, str | None]]:
    """The versions that a partition has, newest first, with the ids of their files."""
    found: dict[int, dict[str, str | None]] = {}
    for number in sorted(logs.batches, reverse=True):
        batch = logs.batches[number]
        if partition >= _partition_count(checkpoint, operator, batch):
            continue
        then = Checkpoint(checkpoint.files, checkpoint.query_id, checkpoint.logs, batch, checkpoint.operators)
        try:
            found[number + 1] = {store.name: then.unique_id(store, partition) for store in operator.stores}
        except CorruptionError as error:
            severity: Severity = "error" if number == checkpoint.batch.id else "warning"
            problems.append(problem(checkpoint.target, "damaged-log", layout.commit_file(number), error, severity))
    return found


def _size(files: Directory, operator: int, partition: int) -> int:
    """Bytes below a partition's folder, to tell how many processes are worth it."""
    folders = [layout.store_directory(operator, partition, layout.DEFAULT_STORE)]
    size = 0
    while folders:
        folder = folders.pop()
        for info in files.list(folder):
            if info.is_dir:
                folders.append(f"{folder}/{info.name}")
            else:
                size += info.size
    return size


def _versions(
    logs: LogFindings, closed: Mapping[int, Restorable], results: Sequence[PartitionFindings]
) -> list[VersionReport]:
    lost: dict[int, list[str]] = {}
    for each in results:
        for version, words in each.lost.items():
            lost.setdefault(version, []).extend(words)
    cleaned_up = {version for each in results for version in each.cleaned_up}
    unknown = {version for each in results for version in each.unknown}
    found = []
    for batch in reversed(logs.logs.commits):
        version = batch + 1
        restorable: Restorable
        if batch in closed:
            restorable = closed[batch]
        elif batch not in logs.batches:
            first = logs.logs.offsets[0] if logs.logs.offsets else 0
            restorable = "cleaned up" if batch < first and batch != logs.logs.commits[-1] else "no"
        else:
            restorable = "no" if version in lost else "unknown" if version in unknown else "yes"
            if restorable == "yes" and version in cleaned_up:
                restorable = "cleaned up"
        found.append(VersionReport(version, batch, restorable, tuple(dict.fromkeys(lost.get(version, ())))))
    return found


def _outlook(files: Directory, logs: LogFindings, versions: Sequence[VersionReport], problems: list[Problem]) -> None:
    """Say it when the newest version is lost, and which one the query could go back to."""
    if versions[0].restorable != "no":
        return
    batch = versions[0].batch
    where = layout.commit_file(batch)
    back = next((version.batch for version in versions if version.restorable == "yes"), None)
    words = f"the state after batch {batch}, the last committed one, cannot be restored"
    if back is None:
        problems.append(problem(files.root, "nothing-restorable", where, f"{words}, nor can any before it"))
    else:
        words += f"; the newest that can be is that after batch {back}"
        problems.append(problem(files.root, "last-batch-lost", where, words, batch=back))


def _after_recovery(files: Directory, found: Problem) -> Problem:
    """Return a finding about a state file with the advice to recover first: half of the files may be in the backup."""
    if not found.where.startswith(f"{layout.STATE}/"):
        return found
    advice = f"First run: ttlsnap recover {files.root}. The backup of the interrupted run may have this file. "
    return replace(found, fix=f"{advice}Then run doctor again", fixable=False)


def _in_order(problems: Sequence[Problem]) -> list[Problem]:
    """The gravest first; each once."""
    order = ("error", "warning", "unknown", "note")
    return sorted(dict.fromkeys(problems), key=lambda found: order.index(found.severity))
