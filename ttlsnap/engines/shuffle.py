"""A move on Spark: one job, in which Spark's shuffle brings the entries of the sources to their targets.

A task for each source sorts its entries on a local disk, and yields them in pieces. ``repartition`` brings the pieces
of each target to one task, which builds it. Spark keeps its shuffle files on the disks of the executors, so the state
can be larger than their memory.

Spark may run a task again. Nothing depends on the order of the pieces, and the caller proves that none is lost or
doubled.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ttlsnap import errors
from ttlsnap.engines.launch import set_temporarily
from ttlsnap.engines.moving import Move, Part, Source, Target
from ttlsnap.engines.progress import sender
from ttlsnap.engines.spill import Entries, Room, Spills
from ttlsnap.engines.workers import on_workers
from ttlsnap.errors import TtlsnapError
from ttlsnap.schema.types import LongType
from ttlsnap.stores.scratch import scratch_folder
from ttlsnap.unsaferow.gather import gather_ragged
from ttlsnap.unsaferow.murmur3 import first_seeds, hash_column, partitions_of
from ttlsnap.unsaferow.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_BYTES = 4 << 20  # keys and values of a piece, unless one entry is larger
_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PIECES_AT_ONCE = 16
_PARTS = "place long, source long, number long, data binary"
_OUTCOMES = "is_target boolean, number long, data binary"
_RESULT = -1  # as the number of a part: the row has the result of the source

_one_at_a_time = threading.Lock()

_Outcome = tuple[bool, Any]
"""True and a result, or False and the class and the message of an error."""


def move_on_spark(session: SparkSession, move: Move, port: int | None) -> tuple[list[Any], list[Any]]:
    """Return the outcomes of all sources and targets, for ``take``. Progress goes to ``port``."""
    from pyspark import cloudpickle

    sources, targets = move.sources, move.targets
    places = find_places(len(targets))
    split = _split_work([cloudpickle.dumps(source) for source in sources], places, move.scratch, port)
    build = _build_work([cloudpickle.dumps(target) for target in targets], places, move.scratch, port)
    with _with_small_batches(session) as own_session:
        parts = on_workers(own_session.range(0, len(sources), 1, len(sources)), split, _PARTS)
        outcome_frame = on_workers(parts.repartition(len(targets), "place"), build, _OUTCOMES)
        outcomes = {(row["is_target"], row["number"]): bytes(row["data"]) for row in outcome_frame.collect()}
    return [outcomes[False, n] for n in range(len(sources))], [outcomes[True, n] for n in range(len(targets))]


@contextlib.contextmanager
def _with_small_batches(session: SparkSession) -> Iterator[SparkSession]:
    """Yield a session in which a Python worker gets few pieces at once, so that its memory is bounded.

    It is another session of the same application, because others may use ``session`` at the same time. Spark Connect
    does not have that in all versions; there, one move at a time changes the setting.
    """
    if getattr(session, "_sc", None) is not None:
        own_session = session.newSession()
        own_session.conf.set(_AT_ONCE, str(_PIECES_AT_ONCE))
        yield own_session
        return
    with _one_at_a_time, set_temporarily(session, {_AT_ONCE: str(_PIECES_AT_ONCE)}):
        yield session


def take(outcomes: Sequence[bytes]) -> list[Any]:
    """Return the results. Raise the first error."""
    results = []
    for data in outcomes:
        is_good, result = pickle.loads(data)
        if not is_good:
            name, message = result
            raise getattr(errors, name, TtlsnapError)(message)
        results.append(result)
    return results


def find_places(count: int) -> list[int]:
    """Return ``count`` numbers (longs). Spark's hash puts the n-th of them into partition n of ``count``."""
    places: dict[int, int] = {}
    start = 0
    while len(places) < count:
        numbers = np.arange(start, start + 8 * count, dtype=np.int64)
        hashes = hash_column(pa.array(numbers), LongType(), first_seeds(len(numbers)))
        partitions = partitions_of(hashes, count)
        for number, partition in zip(numbers.tolist(), partitions.tolist(), strict=True):
            places.setdefault(partition, number)
        start += 8 * count
    return [places[partition] for partition in range(count)]


