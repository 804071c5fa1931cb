"""Factories and transformers of users have what they need, and get the rest: none must have more than one method."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap import Clock, CollectionStrategy, StateDescriptor, StateEntries
from ttlsnap.entries.batch import Int64, Mask
from ttlsnap.entries.timestamps import timestamp_field
from ttlsnap.errors import TransformerError, UsageError
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.transform.adapters import as_factory, as_transformer, describe_rule
from ttlsnap.transform.chain import StateTransformers, create
from ttlsnap.transform.protocols import Cutoff, TimeSummary, Transformer
from ttlsnap.transformers import TtlTransformerFactory
from ttlsnap.unsaferow.encode import encode

KEY, VALUE = parse_ddl("k INT"), parse_ddl("at TIMESTAMP")
STATE = StateDescriptor(0, "stateStoreSave", "default", "default", 0, KEY, VALUE)
CLOCK = Clock(0, 0, "given", 0)
TIMES = pa.array([1, 2], pa.timestamp("us", "UTC"))
ENTRIES = StateEntries.of(
    STATE,
    encode(pa.StructArray.from_arrays([pa.array([1, 2], pa.int32())], ["k"]), KEY),
    encode(pa.StructArray.from_arrays([TIMES], ["at"]), VALUE),
)
CUTOFF = Cutoff(timestamp_field(STATE, "value.at"), 5, 7, "event")
SUMMARY = TimeSummary("value.at", 5, 1, 2, 0)


class Least:
    """A transformer with what it needs."""

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        return entries.filter(np.array([True, False]))


@dataclass(frozen=True)
class LeastFactory:
    """A factory with what it needs."""

    def create(self, state: StateDescriptor, clock: Clock) -> Any:
        return Least()


class Most(Least):
    """A transformer with all that it may have."""

    def moments(self, entries: StateEntries) -> tuple[Int64, Mask]:
        return np.array([1, 2]), np.array([False, True])

    def time_summary(self) -> TimeSummary:
        return SUMMARY

    def unclosed(self, gone: StateEntries) -> Mask:
        return np.ones(len(gone), np.bool_)


@dataclass(frozen=True)
class MostFactory:
    """A factory with all that it may have."""

    name: str = "at"
    strategy: CollectionStrategy = CollectionStrategy.STOP_ON_FIRST_INCLUDED
    uses_written_times: bool = True
    rotation_us: int = 3

    def create(self, state: StateDescriptor, clock: Clock) -> Any:
        return Most()

    def plan(self, states: Any, clock: Clock) -> list[str | None]:
        return ["not today"] * len(states)

    def cutoff(self, state: StateDescriptor, clock: Clock) -> Cutoff:
        return CUTOFF

    def with_names(self, spelled: Callable[[str], str]) -> MostFactory:
        return replace(self, name=spelled(self.name))

    def describe(self) -> str:
        return f"most of {self.name}"


def test_a_factory_needs_only_create() -> None:
    factory = as_factory(LeastFactory())
    assert (factory.strategy, factory.uses_written_times, factory.rotation_us) == ("TRANSFORM_ALL", False, None)
    assert (factory.plan([STATE, STATE], CLOCK), factory.cutoff(STATE, CLOCK)) == ([None, None], None)
    assert factory.describe() == describe_rule(LeastFactory()) == f"{__name__}:LeastFactory"
    assert factory.with_names(str.upper) == factory == as_factory(factory)
    assert factory.written_as is LeastFactory
    assert pickle.loads(pickle.dumps(factory)) == factory


def test_a_transformer_needs_only_its_method() -> None:
    transformer = as_transformer(Least())
    assert len(transformer.filter_or_transform(ENTRIES)) == 1
    assert (transformer.moments(ENTRIES), transformer.time_summary()) == (None, None)
    assert (transformer.unclosed(ENTRIES).tolist(), transformer.sees(ENTRIES).tolist()) == ([False] * 2, [True] * 2)
    assert transformer.decides is transformer is as_transformer(transformer)


def test_all_that_a_factory_has_is_used() -> None:
    factory = as_factory(MostFactory())
    assert (factory.strategy, factory.uses_written_times, factory.rotation_us) == ("STOP_ON_FIRST_INCLUDED", True, 3)
    assert (factory.plan([STATE], CLOCK), factory.cutoff(STATE, CLOCK)) == (["not today"], CUTOFF)
    assert factory.with_names(str.upper).describe() == "most of AT"


def test_all_that_a_transformer_has_is_used() -> None:
    transformer = create(as_factory(MostFactory()), STATE, CLOCK)
    assert isinstance(transformer, Transformer)
    moments = transformer.moments(ENTRIES)
    assert moments is not None and moments[0].tolist() == [1, 2]
    assert (transformer.time_summary(), transformer.unclosed(ENTRIES).tolist()) == (SUMMARY, [True, True])


def test_the_times_of_a_chain_are_those_of_the_transformers_that_have_some() -> None:
    chain = StateTransformers[StateEntries](STATE, [as_factory(LeastFactory()), as_factory(MostFactory())], CLOCK)
    moments = chain.moments(ENTRIES)
    assert moments is not None and moments[1].tolist() == [False, True]
    assert chain.result().times == SUMMARY
    least = StateTransformers[StateEntries](STATE, [as_factory(LeastFactory())], CLOCK)
    assert (least.moments(ENTRIES), least.result().times) == (None, None)


def test_what_has_no_create_is_refused() -> None:
    with pytest.raises(UsageError, match=r"is not a transformer factory: it has no create\(state, clock\)"):
        as_factory(print)  # type: ignore[arg-type]


def test_an_error_of_a_factory_names_the_class_of_its_author() -> None:
    class Failing(LeastFactory):
        def create(self, state: StateDescriptor, clock: Clock) -> Any:
            raise ValueError("no")

    with pytest.raises(TransformerError, match=r"Failing\.create raised ValueError at test_adapters\.py:\d+: no"):
        create(as_factory(Failing()), STATE, CLOCK)


def test_an_own_factory_is_used_as_it_is() -> None:
    own = TtlTransformerFactory(timestamp="value.at")
    assert as_factory(own) is own
