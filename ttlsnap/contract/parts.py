"""A digest of a value and everything that it refers to, independent of the order in which that was found.

Values are parts that refer to one another by number, so that a value may contain itself. The digest depends only on the
first part and on the parts that it reaches. Parts get new numbers as they are reached. Sets have another order in each
process, so their elements are sorted by their content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class DigestPart:
    """One value. ``label`` is its kind, ``inner`` its contents with names: a part's number, or a constant as text.

    ``ordered`` is False for a set, whose contents have no order.
    """

    label: str
    inner: list[tuple[str, int | str]]
    ordered: bool = True

    @property
    def numbers(self) -> list[int]:
        return [target for _, target in self.inner if isinstance(target, int)]


def digest_of(parts: Sequence[DigestPart]) -> str:
    """Return the digest (16 hexadecimal digits) of the first part and of everything that it reaches."""
    ranks = _ranks(parts)
    numbers, order = {0: 0}, [0]
    digest = hashlib.sha256()
    for number in order:  # the loop appends to the list
        part = parts[number]
        inner = part.inner if part.ordered else sorted(part.inner, key=lambda pair: _place(pair, ranks, numbers))
        renumbered = []
        for name, target in inner:
            if isinstance(target, int):
                if target not in numbers:
                    numbers[target] = len(order)
                    order.append(target)
                target = numbers[target]
            renumbered.append((name, target))
        digest.update(repr((part.label, renumbered)).encode())
    return digest.hexdigest()[:16]


def _place(pair: tuple[str, int | str], ranks: Sequence[int], numbers: dict[int, int]) -> tuple[Any, ...]:
    """Return the sort key of a set's element. Of two elements that look alike, the one reached earlier comes first."""
    name, target = pair
    if isinstance(target, str):
        return name, target, 0, 0
    return name, "", ranks[target], numbers.get(target, len(numbers))


def _ranks(parts: Sequence[DigestPart]) -> list[int]:
    """Return a number for each part by its content, as fine as needed to order the elements of sets.

    Parts that look alike are distinguished by their contents, then by the contents of these, and so on, as long as that
    distinguishes more parts.
    """
    sets = [part.numbers for part in parts if not part.ordered and len(part.numbers) > 1]
    if not sets:
        return [0] * len(parts)
    ranks, highest_before = _rank([(part.label, *_constants(part)) for part in parts]), 0
    while max(ranks) > highest_before and any(
        len({ranks[number] for number in numbers}) < len(numbers) for numbers in sets
    ):
        highest_before = max(ranks)
        ranks_within = ([ranks[number] for number in part.numbers] for part in parts)
        ranks = _rank(
            [
                (rank, *(inner_ranks if part.ordered else sorted(inner_ranks)))
                for rank, part, inner_ranks in zip(ranks, parts, ranks_within, strict=True)
            ]
        )
    return ranks


def _constants(part: DigestPart) -> list[tuple[str, str]]:
    constants = [(name, "" if isinstance(target, int) else target) for name, target in part.inner]
    return constants if part.ordered else sorted(constants)


def _rank(keys: Sequence[Any]) -> list[int]:
    order = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]