def cut(entries: Iterable[Entries]) -> Iterator[bytes]:
    """Yield entries as pieces: their count, int64 LE; the sizes of keys and of values, int32 LE; keys, and values."""
    for keys, values in entries:
        ends = np.cumsum(keys.size + values.size)
        start = 0
        while start < len(keys):
            bytes_before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, bytes_before + PIECE_BYTES, "right")))
            piece_rows = [rows.take(slice(start, end)) for rows in (keys, values)]
            sizes = [rows.size.astype("<i4").tobytes() for rows in piece_rows]
            content = [bytes(gather_ragged(rows.data, rows.start, rows.size)) for rows in piece_rows]
            yield b"".join([(end - start).to_bytes(8, "little"), *sizes, *content])
            start = end


def join(piece: bytes) -> Entries:
    """Return the entries of a piece."""
    data = np.frombuffer(piece, np.uint8)
    count = int.from_bytes(piece[:8], "little")
    sizes = np.frombuffer(piece, "<i4", 2 * count, 8).astype(np.int64)
    starts = 8 + 8 * count + np.cumsum(sizes) - sizes
    keys, values = (Rows(data, starts[half], sizes[half]) for half in (slice(None, count), slice(count, None)))
    return keys, values


def _split_work(sources: Sequence[bytes], places: Sequence[int], scratch: str | None, port: int | None) -> Any:
    """Return the function for ``mapInArrow`` that takes numbers of sources, and yields their results and pieces.

    Every target gets a piece, even if it has no entries, because a task without a row builds nothing.
    """

    def rows(number: int) -> Iterator[tuple[int, int, int, bytes]]:
        source: Source = pickle.loads(sources[number])
        send = sender(port)
        for target in range(number, len(places), len(sources)):
            yield places[target], number, 0, b""
        with scratch_folder(scratch) as folder:
            spills = Spills(folder, Room(0))  # Spark has planned its memory without any of this
            outcome = _attempt(lambda: source.split(spills, send))
            yield places[number % len(places)], number, _RESULT, pickle.dumps(outcome)
            if outcome[0]:
                for target in source.targets:
                    for part, piece in enumerate(cut(source.read(spills, target))):
                        yield places[target], number, part, piece
        send(0, 0, ended=True)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for row in rows(number):
                    columns = [pa.array([value]) for value in row]
                    yield pa.RecordBatch.from_arrays(columns, ["place", "source", "number", "data"])

    return work


def _build_work(targets: Sequence[bytes], places: Sequence[int], scratch: str | None, port: int | None) -> Any:
    """Return the function for ``mapInArrow`` that takes the pieces of a target, and yields what it returned.

    It also yields the results of sources that came with the pieces.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        first_row = next(rows, None)
        if first_row is None:
            return
        number = places.index(first_row[0])
        target: Target = pickle.loads(targets[number])
        results: list[tuple[bool, int, bytes]] = []

        def parts() -> Iterator[Part]:
            for place, source, part, data in chain([first_row], rows):
                if place != first_row[0]:
                    raise TtlsnapError(f"Spark sent entries of partition {places.index(place)} to partition {number}")
                if part == _RESULT:
                    results.append((False, source, data))
                elif data:
                    yield Part(*join(data), source, part)

        send, parts_of_target = sender(port), parts()
        with scratch_folder(scratch) as folder:
            outcome = _attempt(lambda: target.build(parts_of_target, folder, send))
        for _ in parts_of_target:  # after an error, the results of sources may be among what is left
            pass
        send(0, 0, ended=True)
        results.append((True, number, pickle.dumps(outcome)))
        columns = [pa.array(column) for column in zip(*results, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, ["is_target", "number", "data"])

    return work


def _attempt(work: Callable[[], Any]) -> _Outcome:
    """Return what ``work`` returns, or its error: an exception in a task would make Spark run it again."""
    try:
        return True, work()
    except TtlsnapError as error:
        return False, (type(error).__name__, error.text)
