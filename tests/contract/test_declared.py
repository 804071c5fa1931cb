"""The declarations of a processor, read by running its ``init``."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming import StatefulProcessor

from ttlsnap.contract.declared import read_declaration
from ttlsnap.contract.functions import digests


class Visits(StatefulProcessor):  # type: ignore[misc]  # of a package without types
    def __init__(self, ttl: int | None = 1000, name: str = "visits", limit: int = 3) -> None:
        self.ttl, self.name, self.limit = ttl, name, limit

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.visits = handle.getValueState(self.name, "n int", self.ttl)
        self.pages = handle.getListState("pages", "page string")
        self.seen = handle.getMapState("seen", "page string", "at timestamp", ttlDurationMs=5)
        del self.ttl, self.name

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return rows

    def close(self) -> None:
        pass


class AnotherWay(Visits):
    def init(self, handle: Any) -> None:
        self.pages = handle.getListState(stateName="pages", schema="page string")
        super().init(handle)


class Fails(Visits):
    def init(self, handle: Any) -> None:
        raise ConnectionError("no database here")


def parts(processor: Any) -> dict[str, str]:
    return digests(processor, read_declaration(processor))


def differing(one: Any, two: Any) -> set[str]:
    old, new = parts(one), parts(two)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def test_ttls_are_in_milliseconds() -> None:
    found = read_declaration(Visits())
    assert found is not None
    assert found.ttls == {"visits": 1000, "pages": None, "seen": 5}


def test_reading_does_not_change_the_processor() -> None:
    processor = Visits()
    read_declaration(processor)
    assert vars(processor) == {"ttl": 1000, "name": "visits", "limit": 3}


@pytest.mark.parametrize(
    ("other", "seen"),
    [
        (Visits(ttl=2000), set()),
        (AnotherWay(), set()),
        (Visits(name="held"), {"names"}),
        (Visits(limit=4), {"attributes", "names"}),
    ],
)
def test_digests_depend_on_the_result_of_init(other: Any, seen: set[str]) -> None:
    assert differing(Visits(), other) == seen


def test_digests_depend_on_the_code_of_a_failing_init() -> None:
    assert read_declaration(Fails()) is None
    assert {"init", "attributes"} <= parts(Fails()).keys()
    assert "init" in differing(Visits(), Fails())


def test_a_function_declares_nothing() -> None:
    assert read_declaration(lambda key, rows, state: rows) is None
