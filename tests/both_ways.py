"""A fixture that runs the tests of a module twice: with the library in C, and with the array code.

A module imports it: ``from ..both_ways import both_ways``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ttlsnap import native


@pytest.fixture(params=["in C", "arrays"], scope="module", autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Switch the library on or off for the tests of a module."""
    in_c = request.param == "in C"
    if in_c and not native.is_available():
        pytest.skip("ttlsnap was installed without a C compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "is_available", lambda: in_c)
        yield
