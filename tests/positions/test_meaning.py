"""What is accepted as a new position, what it means, and how ``sources --set`` asks and reports."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import Drop, EntryTransformerFactory, Keep, compact, copy, doctor, rewind, rollback, set_positions, sources
from ttlsnap.checkpoint.logs import parse_offset, with_offsets
from ttlsnap.errors import UsageError
from ttlsnap.positions.meaning import as_offset, explain, parse_position

from ..backups.sources import read_one_source_twice
from ..cli.running import Ttlsnap
from ..publishing.trees import end_at_once, newest
from ..samples import UNPLANNABLE, bytes_of, sample, without_own

AGG = "agg-deltas-lz4-4.2"
DELTA = {"sourceVersion": 1, "reservoirId": "3bffe7c2", "reservoirVersion": 4, "index": 8, "isStartingVersion": False}
KINESIS = {"metadata": {"streamName": "s"}, "shard-0": {"iteratorType": "LATEST", "iteratorPosition": ""}}
VISITS = {"visits": {"0": 17, "1": 4}}


@pytest.mark.parametrize(
    ("before", "after", "meaning"),
    [
        (VISITS, {"visits": {"0": 17, "1": 4}}, []),
        (
            VISITS,
            {"visits": {"0": 5, "1": 10, "2": 7}},
            [
                "visits: 12 offsets are read again",
                "visits: 6 offsets are never read",
                "visits: partition 2 is read from offset 7",
            ],
        ),
        (
            VISITS,
            {"visits": {"0": 17, "1": None}},
            ["visits: partition 1 has no position any more. If the topic has it, Spark reads all of it"],
        ),
        (
            VISITS,
            {"new": {"0": 0}},
            [
                "visits has no position any more. If the query still reads this topic, Spark reads all of it",
                "a new topic: new: next offset 0 of partition 0",
            ],
        ),
        (
            {**VISITS, "clicks": {"0": 1}},
            {**VISITS, "clicks": None},
            ["clicks has no position any more. If the query still reads this topic, Spark reads all of it"],
        ),
        ({"logOffset": 5}, {"logOffset": 3}, ["the files of 2 entries of its log are read again"]),
        (17, 12, ["it goes back by 5 steps"]),
        (17, 18, ["it skips 1 step"]),
        (DELTA, {**DELTA, "index": -1}, ["it goes back to version 4: nothing of it is read yet"]),
        (
            DELTA,
            {**DELTA, "reservoirVersion": 9, "index": -1, "isStartingVersion": True},
            ["all rows of the table are read again: the whole table as of version 9: nothing of it is read yet"],
        ),
        (
            DELTA,
            {**DELTA, "reservoirVersion": 9},
            ["what comes before this is never read: version 9: 9 files are read"],
        ),
        (
            {**DELTA, "isStartingVersion": True},
            {**DELTA, "reservoirVersion": 2, "index": -1},
            [
                "it has read only a part of the table as of version 4. The rest is never read",
                "what the versions 2 to 4 have added is read, also if it has read this already",
            ],
        ),
        (
            {**DELTA, "isStartingVersion": True},
            {**DELTA, "reservoirVersion": 5, "index": -1},
            [
                "it has read only a part of the table as of version 4. The rest is never read",
                "what comes before this is never read, either: version 5: nothing of it is read yet",
            ],
        ),
        (
            {"offset": 30, "timestamp": 30_000},
            {"offset": 10, "timestamp": 10_000},
            ["20 rows are read again", "the next row has the time 1970-01-01T00:00:10.000Z"],
        ),
        ({"offset": 30, "timestamp": 0}, {"offset": 31, "timestamp": 0}, ["1 row is never read"]),
        (DELTA, {**DELTA, "reservoirId": "x", "index": -1}, ["another table: version 4: nothing of it is read yet"]),
        (
            KINESIS,
            {**KINESIS, "shard-0": {"iteratorType": "TRIM_HORIZON"}},
            ["ttlsnap does not know what rows lie between the two positions of such a source"],
        ),
    ],
)
def test_what_a_position_means(before: Any, after: Any, meaning: list[str]) -> None:
    assert explain(before, parse_position("0", before, after)) == meaning


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, 5, "has no position yet"),
        (
            VISITS,
            5,
            "not a position of a source of the kind Kafka, or Event Hubs; it has the form of one of a number",
        ),
        (VISITS, {"visits": {"0": 1}}, "has topic visits without its partition 1. .* null for one that is gone"),
        ({**VISITS, "clicks": {"0": 1}}, VISITS, "has no topic clicks. .* for every topic, and null"),
        (VISITS, {"visits": {"0": 1, "1": -2}}, "partition 1 of visits has the offset -2"),
        (VISITS, {"visits": {"0": 1, "1": "earliest"}}, "this is not a position .* Write one like"),
        (VISITS, {"visits": None}, "has no offset. Give at least one"),
        (VISITS, {"visits": {"0": None, "1": None}}, "has no offset. Give at least one"),
        (VISITS, {}, "has no offset. Give at least one"),
        (VISITS, "earliest", "this is not a position .* Write one like"),
        ({"logOffset": 5}, {"logOffset": 6}, "can only go back, here from entry 5.* ttlsnap rollback"),
        (
            {"logOffset": 5},
            "earliest",
            r"one like .*logOffset.*: earliest, latest and times are only possible for Kafka and Delta",
        ),
        ({"logOffset": 5}, {"logOffset": -1}, "logOffset has the offset -1"),
        (17, -1, "it has the offset -1"),
        (DELTA, {**DELTA, "reservoirVersion": -1}, "reservoirVersion has the offset -1"),
        ({"lsn": 7}, 7, "not a position of a source of the kind unknown; it has the form of one of a number"),
        ({"lsn": 7}, "7", "this is not a position .* Write one like"),
        ({"lsn": 7}, {"lsn": float("nan")}, "is not JSON"),
        ({"lsn": 7}, {"lsn": datetime.now(UTC)}, "is not JSON"),
        ({"lsn": 7}, {"lsn": "\ud800"}, "is not JSON"),
        (VISITS, {"visits": {"0": 1 << 63, "1": 4}}, "partition 0 of visits has the offset 9223372036854775808"),
        (DELTA, {**DELTA, "sourceVersion": 3}, "the sourceVersion of its offsets is 1"),
    ],
)
def test_what_cannot_be_a_position_is_refused(before: Any, after: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"source 0.*{words}"):
        parse_position("0", before, after)


@pytest.mark.parametrize(
    ("position", "old_offset", "text"),
    [({"a": "é"}, '{"a":1}', '{"a":"é"}'), ("lsn:8", "lsn:7", "lsn:8"), ("8", '"7"', '"8"'), (18, "17", "18")],
)
def test_an_offset_stands_in_the_log_as_before(position: Any, old_offset: str, text: str) -> None:
    assert as_offset("0", parse_position("0", parse_offset(old_offset), position), old_offset) == text


@pytest.mark.parametrize("position", ["", "-", "a\nb", " a", "a" * 1_100_000, "a\u2028b"])
def test_a_text_that_cannot_stand_in_the_log_is_refused(position: str) -> None:
    with pytest.raises(UsageError, match="source 0: the new position"):
        as_offset("0", position, "lsn:7")


def test_numbers_of_partitions_may_be_numbers() -> None:
    assert parse_position("0", VISITS, {"visits": {0: 1, 1: 2}}) == {"visits": {"0": 1, "1": 2}}


def test_an_offset_is_replaced_by_the_name_of_its_source() -> None:
    assert with_offsets('v1\n{}\n{"a":1}\n-\n5', {"2": "6"}) == 'v1\n{}\n{"a":1}\n-\n6'
    assert with_offsets('v2\n{}\nclicks:{"a":1}\n0:5', {"0": "6"}) == 'v2\n{}\nclicks:{"a":1}\n0:6'


def test_a_source_that_the_query_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the query has no source 1\. Its sources: 0"):
        set_positions(str(sample(AGG, tmp_path)), {"1": 5}, stopped=True)


def refuses_a_planned_batch(checkpoint: Path, ttlsnap: Ttlsnap) -> None:
    """Assert that no position can be set, with a planned batch or without one."""
    before = bytes_of(checkpoint)
    (source,) = sources(str(checkpoint)).sources
    words = ("sources", checkpoint, "--set", source.name, "--to", '{"logOffset":0}', "--stopped", "--yes")
    for options in ((), ("--no-planned-batch",)):
        assert ttlsnap(*words, *options).code == 4
        assert without_own(bytes_of(checkpoint)) == before


@pytest.mark.parametrize("name", UNPLANNABLE)
def test_a_query_that_cannot_run_a_planned_batch_is_refused(tmp_path: Path, ttlsnap: Ttlsnap, name: str) -> None:
    refuses_a_planned_batch(sample(name, tmp_path), ttlsnap)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "0"), "one --to for each --set"),
        (("--to", "5"), "one --to for each --set"),
        (("--set", "0", "--set", "0", "--to", "5", "--to", "6"), "name it only once"),
        (("--set", "0", "--to", "missing.json"), "--to missing.json: cannot read this file"),
        (("--set", "0", "--to", "{"), "this is not valid JSON"),
        (("--set", "0", "--to", '{"name": "0", "position": {"logOffset": 3}}'), "give only what"),
        (("--set", "0", "--to", "5", "--bootstrap-servers", "127.0.0.1:1"), "the query has no source of Kafka"),
        (("--bootstrap-servers", "127.0.0.1:1"), "the query has no source of Kafka"),
        (("--yes",), "--yes needs an option that changes a source"),
        (("--dry-run", "--exit-code"), "--dry-run needs an option that changes a source"),
        (("--set", "0", "--to", "5", "--exit-code"), "--exit-code needs --dry-run"),
    ],
)
def test_wrong_options_change_nothing(tmp_path: Path, ttlsnap: Ttlsnap, options: tuple[str, ...], words: str) -> None:
    checkpoint = sample(AGG, tmp_path)
    before = bytes_of(checkpoint)
    ended = ttlsnap("sources", checkpoint, *options)
    assert (ended.code, words in " ".join(ended.err.split())) == (2, True), ended.err
    assert bytes_of(checkpoint) == before


def test_a_dry_run_says_what_a_run_does(tmp_path: Path, ttlsnap: Ttlsnap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    checkpoint, position = sample(AGG, tmp_path), tmp_path / "position.json"
    position.write_text('{"logOffset": 3}\n')
    (checkpoint / "commits/6").touch()
    before = bytes_of(checkpoint)
    words = ("sources", checkpoint, "--set", "0", "--to", position)
    foreseen = ttlsnap(*words, "--dry-run", "--exit-code")
    assert (foreseen.code, "a run would be refused now" in " ".join(foreseen.err.split())) == (4, True)
    assert "2 files are read again" in foreseen.out
    for consent, code in (((), 4), (("--yes",), 0)):
        assert ttlsnap(*words, "--dry-run", "--stopped", "--exit-code", *consent).code == code
    assert bytes_of(checkpoint) == before
    asked = ttlsnap(*words, "--stopped")
    assert (asked.code, "nobody can be asked" in " ".join(asked.err.split())) == (4, True)
    assert without_own(bytes_of(checkpoint)) == before
    done = json.loads(ttlsnap(*words, "--stopped", "--yes", "--format", "json").out)
    assert (done["published"], done["batch"], done["changes"][0]["after"]) == (True, 6, {"logOffset": 3})
    again = ttlsnap(*words, "--stopped", "--yes")
    assert (again.code, "at these positions already" in again.out) == (0, True)


def test_a_compaction_before_it_and_one_after_it(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    checkpoint = sample(AGG, tmp_path)
    rule = ("--timestamp", "value.max", "--now", "2027-06-01T00:00:00Z", "--max-drop", "100%", "--engine", "local")
    drops = EntryTransformerFactory(lambda key, value: Drop() if value["count"] == 1 else Keep())
    first = compact(str(checkpoint), [drops], stopped=True, max_drop=1.0)
    assert first.published and first.totals.kept
    assert ttlsnap("sources", checkpoint, "--set", "0", "--to", '{"logOffset":3}', "--stopped", "--yes").code == 0
    before = without_own(bytes_of(checkpoint))
    published = checkpoint / "state/0/0/7.snapshot"
    data, times = published.read_bytes(), published.stat()
    published.unlink()  # the first compaction has published it
    assert "published-file-missing" in {problem.code for problem in doctor(str(checkpoint)).problems}
    published.write_bytes(data)
    os.utime(published, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert ttlsnap("compact", checkpoint, "--ttl", "1s", *rule, "--stopped", "--yes").code == 0
    assert sources(str(checkpoint)).sources[0].next_position == {"logOffset": 3}
    assert ttlsnap("rollback", checkpoint, "--stopped").code == 0
    assert without_own(bytes_of(checkpoint)) == before
    assert ttlsnap("doctor", checkpoint).code == 0


def test_a_copy_has_offsets_with_which_spark_starts(tmp_path: Path) -> None:
    checkpoint, backup = sample(AGG, tmp_path), tmp_path / "backup"
    set_positions(str(checkpoint), {"0": {"logOffset": 1}}, stopped=True)
    copy(str(checkpoint), str(backup), verify=True)
    assert not doctor(str(backup)).problems
    # Spark reads both when it starts, and a source of files must not go back.
    assert [(backup / f"offsets/{batch}").read_text().splitlines()[-1] for batch in (5, 6)] == ['{"logOffset":1}'] * 2
    rollback(str(checkpoint), stopped=True)
    copy(str(checkpoint), str(tmp_path / "second"))
    assert (tmp_path / "second/offsets/5").read_bytes() == (checkpoint / "offsets/5").read_bytes()


def test_a_source_that_may_be_used_twice_gets_one_position(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    read_one_source_twice(checkpoint, lambda batch: (batch, batch, batch // 2))
    before = bytes_of(checkpoint)
    with pytest.raises(UsageError, match="sources 0 and 1 have had the same offset after each batch"):
        set_positions(str(checkpoint), {"0": {"logOffset": 3}}, stopped=True)
    assert without_own(bytes_of(checkpoint)) == before
    set_positions(str(checkpoint), {"2": {"logOffset": 1}}, stopped=True)  # which has a log of its own
    set_positions(str(checkpoint), {"0": {"logOffset": 3}, "1": {"logOffset": 3}}, stopped=True)
    assert [source.position["logOffset"] for source in sources(str(checkpoint)).sources] == [3, 3, 1]


def test_a_begun_batch_is_not_replaced_by_one_that_spark_cannot_run(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    checkpoint = sample("offsets-v2-4.2", tmp_path)
    last = newest(checkpoint / "offsets")
    (checkpoint / f"commits/{last}").unlink()
    refuses_a_planned_batch(end_at_once(checkpoint), ttlsnap)


def test_the_batch_after_a_position_is_not_removed_as_torn(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    checkpoint = sample(AGG, tmp_path)
    set_positions(str(checkpoint), {"0": {"logOffset": 2}}, stopped=True)
    (checkpoint / "offsets/7").write_bytes(b"")
    refused = ttlsnap("doctor", checkpoint, "--fix", "torn-offset", "--stopped")
    advice = f"ttlsnap rewind {checkpoint} --batch 6 --stopped"
    assert (refused.code, advice in " ".join(refused.err.split())) == (4, True), refused.err
    assert ttlsnap(*advice.split()[1:], "--yes").code == 0
    assert ttlsnap("doctor", checkpoint).code == 0


def test_different_sources_of_files_in_lockstep_are_set_one_by_one(tmp_path: Path) -> None:
    checkpoint = sample("join-4.2", tmp_path)
    positions = [source.position["logOffset"] for source in sources(str(checkpoint)).sources]
    assert len(positions) == 2 and positions[0] == positions[1] > 0
    set_positions(str(checkpoint), {"1": {"logOffset": 0}}, stopped=True)
    assert [source.position["logOffset"] for source in sources(str(checkpoint)).sources] == [positions[0], 0]
    assert not [problem for problem in doctor(str(checkpoint)).problems if problem.severity == "error"]


def test_entries_that_a_rewind_has_added_have_no_files(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    checkpoint = sample(AGG, tmp_path)
    rewind(str(checkpoint), 3, stopped=True)
    assert sources(str(checkpoint)).restored_batch == 3
    for entry, meaning in ((2, "1 file is read again"), (3, "0 files are read again")):
        report = set_positions(str(checkpoint), {"0": {"logOffset": entry}}, stopped=True, dry_run=entry == 2)
        assert report.changes[0].meaning == (meaning,)
    assert sources(str(checkpoint)).restored_batch is None
    assert "batch 7 is planned" in ttlsnap("sources", checkpoint).out
    undone = ttlsnap("rollback", checkpoint, "--stopped")
    assert (undone.code, "The positions and names of its sources are those from before the run." in undone.out) == (
        0,
        True,
    )
