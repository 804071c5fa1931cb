"""``doctor``: the examination of the logs, the state folder and every partition, and the result for each version."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ttlsnap.checkpoint import Checkpoint, MicroBatch, Operator, layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import partition_folders, query_id
from ttlsnap.checkpoint.listing import list_activity
from ttlsnap.checkpoint.logs import read_logs, shuffle_partitions
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.checkpoint.starting import WITHOUT_METADATA
from ttlsnap.copies.manifest import MANIFEST, read_manifest
from ttlsnap.copies.run import CopyRequest
from ttlsnap.copies.verify import find_differences, is_unused
from ttlsnap.diagnosis.folders import examine_folders, examine_links, examine_own_paths, leftovers
from ttlsnap.diagnosis.last_run import LastRun, examine_last_run, is_run_lost, judge_newest
from ttlsnap.diagnosis.logs import LogFindings, examine_logs
from ttlsnap.diagnosis.partition import PartitionCheck, PartitionFindings, examine_partition
from ttlsnap.diagnosis.placement import find_key_orders, find_misplaced
from ttlsnap.diagnosis.problems import Problem, Severity, is_cut_off, leads_outside, problem
from ttlsnap.diagnosis.repair import Confirm, refuse_unknown, repair
from ttlsnap.diagnosis.report import DoctorReport, Restorable, VersionReport
from ttlsnap.engines.local import read_all
from ttlsnap.engines.progress import SilentWorkListener, WorkListener
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError, explain_errors
from ttlsnap.keywords import public
from ttlsnap.operators.registry import links_of, states_of
from ttlsnap.printable import shell_word
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.open import open_state_store
from ttlsnap.stores.rocksdb.store import RocksDbStore


@public
def doctor(
    target: str,
    *,
    fix: Sequence[str] = (),
    parallelism: int | None = None,
    scratch: str | None = None,
    stopped: bool = False,
    confirm: Confirm | None = None,
    listener: WorkListener | None = None,
) -> DoctorReport:
    """Examine everything that the checkpoint ``target`` retains, and repair the problems that ``fix`` names.

    Nothing is written without ``fix``, whose names are codes of problems that were found. A repair uses the journal and
    the fence of ``compact``: ``rollback`` undoes it, and ``recover`` finishes an interrupted one. ``confirm`` is called
    before committed batches are given up; without it such a repair is refused. ``parallelism`` is the number of
    threads; by default as many as are useful. ``scratch`` is a local folder for the work on RocksDB.

    Raise UsageError if ``target`` is not a checkpoint or ``fix`` names a problem that was not found. Raise RefusedError
    if the query seems to be running, and StorageError for errors of the disk.
    """
    files = open_directory(target)
    require_checkpoint(files)
    refuse_unknown(fix)
    listener = listener or SilentWorkListener()
    listing_before = list_activity(files) if fix else {}
    report = _examine(files, parallelism, scratch, listener)
    if not fix:
        return report
    request = CopyRequest(
        files.root, files.root, replace=True, stopped=stopped, scratch=scratch, parallelism=parallelism
    )
    with files.lock():
        run = repair(files, report, listing_before, fix, request, confirm)
    if run is None:
        return report
    published = f"The repair was published as run {run.id}, and stays. To look again, run doctor without --fix."
    with explain_errors(published):
        report_after = _examine(files, parallelism, scratch, listener)
    return replace(report_after, fixed=tuple(dict.fromkeys(fix)), run=run.id, warnings=tuple(run.warnings))


def _examine(files: Directory, parallelism: int | None, scratch: str | None, listener: WorkListener) -> DoctorReport:
    logs = examine_logs(files)
    problems = [*examine_links(files), *logs.problems]
    query = _query_id(files, problems)
    checkpoint, unopened = _newest_that_opens(files, logs, problems)
    results: list[tuple[PartitionCheck, PartitionFindings]] = []
    if checkpoint is not None:
        problems += examine_own_paths(checkpoint)
        found_leftovers = list(leftovers(checkpoint, logs))
        problems += examine_folders(checkpoint, found_leftovers)
        with tempfile.TemporaryDirectory(prefix="ttlsnap-", dir=scratch) as folder:
            reported = frozenset(path for leftover in found_leftovers for path in leftover.files)
            tasks = _tasks(checkpoint, logs, problems, folder, reported)
            found = read_all(examine_partition, tasks, parallelism, listener)
        results = list(zip(tasks, found, strict=True))
    for _, findings in results:
        problems += findings.problems
    problems += find_key_orders(files.root, results)
    if checkpoint is not None:
        problems += find_misplaced(checkpoint, results)
    last_run = examine_last_run(files, logs, [path for _, findings in results for path in findings.changed])
    if last_run is not None:
        problems = last_run.explain(problems)
    versions = _versions(logs, unopened, [findings for _, findings in results])
    versions[0] = judge_newest(versions[0], last_run, problems)
    copy_of, is_compared, alterations = _examine_copy(files, logs, {found.where for found in problems})
    problems += alterations
    if is_cut_off(problems):
        problems = [_after_recovery(files, found) for found in problems]
    else:
        _outlook(files, last_run, versions, problems)
        if last_run is not None:
            problems = last_run.warn_before_repairs(problems)
    if any(found.severity == "error" for found in problems):
        problems = [_after_repair(found) for found in problems]
    current_logs = read_logs(files)
    if (current_logs.offsets, current_logs.commits) != (logs.logs.offsets, logs.logs.commits):
        message = f"{files.root}: the logs changed while doctor read them: the query is running"
        problems.append(problem(files.root, "query-at-work", layout.OFFSETS, message))
    return DoctorReport(
        target=files.root,
        query_id=query,
        batch=logs.logs.commits[-1],
        versions=tuple(versions),
        problems=tuple(_in_order(problems)),
        entries=sum(findings.entries for _, findings in results),
        copy_of=copy_of,
        is_compared=is_compared,
    )


def _examine_copy(
    files: Directory, logs: LogFindings, reported_paths: Collection[str]
) -> tuple[str | None, bool, list[Problem]]:
    """Return of what this is a copy, whether it was compared with its manifest, and what differs.

    It is compared if nobody has used it yet.
    """
    try:
        manifest = read_manifest(files)
        if manifest is None:
            return None, False, []
        is_compared = logs.runs is not None and is_unused(manifest, logs.runs, logs.logs)
        differences = find_differences(files, manifest) if is_compared else ()
        alterations = [
            problem(files.root, "altered-copy", path, f"{files.root}/{path} {words}")
            for path, words in differences
            if path not in reported_paths
        ]
    except (CorruptionError, UnsupportedError) as error:
        return None, False, [problem(files.root, "altered-copy", MANIFEST, error)] if logs.runs is not None else []
    return manifest.facts.source, is_compared, alterations


def _query_id(files: Directory, problems: list[Problem]) -> str | None:
    """Return the query's id, or None; an unreadable id does not concern the state."""
    try:
        if files.stat(layout.METADATA) is not None:
            return query_id(files)
    except CorruptionError as error:
        problems.append(problem(files.root, "damaged-metadata", layout.METADATA, error))
    except UnsupportedError as error:
        problems.append(problem(files.root, "unsupported", layout.METADATA, error))
    except RefusedError:
        problems.append(leads_outside(files.root, layout.METADATA))
    else:
        problems.append(problem(files.root, "damaged-metadata", layout.METADATA, f"{files.root}/{WITHOUT_METADATA}"))
    return None


