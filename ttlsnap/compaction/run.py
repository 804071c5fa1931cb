"""``compact``: a full scan of a checkpoint's state with transformers, published or copied.

It plans, runs and publishes. A dry run is the same run without staged files and without publishing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from ttlsnap.checkpoint import layout, open_checkpoint
from ttlsnap.clock import clock_at
from ttlsnap.compaction.copy import (
    begin_copy,
    check_destination,
    describe_copy,
    discard_copy,
    finish_copy,
    share_copy,
    staging_directory,
    write_copy,
)
from ttlsnap.compaction.engine import Engine
from ttlsnap.compaction.given_schemas import check_given_schemas
from ttlsnap.compaction.listener import Listener, SilentListener
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.plan import plan_or_foresee
from ttlsnap.compaction.publish import check_unchanged, new_files, publish, refuse_unmovable
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.compaction.runner import Runner
from ttlsnap.compaction.scratch import discard_old_scratch, existing_folder
from ttlsnap.errors import FencedError
from ttlsnap.expired.receivers import Receiver, open_receiver, refuse_within
from ttlsnap.publishing.cleanup import (
    discard_after_error,
    discard_leftovers,
    discard_run,
    tidy_up,
    warn_of_only_copies,
)
from ttlsnap.publishing.first_run import describe_first_run
from ttlsnap.publishing.journal import report_path, scratch_path, staged_path
from ttlsnap.publishing.preflight import refuse_in_place, refuse_running
from ttlsnap.publishing.runs import refuse_if_interrupted
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.storage.uris import is_local
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
    started = time.monotonic()
    if options.scratch is not None:
        options = replace(options, scratch=existing_folder(options.scratch))
    files = open_directory(target)
    with suppress(FencedError):  # a run that is publishing holds the lock
        open_checkpoint(for_reading(files), schemas=options.schemas)  # fail before locking if this is not a checkpoint
    archive = open_archive(target, options, files)
    only_read = options.output is not None
    with nullcontext() if options.dry_run else files.lock(shared=only_read):
        refuse_if_interrupted(files)
        checkpoint = replace(open_checkpoint(for_reading(files), schemas=options.schemas), files=files)
        clock = clock_at(options.now, checkpoint.batch)
        plan, refusals = plan_or_foresee(checkpoint, transformers, clock, options)
        plan = plan.for_copy() if only_read else plan
        check_given_schemas(plan, options.schemas or {}, options.scratch)
        refusals += refuse_running(files, checkpoint.query_id, options.stopped, only_read, options.dry_run)
        run = Runner(plan, options, engine, listener or SilentListener(), archive, started)
        destination = check_destination(files.root, options.output) if options.output is not None else None
        if destination is None:
            refuse_unmovable(plan)
            has_others = not all(operator.is_global_limit for operator in checkpoint.operators)  # a limit never changes
            planned = options.planned_batch and has_others
            refusals += refuse_in_place(checkpoint, new_files(plan), planned_batch=planned, dry_run=options.dry_run)
        if options.dry_run:
            return run.dry_report(run.partitions(files.root, None, None), refusals)
        if destination is not None:
            return _to_copy(run, files, destination)
        return _in_place(run, files)


def open_archive(target: str, options: CompactOptions, files: Directory) -> Receiver | None:
    """Return the archive for the dropped entries of ``target``, after a check; None if the user wants none."""
    if options.expired_to is None:
        return None
    refuse_within(options.expired_to, *filter(None, (target, options.output)))
    archive = open_receiver(options.expired_to)
    archive.check(make=not options.dry_run, source=files)
    return archive


def _in_place(run: Runner, files: Directory) -> CompactionReport:
    plan = run.plan
    discard_leftovers(files)
    warnings = [*warn_of_only_copies(files), *run.deliver_waiting(files)]
    if run.options.scratch is not None:
        discard_old_scratch(run.options.scratch, plan.checkpoint.target)
    # On a local disk, the scratch folder is in the run's own folder, so that its files need only be renamed.
    scratch = f"{files.root}/{scratch_path(plan.run)}" if is_local(files.root) else None
    with discard_after_error(files, plan.run):
        files.mkdirs(layout.run_directory(plan.run))
        results = run.partitions(files.root, staged_path(plan.run, ""), scratch)
        report = run.report(results)
        report = replace(report, warnings=(*report.warnings, *warnings))
        run.require_limit(report, run.listener)
        run.require_matched(report)
        run.check_archive(files, report, results)
        if not report.published:
            ledgers = [path for result in results for path in result.ledgers]
            failures = place_ledgers(files, plan.run, ledgers)
            updated = bool(ledgers) and not failures
            report = replace(report, warnings=(*report.warnings, *failures), ledger_updated=updated)
            discard_run(files, plan.run)
            run.note_visited(None)
            return report
        if not run.listener.confirm(report):
            discard_run(files, plan.run)
            return replace(report, published=False, backup=None)
        run.note_visited(plan.run)
        files.replace(report_path(plan.run), json.dumps(report.to_json(), indent=1).encode())
        publish(plan, results, planned_batch=run.options.planned_batch)
    report = replace(report, warnings=(*report.warnings, *run.deliver(files)))
    tidied = tidy_up(files, plan.run)
    report = replace(report, warnings=(*report.warnings, *tidied.warnings), made_final=tidied.made_final)
    return replace(report, seconds=run.seconds, first_run=describe_first_run(files))


def _to_copy(run: Runner, files: Directory, destination: LocalDirectory) -> CompactionReport:
    staging = staging_directory(destination, run.plan.run)
    try:
        begin_copy(files, staging)
        results = run.partitions(staging.root, "", f"{staging.root}/{OWN}/scratch")
        report = run.report(results, output=destination.root)
        run.require_limit(report, run.listener)
        run.require_matched(report)
        run.check_archive(staging, report, results)
        if not run.listener.confirm(report):
            discard_copy(staging)
            return replace(report, published=False, output=None)
        write_copy(run.plan, results, staging, destination.root, report.to_json())
        refuse_if_interrupted(files)  # the lock may not keep out other machines
        check_unchanged(run.plan)
        given = share_copy(files, staging)
        finish_copy(staging, destination)
    except BaseException:
        discard_copy(staging)
        raise
    report = replace(report, warnings=(*report.warnings, *run.deliver(destination)))
    report = replace(report, warnings=(*report.warnings, *describe_copy(files, destination, given=given)))
    return replace(report, seconds=run.seconds)
