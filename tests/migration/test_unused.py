"""State variables that the query no longer has: a migration keeps what Spark has kept of them, or removes it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ttlsnap import inspect, migrate
from ttlsnap.errors import UsageError
from ttlsnap.migration.changes import Changes

from ..cli.running import Ttlsnap
from ..judge.processes import SparkFailed
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Judge
from ..new_query.contracts import contract, named
from ..publishing.trees import tree
from ..reading.test_inspect_unused import REMOVED, UNUSED
from ..samples import sample
from .entries import entries_of

ALL = ("all", "always", "digits", "last", "recent")
LAST = ("last", "$ttl_last")
RECENT = ("recent", "$ttl_recent", "$min_recent", "$count_recent")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a copy of a checkpoint whose variables two earlier queries did not have."""
    return sample("removed-4.2", tmp_path)


def counts(checkpoint: Path) -> Counter[str]:
    """Return the number of entries of each state."""
    found: Counter[str] = Counter()
    for (_, state, _, _), number in entries_of(checkpoint).items():
        found[state] += number
    return found


def unused(checkpoint: Path) -> set[str]:
    return {state.name for state in inspect(str(checkpoint)).states() if state.unused}


@pytest.mark.parametrize("options", [["--partitions", "3"], ["--set", "row-checksums=true"]], ids=" ".join)
def test_a_migration_keeps_what_no_variable_uses(ttlsnap: Ttlsnap, target: Path, options: list[str]) -> None:
    before, names = counts(target), unused(target)
    assert ttlsnap("migrate", target, *options, "--stopped", "--yes").code == 0
    assert (counts(target), unused(target)) == (before, names)
    assert ttlsnap("doctor", target).code == 0


def test_what_no_variable_uses_is_removed_by_name(ttlsnap: Ttlsnap, target: Path) -> None:
    entries, files = entries_of(target), tree(target)
    words = ["migrate", target, "--drop", "last", "--drop", "0.default.recent", "--stopped", "--format", "json"]
    dry = ttlsnap(*words, "--dry-run")
    assert ttlsnap(*words, "--dry-run", "--exit-code").code == ttlsnap(*words).code == 4
    assert ttlsnap(*words, "--dry-run", "--exit-code", "--yes").code == 0
    assert (dry.code, tree(target)) == (0, files)
    told = {f"0.default.{name}": UNUSED[name][2] for name in (*LAST, *RECENT)}
    assert dry.json["unused"] == told
    assert [(step["change"], step["state"]) for step in dry.json["plan"]] == [
        ("drop-unused", "last"),
        ("drop-unused", "recent"),
    ]
    done = ttlsnap(*words, "--yes")
    assert (done.code, done.json["unused"], done.json["totals"]["dropped"]) == (0, told, sum(told.values()))
    left = {entry: count for entry, count in entries.items() if entry[1] not in (*LAST, *RECENT)}
    assert entries_of(target) == left
    assert unused(target) == {"all", "$rowCounter_all", "always", "digits", "$ttl_digits"}
    assert ttlsnap("doctor", target).code == 0
    assert ttlsnap("rollback", target, "--stopped").code == 0
    assert tree(target) == files


def test_a_removal_can_come_with_another_number_of_partitions(ttlsnap: Ttlsnap, target: Path) -> None:
    before = counts(target)
    drops = [word for name in ALL for word in ("--drop", name)]
    assert ttlsnap("migrate", target, "--partitions", "3", *drops, "--stopped", "--yes").code == 0
    assert counts(target) == {"numbers": before["numbers"], "$ttl_numbers": before["$ttl_numbers"]}
    assert unused(target) == set()
    assert ttlsnap("migrate", target, "--drop", "last", "--stopped", "--yes").code == 2


