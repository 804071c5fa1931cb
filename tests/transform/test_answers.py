"""The answers of users' code are checked: it may keep, change and drop what it received, and add nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap import Clock, StateDescriptor, StateEntries
from ttlsnap.entries.batch import RowEntries
from ttlsnap.errors import TransformerError, UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StructType
from ttlsnap.transform.chain import StateTransformers
from ttlsnap.transform.converters import convert_values
from ttlsnap.transform.protocols import TransformerFactory
from ttlsnap.unsaferow.encode import encode

KEY, VALUE = parse_ddl("k INT"), parse_ddl("n INT")
STATE = StateDescriptor(0, "stateStoreSave", "default", "default", 0, KEY, VALUE)
CLOCK = Clock(0, 0, "given", 0)
Answer = Callable[[RowEntries], Any]


def entries(count: int) -> RowEntries:
    rows = [{"k": number} for number in range(count)], [{"n": number} for number in range(count)]
    keys, values = (
        encode(pa.array(each, arrow_type(kind)), kind) for each, kind in zip(rows, (KEY, VALUE), strict=True)
    )
    return StateEntries.of(STATE, keys, values)


class Answering(TransformerFactory):
    """A factory of transformers that give an answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def create(self, state: StateDescriptor, clock: Clock) -> Answering:
        return self

    def filter_or_transform(self, given: StateEntries) -> StateEntries:
        assert isinstance(given, RowEntries)
        return self._answer(given)  # type: ignore[no-any-return]


def with_index(index: list[int]) -> Answer:
    """Return an answer with the entries at these places, whatever there is."""

    def answer(given: RowEntries) -> RowEntries:
        places = np.array(index)
        keys, values = given.keys.take(places % len(given)), given.values.take(places % len(given))
        return RowEntries(given.state, places, np.zeros(len(places), np.bool_), keys, values)

    return answer


@pytest.mark.parametrize("index", [[5], [0, 0], [1, 0], [-1], [0, 1, 2, 3, 4, 5], [3, 4, 5]])
def test_entries_that_a_transformer_did_not_receive_are_an_error(index: list[int]) -> None:
    chain = StateTransformers[RowEntries](STATE, [Answering(with_index(index))], CLOCK)
    with pytest.raises(TransformerError, match="the transformer returned entries that it did not receive"):
        chain.run(entries(5))


def test_an_entry_that_an_earlier_transformer_dropped_does_not_come_back() -> None:
    chain = StateTransformers[RowEntries](
        STATE, [Answering(with_index([0, 2, 4])), Answering(with_index([0, 3]))], CLOCK
    )
    with pytest.raises(TransformerError, match="the transformer returned entries that it did not receive"):
        chain.run(entries(5))


def test_entries_of_an_earlier_batch_are_an_error() -> None:
    both = entries(10)
    batches = [
        StateEntries.of(STATE, both.keys.take(half), both.values.take(half)) for half in (slice(5), slice(5, 10))
    ]
    others = entries(5)
    for later in (batches[1], others):
        received: list[RowEntries] = []

        def earlier(given: RowEntries, received: list[RowEntries] = received) -> StateEntries:
            received.append(given)
            return received[0].filter(np.array([True, False, True, True, True]))

        chain = StateTransformers[RowEntries](STATE, [Answering(earlier)], CLOCK)
        assert len(chain.run(batches[0])) == 4
        with pytest.raises(TransformerError, match="the transformer returned entries that it did not receive"):
            chain.run(later)


def test_a_part_of_the_entries_is_an_answer() -> None:
    chain = StateTransformers[RowEntries](STATE, [Answering(with_index([1, 4]))], CLOCK)
    assert chain.run(entries(5)).key_structs.field("k").to_pylist() == [1, 4]
    assert (chain.result().entries, chain.result().kept, chain.result().dropped) == (5, 2, 3)


class Converting:
    """A converter that gives these values."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def converts(self, state: StateDescriptor, schema: StructType) -> bool:
        return True

    def convert(self, given: StateEntries, schema: StructType) -> pa.StructArray:
        return self._made


@pytest.mark.parametrize(
    "made",
    [
        pa.array([{"m": "a"}] * 2),
        pa.array([{"m": "a"}] * 4),
        pa.array([{"m": "a"}, None, {"m": "b"}]),
        pa.array([{"other": "a"}] * 3),
        pa.array(["a"] * 3),
        ["a"] * 3,
        None,
    ],
    ids=["fewer", "more", "a null", "another field", "texts", "a list", "nothing"],
)
def test_a_converter_gives_one_value_for_each_entry(made: Any) -> None:
    with pytest.raises(TransformerError, match="return 3 structs with the fields m"):
        convert_values(Converting(made), entries(3), parse_ddl("m STRING"))
    right = pa.array([{"m": "a"}] * 3)
    assert convert_values(Converting(right), entries(3), parse_ddl("m STRING")) is right


@pytest.mark.parametrize(
    ("count", "mask", "message"),
    [
        (5, [True, False, True, False, False], "5 values, but the mask marks 2 of 5 entries. Give one struct for each"),
        (1, [True, False, True, False, False], "1 values, but the mask marks 2 of 5 entries"),
        (4, None, "4 values, but there are 5 entries"),
        (1, [True], "replace_values needs a mask of 5 booleans without nulls, not bool[1]"),
        (1, [True, None, False, False, False], "needs a mask of 5 booleans without nulls, not object[5]"),
    ],
)
def test_values_that_do_not_belong_to_marked_entries_are_an_error(
    count: int, mask: list[bool | None] | None, message: str
) -> None:
    given, where = entries(5), None if mask is None else pa.array(mask)
    with pytest.raises(UsageError, match=re.escape(message)):
        given.replace_values(given.value_structs.slice(0, count), where)
    marked = pa.array([True, False, True, False, False])
    new = given.replace_values(given.value_structs.filter(pa.array([False, True, False, True, False])), marked)
    assert [entry["value"]["n"] for entry in new.to_pylist()] == [1, 1, 3, 3, 4]
