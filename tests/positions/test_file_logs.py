"""What a source of files has recorded is changed, and real Spark goes on with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ttlsnap import (
    Forget,
    Move,
    Record,
    Trim,
    copy,
    doctor,
    list_restorable,
    recorded_files,
    rewind,
    rollback,
    set_positions,
    sources,
)
from ttlsnap.checkpoint.log_lines import readable
from ttlsnap.errors import CorruptionError, RefusedError, UsageError
from ttlsnap.positions.log_edits import LogEdit
from ttlsnap.positions.log_rules import encoded, matcher

from ..cli.running import Ttlsnap
from ..compaction.stories import BATCHES, MORE, settled
from ..judge.model import Model
from ..judge.processes import OWN
from ..judge.queries import Query
from ..judge.sources import put_events
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL, rotating
from ..publishing.idle import ends_untouched
from ..publishing.trees import end_at_once, tree
from ..samples import bytes_of, sample, without_own
from . import files
from .files import put, put_each
from .test_setting import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGG = "agg-deltas-lz4-4.2"
EVENTS = "/tmp/ttlsnap-samples/events/0002"
# The trigger of the query exists since 3.3.
OTHERS = rotating(["3.3", "3.4", "3.5", "4.0", "4.1", "4.3"][0 if FULL else 2 :], 1, "logs of files")
Count = Callable[..., dict[str, int]]


@pytest.fixture(params=[OWN, *(pytest.param(version, marks=pytest.mark.wide) for version in OTHERS)])
def count(request: pytest.FixtureRequest, spark: SparkSession, judge: Judge) -> Count:
    """Return the function ``count`` of ``files``, which runs in this process or in a server of another version."""
    if request.param == OWN:
        return partial(files.count, spark)
    run = partial(judge.call_in, Path(__file__).parent, request.param, "files.count")

    def run_there(folder: Path, checkpoint: Path, retained: int = 2, **options: Any) -> Any:
        counts = run(folder=str(folder), checkpoint=str(checkpoint), retained=retained, **options)
        settled(checkpoint)
        return counts

    return run_there


def edit(checkpoint: Path, change: LogEdit) -> Any:
    (done,) = set_positions(str(checkpoint), log_edits={"0": change}, stopped=True).log_changes
    assert {problem.code for problem in doctor(str(checkpoint)).problems} == (
        {"planned-batch"} if done.changed else set()
    )
    return done


def test_spark_reads_what_was_forgotten_and_not_what_was_recorded(
    request: pytest.FixtureRequest, count: Count, tmp_path: Path
) -> None:
    # Spark before 3.5 cannot read a file with brackets in its name: it takes them for a pattern.
    strange = "[1]{+}\u00a0\u202f" if request.node.callspec.params["count"] >= "3.5" else "\u00a0\u202f"
    folder, checkpoint = tmp_path / "in put", tmp_path / "checkpoint"
    put_each(folder, 8, 0.1)
    assert count(folder, checkpoint) == {f"k{number}": 1 for number in range(8)}
    assert edit(checkpoint, Forget([f"{folder}/[36].json"])).changed == 2
    put(folder, f"a b%20ä{strange}.json", 1, "never")
    put(folder, "c.json", 1, "new")
    assert edit(checkpoint, Record([f"{folder}/a*.json", f"{folder}/7.json"])).changed == 1
    assert count(folder, checkpoint) == {"k3": 2, "k6": 2, "new": 1}

    moved = tmp_path / "moved"
    folder.rename(moved)
    assert edit(checkpoint, Move(f"{tmp_path}//in put/", f"{tmp_path}//moved/")).changed == 10
    put(moved, "d.json", 2, "new")
    assert count(moved, checkpoint) == {"new": 2}

    before = tree(checkpoint)
    assert edit(checkpoint, Forget([f"{moved}/**"])).after == 0
    rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == before
    edit(checkpoint, Forget([f"{tmp_path}/**"]))
    assert count(moved, checkpoint) == {f"k{number}": 2 for number in range(8)} | {
        "k3": 3, "k6": 3, "never": 1, "new": 4,
    }  # fmt: skip


def test_spark_reads_no_moved_file_again_after_a_rewind(count: Count, tmp_path: Path) -> None:
    folder, moved, checkpoint = tmp_path / "in", tmp_path / "moved", tmp_path / "checkpoint"
    put_each(folder, 6, 0.1)
    count(folder, checkpoint, retained=100)
    folder.rename(moved)
    edit(checkpoint, Move(str(folder), str(moved)))
    put(moved, "new.json", 1, "new")
    assert count(moved, checkpoint, retained=100) == {"new": 1}
    batches = list_restorable(str(checkpoint))
    assert [batch.has_input for batch in batches] == [None, *[True] * 5, False]
    (moved / "5.json").rename(tmp_path / "5.json")
    (lost,) = rewind(str(checkpoint), batches[1].batch, dry_run=True, stopped=True).warnings
    assert f"source 0: 1 file that is read again is not found on this machine, such as {moved}/5.json" in lost
    (tmp_path / "5.json").rename(moved / "5.json")
    assert not rewind(str(checkpoint), batches[1].batch, stopped=True).warnings
    wanted = {f"k{number}": 1 for number in range(2, 6)} | {"new": 1}
    assert count(moved, checkpoint, retained=100) == wanted
    restored = {one.batch: one.restored_batch for one in list_restorable(str(checkpoint))}
    assert batches[1].batch in restored.values()


def test_the_recorded_files_are_listed_with_the_batches_that_read_them(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)

    def listed(*patterns: str) -> list[tuple[int | None, int | None, bool]]:
        return [(one.entry, one.batch, one.is_read) for one in recorded_files(str(checkpoint), "0", patterns)]

    assert listed() == [(number, number, True) for number in range(6)]
    assert listed(f"{EVENTS}/0000[23].json") == [(2, 2, True), (3, 3, True)]
    (tmp_path / "new.json").touch()
    edit(checkpoint, Record([f"{tmp_path}/new.json"]))
    rewind(str(checkpoint), batch=3, stopped=True)
    # The batches from before the rewind are not retained.
    assert listed() == [(None, None, False), *[(number, None, True) for number in range(4)]]
    rollback(str(checkpoint), stopped=True)
    set_positions(str(checkpoint), {"0": {"logOffset": 3}}, stopped=True)
    assert listed(f"{EVENTS}/**") == [*[(n, n, True) for n in range(4)], (4, None, False), (5, None, False)]
    told = ttlsnap("sources", checkpoint, "--recorded", "0").out.splitlines()
    assert [line.split()[2] for line in told[1:-1]] == ["never", "0", "1", "2", "3", "not", "not"]
    assert told[-1].endswith("has recorded 7 files.")
    assert ttlsnap("sources", checkpoint, "--recorded", "0", "--set", "0", "--to", "{}").code == 2
    with pytest.raises(UsageError, match="no source 9"):
        recorded_files(str(checkpoint), "9")
    with pytest.raises(UsageError, match="nothing is to be changed"):
        set_positions(str(checkpoint), stopped=True)
    both: dict[str, Any] = {"positions": {"0": {"logOffset": 3}}, "log_edits": {"0": Forget(["/**"])}}
    with pytest.raises(UsageError, match="in runs of their own"):
        set_positions(str(checkpoint), **both, stopped=True)


def test_a_change_holds_as_of_each_batch(count: Count, tmp_path: Path) -> None:
    """Spark also refuses a log whose last line has no number of an entry."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put_each(folder, 5, 0.1)
    count(folder, checkpoint, retained=100)
    put(folder, "bad.json", 2, "bad")
    edit(checkpoint, Record([f"{folder}/bad.json"]))
    assert edit(checkpoint, Forget([f"{folder}/[034].json"])).changed == 3
    assert count(folder, checkpoint, retained=100) == {"k0": 2, "k3": 2, "k4": 2}
    put(folder, "new.json", 3, "new")
    assert count(folder, checkpoint, retained=100) == {"new": 1}
    for batch in (batch.batch for batch in list_restorable(str(checkpoint))):
        clone, rewound = tmp_path / f"clone {batch}", tmp_path / f"rewound {batch}"
        copy(str(checkpoint), str(clone), batch=batch, new_id=True)
        copy(str(checkpoint), str(rewound), new_id=True)
        rewind(str(rewound), batch, stopped=True)
        read = count(folder, clone, retained=100)
        if batch < 5:
            first = {f"k{number}": 1 for number in range(batch + 1, 5)}
            assert read == first | {f"k{number}": 2 for number in (0, 3, 4) if number <= batch} | {"new": 1}, batch
        else:
            assert read.pop("new") == 1
            assert read.items() <= {"k0": 2, "k3": 2, "k4": 2}.items()
        assert count(folder, rewound, retained=100) == {**read, "new": 1}, batch


