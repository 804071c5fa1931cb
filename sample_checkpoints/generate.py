"""Generator of the sample checkpoints and of the table in their README. Real Spark writes the checkpoints.

    python sample_checkpoints/generate.py            all samples
    python sample_checkpoints/generate.py NAME...    only these samples

The generator needs the environments of the wide tests (``make venvs old-venvs``). The sample ``no-schema-3.0`` also
needs an environment ``spark-3.0`` beside the others. Replace its ``scala-library`` with version 2.12.15 or later.
A sample of a Spark version before 3.3 stays unchanged if that version is not installed.

Two runs never write the same bytes, because Spark writes ids and the time of day into a checkpoint. The events end at
the last full hour, so that a TTL means the same by both clocks. The watermark and the time of the last batch differ by
about an hour at most. The generator works in a temporary folder with a fixed name, because a checkpoint contains the
full paths of its source's files.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
# Append the path, so that it does not hide an installed package.
sys.path.append(str(HERE.parent))

from tests.judge.processes import JudgeError, interpreter  # noqa: E402  (needs the path above)
from tests.judge.queries import Event, Query  # noqa: E402
from tests.judge.spark import Checkpoint, Judge  # noqa: E402

HOUR, DAY = 3600, 86400
Batches = list[list[Event]]


def visits(end: int) -> Batches:
    """Return visits of 480 users over 30 days. Most users were last seen days ago."""
    chance = random.Random(30)
    batches: Batches = [[] for _ in range(6)]
    for user in range(480):
        first, last = sorted(chance.uniform(0, 30 * DAY) for _ in range(2))
        for moment in sorted(chance.uniform(first, last) for _ in range(chance.randint(1, 4))):
            seen = end - 30 * DAY + int(moment)
            batches[int(moment // (5 * DAY))].append(Event(f"user-{user:04d}", seen, chance.randint(1, 99)))
    # This is the latest event. It determines the watermark.
    batches[-1].append(Event("user-0000", end, 1))
    return batches


def few(end: int) -> Batches:
    """Return events of some tens of keys over 12 days, with a null key, a non-ASCII key, and a key without a time."""
    batches = [
        [Event(f"key-{day * 2 + place}", end - (11 - day) * DAY + place * 60, place) for place in range(8)]
        for day in (0, 3, 6, 9)
    ]
    batches[1] += [Event(None, end - 8 * DAY), Event("ключ", end - 5 * DAY), Event("timeless", None)]
    return [*batches, [Event("key-0", end, 7)]]


def fewer(end: int) -> Batches:
    """Return the last two batches of ``few``, because RocksDB writes many files."""
    return few(end)[-2:]


def returning(end: int) -> Batches:
    """Return four batches. Each batch has the same keys as the batch before it, except two."""
    return [
        [
            Event(f"key-{place}", end - (12 - 4 * day) * DAY + place * 60, 10 * day + place)
            for place in range(8 - 2 * day)
        ]
        for day in range(4)
    ]


def returning_twice(end: int) -> Batches:
    """Return the last two batches of ``returning``."""
    return returning(end)[-2:]


def twins(end: int) -> Batches:
    """Return batches with several odd and even numbers for the same key and time."""
    return [
        [
            Event(f"key-{place}", end - (8 - 4 * day) * DAY + place * 60, number)
            for place in range(3)
            for number in range(day, 3 + place)
        ]
        for day in range(2)
    ]


def closing_windows(end: int) -> Batches:
    """Return a batch for each hour, so that each batch closes a window.

    Some events are late but still accepted. Their windows close at once.
    """
    batches = []
    for hour in range(8):
        now = end - (8 - hour) * HOUR
        batches.append([Event(f"key-{place}", now + place, 1) for place in range(6)])
        batches[-1].append(Event("straggler", now - 4 * HOUR, hour))
    return batches


@dataclass(frozen=True)
class Sample:
    """One checkpoint: its special feature, and how Spark writes it."""

    name: str
    property: str
    query: Query
    events: Callable[[int], Batches] = few
    version: str = "4.2"
    layout: str = "deltas"
    uncommitted: bool = False
    pause_s: int = 0
    """Seconds between the first two batches."""

    then: tuple[str, ...] = ()
    """The operators that replace the query's own one after the first batch, each for all batches."""


_OPTIONAL = ("3.0", "3.1", "3.2")
_GROUPS_FORMAT_1 = (("spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion", "1"),)
_OFFSETS_V2 = (("spark.sql.streaming.offsetLog.formatVersion", "2"),)

