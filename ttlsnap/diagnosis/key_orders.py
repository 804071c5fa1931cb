"""Deduplications whose keys were written with their columns in two orders (see ``ttlsnap.operators.key_order``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ttlsnap.checkpoint import layout
from ttlsnap.diagnosis.partition import PartitionCheck, PartitionFindings
from ttlsnap.diagnosis.problems import Problem, problem
from ttlsnap.operators.key_order import KeySample, find_two_orders
from ttlsnap.operators.links import StateId


def find_key_orders(target: str, results: Sequence[tuple[PartitionCheck, PartitionFindings]]) -> Iterator[Problem]:
    """Yield a problem for each state whose keys were written in two orders."""
    samples: dict[tuple[int, StateId], list[KeySample]] = {}
    names: dict[tuple[int, StateId], tuple[str, ...]] = {}
    for task, found in results:
        for place, sample in found.keys.items():
            samples.setdefault((task.operator, place), []).append(sample)
            names[task.operator, place] = task.states[place].key_schema.names
    for (operator, place), found_here in samples.items():
        orders = find_two_orders(names[operator, place], found_here)
        if orders is not None:
            words = (
                f"operator {operator} has keys with their columns in two orders: {orders}. Of {orders.compared:,} "
                f"compared keys, {orders.pairs:,} are there in both"
            )
            where = layout.operator_directory(operator)
            if orders.certain:
                words += ". So rows came through that are duplicates of older rows"
                yield problem(target, "two-key-orders", where, words)
            else:
                yield problem(target, "maybe-two-key-orders", where, words)
