"""Broken checkpoints as real Spark, a crash or a person makes them: doctor finds the problem, and --fix repairs it.

After a repair the query resumes.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..compaction.stories import BATCHES, MORE, VISITS, digest, rocksdb, settled
from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from ..publishing.trees import end_halfway
from .asked import Answer, doctor
from .repartitions import abandon, cut_off


def fix(target: Path, name: str) -> Answer:
    """Repair a checkpoint. In a copy, roll the repair back and require every byte to be restored."""
    before = digest(target)
    gives_up = name == "last-batch-lost"
    back = target.with_name(f"{target.name}-back")
    shutil.copytree(target, back)
    if name != "moved-schema-paths":  # a copy is one that moved
        for place in (back, target):
            answer = doctor(place, "--fix", name, "--stopped", *(["--yes"] if gives_up else []))
            assert answer.document["fixed"] == [name], answer.error
        assert run(["rollback", str(back), "--stopped"]) == 0
        assert digest(back) == before
        return answer
    return doctor(target, "--fix", name, "--stopped")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("changelog", "checkpoint_format"), [(True, 1), *([(False, 1), (True, 2), (False, 2)] if FULL else [])]
)
def test_an_interrupted_repartition_is_found_and_repaired(
    judge: Judge, changelog: bool, checkpoint_format: int
) -> None:
    written = judge.write(
        rocksdb("agg_update", changelog, checkpoint_format), BATCHES, layout="deltas" if changelog else "snapshot"
    )
    settled(written.path)
    finished, shrunk = judge.copy(written), judge.copy(written)
    for each in (written, finished):
        cut_off(judge, each, 4)
    settled(written.path)
    assert "STREAMING_UNFINISHED_REPARTITION_DETECTED" in judge.refusal(written)
    settled(written.path)
    found = doctor(written.path)
    assert (found.code, found.codes) == (1, ["unfinished-repartition"])
    assert "repartition(checkpoint, 4)" in found.problem("unfinished-repartition")["fix"]
    assert set(found.restorable.values()) == {True}

    given_up = judge.copy(written)
    abandon(given_up.path)
    found = doctor(given_up.path)
    assert (found.code, found.codes) == (1, ["abandoned-repartition"])
    went_on = judge.copy(given_up)

    assert fix(written.path, "unfinished-repartition").code == 0
    assert fix(given_up.path, "abandoned-repartition").code == 0
    for each in (written, given_up):
        wanted = each.expected.run(MORE)
        # The second process reads the files of the first one. A stale snapshot would do harm there.
        assert judge.restart(each, MORE[:1]) + judge.restart(each, MORE[1:], fresh=True) == wanted
        assert doctor(each.path).code == 0

    if changelog and FULL:
        wanted = went_on.expected.run(MORE)
        assert judge.restart(went_on, MORE[:1]) == wanted[:1]
        settled(went_on.path)
        found = doctor(went_on.path)
        assert (found.code, found.codes) == (1, ["abandoned-repartition"])
        assert fix(went_on.path, "abandoned-repartition").code == 0
        assert judge.restart(went_on, MORE[1:], fresh=True) == wanted[1:]

    judge.repartition(finished, 4)
    judge.repartition(shrunk, 1)
    for each in (finished, shrunk):
        settled(each.path)
        found = doctor(each.path)
        assert (found.code, found.codes) == (0, []), found.document["problems"]
        assert set(found.restorable.values()) == {True}
        wanted = each.expected.run(MORE[:1])
        got = judge.restart(each, MORE[:1])
        assert [batch.rows for batch in got] == [batch.rows for batch in wanted]
        settled(each.path)
        assert doctor(each.path).code == 0


def test_a_query_resumed_after_an_abandoned_repartition_is_not_repaired(judge: Judge) -> None:
    written = judge.write(rocksdb("agg_update", True), BATCHES)
    settled(written.path)
    cut_off(judge, written, 4)
    abandon(written.path)
    wanted = written.expected.run(MORE)
    assert judge.restart(written, MORE[:1]) == wanted[:1]
    assert judge.restart(written, MORE[1:], fresh=True) != wanted[1:], "Spark has lost state without a word"
    settled(written.path)
    found = doctor(written.path)
    assert (found.code, found.codes) == (1, ["resumed-repartition"])
    answer = doctor(written.path, "--fix", "resumed-repartition", "--stopped")
    assert answer.code == 4 and "cannot repair this safely" in answer.error


@pytest.mark.wide
def test_a_repartition_to_fewer_partitions_that_was_given_up_is_found_and_repaired(judge: Judge) -> None:
    written = judge.write(rocksdb("agg_update", True), BATCHES)
    judge.repartition(written, 1)
    abandon(written.path)
    for name in ("3", ".3.crc"):  # as if Spark had ended before it wrote this
        (written.path / "commits" / name).unlink()
    settled(written.path)
    before = judge.copy(written)
    found = doctor(before.path)
    assert (found.code, found.codes) == (1, ["abandoned-repartition"])

    again = [MORE[0], MORE[0]]  # all keys of one batch in the next one
    wanted = written.expected.run(again)
    assert judge.restart(written, again[:1]) == wanted[:1]
    settled(written.path)
    lost = judge.copy(written)
    assert judge.restart(lost, again[1:], fresh=True) != wanted[1:], "Spark has lost state without a word"
    found = doctor(written.path)
    assert (found.code, found.codes) == (1, ["stale-snapshot"])
    assert fix(written.path, "stale-snapshot").code == 0
    assert judge.restart(written, again[1:], fresh=True) == wanted[1:]
    assert doctor(written.path).code == 0


def test_a_moved_checkpoint_is_found_and_repaired(judge: Judge) -> None:
    written = judge.write(rocksdb("visits", True), VISITS[:3], layout="both")
    settled(written.path)
    assert doctor(written.path).code == 0
    new = written.path.with_name(f"{written.path.name}-new place")
    written.path.rename(new)
    moved = judge.at(written, new)
    assert "_stateSchema" in judge.refusal(judge.copy(moved, at_home=False), VISITS[3:4], fresh=True)
    shutil.rmtree(written.path)  # Spark has made folders where it looked for the files
    found = doctor(new)
    assert (found.code, set(found.codes)) == (1, {"moved-schema-paths"})
    assert fix(new, "moved-schema-paths").code == 0
    wanted = moved.expected.run(VISITS[3:])
    assert judge.restart(moved, VISITS[3:], fresh=True) == wanted
    assert not written.path.exists()


@pytest.mark.parametrize(
    "query", [Query(), *([rocksdb("agg_update", True), rocksdb("agg_update", True, 2)] if FULL else [])]
)
def test_a_missing_delta_is_found_and_repaired(judge: Judge, query: Query) -> None:
    written = judge.write(query, BATCHES[:2])
    model = copy.deepcopy(written.expected)
    last = written.expected.run(BATCHES[2:])
    assert judge.restart(written, BATCHES[2:]) == last
    settled(written.path)
    for path in [*written.path.glob("state/0/1/3*.delta"), *written.path.glob("state/0/1/3*.changelog")]:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()
    found = doctor(written.path)
    assert (found.code, found.codes) == (1, ["missing-delta", "last-batch-lost"])
    assert found.restorable == {3: False, 2: True, 1: True}
    assert "state/0/1/3" in found.problem("missing-delta")["message"]
    assert judge.refusal(judge.copy(written), MORE[:1], fresh=True)
    fixed = fix(written.path, "last-batch-lost")
    assert (fixed.code, fixed.codes) == (0, ["planned-batch"])
    assert (fixed.document["batch"], fixed.restorable) == (2, {3: True})
    got = judge.restart(written, MORE, fresh=True)
    # What the lost batch had read is read again, and later batches are as without the damage.
    assert model.run(BATCHES[2:]) == last
    assert [batch.rows for batch in got if batch.rows] == [batch.rows for batch in last + model.run(MORE) if batch.rows]
    assert judge.state(written) == model.state()
    assert doctor(written.path).code == 0


def test_a_torn_offset_is_found_and_repaired(judge: Judge) -> None:
    written = judge.write(Query(), BATCHES, uncommitted=MORE[0])
    settled(end_halfway(written.path))
    # A power cut leaves an empty file if its name was synced and its bytes were not.
    (written.path / "offsets/3").write_bytes(b"")
    (written.path / "offsets/.3.crc").unlink()
    assert judge.refusal(judge.copy(written))
    found = doctor(written.path)
    assert (found.code, found.codes) == (1, ["torn-offset"])
    assert fix(written.path, "torn-offset").code == 0
    written.expected.run(MORE[1:])
    # The input of the interrupted batch and the new input come in one batch.
    (batch,) = judge.restart(written, MORE[1:], fresh=True)
    assert batch.batch == 3
    assert judge.state(written) == written.expected.state()


@pytest.fixture(scope="module")
def sound(inputs: Judge) -> Checkpoint:
    """Return a sound checkpoint. Tests damage copies of it."""
    written = inputs.write(Query(), BATCHES)
    settled(written.path)
    assert doctor(written.path).code == 0
    return written


def _gone(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _offset(line: str) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        text = path.read_text()
        _gone(path)
        path.write_text("\n".join([*text.split("\n")[:2], line]))

    return do


def _cut(path: Path) -> None:
    data = path.read_bytes()
    _gone(path)
    path.write_bytes(data[:-20])


def _empty(path: Path) -> None:
    _gone(path)
    path.write_bytes(b"")


def _folder(path: Path) -> None:
    _gone(path)
    path.mkdir()


BESIDE_THE_STATE: list[tuple[str, Callable[[Path], None], str]] = [
    *(("metadata", damage, "damaged-metadata") for damage in (_gone, _empty, _cut, _folder)),
    ("sources/0", _gone, "damaged-log"),
    ("sources/0/1", _gone, "damaged-log"),
    *(("sources/0/2", damage, "damaged-log") for damage in (_empty, _cut, _folder)),
    ("sources/0/0", _cut, "damaged-log"),
    ("sources/0/3", _empty, "damaged-log"),  # of a batch that was not planned yet
    *(
        ("offsets/2", _offset(line), "damaged-log")
        for line in ('{"logOffset":', '{"logOffset":"2"}', '{"logOffset":true}', '{"logOffset":0}')
    ),
    ("offsets/2", _offset("garbage"), "damaged-log"),
    ("offsets/1", _offset('{"logOffset":'), "damaged-log"),
]


@pytest.mark.parametrize(("name", "damage", "code"), BESIDE_THE_STATE)
def test_damage_beside_the_state_is_found(
    judge: Judge, sound: Checkpoint, name: str, damage: Callable[[Path], None], code: str
) -> None:
    damaged = judge.copy(sound)
    damage(damaged.path / name)
    found = doctor(damaged.path)
    assert (found.code, found.codes) == (1, [code])
    assert found.problem(code)["severity"] == "error"
    assert found.problem(code)["where"].startswith(name)
    assert judge.refusal(damaged, MORE[:1], fresh=True)


def test_a_source_log_without_a_file_is_damaged(judge: Judge, sound: Checkpoint) -> None:
    damaged = judge.copy(sound)
    log = damaged.path / "sources/0/2"
    _gone(log)
    log.write_text("v1")
    assert doctor(damaged.path).codes == ["damaged-log"]
    wanted = damaged.expected.run(MORE[:1])
    assert judge.restart(damaged, MORE[:1], fresh=True) != wanted, "Spark has read a file twice"