def test_entries_are_read_again_as_far_back_as_they_have_files(count: Count, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put_each(folder, 8, 0.1)
    count(folder, checkpoint)
    # Spark removes them ten minutes after it wrote 5.compact.
    files.remove(checkpoint, *(f"sources/0/{name}" for name in ("0", "1", "2.compact", "3", "4")))
    with pytest.raises(
        UsageError, match=r"sources/0 has no file of entry 4 any more, so the source cannot go back to entry 3"
    ):
        set_positions(str(checkpoint), {"0": {"logOffset": 3}}, stopped=True)
    (change,) = set_positions(str(checkpoint), {"0": {"logOffset": 4}}, stopped=True).changes
    assert change.meaning == ("3 files are read again",)  # 5.compact has the others, too
    assert doctor(str(checkpoint)).exit_code == 0
    assert count(folder, checkpoint) == {"k5": 2, "k6": 2, "k7": 2}


def test_spark_reads_no_trimmed_file_again_if_others_are_forgotten(count: Count, tmp_path: Path) -> None:
    """Spark knows by the newest recorded file which files are too old, also as of an earlier batch."""
    folder, checkpoint, age = tmp_path / "in", tmp_path / "checkpoint", {"maxFileAge": "3d"}
    for number in range(12):
        put(folder, f"{number:02}.json", number, f"k{number}")
    count(folder, checkpoint, retained=2, options=age)
    assert edit(checkpoint, Trim("3d", "3d")).changed == 6
    assert edit(checkpoint, Forget([f"{folder}/0[789].json", f"{folder}/10.json"])).changed == 4
    assert list_restorable(str(checkpoint))[0].batch == 9
    rewind(str(checkpoint), 9, stopped=True)
    read = count(folder, checkpoint, retained=2, options=age)
    assert read == {"k7": 2, "k8": 2, "k9": 2, "k10": 1, "k11": 1}


def test_spark_reads_no_file_again_that_was_trimmed(count: Count, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(20):
        put(folder, f"{number}.json", number)
    assert count(folder, checkpoint, options={"maxFileAge": "90d"}) == {"k": 20}
    log = sources(str(checkpoint)).sources[0].log
    assert log is not None
    done = edit(checkpoint, Trim("8d", timedelta(days=7)))
    assert (done.before, done.after) == (20, 11)  # the oldest retained batch ended with file 17
    put(folder, "new.json", 20)
    assert count(folder, checkpoint, options={"maxFileAge": "7d"}) == {"k": 21}
    assert count(folder, checkpoint, options={"maxFileAge": "7d"}) == {}


def test_spark_reads_no_trimmed_file_again_if_the_newest_goes(count: Count, tmp_path: Path) -> None:
    """By the newest recorded file, Spark knows which files are too old. After a rewind, it is an earlier one."""
    folder, checkpoint, trim = tmp_path / "in", tmp_path / "checkpoint", Trim("8d", "7d")
    put_each(folder, 4, 0.1)
    put(folder, "new.json", 10, "new")
    count(folder, checkpoint, retained=3)
    with_rewind = tmp_path / "with rewind"
    shutil.copytree(checkpoint, with_rewind)
    assert edit(with_rewind, trim).changed == 0
    for number in range(5, 9):
        put(folder, f"{number}.json", 10 + number / 10, f"k{number}")
    count(folder, checkpoint, retained=3)
    assert edit(checkpoint, trim).changed == 4
    put(folder, "last.json", 11, "last")
    assert count(folder, checkpoint, retained=3) == {"last": 1}
    assert edit(checkpoint, Forget([f"{folder}/[5678nl]*"])).changed == 6
    assert count(folder, checkpoint, retained=3) == {f"k{n}": 2 for n in range(5, 9)} | {"new": 2, "last": 2}


def test_a_log_of_latest_first_is_not_trimmed(count: Count, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(6):
        put(folder, f"{number}.json", number)
    count(folder, checkpoint, options={"latestFirst": "true"})
    with pytest.raises(UsageError, match="latestFirst"):
        set_positions(str(checkpoint), log_edits={"0": Trim("2d", "1d")}, stopped=True)


def changed(written: Checkpoint, change: LogEdit) -> int:
    (done,) = set_positions(str(written.path), log_edits={"0": change}, stopped=True).log_changes
    return int(done.changed)


@pytest.mark.wide
def test_an_idle_query_stops(judge: Judge) -> None:
    written = judge.write(Query(), BATCHES[:-1])
    assert judge.start(written, BATCHES[-1:]) == written.expected.run(BATCHES[-1:])
    settled(written.path)
    assert changed(written, Forget([f"{judge.events(written).parent}/*/00002.json"])) == 1
    ends_untouched(judge, written, list(MORE[0]))
    # The query has recorded the next file before it stopped, so one batch reads both.
    assert rows(judge.restart(written, [])) == rows(written.expected.run([[*BATCHES[-1], *MORE[0]]]))


@pytest.mark.wide
def test_a_batch_that_was_begun_is_replaced_unless_it_has_written_state(judge: Judge) -> None:
    written = judge.write(Query(), BATCHES, uncommitted=MORE[0])
    folder = judge.events(written)
    forgets = Forget([f"{folder}/00002.json"])
    with pytest.raises(RefusedError, match="batch 3 was begun"):
        changed(written, forgets)
    end_at_once(written.path)
    assert changed(written, forgets) == 1
    put_events(folder, written.files, MORE[1:])
    assert changed(written, Record([f"{folder}/{written.files:05}.json"])) == 1
    model = Model(written.query)
    model.run(BATCHES)
    # The source has recorded the files of the begun batch, so one batch reads all of them.
    assert rows(judge.restart(written, [])) == rows(model.run([[*BATCHES[-1], *MORE[0]]]))


def test_what_a_retained_batch_reads_again_is_not_trimmed(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    files.remove(checkpoint, *(f"{log}/{number}" for number in range(5) for log in ("offsets", "commits")))
    assert sources(str(checkpoint)).sources[0].position == {"logOffset": 5}
    oldest = json.loads((checkpoint / "offsets/5").read_text().splitlines()[2])["logOffset"]
    log = checkpoint / "sources/0"
    newest = log / str(oldest)
    newest.write_text(newest.read_text().replace("1700000005000", "1700000003500"))
    (log / "6").write_text(
        newest.read_text().replace('"batchId":5', '"batchId":6').replace("00005", "late").replace("3500", "0001")
    )
    (log / ".5.crc").unlink()
    done = edit(checkpoint, Trim("1s", "1s"))
    assert (done.before, done.after) == (7, 4)  # the newest before entry 6 is entry 4
    unread = f"file://{EVENTS}/late.json.not-read"
    assert [json.loads(line) for line in (log / "0").read_text().splitlines()[1:]] == [
        {"path": unread, "timestamp": 1_700_000_004_000, "batchId": -1},  # Spark leaves out what is much older
        {"path": unread, "timestamp": 0, "batchId": 1},
    ]


def test_files_that_are_to_be_read_again_are_not_trimmed(count: Count, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put_each(folder, 8, 6)
    options = {"options": {"maxFileAge": "3d"}, "interval": 10}
    count(folder, checkpoint, **options)
    set_positions(str(checkpoint), {"0": {"logOffset": 2}}, stopped=True)
    assert edit(checkpoint, Trim("3d", "3d")).changed == 2
    assert count(folder, checkpoint, **options) == {f"k{number}": 2 for number in range(3, 8)}


def test_spark_reads_no_moved_file_again_if_the_move_gave_it_another_time(count: Count, tmp_path: Path) -> None:
    folder, moved, checkpoint = tmp_path / "in", tmp_path / "moved", tmp_path / "checkpoint"
    put_each(folder, 6, 6)
    count(folder, checkpoint)
    shutil.copytree(folder, moved, copy_function=shutil.copyfile)
    folder.rename(tmp_path / "old")
    edit(checkpoint, Move(str(folder), str(moved)))
    (moved / "new.json").write_text('{"key": "new"}')
    assert count(moved, checkpoint) == {"new": 1}


def test_a_file_from_the_future_can_be_forgotten(count: Count, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put_each(folder, 3, 1)
    count(folder, checkpoint)
    put(folder, "future.json", 99, "future")
    edit(checkpoint, Record([f"{folder}/future.json"]))
    assert "maxFileAge" in " ".join(rewind(str(checkpoint), 1, dry_run=True, stopped=True).warnings)
    (folder / "future.json").rename(tmp_path / "future.json")
    edit(checkpoint, Forget([f"{folder}/future.json"]))
    put(folder, "new.json", 3, "new")
    assert count(folder, checkpoint) == {"new": 1}


def test_files_that_were_too_old_are_read_when_the_newest_is_forgotten(count: Count, tmp_path: Path) -> None:
    folder, checkpoint, age = tmp_path / "in", tmp_path / "checkpoint", {"options": {"maxFileAge": "1d"}}
    put_each(folder, 3, 0.5)
    count(folder, checkpoint, **age)
    put(folder, "old.json", -0.2, "old")
    assert count(folder, checkpoint, **age) == {}
    for name, changes_age in (("1.json", False), ("2.json", True)):
        report = set_positions(str(checkpoint), log_edits={"0": Forget([f"{folder}/{name}"])}, dry_run=True)
        assert ("also reads files that it has left out" in " ".join(report.warnings)) == changes_age
    edit(checkpoint, Forget([f"{folder}/2.json"]))
    assert count(folder, checkpoint, **age) == {"k2": 2, "old": 1}


def test_a_pattern_beside_others_that_matches_nothing_is_told(tmp_path: Path) -> None:
    checkpoint = str(sample(AGG, tmp_path))
    put(tmp_path, "a.json", 1)

    def told(edit: LogEdit) -> tuple[str, ...]:
        return set_positions(checkpoint, log_edits={"0": edit}, stopped=True, dry_run=True).warnings

    assert told(Forget([f"{EVENTS}/**", "/other/*"])) == ("no recorded file matches /other/*",)
    assert told(Forget([f"{EVENTS}/**"])) == ()
    none, elsewhere, newer = told(Record([f"{tmp_path}/*.json", f"{tmp_path}/*.csv"]))
    assert none == f"no file matches {tmp_path}/*.csv"
    assert f"a.json is not in {EVENTS}/, from which" in elsewhere and "a.json is newer than what" in newer
    put(tmp_path, "a.json", -1)
    assert told(Record([f"{tmp_path}/*.json"])) == (elsewhere,)
    with pytest.raises(UsageError, match=r"none of the recorded files of .* is in .*other"):
        told(Move(EVENTS, f"{tmp_path}/other"))


def test_a_file_of_a_batch_that_was_begun_is_recorded(count: Count, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put_each(folder, 4, 1)
    count(folder, checkpoint)
    files.remove(checkpoint, "commits/3", "state/0/0/4.delta")  # the process ended when the batch was begun
    put(folder, "bad.json", 4, "bad")
    records = Record([f"{folder}/[23].json", f"{folder}/bad.json"])
    (done,) = set_positions(str(checkpoint), log_edits={"0": records}, stopped=True).log_changes
    assert done.changed == 2
    put(folder, "new.json", 4, "new")
    assert count(folder, checkpoint) == {"new": 1}


def test_each_offset_of_a_source_that_is_used_twice_has_its_log(spark: SparkSession, tmp_path: Path) -> None:
    first, second, checkpoint = tmp_path / "first", tmp_path / "second", tmp_path / "checkpoint"
    for number in range(2):
        put(first, f"{number}.json", number, "first")
    for number in range(4):
        put(second, f"{number}.json", number, "second")
    counts: dict[str, int] = {}

    def run() -> dict[str, int]:
        counts.clear()
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "1")
        reader = session.readStream.schema("key string").option("maxFilesPerTrigger", 1)
        twice = reader.json(str(first))
        frame = twice.union(twice).union(reader.json(str(second))).groupBy("key").count()

        def collect(batch: Any, _: int) -> None:
            counts.update({row["key"]: row["n"] for row in batch.selectExpr("key", "count AS n").collect()})

        writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
        writer.foreachBatch(collect).trigger(availableNow=True).start().awaitTermination()
        return counts

    assert run() == {"first": 4, "second": 4}
    found = sources(str(checkpoint)).sources
    assert [source.log and source.log.folder for source in found] == ["sources/0", "sources/0", "sources/1"]
    put(first, "bad.json", 2, "first")
    put(second, "bad.json", 2, "second")
    for name, folder in (("1", first), ("2", second)):
        log_edits = {name: Record([f"{folder}/bad.json"])}
        assert set_positions(str(checkpoint), log_edits=log_edits, stopped=True).log_changes[0].changed == 1
    put(second, "new.json", 4, "second")
    assert run() == {"second": 5}


def test_a_restore_from_before_a_change_says_that_it_is_lost(tmp_path: Path) -> None:
    checkpoint, backup = sample(AGG, tmp_path), tmp_path / "backup"
    copy(str(checkpoint), str(backup))
    put(tmp_path, "in/00003.json", 3)
    moved = Move(EVENTS, f"{tmp_path}/in")
    assert (
        "5 recorded files are not in"
        in set_positions(str(checkpoint), log_edits={"0": moved}, dry_run=True).warnings[0]
    )
    for change in ({"log_edits": {"0": moved}}, {"new_names": {"0": "visits"}}):
        run = set_positions(str(checkpoint), stopped=True, **change).run
        warnings = copy(str(backup), str(checkpoint), replace=True, dry_run=True, stopped=True).warnings
        assert [word for word in warnings if run in word and "the change is lost" in word]
        rollback(str(checkpoint), stopped=True)


def test_a_position_that_is_lost_is_told_under_the_new_name(tmp_path: Path) -> None:
    target = str(sample(AGG, tmp_path))
    set_positions(target, {"0": {"logOffset": 4}}, stopped=True)
    set_positions(target, new_names={"0": "visits"}, stopped=True)
    told = " ".join(rewind(target, 3, dry_run=True, stopped=True).warnings)
    assert f"""ttlsnap sources {target} --set visits --to '{{"logOffset": 4}}'""" in told


def test_a_long_log_is_changed_in_pieces_as_in_one(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    path = checkpoint / "sources/0/2"
    lines = [f'{{"path":"file:///in/{number}.json","timestamp":{number},"batchId":2}}' for number in range(200_000)]
    path.write_text("\n".join(["v1", *lines]))
    (path.parent / ".2.crc").unlink()
    done = set_positions(str(checkpoint), log_edits={"0": Forget(["/in/*[05].json"])}, stopped=True).log_changes[0]
    assert (done.before, done.changed) == (200_005, 40_000)
    rest = [line for line in lines if "0.j" not in line and "5.j" not in line]
    assert path.read_text().splitlines() == ["v1", *rest]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Forget(["/nowhere/*"]), f"no recorded file matches. A recorded path looks like this: {EVENTS}/00005.json"),
        (Move("/nowhere", "/somewhere"), "no recorded file matches"),
        (Record(["/nowhere/*"]), "no file matches /nowhere/*"),
        (Record(["**"]), "** is a relative path. Give the whole path"),
        (Move("/in", "data/in"), "data/in is a relative path"),
        (Move("/in", "/data/../in"), "has a folder named . or .."),
        (Move("/", "/x"), "/ is the root of a file system"),
        (Move("/in", "file:///"), "file:/// is the root of a file system"),
        (Trim("1s", timedelta(seconds=2)), "--older-than 1s is less than --max-file-age 2s"),
    ],
)
def test_what_changes_nothing_is_refused(tmp_path: Path, change: LogEdit, told: str) -> None:
    checkpoint = sample(AGG, tmp_path)
    before = bytes_of(checkpoint)
    with pytest.raises(UsageError) as raised:
        set_positions(str(checkpoint), log_edits={"0": change}, stopped=True)
    assert told in raised.value.message
    assert without_own(bytes_of(checkpoint)) == before


def test_the_number_of_a_source_is_a_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"log_edits is \{0: .*; it must be a dict with texts as keys"):
        set_positions(str(sample(AGG, tmp_path)), log_edits={0: Forget(["/in/*"])}, stopped=True)  # type: ignore[dict-item]


def test_an_empty_folder_of_another_source_makes_no_difference(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    set_positions(str(checkpoint), new_names={"0": "visits"}, stopped=True)
    (checkpoint / "sources/0").mkdir()  # as a start of the query without names leaves it
    log = sources(str(checkpoint)).sources[0].log
    assert log is not None
    assert (log.folder, log.entries) == ("sources/visits", 6)
    change = Forget([f"{EVENTS}/00005.json"])
    set_positions(str(checkpoint), log_edits={"visits": change}, stopped=True)
    log = sources(str(checkpoint)).sources[0].log
    assert log is not None
    assert log.entries == 5


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Forget("/in/*"), r"patterns is the text '/in/\*'; pass a list"),
        (lambda: Record("/in/*"), r"patterns is the text '/in/\*'; pass a list"),
        (lambda: Forget([]), "patterns has none. Give at least one"),
        (lambda: Trim(30, "7d"), "older_than is a timedelta, .*not 30"),  # type: ignore[arg-type]
        (lambda: Trim("30d", timedelta(-1)), "max_file_age must not be negative"),
        (lambda: "/in/*", r"'/in/\*' is not a Forget, Record, Move or Trim"),
    ],
)
def test_other_types_are_explained(tmp_path: Path, make: Callable[[], Any], told: str) -> None:
    checkpoint = sample(AGG, tmp_path)
    with pytest.raises(UsageError, match=told):
        set_positions(str(checkpoint), log_edits={"0": make()}, stopped=True)


def test_a_path_in_another_form_than_sparks_is_not_recorded(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    for path in (checkpoint / "sources/0").glob("[0-9]"):
        path.write_text(path.read_text().replace("file:///tmp", "s3a://bucket"))
        (path.parent / f".{path.name}.crc").unlink()
    put(tmp_path, "in/a.json", 1)
    with pytest.raises(UsageError, match=r"like s3a://bucket/.*Begin the pattern as they do"):
        set_positions(str(checkpoint), log_edits={"0": Record([f"{tmp_path}/in/*"])}, stopped=True)


@pytest.mark.parametrize("name", ["a b.json", "a%20b.json", "ä[1].json"])
def test_files_are_recorded_as_spark_writes_them(tmp_path: Path, name: str) -> None:
    checkpoint = sample(AGG, tmp_path)
    put(tmp_path, f"in/{name}", 1)
    for number, pattern in enumerate([f"{tmp_path}//in/*", f"file://{tmp_path}/in/*"]):
        if number == 0:
            assert edit(checkpoint, Record([pattern])).changed == 1
        else:
            with pytest.raises(UsageError, match="all files that match are recorded already"):
                edit(checkpoint, Record([pattern]))
    line = (checkpoint / "sources/0/0").read_text().splitlines()[1]
    assert json.loads(line)["path"] == f"file://{encoded(str(tmp_path))}/in/{encoded(name)}"
    (tmp_path / "in/all").symlink_to("..")
    with pytest.raises(RefusedError, match=r"in/all is a symbolic link"):
        edit(checkpoint, Record([f"{tmp_path}/in/**"]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-4],
        lambda text: text.replace('"timestamp":1700000003000', '"timestamp":null'),
        lambda text: text.replace("batchId", "batchNo"),
        lambda text: text.replace("00003.json", "\udcff.json"),
        lambda text: "",
        lambda text: "v1\n",
    ],
)
def test_a_damaged_log_is_not_changed(tmp_path: Path, damage: Callable[[str], str]) -> None:
    checkpoint = sample(AGG, tmp_path)
    path = checkpoint / "sources/0/3"
    path.write_text(damage(path.read_text()), errors="surrogateescape")
    (path.parent / ".3.crc").unlink()
    before = bytes_of(checkpoint)
    with pytest.raises(CorruptionError, match="sources/0/3"):
        set_positions(str(checkpoint), log_edits={"0": Forget([f"{EVENTS}/*"])}, stopped=True)
    assert without_own(bytes_of(checkpoint)) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--trim", "0"), "--trim needs --older-than and --max-file-age"),
        (
            ("--forget", "0", "--files", "/tmp/ttlsnap-samples/", "--yes"),
            "For all files in a folder: '/tmp/ttlsnap-sam",
        ),
        (("--forget", "0", "--files", "/{a,b}", "--yes"), "Braces have no meaning"),
        (("--forget", "0", "--files", "00001.json", "--yes"), "is a relative path"),
        (("--record", "0", "--files", "/nowhere", "--yes"), "The files must exist"),
        (("--set", "0", "--to", "3"), 'Write one like {"logOffset": 5}'),
        (("--rename", "0"), "such as 0=visits"),
        (("--trim", "0", "--older-than", "30d"), "--trim needs --max-file-age"),
        (("--files", "x"), "--files needs --recorded or --forget or --record"),
        (("--moved", "0", "--root", "/a"), "--root /a: write the whole paths of two folders, as /old=/new"),
        (("--moved", "0", "--root", "/a=1=/b/a=1", "--yes"), "no recorded file matches"),
        (("--forget", "0", "--files", "x", "--trim", "0"), "give only one of"),
        (("--forget", "0", "--files", "x", "--set", "0", "--to", "1"), "give only one of"),
        (("--forget", "9", "--files", "x"), "the query has no source 9"),
        (("--forget", "0", "--files", f"{EVENTS}/*"), "To agree, add --yes"),
    ],
)
def test_wrong_options_are_explained(ttlsnap: Ttlsnap, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    checkpoint = sample(AGG, tmp_path)
    before = bytes_of(checkpoint)
    refused = ttlsnap("sources", str(checkpoint), *words, "--stopped")
    assert refused.code in (2, 4)
    assert told in " ".join(refused.err.split())
    assert without_own(bytes_of(checkpoint)) == before


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("/in/*.json", "/in/a.json", True),
        ("/in/*.json", "/in/b/a.json", False),
        ("/in/**/*.json", "/in/a.json", True),
        ("/in/**/*.json", "/in/b/c/a.json", True),
        ("/in/**", "/in/b/c/a.json", True),
        ("/in/**", "/inside/a.json", False),
        ("/in/[!a]?.json", "/in/bc.json", True),
        ("/in/[!a]?.json", "/in/ac.json", False),
        ("/in/[^a]?.json", "/in/bc.json", True),
        ("/in/[^a]?.json", "/in/ac.json", False),
        ("/in/[[]1.json", "/in/[1.json", True),
        ("/in/a+(b).json", "/in/a+(b).json", True),
        ("file:///in/a.json", "/in/a.json", True),
        ("s3a://b/**", "s3a://b/x/y", True),
    ],
)
def test_patterns_match_as_in_a_shell(pattern: str, name: str, is_match: bool) -> None:
    assert matcher([pattern])(name) is is_match


def test_names_are_encoded_as_java_does() -> None:
    name = "/in/a b%c#d?é[1]{2}\u00a0\u2028.json"
    assert encoded(name) == "/in/a%20b%25c%23d%3Fé%5B1%5D%7B2%7D%C2%A0%E2%80%A8.json"
    assert readable(f"file://{encoded(name)}") == name
