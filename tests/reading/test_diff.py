"""``ttlsnap diff``: what was added, removed and changed between two states."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import compact, diff, export, migrate, rollback
from ttlsnap.cli.app import run
from ttlsnap.errors import UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..compaction.stories import BATCHES, MORE, rocksdb, settled
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow
from ..samples import SAMPLES, sample

AGG = "agg-deltas-lz4-4.2"


def rows(target: Path, batch: int | None = None) -> Counter[tuple[str, str, str]]:
    """Return the entries by table, key and value, in another way than ``diff`` compares them."""
    stream = io.BytesIO()
    export(str(target), stream, batch=batch)
    found: Counter[tuple[str, str, str]] = Counter()
    for line in stream.getvalue().splitlines():
        row = json.loads(line)
        value = [row.get(name) for name in ("value", "matched", "time", "map_key")]
        found[row["table"], json.dumps([row["key"], row.get("map_key")]), json.dumps(value)] += 1
    return found


def counted(old: Counter[tuple[str, str, str]], new: Counter[tuple[str, str, str]]) -> dict[str, tuple[int, int, int]]:
    """Return the numbers of added, removed and changed entries of each table."""
    gone, come = (
        Counter({(name, key): 0 for name, key, _ in (*old, *new)}),
        Counter({(name, key): 0 for name, key, _ in (*old, *new)}),
    )
    for counts, surplus in ((gone, old - new), (come, new - old)):
        for (name, key, _), count in surplus.items():
            counts[name, key] += count
    found: dict[str, tuple[int, int, int]] = {}
    for name, key in gone:
        changed = min(gone[name, key], come[name, key])
        added, removed = come[name, key] - changed, gone[name, key] - changed
        before = found.get(name, (0, 0, 0))
        found[name] = before[0] + added, before[1] + removed, before[2] + changed
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    narrow([Query("agg_update"), Query("join_parities"), rocksdb("agg_window_update", changelog=True)], 0, 1),
    ids=lambda query: f"{query.operator}-{query.provider}",
)
def test_every_pair_of_batches(inputs: Judge, query: Query) -> None:
    written = inputs.write(query, [*BATCHES, *MORE], layout="deltas")
    settled(written.path)
    batches = sorted(int(path.name) for path in (written.path / "commits").iterdir() if path.name.isdigit())
    states = {batch: rows(written.path, batch) for batch in batches}
    kinds: Counter[str] = Counter()
    for old in batches:
        for new in batches:
            if old == new:
                continue
            report = diff(str(written.path), old_batch=old, new_batch=new)
            wanted = counted(states[old], states[new])
            for state in report.states:
                found = state.added, state.removed, state.changed
                assert found == wanted.get(state.name, (0, 0, 0)), (old, new, state.name)
                kinds.update(added=state.added or 0, removed=state.removed or 0, changed=state.changed or 0)
                assert len(state.examples) == min(10, state.differences)
            assert report.differs == (states[old] != states[new])
    assert min(kinds.values()) > 0


def test_examples_are_differences(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    report = diff(str(target), old_batch=3, examples=400)
    old, new = ({(key, value) for _, key, value in rows(target, batch)} for batch in (3, 6))
    (state,) = report.states
    assert len(state.examples) == state.differences > 10
    counts = Counter(example["change"] for example in state.examples)
    assert counts == Counter({name: getattr(state, name) for name in ("added", "removed", "changed")}) - Counter()
    for example in state.examples:
        for side, entries, others in (("old", old, new), ("new", new, old)):
            if example[side] is not None:
                entry = json.dumps([example["key"], None]), json.dumps([example[side]["value"], None, None, None])
                assert entry in entries
                assert entry not in others


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("agg-deltas-lz4-4.2", {"partitions": 5}),
        ("agg-deltas-lz4-4.2", {"provider": "rocksdb"}),
        ("join-4.2", {"provider": "rocksdb", "settings": {"join-format": 4}}),
        ("lists-4.2", {"partitions": 3, "settings": {"row-checksums": True}}),
        ("agg-format1-3.5", {"settings": {"aggregation-format": 2}}),
    ],
)
def test_a_migration_makes_no_difference(tmp_path: Path, name: str, change: dict[str, Any]) -> None:
    target, other = sample(name, tmp_path / "a"), sample(name, tmp_path / "b")
    migrate(str(other), stopped=True, **change)
    report = diff(str(target), str(other))
    assert report.differs is False
    assert any(state.entries_old for state in report.states)
    assert not any(state.schemas for state in report.states)


def test_formats_are_compared_by_what_both_have(tmp_path: Path) -> None:
    """An older batch of format 1, and the last one in format 2, differ as the two batches in format 1 do."""
    target, other = sample("agg-format1-3.5", tmp_path / "a"), sample("agg-format1-3.5", tmp_path / "b")
    migrate(str(other), settings={"aggregation-format": "2"}, stopped=True)
    (wanted,) = diff(str(target), old_batch=2, examples=1000).states
    (found,) = diff(str(target), str(other), old_batch=2, examples=1000).states
    assert found.schemas is None
    assert (found.added, found.removed, found.changed) == (wanted.added, wanted.removed, wanted.changed)
    assert found.added and found.changed

    def changes(examples: Any) -> list[Any]:
        return sorted([e["change"], e["key"]["key"], e["fields"]] for e in examples)

    assert changes(found.examples) == changes(wanted.examples)
    (back,) = diff(str(other), str(target), new_batch=2).states
    assert (back.added, back.removed, back.changed) == (found.removed, found.added, found.changed)


def test_changed_fields_are_named() -> None:
    (state,) = diff(str(SAMPLES / AGG), old_batch=3, examples=400).states
    for example in state.examples:
        if example["change"] != "changed":
            assert example["fields"] == []
            continue
        old, new = example["old"]["value"], example["new"]["value"]
        assert example["fields"] == [f"value.{name}" for name in old if old[name] != new[name]] != []
    report = diff(str(SAMPLES / "groups-3.1"), old_batch=0, examples=400)
    assert any(name.startswith("value.groupState.") for s in report.states for e in s.examples for name in e["fields"])
    left = diff(str(SAMPLES / "join-format4-4.2"), old_batch=1, examples=400, tables=["0.left"]).states
    assert {name for state in left for example in state.examples for name in example["fields"]} <= {"matched"}


def test_by_default_the_last_two_batches_are_compared(tmp_path: Path) -> None:
    target = str(SAMPLES / AGG)
    report = diff(target)
    assert (report.old_batch, report.new_batch) == (5, 6)
    assert diff(target, new_batch=4).old_batch == 3
    with pytest.raises(UsageError, match="both sides are batch 6"):
        diff(target, target)
    one = sample(AGG, tmp_path)
    migrate(str(one), partitions=3, stopped=True)
    with pytest.raises(UsageError, match=r"retains no batch before the last one \(retained: 6\)"):
        diff(str(one))


def test_a_copy_has_only_its_last_batch(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    rule = TtlTransformerFactory(StateTtlConfig(7 * 86_400_000_000), "value.max")
    compact(str(SAMPLES / AGG), [rule], output=str(copy), now="2026-11-21T09:00:00Z")
    with pytest.raises(UsageError, match=r"the state after batch 5 is not complete(.|\n)*has only the last batch"):
        diff(str(copy))
    assert diff(str(SAMPLES / AGG), str(copy)).differs


def test_tables_are_chosen_by_name() -> None:
    target = str(SAMPLES / "join-4.2")
    assert [state.name for state in diff(target, tables=["0.right"]).states] == ["0.right"]
    with pytest.raises(UsageError, match="there is no table right"):
        diff(target, tables=["right"])


def test_a_checkpoint_is_compared_with_the_one_before_its_last_run(tmp_path: Path) -> None:
    """As the guide says: roll back a copy."""
    target = sample(AGG, tmp_path)
    rule = TtlTransformerFactory(StateTtlConfig(7 * 86_400_000_000), timestamp="value.max")
    done = compact(str(target), [rule], stopped=True)
    before = tmp_path / "before"
    shutil.copytree(target, before)
    rollback(str(before), stopped=True)
    (state,) = diff(str(before), str(target)).states
    assert (state.added, state.removed, state.changed) == (0, done.totals.dropped, 0)


def test_dropped_entries_are_removed_ones(tmp_path: Path) -> None:
    target, other = sample(AGG, tmp_path / "a"), sample(AGG, tmp_path / "b")
    rule = TtlTransformerFactory(StateTtlConfig(7 * 86_400_000_000), timestamp="value.max")
    done = compact(str(other), [rule], stopped=True)
    (state,) = diff(str(target), str(other)).states
    assert (state.added, state.removed, state.changed) == (0, done.totals.dropped, 0)
    (state,) = diff(str(other), str(target)).states
    assert (state.added, state.removed, state.changed) == (done.totals.dropped, 0, 0)


def test_states_of_other_types_are_not_compared(tmp_path: Path) -> None:
    target, other = sample(AGG, tmp_path), sample("dedup-watermark-4.2", tmp_path)
    (state,) = diff(str(target), str(other), selection=Selection(operator=0)).states
    assert state.schemas is not None and re.fullmatch("(key|value) old: .+; (key|value) new: .+", state.schemas)
    assert state.differs
    assert (state.added, state.removed, state.changed) == (None, None, None)
    assert state.not_compared == f"the schemas differ: {state.schemas}"
    assert state.entries_old and state.entries_new


def test_the_command_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, other = str(sample(AGG, tmp_path / "a")), str(sample(AGG, tmp_path / "b"))
    assert run(["diff", target, other]) == 0
    assert "There is no difference." in capsys.readouterr().out
    assert run(["diff", target, "--old-batch", "3", "--examples", "1", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["differs"] is True
    assert len(document["states"][0]["examples"]) == 1
    assert run(["diff", target, "--old-batch", "3", "--table", "0.state"]) == 1
    assert '0.state: changed {"key": "user-0000"}: value.max, value.count, value.sum' in capsys.readouterr().out
    assert run(["diff", target, "--old-batch", "6"]) == 2
    assert "both sides are batch 6" in capsys.readouterr().err


@pytest.mark.skipif(not FULL, reason="the slice of the matrix has no Spark 3.1 here")
def test_a_join_of_format_1_has_the_rows_of_format_2(inputs: Judge, tmp_path: Path) -> None:
    query = Query("join", join_format=1)
    written = inputs.write(query, BATCHES, layout="snapshot", version="3.1")
    settled(written.path)
    other = Path(shutil.copytree(written.path, tmp_path / "other"))
    migrate(str(other), settings={"join-format": "2"}, stopped=True)
    report = diff(str(written.path), str(other))
    assert [state.schemas for state in report.states] == [None, None]
    assert [state.fields_not_compared for state in report.states] == [("matched",)] * 2
    assert report.differs is False
    assert all(state.entries_old for state in report.states)


def without_schema(tmp_path: Path, store: str) -> str:
    """Return a copy of the join whose ``store`` lost its schema."""
    target = sample("join-4.2", tmp_path)
    for schema in (target / "state/0/0" / store / "_metadata").iterdir():
        schema.unlink()
    return str(target)


def test_a_state_that_one_side_cannot_read_has_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, lost = str(SAMPLES / "join-4.2"), without_schema(tmp_path, "right-keyWithIndexToValue")
    for pair, sides in (((whole, lost), ("old", "new")), ((lost, whole), ("new", "old"))):
        document = diff(*pair).to_json()
        left, right = document["states"]
        assert (left["added"], left["removed"], left["changed"], left["not_compared"]) == (0, 0, 0, None)
        assert [right[name] for name in ("added", "removed", "changed", "only_in")] == [None] * 4
        assert (right[f"entries_{sides[0]}"], right[f"entries_{sides[1]}"]) == (9, None)
        assert right["not_compared"] == f"{sides[1]} has a state that ttlsnap cannot read, and that may be this one"
        assert document["differs"] is None
        assert [line.partition(":")[0] for line in document["left_out"]] == [
            "operator 0, store right-keyWithIndexToValue"
        ]
    assert run(["diff", whole, lost]) == 3
    told = capsys.readouterr()
    assert re.search(r"^0\.right +9 +- +- +- +-$", told.out, re.MULTILINE)
    assert "0.right: not compared: new has a state that ttlsnap cannot read" in told.out
    assert "There is no difference" not in told.out
    assert "No difference was found, but not every state was compared." in told.out
    assert "not compared: operator 0, store right-keyWithIndexToValue: the checkpoint has no state schema" in told.err


def test_a_state_that_no_side_can_read_is_not_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = without_schema(tmp_path, "right-keyWithIndexToValue")
    shutil.copytree(target, tmp_path / "copy")
    report = diff(target, str(tmp_path / "copy"))
    assert ([state.name for state in report.states], len(report.left_out), report.differs) == (["0.left"], 1, None)
    assert run(["diff", target, str(tmp_path / "copy"), "--quiet"]) == 3
    capsys.readouterr()
    # A difference elsewhere is one, whatever else cannot be read.
    assert run(["diff", target, "--old-batch", "0"]) == 1


def test_states_that_the_options_exclude_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, lost = str(SAMPLES / "join-4.2"), without_schema(tmp_path, "right-keyWithIndexToValue")
    for other in (str(sample("join-4.2", tmp_path / "b")), lost):
        report = diff(target, other, tables=["0.left"])
        assert report.excluded == ("operator 0 (symmetricHashJoin), store right-keyWithIndexToValue",)
        assert report.derived == tuple(
            f"operator 0 (symmetricHashJoin), store {side}-keyToNumValues" for side in ("left", "right")
        )
        assert (report.differs, report.left_out) == (False, ())
        assert run(["diff", target, other, "--table", "0.left"]) == 0
        told = capsys.readouterr().out
        assert f"Not compared, because the options exclude them: {report.excluded[0]}\n" in told
        assert f"Not compared, because Spark derives them from other entries: {'; '.join(report.derived)}\n" in told
        assert "There is no difference in what was compared." in told
    with pytest.raises(UsageError, match="there is no table"):
        diff(target, lost, tables=["0.middle"])
    assert run(["diff", target, lost, "--table", "0.right"]) == 3


def test_more_differences_than_examples_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / AGG)
    (state,) = diff(target, old_batch=3).states
    assert run(["diff", target, "--old-batch", "3", "--examples", "4"]) == 1
    assert f"0.state: {state.differences - 4} more differences; --show N shows N of them" in capsys.readouterr().out
    for examples in ("0", str(state.differences)):
        assert run(["diff", target, "--old-batch", "3", "--examples", examples]) == 1
        assert "more differences" not in capsys.readouterr().out