SAMPLES = (
    Sample(
        "agg-deltas-lz4-4.2",
        "nothing: the plain case, which the demo compacts: `max(at)` per user over 30 days, with a watermark",
        Query("agg_update_watermark"),
        events=visits,
    ),
    Sample(
        "agg-snapshot-zstd-4.1",
        "zstd; a snapshot of the last version; Spark 4.1's checksum files beside state files, and their `.crc.crc`",
        Query(codec="zstd"),
        version="4.1",
        layout="snapshot",
    ),
    Sample(
        "dedup-watermark-4.2",
        "`dropDuplicates` with the time in the key; values are empty; the watermark deletes entries",
        Query("dedup", delay_s=4 * DAY),
    ),
    Sample(
        "dedup-within-4.2",
        "`dropDuplicatesWithinWatermark`: Spark stores the expiry time, in microseconds",
        Query("dedup_within", delay_s=4 * DAY),
    ),
    Sample(
        "window-append-snappy-4.0",
        "snappy; windows in the key; Spark removes closed windows",
        Query("agg_append", codec="snappy", delay_s=4 * DAY, window_s=DAY),
        version="4.0",
    ),
    Sample(
        "agg-rowchecksum-deletes-4.2",
        "row checksums, also for deleted keys; a delta that writes a key and deletes it again",
        Query("agg_append", row_checksum=True, delay_s=2 * HOUR),
        events=closing_windows,
    ),
    Sample(
        "agg-format1-3.5",
        "aggregation state of format 1, which repeats the key in the value; no operator metadata (before 4.0)",
        Query(aggregation_format=1),
        version="3.5",
    ),
    Sample(
        "uncommitted-batch-4.2",
        "the last batch was started and not committed: its offsets and state files exist",
        Query(),
        uncommitted=True,
    ),
    Sample("lzf-both-4.2", "lzf; a snapshot and deltas after it", Query(codec="lzf"), layout="both"),
    Sample(
        "offsets-v2-4.2",
        "offset log of version 2: sources have ids, and the pinned settings have no number of partitions",
        Query(conf=_OFFSETS_V2),
    ),
    Sample(
        "rocksdb-4.2",
        "the RocksDB state store: one zip for each version; the zips share SST files",
        Query(provider="rocksdb"),
        events=fewer,
        layout="snapshot",
    ),
    Sample(
        "rocksdb-3.2",
        "the first release with RocksDB: the options name folders of an executor, and internal keys are not counted",
        Query(provider="rocksdb"),
        events=fewer,
        version="3.2",
        layout="snapshot",
    ),
    Sample(
        "rocksdb-changelog-3.5",
        "RocksDB with changelogs and without a zip; Spark 3.5 has no column families",
        Query(provider="rocksdb", changelog=True),
        events=fewer,
        version="3.5",
    ),
    Sample(
        "rocksdb-ids-4.2",
        "checkpoint format 2: state files have ids, which the commit log and the changelogs contain; row checksums",
        Query("dedup_plain", provider="rocksdb", changelog=True, checkpoint_format=2, row_checksum=True),
        events=fewer,
        layout="both",
    ),
    Sample(
        "visits-4.2",
        "transformWithState: a value variable and a list, in column families; merges in tables and changelogs",
        Query("visits", provider="rocksdb", changelog=True),
        events=returning,
        layout="both",
    ),
    Sample(
        "lists-4.2",
        "transformWithState: a list with a TTL (with its index, earliest expiry times and counts), and a list without",
        Query("lists", provider="rocksdb", partitions=1),
        events=returning_twice,
        layout="snapshot",
    ),
    Sample(
        "alarms-4.2",
        "transformWithState: a value, a list, a map and event-time timers; row checksums",
        Query("alarms", provider="rocksdb", partitions=1, delay_s=20 * DAY, row_checksum=True),
        events=returning_twice,
        layout="snapshot",
    ),
    Sample(
        "removed-4.2",
        "transformWithState: two queries had other variables, with and without a TTL, whose values Spark has kept",
        Query("for_a_day", provider="rocksdb", partitions=1),
        events=returning_twice,
        layout="snapshot",
        then=("lists", "removals"),
    ),
    Sample(
        "join-format4-4.2",
        "a stream-stream join of state format 4: rows by key and time, and an index of the times",
        Query("join_parities", provider="rocksdb", partitions=1, delay_s=20 * DAY, join_format=4),
        events=twins,
        layout="snapshot",
    ),
    Sample("join-4.2", "a stream-stream join: four linked stores", Query("join", delay_s=4 * DAY)),
    Sample(
        "dedup-columns-3.1",
        "`dropDuplicates`: the schema gives values all columns, but values are empty (before 3.2.2)",
        Query("dedup", delay_s=4 * DAY),
        version="3.1",
    ),
    Sample(
        "dedup-columns-rocksdb-3.2",
        "the same in RocksDB; no watermark",
        Query("dedup_plain", provider="rocksdb", partitions=1),
        events=fewer,
        version="3.2",
        layout="snapshot",
    ),
    Sample(
        "agg-namesake-3.1",
        "an aggregation whose key and one buffer are both called `max`; its values contain all key columns",
        Query("agg_namesake"),
        version="3.1",
    ),
    Sample(
        "limit-3.1",
        "a global limit; the schema calls its key's type `null`, as Spark did before 3.2",
        Query("first_rows"),
        events=fewer,
        version="3.1",
    ),
    Sample(
        "groups-3.1",
        "`flatMapGroupsWithState` with a timeout, in Scala",
        Query("groups_scala", delay_s=20 * DAY),
        events=returning,
        version="3.1",
    ),
    Sample(
        "groups-format1-3.1",
        "the same with state format 1: the schema calls the timeout an `int`, but it is a `bigint`",
        Query("groups_scala", delay_s=20 * DAY, conf=_GROUPS_FORMAT_1),
        events=returning,
        version="3.1",
    ),
    Sample(
        "join-outer-3.1",
        "a full outer stream-stream join without operator metadata",
        Query("join_parities", delay_s=20 * DAY, join_type="full_outer"),
        events=twins,
        version="3.1",
    ),
    Sample(
        "sessions-rocksdb-3.2",
        "session windows in RocksDB; no file contains the number of prefix columns of the key (before 4.0)",
        Query("sessions", provider="rocksdb", partitions=1, delay_s=20 * DAY),
        events=fewer,
        version="3.2",
        layout="snapshot",
    ),
    Sample(
        "slow-4.2",
        "the second batch began more than five minutes after the first",
        Query(),
        pause_s=310,
    ),
    Sample(
        "slow-rocksdb-4.2",
        "the same in RocksDB",
        Query(provider="rocksdb"),
        events=fewer,
        layout="snapshot",
        pause_s=310,
    ),
    Sample(
        "no-schema-3.0",
        "neither operator metadata nor a state schema (before 3.1)",
        Query(),
        version="3.0",
    ),
)


