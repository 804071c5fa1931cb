"""Sources of Delta tables: what the tables have, and queries that go on with a table that was created again."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import copy, rewind, rollback, set_positions, sources
from ttlsnap.delta.log import Protocol, TableMetadata, TableState
from ttlsnap.errors import UsageError
from ttlsnap.positions.delta_tables import SourceTable
from ttlsnap.schema.types import StructType

from ..cli.running import Ttlsnap
from ..compaction.stories import BATCHES, MORE, settled
from ..judge.processes import Server
from ..judge.queries import Query
from ..judge.spark import Judge
from ..publishing.trees import tree
from .test_setting import results

# After 30 days, Delta would remove the commits.
BEGIN = int(time.time()) - 86_400
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
        ({"reservoirVersion": 4, "index": -1, "isStartingVersion": True}, 6),
        ({"reservoirVersion": 4, "isStartingVersion": True}, 5),
        ({"reservoirVersion": 3, "index": -1, "isStartingVersion": True}, None),
        ({"reservoirVersion": 3}, 6),
        ({"reservoirVersion": 2}, None),
        ({"reservoirId": "other"}, None),
    ],
)
def test_how_far_a_position_is_behind(changes: dict[str, Any], behind: int | None) -> None:
    state = TableState(9, Protocol(1, 2), TableMetadata("t", StructType(()), ()))
    found = SourceTable("/table", state, 3, 4).versions({**READ, **changes})
    assert (found.behind, found.is_lost) == (behind, behind is None)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@pytest.mark.wide
def test_a_time_is_that_of_delta(delta_server: Server, tmp_path: Path) -> None:
    """``startingTimestamp`` of a new query, and another position of an old one, read the same."""
    table, target = tmp_path / "table", str(tmp_path / "checkpoint")
    log = table / "_delta_log"
    of_table: dict[str, Any] = {"tables": {"0": str(table)}, "stopped": True}

    def run(function: str, **order: Any) -> Any:
        package, order = str(Path(__file__).parent), {"table": str(table), **order}
        return delta_server.ask("call", package=package, function=f"delta_queries.{function}", order=order)

    def since(moment: str) -> list[int]:
        wanted = run("read", checkpoint=str(tmp_path / f"new {moment}"), options={"startingTimestamp": moment})
        is_change = set_positions(target, {"0": moment}, **of_table).published
        clone = str(tmp_path / f"clone {moment}")
        copy(target, clone, new_id=True)
        if is_change:
            rollback(target, stopped=True)
        assert run("read", checkpoint=clone, options={}) == wanted
        return list(wanted)

    for number in range(6):
        run("append", number=number)
        os.utime(log / f"{number:020d}.json", (BEGIN + 60 * number,) * 2)
    # A file's time can go back, and that of a version does not.
    os.utime(log / f"{3:020d}.json", (BEGIN,) * 2)
    assert run("read", checkpoint=target, options={}) == [0, 1, 2, 3, 4, 5]
    assert since(at(BEGIN + 60)) == [1, 2, 3, 4, 5]
    assert since(at(BEGIN + 119)) == [2, 3, 4, 5]
    assert since(at(BEGIN + 121)) == [4, 5]
    run("in_commit_timestamps")
    run("append", number=7)
    os.utime(log / f"{7:020d}.json", (BEGIN + 360,) * 2)
    (action,) = [line for line in (log / f"{7:020d}.json").read_text().splitlines() if "inCommitTimestamp" in line]
    assert since(at(json.loads(action)["commitInfo"]["inCommitTimestamp"] / 1000)) == [7]
    assert since(at(BEGIN + 301)) == [7]

    # Without the first versions, nothing shows which of the others is the first one since an early time.
    for number in range(3):
        (log / f"{number:020d}.json").rename(tmp_path / str(number))
    set_positions(target, {"0": at(BEGIN + 239)}, dry_run=True, **of_table)
    with pytest.raises(UsageError, match=r"versions 3 to 7, and not of all since .* 3 is the first one"):
        set_positions(target, {"0": at(BEGIN - 1)}, **of_table)
    (source,) = sources(target).sources
    for version, is_possible in ((5, False), (6, True)):
        whole = {**source.position, "reservoirVersion": version, "index": -1, "isStartingVersion": True}
        with nullcontext() if is_possible else pytest.raises(UsageError, match=r"as a whole .* 6 to 7, and not of 5"):
            set_positions(target, {"0": whole}, dry_run=True, **of_table)


@pytest.mark.wide
def test_a_table_of_which_only_a_part_is_read(delta_server: Server, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    table, target = str(tmp_path / "table"), str(tmp_path / "checkpoint")

    def run(function: str, **order: Any) -> Any:
        package = str(Path(__file__).parent)
        return delta_server.ask("call", package=package, function=f"delta_queries.{function}", order=order)

    for number in range(4):
        run("append", table=table, number=number)
    one_by_one = {"maxFilesPerTrigger": "1"}
    assert run("read", table=table, checkpoint=target, options=one_by_one) == [0, 1, 2, 3]
    assert "To look first: --table 0=PATH" in rewind(target, 1, dry_run=True, stopped=True).warnings[0]
    assert not rewind(target, 1, tables={"0": table}, stopped=True).warnings
    (source,) = sources(target).sources
    assert (source.position["reservoirVersion"], source.position["isStartingVersion"]) == (3, True)
    clone = str(tmp_path / "clone")
    copy(target, clone, new_id=True)
    set_positions(target, {"0": 3}, tables={"0": table}, stopped=True)
    assert run("read", table=table, checkpoint=target, options=one_by_one) == [3]  # and never 2

    # Once their files are gone, neither the rest of the table nor the changes of a version can be read.
    run("vacuum", table=table)
    with pytest.raises(UsageError, match=r"has lost .*\.parquet, which would be read"):
        rewind(target, 4, tables={"0": table}, stopped=True)
    with pytest.raises(UsageError, match=r"has lost .*\.parquet, which would be read"):
        set_positions(target, {"0": 2}, tables={"0": table}, stopped=True)
    (source,) = sources(target, tables={"0": table}).sources
    assert source.table is not None and not source.table.is_lost and source.table.lost_file is None
    shown = " ".join(ttlsnap("sources", clone, "--table", f"0={table}").out.split())
    assert f"{table} has lost part-" in shown and "which the query still has to read" in shown


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
        ({"0": "yesterday"}, "to: this is not a timestamp, such as"),
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
