"""One text for all that is reached from something, whatever the order in which it was come upon.

Values are parts that name one another by numbers, so that what holds itself has an end. What is written depends on the
first part and on what it reaches alone: parts are numbered anew as they are reached, and the elements of sets, which
have another order in each process, are put into one by what they consist of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Part:
    """What a value is, and by names what is within: the number of another part, or a constant as text."""

    label: str
    inner: list[tuple[str, int | str]]
    ordered: bool = True

    @property
    def numbers(self) -> list[int]:
        return [target for _, target in self.inner if isinstance(target, int)]


def digest_of(parts: Sequence[Part]) -> str:
    """The digest of the first part, and of all that it reaches."""
    ranks = _ranks(parts)
    numbers, order = {0: 0}, [0]
    digest = hashlib.sha256()
    for at in order:  # more come while this goes on
        part = parts[at]
        inner = part.inner if part.ordered else sorted(part.inner, key=lambda pair: _place(pair, ranks, numbers))
        written = []
        for name, target in inner:
            if isinstance(target, int):
                if target not in numbers:
                    numbers[target] = len(order)
                    order.append(target)
                target = numbers[target]
            written.append((name, target))
        digest.update(repr((part.label, written)).encode())
    return digest.hexdigest()[:16]


def _place(pair: tuple[str, int | str], ranks: Sequence[int], numbers: dict[int, int]) -> tuple[Any, ...]:
    """Where an element of a set is; of two that are alike first what was reached before."""
    name, target = pair
    if isinstance(target, str):
        return name, target, 0, 0
    return name, "", ranks[target], numbers.get(target, len(numbers))


def _ranks(parts: Sequence[Part]) -> list[int]:
    """A number for each part by what it consists of, told apart as far as needed to order the elements of sets.

    Parts that look alike are told apart by what is within, and what is within that, until nothing more is.
    """
    sets = [part.numbers for part in parts if not part.ordered and len(part.numbers) > 1]
    if not sets:
        return [0] * len(parts)
    ranks, alike = _ranked([(part.label, *_constants(part)) for part in parts]), 0
    while max(ranks) > alike and any(len({ranks[n] for n in numbers}) < len(numbers) for numbers in sets):
        alike = max(ranks)
        within = ([ranks[n] for n in part.numbers] for part in parts)
        ranks = _ranked(
            [
                (rank, *(found if part.ordered else sorted(found)))
                for rank, part, found in zip(ranks, parts, within, strict=True)
            ]
        )
    return ranks


def _constants(part: Part) -> list[tuple[str, str]]:
    found = [(name, "" if isinstance(target, int) else target) for name, target in part.inner]
    return found if part.ordered else sorted(found)


def _ranked(keys: Sequence[Any]) -> list[int]:
    order = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]
