"""The keys of deduplications, old against new: the order of their columns, and their floats.

See ``ttlsnap.operators.scala_order`` for the order. Before 4.2, -0.0 and 0.0 were two keys, and each NaN with other
bits was one, too. From 4.2 on, Spark normalizes the columns by which it deduplicates, and does not find such a key
again. Groups and joins always had normalized keys. Tested on Spark 4.0 to 4.3.
"""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.check.comparison import Comparison, parse_version
from ttlsnap.check.outcomes import KEY_FLOATS, KEY_FLOATS_BACK, KEY_INTERVALS
from ttlsnap.contract import Contract, OperatorContract, StateContract
from ttlsnap.entries.place import Place
from ttlsnap.operators import deduplication
from ttlsnap.operators.scala_order import legacy_order
from ttlsnap.schema.types import CalendarIntervalType, DoubleType, FloatType, StructType, contains

NORMALIZED_SINCE = (4, 2)
DAYS_SINCE = (4, 3)  # see ttlsnap.unsaferow.murmur3


def normalizes_keys(comparison: Comparison) -> bool:
    """Return whether the new Spark normalizes the floats in the keys of deduplications, and the old one did not."""
    return parse_version(comparison.old.spark) < NORMALIZED_SINCE <= parse_version(comparison.new.spark)


def hashes_days(contract: Contract) -> bool:
    """Return whether Spark's hash of a calendar interval, which places a key, has the days of the interval."""
    return parse_version(contract.spark) >= DAYS_SINCE


def compare_intervals(comparison: Comparison, place: Place, key: StructType) -> None:
    """Report that the two versions of Spark look for keys with calendar intervals in other partitions."""
    if contains(key, CalendarIntervalType) and hashes_days(comparison.old) != hashes_days(comparison.new):
        words = {"set": "4.3" if hashes_days(comparison.new) else "4.2"}
        comparison.add(KEY_INTERVALS, place.at(field="key"), comparison.old.spark, comparison.new.spark, **words)


def compare_floats(comparison: Comparison, place: Place, key: StructType) -> None:
    """Report that the two versions of Spark have other equal floats, if the key of a deduplication has floats."""
    if place.operator_name not in deduplication.NAMES or not contains(key, FloatType, DoubleType):
        return
    versions = [parse_version(contract.spark) >= NORMALIZED_SINCE for contract in (comparison.old, comparison.new)]
    if versions[0] != versions[1]:
        outcome = KEY_FLOATS if versions[1] else KEY_FLOATS_BACK
        comparison.add(outcome, place.at(field="key"), comparison.old.spark, comparison.new.spark)


def with_keys_for(old: Contract, new: Contract) -> Contract:
    """Return the new contract as Spark runs its query with the checkpoint of the old one.

    Spark 4.3 pins the order of the columns for a new query. With a checkpoint of an earlier Spark it uses the order
    that the earlier Spark 4 has.
    """
    if old.lists_keys or not new.lists_keys or parse_version(new.spark) < (4, 3):
        return new
    plans = [operator.plan for operator in old.operators] + [None] * len(new.operators)
    pairs = zip(new.operators, plans, strict=False)
    return replace(new, operators=tuple(_with_legacy_key(operator, plan) for operator, plan in pairs))


def _with_legacy_key(operator: OperatorContract, old_plan: tuple[str, ...] | None) -> OperatorContract:
    if operator.name not in deduplication.NAMES:
        return operator
    stores = tuple(
        replace(store, states=tuple(_reorder(state, operator) for state in store.states)) if store.states else store
        for store in operator.stores
    )
    keys = [f"key {name}" for store in stores for state in store.states or () for name in state.key.names]
    return replace(operator, stores=stores, plan=_reorder_plan(operator.plan, old_plan, keys))


def _reorder(state: StateContract, operator: OperatorContract) -> StateContract:
    # A contract from a checkpoint does not say how the query spells the columns.
    names = operator.legacy_key or (legacy_order(state.key.names) if operator.plan is None else state.key.names)
    fields = {field.name: field for field in state.key.fields}
    if len(fields) < len(state.key) or sorted(names) != sorted(fields):
        return state  # columns with one name cannot be told apart
    return replace(state, key=StructType(tuple(fields[name] for name in names)))


def _reorder_plan(
    plan: tuple[str, ...] | None, old_plan: tuple[str, ...] | None, keys: list[str]
) -> tuple[str, ...] | None:
    """Return the plan with its keys in the order of ``keys``, if the old plan has them in this order, too."""
    if plan is None or old_plan is None or [line for line in old_plan if line in keys] != keys:
        return plan
    ordered_keys = iter(keys)
    return tuple(next(ordered_keys) if line in keys else line for line in plan) if set(keys) <= set(plan) else plan