def test_a_reviewed_plan_removes_what_it_names(ttlsnap: Ttlsnap, target: Path, tmp_path: Path) -> None:
    plan, files = tmp_path / "plan.json", tree(target)
    assert ttlsnap("migrate", target, "--drop", "last", "--plan-out", plan).code == 0
    ended = ttlsnap("migrate", target, "--drop", "recent", "--apply", plan, "--stopped")
    assert (ended.code, "steps" in ended.err, tree(target)) == (4, True, files)
    assert ttlsnap("migrate", target, "--drop", "last", "--apply", plan, "--stopped").code == 0
    assert unused(target).isdisjoint(LAST)
    assert "removal of what Spark has kept of last" in " ".join(ttlsnap("history", target).out.split())


def test_nothing_is_removed_without_consent(ttlsnap: Ttlsnap, target: Path) -> None:
    files = tree(target)
    ended = ttlsnap("migrate", target, "--drop", "last", "--stopped")
    assert (ended.code, "To agree, add --yes" in ended.err) == (4, True)
    for name in ("numbers", "$ttl_last", "nothing"):
        ended = ttlsnap("migrate", target, "--drop", name, "--stopped", "--yes")
        assert (ended.code, "Choose from: 0.default.recent, 0.default.all" in ended.err) == (2, True)
    assert tree(target) == files


def test_a_new_variable_does_not_get_what_spark_kept_of_another(ttlsnap: Ttlsnap, target: Path, tmp_path: Path) -> None:
    new, files = tmp_path / "new.json", tree(target)
    document = contract(target, lambda found: None)
    for prefix in ("", "$ttl_"):
        named(document, f"{prefix}numbers")["name"] = f"{prefix}digits"
    new.write_text(json.dumps(document))
    words = ["migrate", target, "--to", new, "--rename", "numbers=digits", "--stopped", "--yes"]
    ended = ttlsnap(*words)
    assert (ended.code, "--drop digits" in ended.err, tree(target)) == (3, True, files)
    before = counts(target)
    assert ttlsnap(*words, "--drop", "digits").code == 0
    found = counts(target)
    assert (found["digits"], found["$ttl_digits"], found["numbers"]) == (before["numbers"], before["numbers"], 0)


def test_the_library_removes_unused_variables(target: Path) -> None:
    with pytest.raises(UsageError, match="there is nothing to migrate"):
        Changes()
    report = migrate(str(target), drops=["last"], stopped=True)
    assert report.unused == {"0.default.last": 4, "0.default.$ttl_last": 4}


EVENTS = [[Event("key-0", 1_700_000_000, 100)]]


def adopted(judge: Judge, operator: str) -> Checkpoint:
    """Return a copy of the checkpoint for another query, which can restart on it."""
    return judge.adopt(Path(REMOVED), Query(operator, provider="rocksdb", partitions=1))


def told(judge: Judge, checkpoint: Checkpoint) -> list[dict[str, object]]:
    """Return the rows of the query after its restart."""
    return [json.loads(row) for batch in judge.restart(checkpoint, EVENTS) for row in batch.rows]


def test_a_variable_that_returns_has_its_values_unless_they_were_removed(judge: Judge, ttlsnap: Ttlsnap) -> None:
    kept = adopted(judge, "lists")
    removed = judge.copy(kept)
    assert ttlsnap("migrate", kept.path, "--set", "codec=zstd", "--stopped", "--yes").code == 0
    # The values of ``recent`` expired a day after the sample was written.
    assert told(judge, kept) == [{"key": "key-0", "recent": "100", "all": "20,30,100"}]
    drops = ["--drop", "recent", "--drop", "all"]
    assert ttlsnap("migrate", removed.path, *drops, "--stopped", "--yes").code == 0
    assert told(judge, removed) == [{"key": "key-0", "recent": "100", "all": "100"}]


def test_a_variable_can_return_with_another_type_once_it_was_removed(judge: Judge, ttlsnap: Ttlsnap) -> None:
    made = adopted(judge, "reminders")  # its variable ``last`` has no TTL
    with pytest.raises(SparkFailed, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        judge.restart(judge.copy(made), EVENTS)
    assert ttlsnap("migrate", made.path, "--drop", "last", "--stopped", "--yes").code == 0
    assert told(judge, made) == [{"key": "key-0", "what": "seen", "seen": 1_700_000_000, "n": 1}]