def _newest_that_opens(
    files: Directory, logs: LogFindings, problems: list[Problem]
) -> tuple[Checkpoint | None, dict[int, Restorable]]:
    """Return the checkpoint as of its newest readable batch, and the verdict on newer batches."""
    reported_texts: set[str] = set()
    unopened: dict[int, Restorable] = {}
    for batch in reversed(logs.batches):
        try:
            checkpoint = open_checkpoint(files, batch, tolerate_damage=True)
            open_state_store(checkpoint)
            return checkpoint, unopened
        except (CorruptionError, UnsupportedError) as error:
            unopened[batch] = "unknown" if isinstance(error, UnsupportedError) else "no"
            if str(error) in reported_texts:
                continue
            reported_texts.add(str(error))
            is_unknown = isinstance(error, UnsupportedError)
            where = str(error).removeprefix(f"{files.root}/").split(": ")[0].split(" is ")[0]
            severity: Severity | None = None if is_unknown or batch == logs.logs.commits[-1] else "warning"
            problems.append(
                problem(files.root, "unsupported" if is_unknown else "damaged-metadata", where, error, severity)
            )
    return None, unopened


def _tasks(
    checkpoint: Checkpoint, logs: LogFindings, problems: list[Problem], scratch: str, reported: frozenset[str]
) -> list[PartitionCheck]:
    tasks = []
    state_store = open_state_store(checkpoint)
    if isinstance(state_store, RocksDbStore):
        state_store = replace(
            state_store, written_before_4_2=False
        )  # it does not matter here which Spark can read new files
    for operator in checkpoint.operators:
        stores = tuple(store.name for store in operator.stores)
        described_states = [state for store in operator.stores for state in states_of(checkpoint, operator, store)]
        if not described_states:
            message = f"operator {operator.id}: the checkpoint records no schema, so doctor did not decode its rows"
            had_schema = operator.name is not None or checkpoint.files.stat(_schema_folder(operator)) is not None
            code, where = "missing-schema" if had_schema else "no-schema", layout.operator_directory(operator.id)
            problems.append(problem(checkpoint.target, code, where, message))
        states = {state.place: state for state in described_states if state.opaque is None}
        partitions = {
            partition: versions
            for partition in _partitions(checkpoint, operator, logs)
            if (versions := _versions_of(checkpoint, operator, partition, logs, problems))
        }
        published_facts = logs.last_run.published if logs.last_run is not None else ()
        for partition, versions in partitions.items():
            folders = tuple(f"{layout.store_directory(operator.id, partition, store)}/" for store in stores)
            tasks.append(
                PartitionCheck(
                    root=checkpoint.target,
                    operator=operator.id,
                    partition=partition,
                    stores=stores,
                    states=states,
                    links=links_of(checkpoint, operator),
                    state_store=state_store,
                    versions=versions,
                    newest=checkpoint.version,
                    published=logs.published,
                    reported=reported,
                    last_published=tuple(facts for facts in published_facts if facts.path.startswith(folders)),
                    partitions=len(partitions),
                    hashed_over=shuffle_partitions(checkpoint.batch.conf) or len(operator.stores[0].partitions),
                    without_state=frozenset(batch + 1 for batch in logs.skipped),
                    size=_size(checkpoint.files, operator.id, partition),
                    scratch=scratch,
                )
            )
    return tasks


