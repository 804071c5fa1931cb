"""A fixture that runs a test with each of the two ways to find the elements of arrays and maps."""

from __future__ import annotations

import pytest

from ttlsnap.avro import walk


@pytest.fixture(params=["in step", "one by one"])
def walking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find elements in one way only, however many there are."""
    few, near = (0, 1 << 40) if request.param == "in step" else (1 << 40, 0)
    monkeypatch.setattr(walk, "FEW", few)
    monkeypatch.setattr(walk, "NEAR", near)
