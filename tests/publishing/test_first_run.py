"""The first run of a query after ttlsnap has planned a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap.publishing.first_run import SPENT, may_be_spent

from ..compaction.stories import BATCHES, copy_all, drop_expired
from ..judge.processes import NEWEST
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL


@pytest.mark.wide
@pytest.mark.parametrize("version", [NEWEST, *(["3.5", "4.0", "4.1", "4.3"] if FULL else [])])
@pytest.mark.parametrize("wrapper", [False, True])
def test_available_now_spends_a_run_on_the_planned_batch_of_some_sources(
    judge: Judge, tmp_path: Path, version: str, wrapper: bool
) -> None:
    def run() -> list[list[int]]:
        order = {"checkpoint": str(tmp_path / "ck"), "wrapper": wrapper}
        return list(judge.call_in(Path(__file__).parent, version, "at_a_rate.run", **order))

    run()
    (last, _) = run()[-1]
    assert copy_all(tmp_path / "ck").first_run == SPENT
    batches = run()
    assert batches[0] == [last + 1, 0]
    if wrapper or version < "4.0":
        assert [number for number, _ in batches] == [last + 1, last + 2] and batches[1][1] > 0
    else:
        assert len(batches) == 1
        ((number, rows), *_) = run()
        assert number == last + 2 and rows > 0


@pytest.mark.parametrize(
    ("offset", "spent"),
    [
        ('{"logOffset":3}', False),
        ('{"topic":{"0":12,"1":0}}', False),
        ('{"sourceVersion":1,"reservoirId":"65bc","reservoirVersion":4,"index":-1,"isStartingVersion":false}', False),
        ('{"offset":3,"timestamp":1700000003000}', False),
        ("-", False),
        ("17", True),
        ('{"version":1,"snapshot_id":7,"position":1,"scan_all_files":false}', True),
        ("not JSON", True),
    ],
)
def test_only_sources_of_known_forms_are_sure(offset: str, spent: bool) -> None:
    assert may_be_spent(["-", offset]) is spent


def test_nothing_is_said_about_sources_that_are_known_or_without_a_planned_batch(inputs: Judge) -> None:
    written = inputs.write(Query("agg_update"), BATCHES)
    report = drop_expired(written.path, written.query)
    assert report.published and report.first_run is None and report.to_json()["first_run"] is None
