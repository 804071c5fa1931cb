"""The growth of a state, from what files record without a scan: over the retained batches, and over ttlsnap's runs.

For a batch, the sizes of its version's files are known. The number of entries is known only if RocksDB's snapshots of
that version record it. For a run, its report has the entries and the bytes before and after it. Nothing is estimated:
``unknown`` says what is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ttlsnap.checkpoint import Checkpoint, Store, layout
from ttlsnap.checkpoint.logs import read_batch
from ttlsnap.clock import MICROS, iso
from ttlsnap.documents import Document, in_json
from ttlsnap.errors import TtlsnapError
from ttlsnap.publishing.history import HistoryEntry, history
from ttlsnap.publishing.runs import started_at
from ttlsnap.quoting import Quoting
from ttlsnap.storage.directory import cache_listings, each
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineage_of, open_state_store

_MOST = 10  # batches: the files of each are looked up in every partition
_KINDS = ("compact", "import", "migrate", "restore", "rollback")


@dataclass(frozen=True)
class BatchPoint(Document):
    """The state after a retained batch.

    ``stored_keys`` is the number of keys of all states, where a list is one; None if it is not recorded.
    ``file_bytes`` is the size of the files of this version, and ``written_bytes`` that of the deltas or changelogs of
    this batch; None if there are none.
    """

    batch: int
    timestamp_ms: int = field(metadata=in_json("at", convert=lambda ms: iso(ms * MICROS)))
    watermark_ms: int | None
    stored_keys: int | None = None
    file_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True)
class RunPoint(Document):
    """A run of ttlsnap: the entries and the bytes of files before and after it, None if its report lacks them.

    ``at`` is its time in ISO 8601.
    """

    run: str
    kind: str
    status: str
    at: str | None
    batch: int | None
    entries_before: int | None = None
    entries_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None


@dataclass(frozen=True)
class Growth(Document):
    """The batches, oldest first; the runs, oldest first; and what the files do not record."""

    batches: tuple[BatchPoint, ...]
    runs: tuple[RunPoint, ...]
    unknown: tuple[str, ...]


def read_growth(checkpoint: Checkpoint, stores: Sequence[Store], stored_keys: int | None, *, whole: bool) -> Growth:
    """Return the growth of the ``stores`` of a checkpoint up to its batch.

    ``stored_keys`` is the number of keys after that batch, if a scan has counted them. ``whole`` says that the user
    looks at all states of these stores.
    """
    retained_batches = [batch for batch in checkpoint.logs.commits if batch <= checkpoint.batch.id]
    unknown_parts: list[str] = []
    points = []
    files = cache_listings(checkpoint.files)
    for batch in _choose(retained_batches):
        try:
            points.append(_point(replace(checkpoint, files=files, batch=read_batch(files, batch)), stores))
        except TtlsnapError as error:
            reason = str(error).splitlines()[0]
            unknown_parts.append(Quoting(f"batch {batch}: {reason}", f"batch {batch} cannot be read"))
    if points and points[-1].batch == checkpoint.batch.id and stored_keys is not None:
        points[-1] = replace(points[-1], stored_keys=stored_keys)
    if not whole:
        unknown_parts.append("files and keys of the selected states alone: all states of a store share its files")
    uncounted_batches = [point.batch for point in points if point.stored_keys is None]
    if uncounted_batches:
        unknown_parts.append(_describe_uncounted(checkpoint.provider, uncounted_batches))
    if len(points) < len(retained_batches):
        unknown_parts.append(f"{len(retained_batches)} batches are retained; {len(points)} of them are shown")
    return Growth(tuple(points), *_runs(checkpoint, unknown_parts))


def _runs(checkpoint: Checkpoint, unknown_parts: list[str]) -> tuple[tuple[RunPoint, ...], tuple[str, ...]]:
    """Return the runs, and everything that is unknown."""
    try:
        entries = [entry for entry in history(checkpoint.target) if entry.kind in _KINDS]
    except TtlsnapError as error:
        reason = str(error).splitlines()[0]
        return (), (*unknown_parts, Quoting(f"runs of ttlsnap: {reason}", "runs of ttlsnap cannot be read"))
    return tuple(map(_run_point, entries)), tuple(unknown_parts)


def _choose(batches: Sequence[int]) -> list[int]:
    """Return up to ``_MOST`` of the batches, among them the first and the last."""
    if len(batches) <= _MOST:
        return list(batches)
    return [batches[number * (len(batches) - 1) // (_MOST - 1)] for number in range(_MOST)]


def _point(checkpoint: Checkpoint, stores: Sequence[Store]) -> BatchPoint:
    """Return the state after the batch of ``checkpoint``, from its files."""
    state_store, files = open_state_store(checkpoint), checkpoint.files

    def look(place: tuple[Store, int]) -> tuple[Lineage, int | None]:
        lineage = lineage_of(checkpoint, state_store, *place)
        delta = layout.delta_beside(lineage.new_snapshot)
        info = files.stat(delta) if delta is not None else None
        return lineage, info.size if info is not None else None

    lineages_and_sizes = each(files, look, [(store, partition) for store in stores for partition in store.partitions])
    counts = [lineage.entries for lineage, _ in lineages_and_sizes]
    written_sizes = [size for _, size in lineages_and_sizes if size is not None]
    return BatchPoint(
        checkpoint.batch.id,
        checkpoint.batch.timestamp_ms,
        checkpoint.batch.watermark_ms,
        None if None in counts else sum(filter(None, counts)),
        sum(lineage.size for lineage, _ in lineages_and_sizes),
        sum(written_sizes) if len(written_sizes) == len(lineages_and_sizes) else None,
    )


def _describe_uncounted(provider: str, batches: Sequence[int]) -> str:
    """Return why the number of keys after some batches is unknown."""
    batches_text = f"batch {batches[0]}" if len(batches) == 1 else f"batches {', '.join(map(str, batches))}"
    reason = (
        "the files of the HDFS-backed store do not record it"
        if provider == "hdfs"
        else "only snapshots of RocksDB record it, and not every partition has one of that batch"
    )
    return f"number of keys after {batches_text}: {reason}"


def _run_point(entry: HistoryEntry) -> RunPoint:
    totals = (entry.report or {}).get("totals", {})
    started = started_at(entry.run)
    entries_before, dropped = totals.get("entries"), totals.get("dropped")
    return RunPoint(
        entry.run,
        entry.kind,
        entry.status,
        started.replace(" ", "T") if started != "-" else None,
        entry.batch,
        entries_before,
        entries_before - dropped if entries_before is not None and dropped is not None else None,
        totals.get("bytes_before"),
        totals.get("bytes_after"),
    )
