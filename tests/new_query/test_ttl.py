"""TTLs that are switched or changed: what becomes of every entry, and of the states that Spark keeps beside it."""

from __future__ import annotations

import copy
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.plan import find_evolution
from ttlsnap.schema.units import parse_duration

from ..check.observe import normal
from ..check.processing import FORGOTTEN
from ..check.quality import contracts_of
from ..cli.running import Ttlsnap
from ..judge.spark import Judge
from ..migration.entries import entries_of, field_of
from ..publishing.trees import tree
from ..samples import bytes_of, sample
from .contracts import Document, column, named, states
from .migrating import Migrator, case

LISTS, VISITS, ALARMS = "lists-4.2", "visits-4.2", "alarms-4.2"
DAY_MS = parse_duration("1d") // 1000
EARLY = ["--now", "checkpoint"]
"""The time of the last batch, so that nothing has expired."""
ORDERED, PLAIN = "RangeKeyScanStateEncoderSpec", "NoPrefixKeyStateEncoderSpec"


def contract(target: Path) -> Document:
    return copy.deepcopy(contract_of_checkpoint(str(target)).to_json())


def with_length(document: Document, name: str, ttl_ms: int) -> Document:
    named(document, name)["ttl_ms"] = ttl_ms
    return document


def switch_on(document: Document, name: str, ttl_ms: int = DAY_MS) -> None:
    """Give a variable a TTL, as the new query would declare it."""
    variable, mine = named(document, name), document["operators"][0]["stores"][0]["states"]
    value = {"type": "struct", "fields": variable["value"]}
    variable.update(ttl=True, ttl_ms=ttl_ms, value=[column("value", value), column("ttlExpirationMs", "long")])
    moment, key = column("expirationMs", "long"), variable["key"]
    more = {"role": "derived", "ttl": None, "ttl_ms": None}
    element = column("elementKey", {"type": "struct", "fields": key})
    nothing = column("__empty__", "void")
    index = {"name": f"$ttl_{name}", "kind": "index", "key_encoder": ORDERED, "key": [moment, element]}
    mine.append({**index, **more, "value": [nothing]})
    if variable["kind"] == "list":
        for kind, what, field in (("min", "index", moment), ("count", "count", column("count", "long"))):
            derived = {"name": f"${kind}_{name}", "kind": what, "key_encoder": PLAIN, "key": key, "value": [field]}
            mine.append({**derived, **more})
    mine.sort(key=lambda state: str(state["name"]))


def switch_off(document: Document, name: str) -> None:
    variable, store = named(document, name), document["operators"][0]["stores"][0]
    variable.update(ttl=False, ttl_ms=None, value=variable["value"][0]["type"]["fields"])
    gone = {f"${kind}_{name}" for kind in ("ttl", "min", "count")}
    store["states"] = [state for state in store["states"] if state["name"] not in gone]


def write(path: Path, document: Document) -> Path:
    path.write_text(json.dumps(document))
    return path


def contents(target: Path, *names: str) -> set[tuple[str, bytes, bytes]]:
    """Return the entries of some states, without the ids of their column families."""
    return {(state, key[2:], value) for _, state, key, value in entries_of(target) if state in names}


