"""The story that every combination of settings is tested with.

Spark writes a checkpoint, ttlsnap drops the entries that are older than a limit, and Spark resumes. Kept keys continue
their values, and dropped ones start over. Everything equals the model, which drops the same entries.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from ttlsnap import CompactionReport, LocalEngine, compact, rollback
from ttlsnap.clock import Clock
from ttlsnap.compaction.engine import Engine
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.stores.protocols import Rewrite
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.outcomes import Entry, expired
from ..judge.processes import NEWEST, JudgeError
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import FULL

LAYOUTS = ("snapshot", "deltas", "both")
OPERATORS = ("agg_update", "agg_append", "dedup")
CODECS = ("lz4", "zstd", "snappy", "lzf")
_AT_ONCE = 4
_ATTEMPTS = 200

T = 1_700_006_400  # a full hour
H = 3600

# Entries of many ages: some expire, one is exactly at the limit, and one is a second younger. Also keys that several
# batches write, a null key, a null timestamp, non-ASCII text, and late events.
BATCHES: list[Events] = [
    [Event(f"k{i}", T + i * 600, i) for i in range(24)] + [Event(None, T + 5, 3), Event("n", None, 5)],
    [Event(f"k{i}", T + i * 600 + 60, 1) for i in range(0, 24, 3)] + [Event("é", T + 2 * H, 7)],
    [Event("k1", T + 3 * H, 8), Event("at", T + 2 * H, 1), Event("after", T + 2 * H + 1, 1), Event("k23", T + 4 * H)],
]
# Spark evicts entries behind its watermark, those older than three hours. So the limit is later than that.
LIMITS = {
    **dict.fromkeys(("agg_append", "agg_window_update", "dedup_within"), T + 4 * H),
    "dedup": T + 3 * H + 1800,
}
MORE: list[Events] = [
    [Event(f"k{i}", T + 4 * H + i, 100) for i in range(0, 24, 2)]
    + [Event(key, T + 5 * H, 2) for key in (None, "at", "after", "new")]
    + [Event("n", None, 1)],
    [Event("end", T + 30 * H, 2), Event("k23", T + 29 * H, 1)],
]
# Earlier events come again, some of them too late. Then each hour has new keys, kept keys, dropped keys, and one whose
# events are later and later.
MANY_MORE: list[Events] = [
    BATCHES[0],
    BATCHES[2],
    *(
        [Event(f"k{(5 * hour + i) % 24}", T + (hour + 4) * H - i * 1300, hour + i) for i in range(4)]
        + [Event(f"new{hour}", T + (hour + 4) * H + 60), Event(None, T + (hour + 4) * H, 2), Event("late", T + 4 * H)]
        for hour in range(21)
    ),
]
# Some operators cannot read events without a key or a time.
WHOLE, MORE_WHOLE = (
    [[event for event in batch if event.key is not None and event.ts is not None] for batch in batches]
    for batches in (BATCHES, MORE)
)
FIELDS = {
    "agg_update": "value.max",
    "agg_all": "value.max",
    "agg_update_long": "value.max:s",
    "agg_append": "key.window.end",
    "agg_window_update": "key.window.end",
    "dedup": "key.at",
    "dedup_plain": "key.at",
    "dedup_within": "value.expiresAtMicros:us",
}


ROCKSDB_CONF = "spark.sql.streaming.stateStore.rocksdb."


def rocksdb(operator: str, changelog: bool, checkpoint_format: int = 1, row_checksum: bool = False) -> Query:
    return Query(
        operator,
        provider="rocksdb",
        changelog=changelog,
        checkpoint_format=checkpoint_format,
        row_checksum=row_checksum,
    )


@dataclass(frozen=True)
class Story:
    """A query, the layouts of its state, the Spark that wrote it, and the versions that restart it."""

    query: Query
    layouts: tuple[str, ...] = LAYOUTS
    written_by: str = NEWEST
    restarted_by: tuple[str, ...] = (NEWEST,)

    @property
    def written_as(self) -> tuple[str, ...]:
        """Return the layouts that Spark must write. The others are made from them."""
        # A changelog of format 2 names the zip that it continues, so that zip cannot be removed.
        return self.layouts if self.query.checkpoint_format == 2 else ("snapshots",)


def limit_of(query: Query) -> int:
    """Return the newest time that expires, in epoch seconds."""
    return LIMITS.get(query.operator, T + 2 * H)


def unwanted(query: Query) -> Callable[[Entry], bool]:
    """Return a function that selects the entries that ``drop_expired`` drops."""
    field, _, unit = FIELDS[query.operator].partition(":")
    return expired(field, limit_of(query), per_second=1_000_000 if unit == "us" else 1)


def drop_expired(
    target: Path,
    query: Query,
    *,
    output: Path | None = None,
    engine: Engine | None = None,
    rewrite: Rewrite = "auto",
    hours: int = 2,
    planned_batch: bool = True,
) -> CompactionReport:
    """Compact as a user would, with a TTL of two hours before a given time."""
    factory = TtlTransformerFactory(StateTtlConfig(hours * H * 1_000_000), FIELDS[query.operator])
    return compact(
        str(target),
        [factory],
        now=stamp(limit_of(query) + 2 * H),
        output=str(output) if output else None,
        engine=engine or LocalEngine(1),
        rewrite=rewrite,
        stopped=True,
        max_drop=1.0,
        planned_batch=planned_batch,
    )


def tell(judge: Judge, *stories: Story) -> None:
    """Let Spark write the checkpoint of each story once, and test every way to continue it."""
    for start in range(0, len(stories), _AT_ONCE):
        judge.together(*(partial(_tell, judge, story) for story in stories[start : start + _AT_ONCE]))


def _tell(judge: Judge, story: Story) -> None:
    for layout in story.written_as:
        written = judge.write(story.query, BATCHES, layout=layout, version=story.written_by)
        settled(written.path)
        *copies, last = product(story.layouts if layout == "snapshots" else (layout,), story.restarted_by)
        # One after the other, because Spark runs a query only once at a time. The last one uses the original.
        for wanted, version in copies:
            _live_on(judge, judge.copy(written), wanted, version, fresh=FULL)
        _live_on(judge, written, *last, fresh=True)


def _live_on(judge: Judge, written: Checkpoint, layout: str, version: str, *, fresh: bool) -> None:
    """Compact in place, into a copy with ``--output``, and in place with a ``rollback``. Then restart the query.

    With ``fresh`` also restart the copy, in a new process.
    """
    query = written.query
    if query.checkpoint_format == 1:
        judge.lay_out(written, layout)
    before, (rolled_back, copied) = copies_of(judge, written)
    new = copied.path.with_name(f"{copied.path.name}-new")
    report = drop_expired(copied.path, query, output=new, rewrite="tombstones")
    assert digest(copied.path) == before, "--output leaves the source alone"
    shutil.rmtree(copied.path)
    copied = judge.at(copied, new)

    drop_expired(rolled_back.path, query, rewrite="tombstones")
    assert digest(rolled_back.path) != before
    rollback(str(rolled_back.path), stopped=True)
    assert digest(rolled_back.path) == before, "rollback gives back every byte"

    assert counts(drop_expired(written.path, query, rewrite="full")) == counts(report)
    for compacted in (written, copied):
        model = compacted.expected
        gone = model.drop(unwanted(query))
        assert report.totals.dropped == gone > 0
        assert report.totals.kept == len(model.state()) > 0
        # No reader of Spark accepts state with ids that 4.0 wrote, or state without operator metadata.
        if written.version >= "4.0" and (written.version, query.checkpoint_format) != ("4.0", 2):
            assert judge.state(compacted) == model.state()
    _goes_on(judge, written, version, fresh=False)
    if fresh:
        _goes_on(judge, copied, version, fresh=True)


def _goes_on(judge: Judge, checkpoint: Checkpoint, version: str, *, fresh: bool) -> None:
    """Restart the query, and compare all rows that it emits with the model: for kept keys, new ones and closed ones."""
    at_once: list[Events] = [[event for events in MORE for event in events]]
    wanted = checkpoint.expected.run(at_once, version=version)
    assert judge.restart(checkpoint, at_once, version=version, fresh=fresh) == wanted


def counts(report: CompactionReport) -> tuple[int | None, ...]:
    """Return the numbers of entries: all, kept, dropped, rewritten."""
    totals = report.totals
    return totals.entries, totals.kept, totals.dropped, totals.rewritten


def settled(checkpoint: Path) -> dict[str, str]:
    """Return the digest once it no longer changes, because maintenance may write a snapshot after the query stopped."""
    before: dict[str, str] | None = None
    for _ in range(_ATTEMPTS):
        try:
            after = digest(checkpoint)
        except FileNotFoundError:  # a temporary file that was renamed a moment ago
            before = None
            continue
        if before == after:
            return after
        before = after
        time.sleep(0.3)
    raise JudgeError(f"{checkpoint} changes all the time")


def copies_of(judge: Judge, written: Checkpoint) -> tuple[dict[str, str], list[Checkpoint]]:
    """Return the digest of a checkpoint, and two copies that have it: maintenance did not write at the same time."""
    for _ in range(_ATTEMPTS):
        before = settled(written.path)
        copies = [judge.copy(written) for _ in range(2)]
        if before == digest(written.path) and all(digest(copy.path) == before for copy in copies):
            return before, copies
        for copy in copies:
            shutil.rmtree(copy.path)
    raise JudgeError(f"no copy of {written.path} equals it")


def digest(checkpoint: Path) -> dict[str, str]:
    """Return every file of a checkpoint with the hash of its bytes, except those of ttlsnap itself.

    A copy has the same digest, although its operator metadata has its own path.
    """
    return {
        str(path.relative_to(checkpoint)): hashlib.sha256(_without_home(path, checkpoint)).hexdigest()
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.relative_to(checkpoint).parts[0] != "_ttlsnap"
    }


def _without_home(path: Path, checkpoint: Path) -> bytes:
    """Return the bytes of a file; of operator metadata without the path of the checkpoint, and of its checksum none."""
    if path.parent.name != "v2" or path.parent.parent.name != "_metadata":
        return path.read_bytes()
    return b"" if path.suffix == ".crc" else path.read_bytes().replace(str(checkpoint).encode(), b"")


# transformWithState: a value variable and a list.

VISITS: list[Events] = [[event for event in events if event.ts is not None] for events in (*BATCHES, *MORE)]


@dataclass(frozen=True)
class TouchFactory:
    """A factory whose transformer rewrites every value to the same value, so that whole partitions are rewritten."""

    def create(self, state: StateDescriptor, clock: Clock) -> TouchFactory:
        return self

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        return replace(entries, rewritten=np.ones(len(entries), np.bool_))


def copy_all(target: Path, output: Path | None = None, *, planned_batch: bool = True) -> CompactionReport:
    """Rewrite all partitions with all their entries."""
    return compact(
        str(target),
        [TouchFactory()],
        output=str(output) if output else None,
        engine=LocalEngine(1),
        rewrite="full",
        stopped=True,
        planned_batch=planned_batch,
        max_drop=1.0,
    )


def copies_lists(judge: Judge, query: Query, layout: str, version: str = NEWEST) -> None:
    """Rewrite a whole checkpoint, in place and into a copy that outlives it, and require that Spark resumes on both."""
    written = judge.write(query, VISITS[:3], layout=layout, version=version)
    before, (_, copied) = copies_of(judge, written)
    new = copied.path.with_name(f"{copied.path.name}-new")
    report = copy_all(copied.path, new)
    assert digest(copied.path) == before
    shutil.rmtree(copied.path)
    assert counts(copy_all(written.path)) == counts(report)
    numbers = sum(map(len, VISITS[:3]))
    assert report.totals.rewritten == len(written.expected.state()) + numbers > numbers > 0
    assert digest(written.path) != before
    wanted = written.expected.run(VISITS[3:])
    assert judge.restart(written, VISITS[3:], version=version) == wanted
    # Nothing in the copy may refer to the place of the original.
    shutil.rmtree(written.path)
    moved = judge.at(copied, new)
    wanted = moved.expected.run(VISITS[3:])
    assert judge.restart(moved, VISITS[3:], version=version, fresh=True) == wanted