def main(names: list[str]) -> None:
    """Write the samples with these names, or all samples, and the README."""
    unknown = set(names) - {sample.name for sample in SAMPLES}
    if unknown:
        raise SystemExit(f"no such sample: {', '.join(sorted(unknown))}")
    work = Path(tempfile.gettempdir()) / "ttlsnap-samples"
    shutil.rmtree(work, ignore_errors=True)
    end = int(time.time()) // HOUR * HOUR
    with Judge(work) as judge:
        for sample in SAMPLES:
            if names and sample.name not in names:
                continue
            if sample.version in _OPTIONAL and not _is_there(sample.version):
                print(f"{sample.name}: no Spark {sample.version} here, left as it is")
                continue
            write(judge, sample, end)
    # A JVM may still be deleting its files in this folder.
    shutil.rmtree(work, ignore_errors=True)
    readme()


def write(judge: Judge, sample: Sample, end: int) -> None:
    """Write one checkpoint into this folder."""
    made = _write(judge, sample, end)
    while not sample.uncommitted and _has_begun_batch(made.path):
        made = _write(judge, sample, end)  # a query that never ends by itself was stopped within a batch
    place = HERE / sample.name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(made.path, place)
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(f"{sample.name}: {size:,} bytes")


def _write(judge: Judge, sample: Sample, end: int) -> Checkpoint:
    batches = sample.events(end)
    last = batches.pop() if sample.uncommitted else None
    begin = batches[:1] if sample.pause_s or sample.then else batches
    made = judge.write(sample.query, begin, layout=sample.layout, version=sample.version, uncommitted=last)
    if sample.pause_s:
        time.sleep(sample.pause_s)
        judge.restart(made, batches[1:])
    for operator in sample.then:
        made.query, made.model = replace(made.query, operator=operator), None
        judge.restart(made, batches)
    return made


def _has_begun_batch(checkpoint: Path) -> bool:
    offsets, commits = ({path.name for path in (checkpoint / log).glob("[0-9]*")} for log in ("offsets", "commits"))
    return offsets != commits


def _is_there(version: str) -> bool:
    try:
        interpreter(version)
    except JudgeError:
        return False
    return True


def readme() -> None:
    """Replace the table of samples in the README. The text above the table stays."""
    page = HERE / "README.md"
    words = page.read_text().partition("| checkpoint |")[0]
    rows = [f"| `{sample.name}` | {sample.property} |" for sample in SAMPLES]
    page.write_text("\n".join([words + "| checkpoint | what is special |", "| --- | --- |", *rows, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
