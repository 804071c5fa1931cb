"""Functions and classes of every kind. As a program, it prints their digests.

python -P tests/contract/every_kind.py > tests/contract/digests.json
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import json
import typing
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

LIMIT = 5


@dataclass
class Plain:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list)


@dataclass(frozen=True, order=True, slots=True)
class Frozen:
    a: int
    b: str = "x"


@dataclass(kw_only=True, match_args=False, unsafe_hash=True)
class OnlyKeywords(Plain):
    d: dataclasses.InitVar[int] = 3

    def __post_init__(self, d: int) -> None:
        self.e = d


class Named(typing.NamedTuple):
    a: int
    b: str = "q"


Collected = collections.namedtuple("Collected", "a b", defaults=[1])


class Kind(enum.Enum):
    A = 1
    B = "x"


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Dict(typing.TypedDict, total=False):
    a: int


class HasWork(typing.Protocol):
    def work(self) -> int: ...


T = typing.TypeVar("T")


class Of(typing.Generic[T]):
    def work(self, value: T) -> T:
        return value


@functools.total_ordering
class Ordered:
    def __init__(self) -> None:
        self.x = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ordered) and self.x == other.x

    def __lt__(self, other: Ordered) -> bool:
        return self.x < other.x

    __hash__ = object.__hash__


class Abstract(abc.ABC):
    @abc.abstractmethod
    def work(self) -> list[int]: ...


class Concrete(Abstract):
    def work(self) -> list[int]:
        return [LIMIT + x for x in range(LIMIT)]


class Attributes:
    __slots__ = ("__dict__", "k")

    @functools.cached_property
    def x(self) -> int:
        return 1

    @property
    def y(self) -> int:
        return 2

    @staticmethod
    def z() -> int:
        return LIMIT

    @classmethod
    def w(cls) -> type:
        return cls


def comprehensions(rows: list[int]) -> Any:
    return (
        [x + LIMIT for x in rows if x > LIMIT],
        dict.fromkeys(rows, LIMIT),
        {x for x in rows if any(y > LIMIT for y in rows)},
        LIMIT,
    )


def classes() -> list[Any]:
    kinds = Plain, Frozen, OnlyKeywords, Named, Collected, Kind, Dict, HasWork, Of, Ordered, Concrete, Attributes
    return [kind for kind in kinds if isinstance(kind, type)]


def generator(rows: list[list[int]]) -> Iterator[list[int]]:
    def inner(values: list[int]) -> list[int]:
        return [LIMIT * value for value in values]

    try:
        yield from map(inner, rows)
    except* ValueError:
        raise


def text(x: int) -> str:
    return f"{x!r:>{LIMIT}} {LIMIT=}"


def matches(x: Any, path: str = "/dev/null") -> Any:
    match x:
        case Plain(a=1, b=z):
            return z
        case [1, *rest]:
            return rest
        case {"k": v, **others}:
            return v, others
    with open(path) as first, open(path) as second:  # noqa: PTH123
        assert first is not second, LIMIT
    return lambda q, /, r=LIMIT, *more, **named: (q, r, named, [LIMIT for _ in more])


async def asynchronous(rows: AsyncIterator[Any]) -> list[Any]:
    return [await row async for row in rows]


def every_kind() -> dict[str, Any]:
    """Return all of them by name, and objects of the classes."""
    kinds = {name: value for name, value in globals().items() if getattr(value, "__module__", "") == __name__}
    kinds |= {
        "cached": functools.lru_cache(comprehensions),
        "partial": functools.partial(comprehensions, [3]),
        "objects": [Plain(1), Frozen(1), OnlyKeywords(a=1), Named(1), Collected(1), Kind.A, Flags.B, Flags.A | Flags.B],
        "others": [Ordered(), Concrete(), Attributes()],
    }
    return {name: kind for name, kind in kinds.items() if name not in ("every_kind", "T")}


if __name__ == "__main__":
    from ttlsnap.contract.functions import digests

    print(json.dumps({name: digests(kind) for name, kind in every_kind().items()}, indent=1, sort_keys=True))