def test_a_longer_ttl_moves_every_expiry_time_and_back(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LISTS, tmp_path)
    entries, before = entries_of(target), field_of(target, "recent", "ttlExpirationMs")
    short = write(tmp_path / "short.json", with_length(contract(target), "recent", DAY_MS))
    long = write(tmp_path / "long.json", with_length(contract(target), "recent", 3 * DAY_MS))
    ended = ttlsnap("migrate", target, "--from", short, "--to", long, "--stopped", "--yes", *EARLY, "--format", "json")
    document = json.loads(ended.out)
    assert [(s["change"], s["state"], s["old"], s["new"]) for s in document["plan"]] == [
        ("change-ttl", "recent", "ttl 1d", "ttl 3d")
    ]
    after = field_of(target, "recent", "ttlExpirationMs")
    assert after == {key: [moment + 2 * DAY_MS for moment in moments] for key, moments in before.items()}
    assert ttlsnap("compact", target, "--ttl", "1ms", "--dry-run", *EARLY).code == 0  # the index and the counts fit
    assert ttlsnap("migrate", target, "--from", long, "--to", short, "--stopped", "--yes", *EARLY).code == 0
    assert entries_of(target) == entries


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variable"), [(VISITS, "last"), (VISITS, "numbers"), (ALARMS, "counts")])
def test_a_ttl_comes_and_goes(ttlsnap: Ttlsnap, tmp_path: Path, name: str, variable: str) -> None:
    target = sample(name, tmp_path)
    old = contract(target)
    entries, before = contents(target, *(s["name"] for s in states(old))), tree(target)
    new = copy.deepcopy(old)
    switch_on(new, variable)
    off, on = write(tmp_path / "off.json", old), write(tmp_path / "on.json", new)
    words = ["migrate", target, "--to", on, "--stopped", "--yes", *EARLY]
    ended = ttlsnap(*words)
    assert (ended.code, "--birth" in ended.err) == (3, True)
    assert ttlsnap(*words, "--birth", "now", "--dry-run").code == 0
    assert tree(target) == before
    for undone in (True, False):
        assert ttlsnap(*words, "--birth", "now").code == 0
        if undone:
            assert ttlsnap("rollback", target, "--stopped").code == 0
            assert tree(target) == before
    now = json.loads(ttlsnap("inspect", target, "--format", "json").out)["batch_timestamp_ms"]
    moments = field_of(target, variable, "ttlExpirationMs")
    assert {moment for found in moments.values() for moment in found} == {now + DAY_MS}
    assert ttlsnap("compact", target, "--ttl", "1ms", "--dry-run", *EARLY).code == 0
    assert ttlsnap("doctor", target).code == ttlsnap("doctor", sample(name, tmp_path / "same")).code
    assert ttlsnap("migrate", target, "--to", off, "--stopped", "--yes", *EARLY).code == 0
    assert contents(target, *(s["name"] for s in states(old))) == entries
    assert states(contract(target)) == states(old)


def test_the_age_of_values_counts_from_a_field(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LISTS, tmp_path)
    seen = field_of(target, "all", "seen")
    new = contract(target)
    switch_on(new, "all", 36500 * DAY_MS)
    on = write(tmp_path / "on.json", new)
    words = ["migrate", target, "--to", on, "--stopped", "--yes", *EARLY]
    for wrong, message in (
        ("value.sene:s", "has no field value.sene"),
        ("value.seen", "name its unit"),
        ("value.name", "which is not a time"),
    ):
        ended = ttlsnap(*words, "--birth", wrong)
        assert (ended.code, message in ended.err) == (2, True), ended.err
    ended = ttlsnap(*words, "--birth", "value.seen:s", "--birth", "now")
    assert (ended.code, "given twice" in ended.err) == (2, True)
    assert ttlsnap("migrate", target, "--to", on, "--stopped", "--birth", "now", "--now", "2000-01-01").code == 2
    # The second answer is for all other variables. None of them has a new TTL.
    assert ttlsnap(*words, "--birth", "0.default.all.value.seen:s", "--birth", "now").code == 0
    expected = {key: [each * 1000 + 36500 * DAY_MS for each in found] for key, found in seen.items()}
    assert field_of(target, "all", "ttlExpirationMs") == expected
    assert ttlsnap("compact", target, "--ttl", "1ms", "--state", "all", "--dry-run", *EARLY).code == 0


