"""What follows from the decisions of transformers for the entries that Spark derives: counts, indexes and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap import StateDescriptor, open_checkpoint
from ttlsnap.errors import CorruptionError
from ttlsnap.operators.join import IndexedSide
from ttlsnap.operators.links import Decisions, Link, StateId
from ttlsnap.operators.registry import links_of
from ttlsnap.operators.transform_with_state import Followers, Timers, Variable
from ttlsnap.operators.work import begin_work
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StructType
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.unsaferow.rows import Rows

from ..samples import SAMPLES

Entry = tuple[dict[str, Any], dict[str, Any]]
"""A key and a value."""
Entries = Mapping[StateId, Sequence[Entry]]


def rows(values: Sequence[dict[str, Any]], schema: StructType) -> Rows:
    return encode(pa.array(list(values), arrow_type(schema)), schema)


def resolve(link: Link, entries: Entries, dropped: Mapping[StateId, Sequence[int]]) -> dict[StateId, list[Entry]]:
    """Return the entries of derived states, and of a join's rows, after some entries are dropped."""
    work = begin_work(link, "here")
    encoded: dict[StateId, tuple[Rows, Rows]] = {}
    for place, state in link.places.items():
        keys, values = [key for key, _ in entries.get(place, ())], [value for _, value in entries.get(place, ())]
        encoded[place] = rows(keys, state.key_schema), rows(values, state.value_schema)
        work.look(place, *encoded[place])
    decided = {place: Decisions.drop(np.isin(np.arange(len(entries[place])), gone)) for place, gone in dropped.items()}

    def fetch(place: StateId, mask: Mask) -> Rows:
        return encoded[place][1].take(mask)

    found: dict[StateId, list[Entry]] = {}
    for place, decision in work.resolve(decided, fetch).decisions.items():
        state, (of_keys, of_values) = link.places[place], encoded[place]
        new = of_values.replace(decision.rewritten, decision.values)
        columns = decode(of_keys, state.key_schema), decode(new, state.value_schema)
        pairs = zip(*(column.to_pylist() for column in columns), strict=True)
        found[place] = [pair for pair, kept in zip(pairs, decision.kept.tolist(), strict=True) if kept]
    return found


def links_in(name: str, kind: type) -> list[Any]:
    checkpoint = open_checkpoint(LocalDirectory(str(SAMPLES / name)))
    return [link for link in links_of(checkpoint, checkpoint.operators[0]) if isinstance(link, kind)]


@pytest.mark.parametrize(
    ("dropped", "left"),
    [([], "abcde"), ([0], "cbde"), ([1], "acde"), ([2], "abde"), ([0, 2], "bde"), ([0, 1, 2], "de"), ([3, 4], "abc")],
)
def test_the_rows_of_a_join_are_numbered_without_gaps_and_counted(dropped: list[int], left: str) -> None:
    side: IndexedSide = links_in("join-4.2", IndexedSide)[0]
    names = side.values.value_schema.names
    keys = ["one", "one", "one", "two", "three"]
    numbers = [0, 1, 2, 0, 0]
    buffered: list[Entry] = [
        ({"field0": key, "index": number}, {**dict.fromkeys(names), names[0]: text, "matched": True})
        for key, number, text in zip(keys, numbers, "abcde", strict=True)
    ]
    counts: list[Entry] = [({"field0": key}, {"value": keys.count(key)}) for key in ("one", "two", "three")]
    found = resolve(side, {side.values.place: buffered, side.counts.place: counts}, {side.values.place: dropped})
    rest = found.get(side.values.place, buffered)
    assert [value[names[0]] for _, value in rest] == list(left)
    wanted = Counter(key["field0"] for key, _ in rest)
    assert Counter({key["field0"]: value["value"] for key, value in found[side.counts.place]}) == wanted
    for key, count in wanted.items():
        assert sorted(entry["index"] for entry, _ in rest if entry["field0"] == key) == list(range(count))


def map_with_ttl() -> Variable:
    """Return a map variable with a TTL and its index of expiry times."""
    element = "STRUCT<key: STRUCT<k: INT>, userKey: STRUCT<m: STRING>>"
    common = {"operator": 0, "operator_name": "transformWithState", "store": "default", "partition": None}
    elements = StateDescriptor(
        **common,  # type: ignore[arg-type]
        state="seen",
        key_schema=parse_ddl("key STRUCT<k: INT>, userKey STRUCT<m: STRING>"),
        value_schema=parse_ddl("value STRUCT<n: INT>, ttlExpirationMs BIGINT"),
        kind="map",
    )
    index = StateDescriptor(
        **common,  # type: ignore[arg-type]
        state="$ttl_seen",
        key_schema=parse_ddl(f"expirationMs BIGINT, elementKey {element}"),
        value_schema=parse_ddl("__empty__ VOID"),
        role="derived",
        kind="index",
    )
    return Variable(elements, 0, index)


def of_map(name: str, time: int) -> tuple[Entry, Entry]:
    """Return an entry of a map, and that of the index."""
    key = {"key": {"k": 1}, "userKey": {"m": name}}
    element = key, {"value": {"n": 5}, "ttlExpirationMs": time}
    return element, ({"expirationMs": time, "elementKey": key}, {"__empty__": None})