def _schema_folder(operator: Operator) -> str:
    """Return the folder in which Spark from 3.1 on records the schema of an operator."""
    return f"{layout.store_directory(operator.id, 0, layout.DEFAULT_STORE)}/_metadata"


def _partition_count(checkpoint: Checkpoint, operator: Operator, batch: MicroBatch) -> int:
    """Return the number of partitions of an operator at a batch; Spark runs some operators in one."""
    current_count = len(operator.stores[0].partitions) if operator.stores else 0
    pinned_count, count_at_batch = shuffle_partitions(checkpoint.batch.conf), shuffle_partitions(batch.conf)
    return (
        count_at_batch
        if count_at_batch is not None
        and pinned_count is not None
        and count_at_batch != pinned_count
        and current_count == pinned_count
        else current_count
    )


def _partitions(checkpoint: Checkpoint, operator: Operator, logs: LogFindings) -> list[int]:
    """Return the partitions to examine: those with a folder, and the first one without."""
    most_partitions = max((_partition_count(checkpoint, operator, batch) for batch in logs.batches.values()), default=0)
    folders = partition_folders(checkpoint.files, operator.id)
    first_missing = next((number for number, partition in enumerate(folders) if number != partition), len(folders))
    return sorted(partition for partition in {*folders, first_missing} if partition < most_partitions)


