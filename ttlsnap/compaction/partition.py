"""The work on one partition of a store, or of linked stores: scan, transform, stage, and count the staged entries.

Every engine runs ``compact_partition``, one partition at a time on one thread. It takes and returns plain data, which
can be sent to another process or machine. It writes only its own staged and scratch files, and in a dry run it removes
them.
"""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.compaction.dropped import Archive, archive_for
from ttlsnap.compaction.linked import LinkedStores
from ttlsnap.compaction.results import RowTransformers, kept_times, make_result
from ttlsnap.compaction.sinks import EntrySink, SnapshotSink
from ttlsnap.compaction.task import PartitionResult, PartitionResults, PartitionTask, Progress
from ttlsnap.entries.batch import StateEntries
from ttlsnap.errors import CorruptionError, TtlsnapError
from ttlsnap.quoting import without_keys
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.scan import scan_partition


def compact_partition(
    task: PartitionTask, progress: Progress | None = None, sink: EntrySink | None = None
) -> PartitionResults:
    """Compact one partition. Return a result for each store. An error of ttlsnap is one result with a ``failure``.

    The kept entries go to ``sink``; by default it is a new snapshot.
    """
    try:
        return _compact(task, progress or (lambda entries, dropped: None), sink or SnapshotSink(task))
    except TtlsnapError as error:
        error_text = error.text if str(task) in error.text else f"{task}: " + error.text
        if isinstance(error, CorruptionError) and task.root not in error_text:
            error_text = f"{task.stores[0].where}: " + error_text
        failure = type(error).__name__, str(error_text), without_keys(error_text)
    except MemoryError:
        message = (
            f"{task}: out of memory at {task.directory} ({task.size:,} bytes on disk). Nothing was published. Use a "
            "smaller --parallelism, or a machine with more memory"
        )
        failure = TtlsnapError.__name__, message, message
    return (PartitionResult(task.operator, task.stores[0].name, task.partition, failure=failure),)


def _compact(task: PartitionTask, progress: Progress, sink: EntrySink) -> PartitionResults:
    with archive_for(task) as archive:
        if task.links:
            results = LinkedStores(task, sink, progress, archive).run()
        else:
            results = _compact_store(task, sink, progress, archive)
    return (replace(results[0], expired=archive.file()), *results[1:]) if archive is not None else results


def _compact_store(
    task: PartitionTask, sink: EntrySink, progress: Progress, archive: Archive | None
) -> PartitionResults:
    """Compact the only store of a task."""
    (store,) = task.stores
    descriptors = {state.state: state for state in store.states}
    transformers_of_states = {name: RowTransformers(task, state) for name, state in descriptors.items()}
    times = kept_times(task)
    descriptors_to_scan = descriptors | {name: state for (_, name), state in times.others.items()}
    with (
        store.open(open_for_reading(task.root), task.scratch) as partition,
        sink.writer(store, partition, descriptors, {}) as writer,
    ):
        for batch, state in scan_partition(partition, descriptors_to_scan, with_rows=sink.needs_rows_of(store)):
            if state is None or batch.state not in descriptors:
                if state is not None:
                    times.keep(state.place, batch.stored[2])
                writer.keep(batch)
                continue
            transformers = transformers_of_states[state.state]
            place = (store.name, state.state)
            scanned_entries = StateEntries.of(state, batch.keys, batch.values, times.of(place))
            remaining_entries = transformers.run(scanned_entries)
            times.keep(place, remaining_entries.keys)
            if archive is not None:
                archive.add(transformers, scanned_entries, remaining_entries)
            if len(remaining_entries) == len(batch) and not remaining_entries.rewritten.any():
                writer.keep(batch)
            else:
                writer.change(batch, remaining_entries.index, remaining_entries.rewritten, remaining_entries.values)
            progress(len(batch), len(batch) - len(remaining_entries))
        changed = any(transformers.changed for transformers in transformers_of_states.values())
        written = writer.finish() if changed or task.whole else None
    result = make_result(
        task, store, written, [transformers.result() for transformers in transformers_of_states.values()]
    )
    return (replace(result, ledgers=times.write_ledgers(store.name)),)
