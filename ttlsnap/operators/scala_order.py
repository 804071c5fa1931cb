"""The order of the columns in a key of ``dropDuplicates``.

Spark binds the columns of a key by position. The order of more than four columns depends on what plans the query:

    Spark 3 (Scala 2.12), Spark 4.0 to 4.2 (Scala 2.13)    that of a hash set; the two can differ
    Spark 4.3 with a checkpoint of an earlier Spark        that of Scala 2.13
    Spark Connect; Spark 4.3 for a new query               the order in which the query lists the columns

Source: Spark's ``Dataset.dropDuplicates``, ``SparkConnectPlanner.transformDeduplicate``, ``ResolveDeduplicate``;
Scala's immutable ``HashSet``.
"""

from __future__ import annotations

from collections.abc import Sequence

ORDERED = 4
"""A set of Scala keeps the order of so many columns."""

_BITS = 2**32 - 1
_DEEPEST = 30


def legacy_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return the order of key columns that Spark 4.3 gives a query whose checkpoint an earlier Spark 4 began.

    ``names`` are the columns in the order in which the query lists them, and spelled as there.
    """
    return tuple(names) if len(names) <= ORDERED else tuple(_order(names, new=True))


def scala_orders(names: Sequence[str]) -> dict[tuple[str, ...], str]:
    """Return the orders in which Scala iterates over a set of more than four names, each with who has it."""
    old_order, new_order = tuple(_order(names, new=False)), tuple(_order(names, new=True))
    return (
        {old_order: "Spark 3 and 4"}
        if old_order == new_order
        else {old_order: "Spark 3, Scala 2.12", new_order: "Spark 4, Scala 2.13"}
    )


def _order(names: Sequence[str], *, new: bool, level: int = 0) -> list[str]:
    """Return names in the order of a tree with 32 branches, which five bits of the hash choose at each level.

    Scala 2.13 (``new``) first returns the names that are alone in their branch.
    """
    if len(names) == 1 or level > _DEEPEST:
        return list(names)  # names with the same hash have no tree
    branches: dict[int, list[str]] = {}
    for name in names:
        # A node of Scala's HashSet is a bitmap of 32 branches, so the order of its elements is that of their hashes.
        branches.setdefault(_hash(name) >> level & 31, []).append(name)
    ordered_branches = [branches[number] for number in sorted(branches)]
    if new:
        ordered_branches.sort(key=lambda branch: len(branch) > 1)
    return [name for branch in ordered_branches for name in _order(branch, new=new, level=level + 5)]


def _hash(name: str) -> int:
    """Return Java's hash of a text as Scala's HashSet improves it."""
    value = 0
    # Java hashes the UTF-16 units of a text (String.hashCode).
    text = name.encode("utf-16-le")
    for low, high in zip(text[::2], text[1::2], strict=True):
        value = (31 * value + low + (high << 8)) & _BITS
    value = (value + (~(value << 9) & _BITS)) & _BITS
    value ^= value >> 14
    value = (value + (value << 4)) & _BITS
    return value ^ (value >> 10)