def test_what_has_expired_goes_when_the_ttl_does(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LISTS, tmp_path)
    moments = field_of(target, "recent", "ttlExpirationMs")
    every = sorted(moment for found in moments.values() for moment in found)
    middle = every[len(every) // 2]
    new = contract(target)
    switch_off(new, "recent")
    off, before = write(tmp_path / "off.json", new), bytes_of(target)
    at = datetime.fromtimestamp(middle / 1000, UTC).isoformat()
    words = ["migrate", target, "--to", off, "--stopped", "--now", at, "--format", "json"]
    assert ttlsnap(*words).code == 4
    assert bytes_of(target) == before
    document = json.loads(ttlsnap(*words, "--yes").out)
    expired = sum(moment <= middle for moment in every)
    assert document["expired"] == {"0.default.recent": expired}
    assert document["totals"]["dropped"] == expired > 0
    left = {key: len([m for m in found if m > middle]) for key, found in moments.items()}
    left = {key: count for key, count in left.items() if count}
    assert {key: len(found) for key, found in field_of(target, "recent", "number").items()} == left
    assert {key: found[0] for key, found in field_of(target, "$rowCounter_recent", "count").items()} == left
    # By the wall clock, everything has expired.
    again = sample(LISTS, tmp_path / "again")
    document = json.loads(ttlsnap("migrate", again, *words[2:5], "--yes", "--format", "json").out)
    assert document["expired"] == {"0.default.recent": len(every)}


def test_a_longer_ttl_revives_nothing(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(LISTS, tmp_path)
    moments = field_of(target, "recent", "ttlExpirationMs")
    short = write(tmp_path / "short.json", with_length(contract(target), "recent", DAY_MS))
    long = write(tmp_path / "long.json", with_length(contract(target), "recent", 36500 * DAY_MS))
    words = ["migrate", target, "--from", short, "--to", long, "--stopped", "--yes", "--format", "json"]
    every = sorted(moment for found in moments.values() for moment in found)
    middle = every[len(every) // 2]
    at = datetime.fromtimestamp(middle / 1000, UTC).isoformat()
    document = json.loads(ttlsnap(*words, "--now", at).out)
    assert document["expired"] == {"0.default.recent": sum(moment <= middle for moment in every)}
    left = {key: [m + 36499 * DAY_MS for m in found if m > middle] for key, found in moments.items()}
    assert field_of(target, "recent", "ttlExpirationMs") == {key: found for key, found in left.items() if found}
    assert ttlsnap("compact", target, "--ttl", "1ms", "--dry-run", *EARLY).code == 0


def test_a_contract_without_the_index_of_a_ttl_is_refused(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(VISITS, tmp_path)
    new = contract(target)
    switch_on(new, "last")
    store = new["operators"][0]["stores"][0]
    store["states"] = [state for state in store["states"] if state["name"] != "$ttl_last"]
    before = bytes_of(target)
    words = ["--to", write(tmp_path / "new.json", new), "--birth", "now", "--stopped", "--yes"]
    ended = ttlsnap("migrate", target, *words)
    assert (ended.code, "contract is not complete" in ended.err) == (3, True), ended.err
    assert bytes_of(target) == before


def test_a_variable_that_is_another_one_begins_empty(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(VISITS, tmp_path)
    new = contract(target)
    named(new, "last")["name"] = "latest"
    words = ["migrate", target, "--to", write(tmp_path / "new.json", new), "--stopped", "--yes"]
    ended = ttlsnap(*words)
    assert (ended.code, "add --rename last=latest; if not, add --drop last" in " ".join(ended.err.split())) == (3, True)
    dropped = ttlsnap(*words, "--drop", "last", "--dry-run", "--format", "json")
    assert dropped.code == 0, dropped.err
    assert [(step["change"], step["old"]) for step in json.loads(dropped.out)["plan"]] == [("drop-state", "last")]
    assert ttlsnap(*words, "--rename", "last=latest").code == 0


def test_several_variables_get_other_names(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(VISITS, tmp_path)
    entries, new = contents(target, "last", "numbers", "$rowCounter_numbers"), contract(target)
    others = {"last": "latest", "numbers": "digits", "$rowCounter_numbers": "$rowCounter_digits"}
    for state in states(new):
        state["name"] = others.get(state["name"], state["name"])
    words = ["--rename", "last=latest", "--rename", "numbers=digits", "--stopped"]
    ended = ttlsnap("migrate", target, "--to", write(tmp_path / "new.json", new), *words)
    assert ended.code == 0, ended.err
    assert contents(target, *others.values()) == {(others[name], key, value) for name, key, value in entries}


def test_a_new_grouping_column_has_one_value_everywhere(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(ALARMS, tmp_path)
    new = contract(target)
    for state in states(new):
        for field in state["key"]:
            if field["name"] == "key" and isinstance(field["type"], dict):
                field["type"]["fields"].append(column("k2"))
        if not any(isinstance(field["type"], dict) for field in state["key"]):
            state["key"].append(column("k2"))
    words = ["migrate", target, "--to", write(tmp_path / "new.json", new), "--stopped"]
    ended = ttlsnap(*words)
    assert ended.code == 3 and "add --fill key.k2=LITERAL" in ended.err and "key.key.k2" not in ended.err, ended.err
    mine, before = "0.default.$eventTimers_keyToTimestamp.key.key.k2", bytes_of(target)
    ended = ttlsnap(*words, "--fill", "key.k2=x", "--fill", f"{mine}=y")
    assert (ended.code, "two values" in ended.err) == (2, True), ended.err
    assert bytes_of(target) == before
    assert ttlsnap(*words, "--fill", "key.k2=x").code == 0
    assert ttlsnap("compact", target, "--ttl", "1ms", "--timers", "follow", "--dry-run").code in (0, 2)
    assert ttlsnap("doctor", target).code == ttlsnap("doctor", sample(ALARMS, tmp_path / "same")).code


def test_timers_are_not_lost_with_their_mode(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(ALARMS, tmp_path)
    new = contract(target)
    new["operators"][0]["time_mode"] = "NoTime"
    store = new["operators"][0]["stores"][0]
    store["states"] = [state for state in store["states"] if "Timers_" not in state["name"]]
    before = bytes_of(target)
    ended = ttlsnap("migrate", target, "--to", write(tmp_path / "new.json", new), "--stopped", "--yes")
    assert (ended.code, "there are timers of the old time mode" in " ".join(ended.err.split())) == (4, True), ended.err
    assert bytes_of(target) == before


def test_a_variable_whose_name_ends_like_another_one_keeps_its_states() -> None:
    old, new = (json.loads(json.dumps(one.to_json())) for one in map(as_contract, contracts_of("tws-ttl-list-on")))
    for document in (old, new):
        store = document["operators"][0]["stores"][0]
        twins = [copy.deepcopy(state) for state in store["states"] if state["name"] in ("all", "$rowCounter_all")]
        for twin in twins:
            twin["name"] = twin["name"].replace("all", "not_all")
        # The twin has no TTL in either query.
        was = next(state for state in states(old) if state["name"] == "all")
        twins = [
            dict(twin, value=was["value"], ttl=False, ttl_ms=None) if twin["name"] == "not_all" else twin
            for twin in twins
        ]
        store["states"] += twins
    was_, now = (as_contract(parse_contract(json.dumps(document), "one")) for document in (old, new))
    evolution, obstacles = find_evolution(was_, now, Answers(births=("now",)))
    assert not obstacles
    assert [(state.state, state.derived, state.made) for state in evolution.states] == [
        ("all", ("$rowCounter_all",), ("$ttl_all", "$min_all", "$count_all"))
    ]
    assert "$rowCounter_not_all" not in evolution.removed.get((0, "default"), ())


def as_contract(made: object) -> Contract:
    assert isinstance(made, Contract)
    return made


@pytest.fixture(scope="module")
def migrator(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Migrator:
    return Migrator(tmp_path_factory.mktemp("ttl"), judge)


@pytest.mark.wide
@pytest.mark.parametrize("name", ["tws-ttl-on"])
def test_spark_forgets_and_removes_what_has_expired_since(migrator: Migrator, name: str) -> None:
    old, new = contracts_of(name)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    one = case(name, "switch-ttl", "switch-time-mode", answers={"births": ("now",)})
    document = with_length(new.to_json(), "kept", 2_000)
    checkpoint = migrator.checkpoint_of(one.pair, 0)
    shorter = parse_contract(json.dumps(document), "new")
    assert isinstance(shorter, Contract)
    migrator.migrate(str(checkpoint), one, (old, shorter))
    assert len(contents(checkpoint, "$ttl_kept")) == len(contents(checkpoint, "kept")) > 0
    time.sleep(2.5)
    done = migrator.resume(one, checkpoint)
    assert normal(done["rows"]) == normal(FORGOTTEN)
    assert len(contents(checkpoint, "$ttl_kept")) == len(contents(checkpoint, "kept")) == len(FORGOTTEN)
