"""``set_positions``: a query goes on at other positions, with the state that it has. Real Spark is the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ttlsnap import Forget, Record, copy, doctor, rewind, rollback, set_positions
from ttlsnap.checkpoint.logs import named_positions
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.storage.open import open_directory

from ..cli.running import Ttlsnap
from ..compaction.stories import BATCHES, MORE, rocksdb, settled
from ..judge.model import Model
from ..judge.outcomes import Batch
from ..judge.queries import Query, rated
from ..judge.spark import Judge
from ..publishing.idle import ends_untouched
from ..publishing.trees import end_at_once, newest, tree
from ..samples import sample


def rows(batches: list[Batch]) -> list[tuple[str, ...]]:
    """Return what each batch with rows gave to the sink."""
    return [batch.rows for batch in batches if batch.rows]


def results(batches: list[Batch]) -> dict[str, str]:
    """Return the last row of each key."""
    return {json.loads(row)["key"]: row for batch in batches for row in batch.rows}


def before(checkpoint: Path, batches: int) -> dict[str, Any]:
    """Return the positions before the last batches."""
    return named_positions(open_directory(str(checkpoint)), newest(checkpoint / "commits") - batches)


FILES = "2 files are read again"
CASES = [
    pytest.param(Query(), FILES, id="files"),
    *(
        pytest.param(query, meaning, id=name, marks=pytest.mark.wide)
        for name, query, meaning in [
            ("rocksdb", rocksdb("agg_update", True, 2), FILES),
            ("delta", Query(source="delta"), "it goes back to"),
            ("rate-micro-batch", Query(source="rate-micro-batch"), "40 rows are read again"),
        ]
    ),
]


@pytest.mark.parametrize(("query", "meaning"), CASES)
def test_what_is_read_again_is_counted_again(judge: Judge, tmp_path: Path, query: Query, meaning: str) -> None:
    makes_rows = query.source == "rate-micro-batch"
    batches, more = ([rated(n) for n in range(4)], [rated(4)]) if makes_rows else (BATCHES, MORE)
    written = judge.write(query, batches, layout="both" if query.provider == "rocksdb" else "deltas")
    settled(written.path)
    old, positions = tree(written.path), before(written.path, 2)
    report = set_positions(str(written.path), positions, stopped=True)
    assert report.changes[0].meaning[0].startswith(meaning)
    assert [problem.code for problem in doctor(str(written.path)).problems] == ["planned-batch"]
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == old
    set_positions(str(written.path), positions, stopped=True)
    clone = judge.at(written, tmp_path / "clone")
    copy(str(written.path), str(clone.path), new_id=True)
    assert not doctor(str(clone.path)).problems
    model, again = written.expected, batches[-2:]
    cloned = results(judge.restart(clone, again if makes_rows else []))
    # What the log of a source of files has already comes in one batch.
    assert results(judge.restart(written, again if makes_rows else [])) == cloned == results(model.run(again))
    later = results(judge.restart(written, more, fresh=True))
    assert later == results(model.run(more))
    assert judge.state(written) == model.state()
    told = " ".join(rewind(str(written.path), report.batch, stopped=True).warnings)
    assert f"gave to source 0 after batch {report.batch} stays" in told
    assert ("To look first: --table 0=PATH" in told) == (query.source == "delta")
    assert makes_rows or results(judge.restart(written, [])) == {**cloned, **later}


@pytest.mark.wide
def test_an_idle_query_stops(judge: Judge) -> None:
    written = judge.write(Query(), BATCHES[:-1])
    assert judge.start(written, BATCHES[-1:]) == written.expected.run(BATCHES[-1:])
    settled(written.path)
    set_positions(str(written.path), before(written.path, 1), stopped=True)
    ends_untouched(judge, written, list(MORE[0]))
    model = written.expected
    again = [[*BATCHES[-1], *MORE[0]]]  # the source has recorded both files, so one batch reads them
    assert rows(judge.restart(written, [])) == rows(model.run(again))
    assert rows(judge.restart(written, MORE[1:])) == rows(model.run(MORE[1:]))


def test_a_batch_that_was_begun_is_replaced_unless_it_has_written_state(judge: Judge) -> None:
    written = judge.write(Query(), BATCHES, uncommitted=MORE[0])
    target = str(written.path)
    old = tree(written.path)
    with pytest.raises(RefusedError, match=rf"batch 3 was begun .* ttlsnap rewind {target} --batch 2 --stopped"):
        set_positions(target, before(written.path, 1), stopped=True)
    assert tree(written.path) == old
    old = tree(end_at_once(written.path))
    set_positions(target, before(written.path, 1), stopped=True)
    assert [problem.code for problem in doctor(target).problems] == ["uncommitted-batch"]
    rollback(target, stopped=True)
    assert tree(written.path) == old
    set_positions(target, before(written.path, 1), stopped=True)
    model = Model(written.query)
    model.run(BATCHES)
    assert rows(judge.restart(written, [])) == rows(model.run([[*BATCHES[-1], *MORE[0]]]))


def test_going_back_to_before_a_change_says_that_it_is_lost(
    ttlsnap: Ttlsnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    target = str(checkpoint)
    words = "after batch 3, ttlsnap sources set the position of source 0"
    events = "/tmp/ttlsnap-samples/events/0002"
    (tmp_path / "new.json").touch()
    for change, is_lost in (
        ({"positions": {"0": {"logOffset": 4}}}, True),
        ({"log_edits": {"0": Forget([f"{events}/00001.json"])}}, False),
        ({"log_edits": {"0": Record([f"{tmp_path}/new.json"])}}, False),
        ({"new_names": {"0": "visits"}}, False),
    ):
        run = set_positions(target, stopped=True, **change).run
        told = rewind(target, 3, dry_run=True, stopped=True).warnings
        assert [warning for warning in told if words in warning] == [warning for warning in told if run in warning]
        assert any(run in warning for warning in told) is is_lost
        rollback(target, stopped=True)
        assert not any(run in warning for warning in rewind(target, 3, dry_run=True, stopped=True).warnings)
    backups = {word: str(tmp_path / word) for word in ("is lost", "stays")}
    copy(target, backups["is lost"])
    set_positions(target, {"0": {"logOffset": 4}}, stopped=True)
    copy(target, backups["stays"])
    for word, backup in backups.items():
        assert word in " ".join(copy(backup, target, replace=True, dry_run=True, stopped=True).warnings)
    repeat = f"""ttlsnap sources {target} --set 0 --to '{{"logOffset": 4}}'"""
    assert repeat in " ".join(rewind(target, 3, dry_run=True, stopped=True).warnings)
    assert """--set 0 --to '{"logOffset": 4}'""" in ttlsnap("history", target).out
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda question, **_: True)
    foreseen = ttlsnap("rewind", target, "--batch", "3", "--stopped", "--dry-run")
    assert "source 0: 1 file is read again" in foreseen.out + foreseen.err
    done = ttlsnap("rewind", target, "--batch", "3", "--stopped")
    assert done.code == 0
    assert " ".join(done.err.split()).count(words) == 1


def test_a_source_of_files_does_not_go_back_to_an_entry_without_those_after_it(tmp_path: Path) -> None:
    """After a rewind, an earlier ``.compact`` file has only a line that no batch reads."""
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    log = checkpoint / "sources/0"
    lines = [(log / str(number)).read_text().splitlines()[1] for number in range(6)]
    for path in [*log.glob("[0-9]*"), *log.glob(".*.crc")]:
        path.unlink()
    for number in (2, 5):
        (log / f"{number}.compact").write_text("\n".join(["v1", *lines[: number + 1]]))
    with pytest.raises(
        UsageError, match=r"sources/0 has no file of entry 3 any more, so the source cannot go back to entry 2"
    ):
        set_positions(str(checkpoint), {"0": {"logOffset": 2}}, stopped=True)
