"""Sources of Delta tables: what the tables have, and queries that go on with a table that was created again."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from ttlsnap import rollback, set_positions, sources
from ttlsnap.errors import UsageError
from ttlsnap.positions.delta_tables import SourceTable

from ..cli.running import Ttlsnap
from ..compaction.stories import BATCHES, MORE, settled
from ..judge.queries import Query
from ..judge.spark import Judge
from ..publishing.trees import tree
from .test_setting import results

READ = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": 5, "index": 3, "isStartingVersion": False}


@pytest.mark.parametrize(
    ("changes", "behind"),
    [
        ({}, 4),
        ({"index": -1}, 5),
        ({"reservoirVersion": 9}, 0),
        ({"reservoirVersion": 10, "index": -1}, 0),
        ({"reservoirVersion": 10, "index": -100}, 0),
        ({"reservoirVersion": 10}, None),
        ({"reservoirVersion": 11, "index": -1}, None),
        ({"reservoirVersion": 10, "index": -1, "isStartingVersion": True}, None),
        ({"reservoirVersion": 3}, 6),
        ({"reservoirVersion": 2}, None),
        ({"reservoirId": "other"}, None),
    ],
)
def test_how_far_a_position_is_behind(changes: dict[str, Any], behind: int | None) -> None:
    found = SourceTable("/table", "t", 3, 9).versions({**READ, **changes})
    assert (found.behind, found.is_lost) == (behind, behind is None)


@pytest.mark.wide
def test_a_table_that_was_created_again(judge: Judge, ttlsnap: Ttlsnap) -> None:
    written = judge.write(Query(source="delta"), BATCHES)
    settled(written.path)
    target, table = str(written.path), judge.table_of(written)
    of_table = ["--table", f"0={table}"]
    (source,) = sources(target, tables={"0": table}).sources
    assert source.table is not None
    assert (source.table.first, source.table.newest, source.table.behind) == (0, len(BATCHES) - 1, 0)
    assert f"is at version {len(BATCHES) - 1}: 0 versions behind" in ttlsnap("sources", target, *of_table).out.replace(
        "\n", " "
    )

    # A version of the same table, which does not need its path.
    old = tree(written.path)
    assert set_positions(target, {"0": 1}, stopped=True).changes[0].after == {
        **source.position,
        "reservoirVersion": 1,
        "index": -1,
        "isStartingVersion": False,
    }
    rollback(target, stopped=True)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"0": len(BATCHES) + 1}, f"has the changes of the versions 0 to {len(BATCHES) - 1}, and not of"),
        (
            {"0": "2026-11-20T00:00:00Z"},
            "earliest and latest are only possible for Kafka and Delta, and times for Kafka",
        ),
    ]
    for position, message in wrong:
        with pytest.raises(UsageError, match=message):
            set_positions(target, position, tables={"0": table}, stopped=True)
    with pytest.raises(UsageError, match="to latest needs tables 0=PATH"):
        set_positions(target, {"0": "latest"}, stopped=True)
    with pytest.raises(UsageError, match="is not a Delta table"):
        set_positions(target, {"0": "latest"}, tables={"0": target}, stopped=True)
    assert tree(written.path) == old

    shutil.rmtree(table)
    assert "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE" in judge.refusal(written, MORE[:1])
    (source,) = sources(target, tables={"0": table}).sources
    assert source.table is not None
    assert source.table.is_lost
    assert "is another table: its id is" in ttlsnap("sources", target, *of_table).out.replace("\n", " ")
    with pytest.raises(
        UsageError, match=f"the id of .* is {source.table.id}, and not {source.position['reservoirId']}"
    ):
        set_positions(target, {"0": source.position | {"index": -1}}, tables={"0": table}, stopped=True)
    model = written.expected
    again = [*BATCHES, *MORE[:1]]
    earliest = ["--set", "0", "--to", "earliest", *of_table, "--stopped", "--yes"]
    assert ttlsnap("sources", target, *earliest).code == 0
    assert results(judge.restart(written, [])) == results(model.run(again))
    assert judge.state(written) == model.state()

    # Nothing that the table has is read, and what comes later is.
    (source,) = sources(target, tables={"0": table}).sources
    assert source.table is not None
    assert source.table.behind == 0
    set_positions(target, {"0": "latest"}, tables={"0": table}, stopped=True)
    assert results(judge.restart(written, MORE[1:])) == results(model.run(MORE[1:]))
    assert judge.state(written) == model.state()
