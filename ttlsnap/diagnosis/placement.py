"""Keys that are not in the partition where Spark looks for them (see ``ttlsnap.operators.placement``).

Also deduplications whose keys were written with their columns in two orders (see ``ttlsnap.operators.key_order``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.diagnosis.partition import PartitionCheck, PartitionFindings
from ttlsnap.diagnosis.problems import Problem, problem
from ttlsnap.operators.key_order import KeySample, find_two_orders
from ttlsnap.operators.links import StateId
from ttlsnap.operators.placement import STRICT, Misplaced
from ttlsnap.quoting import quote


def find_misplaced(
    checkpoint: Checkpoint, results: Sequence[tuple[PartitionCheck, PartitionFindings]]
) -> Iterator[Problem]:
    """Yield a problem for each operator with keys in the wrong partition."""
    misplaced_keys: dict[int, dict[StateId, list[Misplaced]]] = {}
    for task, findings in results:
        for place, misplaced in findings.misplaced.items():
            misplaced_keys.setdefault(task.operator, {}).setdefault(place, []).append(misplaced)
    # Where Spark does not generate code, all keys are where its interpreted code puts them.
    misplaced_keys = {
        operator: {place: parts for place, parts in states.items() if any(part.interpreted for part in parts)}
        for operator, states in misplaced_keys.items()
    }
    code = "misplaced-keys" if checkpoint.batch.conf.get(STRICT) == "true" else "maybe-misplaced-keys"
    for operator, states in ((operator, states) for operator, states in misplaced_keys.items() if states):
        first_misplaced = next(iter(states.values()))[0]
        keys = sum(part.count for parts in states.values() for part in parts)
        states_text = "" if len(states) == 1 else f" in {len(states)} states"
        message = (
            f"operator {operator}: {quantity(keys, 'key')}{states_text} {'is' if keys == 1 else 'are'} not in the "
            "partition that Spark's hash gives. For "
            "example, "
            + quote(json.dumps(first_misplaced.example, ensure_ascii=False))
            + f" is in partition {first_misplaced.partition}, and belongs to partition {first_misplaced.belongs_to}"
        )
        yield problem(checkpoint.target, code, layout.operator_directory(operator), message)


def find_key_orders(target: str, results: Sequence[tuple[PartitionCheck, PartitionFindings]]) -> Iterator[Problem]:
    """Yield a problem for each state whose keys were written in two orders."""
    samples: dict[tuple[int, StateId], list[KeySample]] = {}
    names: dict[tuple[int, StateId], tuple[str, ...]] = {}
    for task, findings in results:
        for place, sample in findings.keys.items():
            samples.setdefault((task.operator, place), []).append(sample)
            names[task.operator, place] = task.states[place].key_schema.names
    for (operator, place), samples_of_state in samples.items():
        orders = find_two_orders(names[operator, place], samples_of_state)
        if orders is not None:
            message = (
                f"operator {operator} has keys with their columns in two orders: {orders}. Of {orders.compared:,} "
                f"compared keys, {orders.pairs:,} are there in both"
            )
            where = layout.operator_directory(operator)
            if orders.certain:
                message += ". So rows came through that are duplicates of older rows"
                yield problem(target, "two-key-orders", where, message)
            else:
                yield problem(target, "maybe-two-key-orders", where, message)
