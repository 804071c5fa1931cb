"""The part of the matrix that is tested: a slice, or all of it with TTLSNAP_MATRIX=full (``make test-matrix``).

Of many similar cases, such as a kill at each system call, a slice has a few that rotate. The commit chooses them, so
that the commits of some weeks cover all of them. ``TTLSNAP_SEED`` chooses those of another commit.

The slice has two parts. ``make test`` runs the narrow one, with one version of Spark. ``make test-sparks`` runs the
tests that are marked ``wide``: further examples of the same, long ones, and all that need another version of Spark.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

FULL = os.environ.get("TTLSNAP_MATRIX") == "full"


@cache
def seed() -> str:
    """Return the seed of this run: the commit, or that of ``TTLSNAP_SEED`` in any form, which may be other text."""
    named = os.environ.get("TTLSNAP_SEED")
    words = ["git", "rev-parse", "--quiet", "--verify", "--short=12", f"{named or 'HEAD'}^{{commit}}"]
    done = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or named or "no commit"


def narrow(cases: Sequence[Any], *places: int) -> list[Any]:
    """Mark all cases of a test as wide, except those at these places (by default the first)."""
    chosen = places or (0,)
    assert all(0 <= place < len(cases) for place in chosen)

    def mark(case: Any) -> Any:
        values = case if type(case) is tuple else (case,)
        return pytest.param(*values, marks=pytest.mark.wide)

    return [case if place in chosen else mark(case) for place, case in enumerate(cases)]


def rotating(
    cases: Sequence[T], most: int, what: str, *, pinned: Callable[[T], bool] = lambda case: False
) -> Sequence[T]:
    """Return all cases, or in a slice at most ``most`` and those that are ``pinned``, in their order.

    ``what`` names the cases, so that each name has its own choice.
    """
    if FULL or len(cases) <= most:
        return cases

    def rank(number: int) -> str:
        return hashlib.sha256(f"{seed()}/{what}/{number}".encode()).hexdigest()

    chosen = set(sorted(range(len(cases)), key=rank)[:most])
    return [case for number, case in enumerate(cases) if number in chosen or pinned(case)]