def test_an_index_entry_that_spark_left_for_a_removed_map_entry_stays_and_is_not_damage() -> None:
    variable = map_with_ttl()
    assert variable.index is not None
    (a, of_a), (b, of_b), (_, stale) = of_map("a", 100), of_map("b", 200), of_map("a", 50)
    entries: Entries = {variable.elements.place: [a, b], variable.index.place: [stale, of_a, of_b]}
    assert resolve(variable, entries, {})[variable.index.place] == [stale, of_a, of_b]
    assert resolve(variable, entries, {variable.elements.place: [1]})[variable.index.place] == [stale, of_a]


def test_a_map_entry_without_an_index_entry_is_damage() -> None:
    variable = map_with_ttl()
    assert variable.index is not None
    (a, of_a), (b, _) = of_map("a", 100), of_map("b", 200)
    with pytest.raises(CorruptionError, match=r"\$ttl_seen does not have it"):
        resolve(variable, {variable.elements.place: [a, b], variable.index.place: [of_a]}, {})


def test_the_count_of_a_list_that_returned_may_be_one_that_spark_continued_with() -> None:
    (variable,) = (link for link in links_in("visits-4.2", Variable) if link.counts is not None)
    key, other = {"key": "a"}, {"key": "b"}
    elements: list[Entry] = [(key, {"number": number}) for number in (1, 2)]
    counted: list[Entry] = [(key, {"count": 4}), (other, {"count": 7})]  # the other list has no element
    entries: Entries = {variable.elements.place: elements, variable.counts.place: counted}
    with pytest.raises(CorruptionError, match="has 4 for it, where it should be 2"):
        resolve(variable, entries, {})
    returned = replace(variable, returned=True)
    for dropped, left in (([], counted), ([0], [(key, {"count": 1}), counted[1]]), ([0, 1], [counted[1]])):
        assert resolve(returned, entries, {variable.elements.place: dropped})[variable.counts.place] == left
    with pytest.raises(CorruptionError, match="does not have it"):
        resolve(returned, {**entries, variable.counts.place: counted[1:]}, {})


def test_an_index_entry_that_spark_left_for_a_value_that_returned_is_not_damage() -> None:
    variable = replace(map_with_ttl(), elements=replace(map_with_ttl().elements, kind="value"))
    assert variable.index is not None
    (a, of_a), (_, stale) = of_map("a", 100), of_map("a", 50)
    entries: Entries = {variable.elements.place: [a], variable.index.place: [stale, of_a]}
    with pytest.raises(CorruptionError, match=r"\$ttl_seen has \d+ for it"):
        resolve(variable, entries, {})
    returned = replace(variable, returned=True)
    assert resolve(returned, entries, {})[variable.index.place] == [stale, of_a]
    assert resolve(returned, entries, {variable.elements.place: [0]})[variable.index.place] == [stale]


def test_a_variable_follows_the_last_entry_that_decides() -> None:
    def variable(name: str, kind: str, key: str, **facts: Any) -> StateDescriptor:
        return StateDescriptor(0, None, "default", name, None, parse_ddl(key), parse_ddl("n INT"), kind=kind, **facts)

    deciding = variable("counts", "map", "key STRUCT<name: STRING>, userKey STRUCT<n: INT>")
    following = variable("seen", "value", "name STRING")
    link = Followers({deciding.place: deciding}, {following.place: following})
    # The key c has no entry that decides.
    counts: list[Entry] = [({"key": {"name": name}, "userKey": {"n": n}}, {"n": 1}) for name in "ab" for n in (1, 2)]
    seen: list[Entry] = [({"name": name}, {"n": 1}) for name in "abc"]
    entries: Entries = {deciding.place: counts, following.place: seen}
    for dropped, left in (([], [0, 1, 2]), ([0], [0, 1, 2]), ([0, 1], [1, 2]), ([0, 1, 2, 3], [2])):
        found = resolve(link, entries, {deciding.place: dropped})
        assert found[following.place] == [seen[n] for n in left]


def test_timers_are_dropped_only_with_the_whole_state_of_their_key() -> None:
    (timers,) = links_in("alarms-4.2", Timers)
    other = StateDescriptor(0, None, "default", "seen", None, parse_ddl("key STRING"), parse_ddl("n INT"))
    link = Timers(timers.by_key, timers.by_time, {other.place: other})

    def timer(state: StateDescriptor, *key: Any) -> Entry:
        return dict(zip(state.key_schema.names, key, strict=True)), dict.fromkeys(state.value_schema.names)

    by_key = [timer(timers.by_key, {"key": name}, 5) for name in "abc"]
    by_time = [timer(timers.by_time, 5, {"key": name}) for name in "abc"]
    state: list[Entry] = [({"key": "a"}, {"n": 1}), ({"key": "b"}, {"n": 2})]
    entries: Entries = {timers.by_key.place: by_key, timers.by_time.place: by_time, other.place: state}
    # The key c never had state, so nothing says that its timer is not needed.
    for dropped, left in (([], [0, 1, 2]), ([0], [1, 2]), ([0, 1], [2])):
        found = resolve(link, entries, {other.place: dropped})
        assert found[timers.by_key.place] == [by_key[n] for n in left]
        assert found[timers.by_time.place] == [by_time[n] for n in left]
