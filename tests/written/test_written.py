"""``@written``: the batch that last wrote a key, from deltas, changelogs and ledgers, where the writes are known."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap import (
    Drop,
    EntryTransformerFactory,
    Keep,
    LocalEngine,
    compact,
    doctor,
    export,
    import_state,
    migrate,
    open_checkpoint,
    rollback,
)
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.checkpoint.layout import LEDGERS
from ttlsnap.checkpoint.logs import batch_time
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.run import compact as run_compaction
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.operators.registry import describe
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.stores.protocols import EntryBatch
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration
from ttlsnap.unsaferow.decode import decode
from ttlsnap.written.history import WrittenTimes, history_of
from ttlsnap.written.ledger import Hashes, Ledger, hash_keys, ledger_path, read_ledger

from ..cli.running import Ttlsnap
from ..compaction.joins import BATCHES, joined
from ..compaction.stories import T, rocksdb, settled
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..matrix import FULL
from ..samples import bytes_of, sample

Times = dict[str, tuple[int, bool]]
ROUNDS = [["a", "b", "c"], ["b", "d"], ["a", "d", "e"], ["f"]]
LAST = {"a": 2, "b": 1, "c": 0, "d": 2, "e": 2, "f": 3}
FIRST = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 2, "f": 3}


def half(key: Any, value: Any) -> Keep | Drop:
    """Drop about half of all keys."""
    return Drop() if zlib.crc32(repr(key).encode()) % 2 else Keep()


def some(key: Any, value: Any) -> Keep | Drop:
    """Drop about a third of all entries."""
    return Keep() if zlib.crc32(repr((key, value)).encode()) % 3 else Drop()


keep_half = EntryTransformerFactory(half)


def events(keys: list[str], number: int) -> list[Event]:
    return [Event(key, T + 60 * number, number + 1) for key in keys]


def opened(path: Path) -> Checkpoint:
    return open_checkpoint(LocalDirectory(str(path.resolve())))


def written(path: Path) -> Times:
    """Return when each key was written, in milliseconds, and whether it was before that."""
    checkpoint = opened(path)
    history, store, found = history_of(checkpoint, Runs.read(checkpoint.files)), open_state_store(checkpoint), Times()
    (state,) = describe(checkpoint)
    for lineage in lineages_of(checkpoint, store, checkpoint.operators[0].stores[0]):
        times = history.times(checkpoint.files, store, lineage, {state.state: state})[state.state]
        with store.open(checkpoint.files, lineage, None) as partition:
            for batch in partition.batches({state.state: state}):
                moments, older = times.of_keys(batch.keys)
                keys = to_json_values(decode(batch.keys, state.key_schema))
                for key, moment, is_older in zip(keys, moments // 1000, older, strict=True):
                    found[str(next(iter(key.values())))] = int(moment), bool(is_older)
    return found


def at(path: Path, batches: Mapping[str, int], *, older: bool = False) -> Times:
    files = LocalDirectory(str(path.resolve()))
    return {key: (batch_time(files, batch), older) for key, batch in batches.items()}


def states_and_times(path: Path) -> Iterator[tuple[StateDescriptor, Path, EntryBatch, WrittenTimes]]:
    """Yield each batch of a checkpoint with its state, the path of its ledger, and the times of the partition."""
    checkpoint = opened(path)
    history, store = history_of(checkpoint, Runs.read(checkpoint.files)), open_state_store(checkpoint)
    for state in describe(checkpoint):
        if state.role != "primary" or state.opaque:
            continue
        (kept,) = (s for o in checkpoint.operators for s in o.stores if (o.id, s.name) == (state.operator, state.store))
        for lineage in lineages_of(checkpoint, store, kept):
            times = history.times(checkpoint.files, store, lineage, {state.state: state})[state.state]
            with store.open(checkpoint.files, lineage, None) as partition:
                for batch in partition.batches({state.state: state}, only=state.state):
                    if batch.state == state.state and len(batch):
                        yield state, path / ledger_path(lineage.new_snapshot, state.state), batch, times


def times_of_values(path: Path) -> dict[str, set[int]]:
    """Return when each value was written, with its key, but without the number or time that a join has in it."""
    found: dict[str, set[int]] = {}
    for state, _, batch, times in states_and_times(path):
        keys, values = (
            to_json_values(decode(rows, schema))
            for rows, schema in ((batch.keys, state.key_schema), (batch.values, state.value_schema))
        )
        for key, value, moment in zip(keys, values, times.of_keys(batch.keys)[0].tolist(), strict=True):
            place = f"{state.side} {({n: v for n, v in key.items() if n not in ('index', '__event_time')}, value)}"
            found.setdefault(place, set()).add(moment)
    return found


def invent_times(path: Path) -> None:
    """Write ledgers with another time for every key."""
    known: dict[Path, list[Hashes]] = {}
    for _, at_path, batch, _ in states_and_times(path):
        known.setdefault(at_path, []).append(hash_keys(batch.keys))
    for number, (file, hashes) in enumerate(known.items()):
        place = str(file.relative_to(path))
        ledger = read_ledger(LocalDirectory(str(path)), place)
        assert ledger is not None
        every = np.unique(np.concatenate(hashes))
        times = 1_700_000_000_000 + 1_000_000 * number + np.arange(len(every), dtype=np.int64)
        file.write_bytes(Ledger(ledger.facts, every, times, np.zeros(len(every), np.bool_)).to_bytes(place))


def maintained(path: Path, ttl: str = "1000d", **options: Any) -> None:
    """Run a rule that keeps a ledger, as ``maintain`` does."""
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), "@written")
    run_compaction(str(path), [factory], CompactOptions(stopped=True, **options), LocalEngine(1))


QUERIES = [
    (Query("agg_update"), LAST),
    (Query("dedup_key"), FIRST),
    (rocksdb("agg_update", changelog=True), LAST),
    (rocksdb("dedup_key", changelog=True, checkpoint_format=2), FIRST),
    (rocksdb("agg_update", changelog=True, checkpoint_format=2), LAST),
]


@pytest.mark.parametrize(
    ("query", "batches"), QUERIES, ids=[f"{q.operator}-{q.provider}-{q.checkpoint_format}" for q, _ in QUERIES]
)
def test_times_are_those_of_the_known_writes(inputs: Judge, query: Query, batches: Mapping[str, int]) -> None:
    made = inputs.write(query, [events(keys, n) for n, keys in enumerate(ROUNDS)])
    settled(made.path)
    assert written(made.path) == at(made.path, batches)
    # A rule drops exactly the keys that were not written since.
    files = LocalDirectory(str(made.path.resolve()))
    now, limit = batch_time(files, 3), batch_time(files, 1)
    factory = TtlTransformerFactory(StateTtlConfig((now - limit) * 1000), "@written")
    report = compact(str(made.path), [factory], stopped=True, dry_run=True)
    assert report.totals.dropped == sum(batch <= 1 for batch in batches.values())
    assert report.states[0].older == 0


def test_a_batch_with_a_wrong_clock_makes_no_entry_older(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = written(target)
    last = opened(target).batch.id
    log = target / f"offsets/{last - 2}"
    log.with_name(f".{log.name}.crc").unlink()
    log.write_text(re.sub(r'"batchTimestampMs":[0-9]+', '"batchTimestampMs":1500000000000', log.read_text()))
    earlier = batch_time(LocalDirectory(str(target)), last - 3)
    after = written(target)
    assert {key for key in after if after[key] != before[key]}
    assert all(after[key][0] >= min(before[key][0], earlier) for key in after)
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("1d")), "@written")
    report = compact(str(target), [factory], dry_run=True)
    assert report.totals.dropped == 0
    assert any(
        f"batch {last - 2} began" in warning and "before an earlier batch" in warning for warning in report.warnings
    )


def test_a_clock_that_was_not_set_makes_no_entry_older(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before, last = written(target), opened(target).batch.id
    for batch in range(last - 1):
        log = target / f"offsets/{batch}"
        log.with_name(f".{log.name}.crc").unlink()
        log.write_text(re.sub(r'"batchTimestampMs":[0-9]+', f'"batchTimestampMs":{batch}', log.read_text()))
    after, set_at = written(target), batch_time(LocalDirectory(str(target)), last - 1)
    assert {key: moment for key, (moment, _) in after.items()} == {
        key: max(moment, set_at) for key, (moment, _) in before.items()
    }
    report = compact(
        str(target), [TtlTransformerFactory(StateTtlConfig(parse_duration("30d")), "@written")], dry_run=True
    )
    assert report.totals.dropped == 0
    assert any(f"the clock of batch {last - 2} was before 2016" in warning for warning in report.warnings)


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"] if FULL else ["hdfs"])
def test_a_ledger_continues_the_history(judge: Judge, provider: str) -> None:
    query = rocksdb("agg_update", changelog=True) if provider == "rocksdb" else Query("agg_update")
    made = judge.write(query, [events(keys, n) for n, keys in enumerate(ROUNDS[:3])])
    settled(made.path)
    times = at(made.path, {key: batch for key, batch in LAST.items() if key != "f"})
    maintained(made.path)
    assert (made.path / LEDGERS).is_dir()
    assert written(made.path) == times
    # The query goes on, and another rule drops "c", the oldest. The ledger follows.
    judge.restart(made, [events(["b", "f"], 3)])
    settled(made.path)
    files = LocalDirectory(str(made.path.resolve()))
    last = opened(made.path).batch.id
    times |= {key: (batch_time(files, last), False) for key in ("b", "f")}
    assert written(made.path) == times
    age = batch_time(files, last) - times["c"][0]
    maintained(made.path, f"{age}ms", max_drop=1.0)
    del times["c"]
    assert written(made.path) == times
    # A rule that does not ask for the times keeps them, too.
    judge.restart(made, [events(["g"], 4)])
    settled(made.path)
    times["g"] = (batch_time(files, opened(made.path).batch.id), False)
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("1ms")), "value.max")
    report = compact(str(made.path), [factory], now="2023-11-15T00:02:01Z", stopped=True, max_drop=1.0)
    found = written(made.path)
    assert report.totals.dropped and found == {key: times[key] for key in found}
    # So does a migration, after which the query goes on.
    migrate(str(made.path), partitions=5, stopped=True)
    assert written(made.path) == found
    judge.restart(made, [events(["h"], 5)])
    settled(made.path)
    found["h"] = (batch_time(files, opened(made.path).batch.id), False)
    assert written(made.path) == found


def test_keys_that_are_written_once_survive_a_gap(judge: Judge) -> None:
    made = judge.write(Query("dedup_key"), [events(keys, n) for n, keys in enumerate(ROUNDS[:2])])
    settled(made.path)
    times = at(made.path, {key: batch for key, batch in FIRST.items() if batch < 2})
    maintained(made.path)
    judge.restart(made, [events(ROUNDS[2], 2)], snapshot=True)
    judge.restart(made, [events(ROUNDS[3], 3)])
    settled(made.path)
    files, last = LocalDirectory(str(made.path.resolve())), opened(made.path).batch.id
    # Spark removes old deltas after it has written a snapshot. Here only the last one stays.
    for partition in made.path.glob("state/0/[0-9]*"):
        assert (partition / f"{last}.snapshot").exists()
        for delta in partition.glob("*.delta"):
            if int(delta.stem) <= last:
                delta.unlink()
                delta.with_name(f".{delta.name}.crc").unlink(missing_ok=True)
    found = written(made.path)
    assert {key: found[key] for key in times} == times
    assert found["f"] == (batch_time(files, last), False)
    assert found["e"] == (batch_time(files, last), True)


def test_without_changelogs_nothing_is_older_than_the_state(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    now = batch_time(LocalDirectory(str(target)), opened(target).batch.id)
    assert set(written(target).values()) == {(now, True)}
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("1ms")), "@written")
    report = compact(str(target), [factory], dry_run=True)
    assert (report.totals.dropped, report.states[0].older) == (0, 9)
    shown = report.to_json()["stores"][0]["written_before"]
    assert shown["entries"] == 9 and shown["time"].startswith("2026-11-21T15:34:39")


def test_a_ledger_of_another_timeline_is_ignored(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before, files = written(target), LocalDirectory(str(target))
    last = opened(target).batch.id
    limit = batch_time(files, last) - min(moment for moment, _ in before.values())
    maintained(target, f"{limit}ms", max_drop=1.0)
    after = written(target)
    assert after == {key: before[key] for key in after} and len(after) < len(before)
    log = target / "offsets" / str(last)
    log.write_text(re.sub(r'(?<="batchTimestampMs":)([0-9]+)', lambda ms: str(int(ms[0]) + 1), log.read_text()))
    (target / f"offsets/.{last}.crc").unlink(missing_ok=True)
    found = written(target)
    assert (batch_time(files, last), True) in found.values()
    assert all(found[key][0] >= moment for key, (moment, _) in after.items())


def test_a_repair_that_goes_back_moves_the_ledgers_of_later_batches_away(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    last = opened(target).batch.id
    maintained(target)
    ledgers = bytes_of(target / LEDGERS)
    assert ledgers
    (target / f"state/0/1/{last}.delta").write_bytes(b"")
    doctor(str(target), fix=["last-batch-lost"], stopped=True, confirm=lambda going_back: True)
    assert opened(target).batch.id == last and not list(target.glob(f"{LEDGERS}/**/*.ledger"))
    rollback(str(target), stopped=True)
    assert bytes_of(target / LEDGERS) == ledgers


def test_a_rollback_of_a_batch_that_was_set_back_moves_the_ledgers_away(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    last = opened(target).batch.id
    maintained(target)
    compact(str(target), [keep_half], stopped=True)
    for log in (f"offsets/{last + 1}", f"offsets/{last}", f"commits/{last}"):
        (target / log).unlink()
        (target / log).with_name(f".{Path(log).name}.crc").unlink(missing_ok=True)
    assert rollback(str(target), stopped=True).set_back_to == last - 1
    assert not list(target.glob(f"{LEDGERS}/**/*.ledger"))


def test_a_rollback_restores_the_ledger(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    maintained(target)
    before, ledgers = written(target), bytes_of(target / LEDGERS)
    compact(str(target), [keep_half], stopped=True)
    assert 0 < len(written(target)) < len(before)
    maintained(target)  # it publishes nothing, and writes new ledgers
    rollback(str(target), stopped=True)
    assert (written(target), bytes_of(target / LEDGERS)) == (before, ledgers)
    # The ledgers are all that is left of the times, and the next run keeps them.
    compact(str(target), [keep_half], stopped=True)
    after = written(target)
    assert len(set(after.values())) > 1 and after == {key: before[key] for key in after}


def as_copy(target: Path, options: dict[str, Any]) -> str:
    """Return the path of the copy that a run with these ``options`` writes."""
    options["output"] = str(target.with_name("copy"))
    return str(options["output"])


RUNS: dict[str, Callable[..., Any]] = {
    "compact": lambda path, **options: compact(path, [keep_half], **options),
    "partitions": lambda path, **options: migrate(path, partitions=3, **options),
    "provider": lambda path, **options: migrate(path, provider="rocksdb", **options),
    "codec": lambda path, **options: migrate(path, settings={"codec": "zstd"}, **options),
    "compact and migrate": lambda path, **options: migrate(path, transformers=[keep_half], partitions=3, **options),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "copy"])
def test_every_command_keeps_the_times(tmp_path: Path, run: str, in_place: bool) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = written(target)
    maintained(target)
    options: dict[str, Any] = {"stopped": True}
    result = target if in_place else Path(as_copy(target, options))
    RUNS[run](str(target), **options)
    after = written(result)
    assert len(set(after.values())) > 2
    assert after == {key: before[key] for key in after}
    assert len(after) < len(before) if "compact" in run else len(after) == len(before)
    # The next runs keep them, too.
    migrate(str(result), partitions=4, stopped=True)
    assert written(result) == after
    rollback(str(result), stopped=True)
    assert written(result) == after


def test_imported_entries_are_written_when_they_are_imported(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    maintained(target)
    export(str(target), str(tmp_path / "state"))
    before = written(target)
    compact(str(target), [keep_half], stopped=True)
    kept = written(target)
    rows = pq.read_table(tmp_path / "state")
    lost = pa.array([key["key"] not in kept for key in rows.column("key").to_pylist()])
    pq.write_table(rows.filter(lost), tmp_path / "lost.parquet")
    import_state(str(target), str(tmp_path / "lost.parquet"), stopped=True)
    after = written(target)
    assert {key: after[key] for key in kept} == kept and len(after) == len(before)
    newest = max(moment for moment, _ in before.values())
    assert {after[key][0] > newest and not after[key][1] for key in after if key not in kept} == {True}


@pytest.mark.parametrize("name", ["lists-4.2", "visits-4.2", "rocksdb-ids-4.2"])
def test_times_follow_the_entries_of_every_kind_of_state(tmp_path: Path, name: str) -> None:
    follow(sample(name, tmp_path))


def test_times_follow_the_rows_of_a_join(inputs: Judge) -> None:
    """A row may get the number of one that is dropped, and that key with it."""
    target = inputs.write(joined(join_type="left_outer"), BATCHES, layout="deltas").path
    follow(target)
    times = times_of_values(target)
    migrate(str(target), provider="rocksdb", settings={"join-format": "4"}, partitions=3, stopped=True)
    after = times_of_values(target)
    # Rows with the same key and time share one entry, and so its time.
    assert after.keys() == times.keys()
    assert all(min(after[entry]) >= min(times[entry]) for entry in times)
    assert set().union(*after.values()) <= set().union(*times.values())


def follow(target: Path) -> None:
    """Compact a checkpoint in which every entry has a time of its own, and compare the times."""
    maintained(target)
    invent_times(target)
    times = times_of_values(target)
    assert len({moment for mine in times.values() for moment in mine}) > 1
    options: dict[str, Any] = {"stopped": True, "max_drop": 1.0, "drop_unmatched": True}
    report = compact(str(target), [EntryTransformerFactory(some)], **options)
    assert report.totals.dropped
    after = times_of_values(target)
    assert after and all(moments <= times[entry] for entry, moments in after.items())


def test_a_damaged_ledger_is_refused(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    maintained(target)
    (path,) = list(target.glob(f"{LEDGERS}/**/0/**/*.ledger"))[:1]
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("1d")), "@written")
    with pytest.raises(CorruptionError, match="is not a ledger that ttlsnap wrote"):
        compact(str(target), [factory], dry_run=True)
    shutil.rmtree(target / LEDGERS)
    compact(str(target), [factory], dry_run=True)


def test_maintenance_begins_a_ledger(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("dedup-watermark-4.2", tmp_path)
    rule = ["--ttl", "1s", "--timestamp", "@written"]
    ended = ttlsnap("compact", target, *rule, "--dry-run", "--format", "json")
    assert json.loads(ended.out)["totals"]["dropped"] == 1, ended.err
    assert not (target / "_ttlsnap").exists()
    policy = tmp_path / "policy.toml"
    lines = ["[[target]]", f'path = "{target}"', "stopped = true", "[[target.rule]]", 'ttl = "1s"']
    policy.write_text("\n".join([*lines, 'timestamp = "@written"', ""]))
    assert ttlsnap("maintain", policy, "--plan", "--engine", "local").code == 0
    assert not (target / "_ttlsnap/written").exists()
    ended = ttlsnap("maintain", policy, "--engine", "local")
    assert ended.code == 0, ended.err
    assert len(list(target.glob(f"{LEDGERS}/**/*.ledger"))) == len(list(target.glob("state/0/[0-9]*")))
    assert ttlsnap("history", target, "--prune", "--yes").code == 0
    assert len(list(target.glob(f"{LEDGERS}/**/*.ledger"))) > 0
    assert len(written(target)) == 9
    ended = ttlsnap("compact", target, "--ttl", "1s", "--timestamp", "@written", "--time", "event", "--dry-run")
    assert (ended.code, "@written is in processing time" in ended.err) == (2, True)


def test_a_transformer_of_a_user_can_ask(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    newest = max(moment for moment, _ in written(target).values())

    class Recent:
        uses_written_times = True

        def create(self, state: Any, clock: Any) -> Any:
            return self

        def filter_or_transform(self, entries: Any) -> Any:
            moments, _ = entries.written
            return entries.filter(moments == newest * 1000)

    report = compact(str(target), [Recent()], dry_run=True)
    assert 0 < (report.totals.kept or 0) < (report.totals.entries or 0)
    with pytest.raises(UsageError, match="is not known here"):
        Asks = type("Asks", (Recent,), {"uses_written_times": False})
        compact(str(target), [Asks()], dry_run=True)


def test_exports_and_ages_have_the_times(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    times = written(target)
    ended = ttlsnap("export", target, "--to", tmp_path / "rows.ndjson", "--timestamp", "@written")
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in (tmp_path / "rows.ndjson").read_text().splitlines()]
    found = {row["key"]["key"]: datetime.fromisoformat(f"{row['timestamp']}+00:00").timestamp() for row in rows}
    assert {key: round(1000 * moment) for key, moment in found.items()} == {key: ms for key, (ms, _) in times.items()}
    age = ["--age", "--timestamp", "@written", "--format", "json"]
    (state,) = json.loads(ttlsnap("inspect", target, *age).out)["operators"][0]["stores"][0]["states"]
    assert state["age"]["buckets"][0]["entries"] == len(times)
    assert "written_before_history" not in state["age"]
    bare = sample("rocksdb-4.2", tmp_path)
    (state,) = json.loads(ttlsnap("inspect", bare, *age).out)["operators"][0]["stores"][0]["states"]
    assert state["age"]["written_before_history"] == 9
    assert state["age"]["written_before"] == {"time": "2026-11-21T15:34:39.094Z", "entries": 9}
    told = "9 entries were written at 2026-11-21T15:34:39.094Z or earlier. For each entry, ttlsnap uses the latest"
    for words in (["--age"], ["--sizes"]):
        assert told in " ".join(ttlsnap("inspect", bare, *words, "--timestamp", "@written").out.split())


def test_a_ledger_from_before_a_later_run_is_ignored(tmp_path: Path) -> None:
    """Ids of runs are times. After the clock was set back, a later run has a lower one."""
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before, files = written(target), LocalDirectory(str(target))
    last = opened(target).batch.id
    limit = batch_time(files, last) - min(moment for moment, _ in before.values())
    maintained(target, f"{limit}ms", max_drop=1.0)
    old = shutil.copytree(target / LEDGERS, tmp_path / "ledgers")
    export(str(target), str(tmp_path / "state"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ttlsnap.imports.plan.new_run_id", lambda: "20200101T000000Z-000000000000")
        import_state(str(target), str(tmp_path / "state"), mode="replace", stopped=True)
    shutil.rmtree(target / LEDGERS)
    shutil.move(old, target / LEDGERS)
    assert set(written(target).values()) == {(batch_time(files, last), True)}


def test_an_incremental_policy_keeps_the_ledgers_of_all_partitions(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before, last = written(target), opened(target).batch.id
    limit = batch_time(LocalDirectory(str(target)), last) - min(moment for moment, _ in before.values())
    maintained(target, f"{limit}ms", max_drop=1.0)
    after = written(target)
    # Another run changes one partition, as one that visits only that would.
    first = next(iter(decoded_keys(target, 0)))
    drop = EntryTransformerFactory(lambda key, value: Drop() if key["key"] == first else Keep())
    compact(str(target), [drop], stopped=True)
    found = written(target)
    others = decoded_keys(target, 1)
    assert {key: found[key] for key in others} == {key: after[key] for key in others}


@pytest.mark.parametrize("change", ["time_ms", "version", "place"])
def test_every_part_of_a_ledger_is_checked(tmp_path: Path, change: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    maintained(target)
    one, other = sorted(target.glob(f"{LEDGERS}/**/*.ledger"))
    if change == "place":
        shutil.copy(one, other)
    else:
        head, _, rest = one.read_bytes().partition(b"\n")
        document = json.loads(head)
        document[change] -= 1
        one.write_bytes(json.dumps(document).encode() + b"\n" + rest)
    with pytest.raises(CorruptionError, match="another checksum"):
        written(target)


def decoded_keys(path: Path, partition: int) -> set[str]:
    checkpoint = opened(path)
    store, (state,) = open_state_store(checkpoint), describe(checkpoint)
    lineage = lineages_of(checkpoint, store, checkpoint.operators[0].stores[0])[partition]
    with store.open(checkpoint.files, lineage, None) as opened_partition:
        return {
            str(next(iter(key.values())))
            for batch in opened_partition.batches({state.state: state})
            for key in to_json_values(decode(batch.keys, state.key_schema))
        }