def _versions_of(
    checkpoint: Checkpoint, operator: Operator, partition: int, logs: LogFindings, problems: list[Problem]
) -> dict[int, dict[str, str | None]]:
    """Return the versions of a partition, newest first, with the ids of their files."""
    versions: dict[int, dict[str, str | None]] = {}
    for number in sorted(logs.batches, reverse=True):
        batch = logs.batches[number]
        if partition >= _partition_count(checkpoint, operator, batch):
            continue
        checkpoint_at_batch = Checkpoint(
            checkpoint.files, checkpoint.query_id, checkpoint.logs, batch, checkpoint.operators
        )
        try:
            versions[number + 1] = {
                store.name: checkpoint_at_batch.unique_id(store, partition) for store in operator.stores
            }
        except CorruptionError as error:
            severity: Severity = "error" if number == checkpoint.batch.id else "warning"
            problems.append(problem(checkpoint.target, "damaged-log", layout.commit_file(number), error, severity))
    return versions


def _size(files: Directory, operator: int, partition: int) -> int:
    """Return the bytes in a partition's folder, which decide how many threads are useful."""
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
    logs: LogFindings, unopened: Mapping[int, Restorable], results: Sequence[PartitionFindings]
) -> list[VersionReport]:
    reasons_of_versions: dict[int, list[str]] = {}
    for findings in results:
        for version, reasons in findings.lost.items():
            reasons_of_versions.setdefault(version, []).extend(reasons)
    cleaned_up_versions = {version for findings in results for version in findings.cleaned_up}
    unknown_versions = {version for findings in results for version in findings.unknown}
    reports = []
    for batch in reversed(logs.logs.commits):
        version = batch + 1
        restorable: Restorable
        if batch in unopened:
            restorable = unopened[batch]
        elif batch not in logs.batches:
            first_batch = logs.logs.offsets[0] if logs.logs.offsets else 0
            restorable = "cleaned up" if batch < first_batch and batch != logs.logs.commits[-1] else "no"
        else:
            restorable = "no" if version in reasons_of_versions else "unknown" if version in unknown_versions else "yes"
            if restorable == "yes" and version in cleaned_up_versions:
                restorable = "cleaned up"
        reports.append(
            VersionReport(version, batch, restorable, tuple(dict.fromkeys(reasons_of_versions.get(version, ()))))
        )
    return reports


def _outlook(
    files: Directory, last_run: LastRun | None, versions: Sequence[VersionReport], problems: list[Problem]
) -> None:
    """Report if the newest version is lost, and the version to which the query could go back."""
    if versions[0].restorable != "no":
        return
    # The state before the run needs the files of the version before, too.
    is_reversible = (
        last_run is not None and last_run.can_roll_back and all(version.restorable != "no" for version in versions[1:2])
    )
    if is_reversible and is_run_lost(problems):
        return  # a rollback loses less than giving up a batch
    batch = versions[0].batch
    where = layout.commit_file(batch)
    newest_batch = next((version.batch for version in versions if version.restorable == "yes"), None)
    message = f"the state after the last committed batch, {batch}, cannot be restored"
    if newest_batch is None:
        problems.append(problem(files.root, "nothing-restorable", where, f"{message}, and neither can an older one"))
    else:
        message += f"; the newest restorable state is the one after batch {newest_batch}"
        if last_run is not None:
            message += f". It is from before run {last_run.journal.run}, so it still has what that run dropped"
        problems.append(problem(files.root, "last-batch-lost", where, message, batch=newest_batch))


def _after_recovery(files: Directory, reported_problem: Problem) -> Problem:
    """Return a problem of a state file with the advice to recover first: half of the files may be in the backup."""
    if not reported_problem.where.startswith(f"{layout.STATE}/"):
        return reported_problem
    advice = f"First run: ttlsnap recover {shell_word(files.root)}"
    reason = "The backup of the interrupted run may have this file"
    return replace(reported_problem, fix=f"{advice}. {reason}. Then run doctor again", fixable=False)


def _after_repair(reported_problem: Problem) -> Problem:
    """Return a note about the restart of the query with the advice to repair the errors first."""
    is_restart = reported_problem.code in ("planned-batch", "uncommitted-batch")
    return (
        replace(reported_problem, fix="Do not restart the query before the errors are repaired")
        if is_restart
        else reported_problem
    )


def _in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Return each problem once, the gravest first."""
    order = ("error", "warning", "unknown", "note")
    return sorted(dict.fromkeys(problems), key=lambda reported_problem: order.index(reported_problem.severity))
