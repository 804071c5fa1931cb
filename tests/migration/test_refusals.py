"""A migration is refused, and changes nothing, if it cannot know where entries belong or who else writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap import migrate
from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.run import SilentListener

from ..samples import bytes_of, sample, without_own

AGG = "agg-deltas-lz4-4.2"


def exchange_partitions(target: Path) -> None:
    """Exchange the files of the partitions 0 and 1."""
    for path in [path for path in (target / "state/0/0").iterdir() if path.is_file()]:
        path.rename(target / "here")
        (target / "state/0/1" / path.name).rename(path)
        (target / "here").rename(target / "state/0/1" / path.name)


def test_keys_in_the_wrong_partition_are_not_moved(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    exchange_partitions(target)
    before = bytes_of(target)
    with pytest.raises(RefusedError, match=r"480 keys are not in the partition that Spark's hash gives"):
        migrate(str(target), partitions=3, stopped=True)
    assert bytes_of(target) == before


@pytest.mark.parametrize("copy", [False, True])
def test_a_checkpoint_that_changes_before_the_publishing_is_left_alone(tmp_path: Path, copy: bool) -> None:
    target, output = sample(AGG, tmp_path), tmp_path / "copy"

    class Meanwhile(SilentListener):
        def confirm(self, report: MigrationReport) -> bool:
            (target / "state/0/1/8.delta").write_bytes(b"of a running query")
            return True

    more: dict[str, Any] = {"output": str(output)} if copy else {}
    with pytest.raises(BusyError, match=r"state/0/1/8\.delta changed while ttlsnap worked: the query is running"):
        migrate(str(target), partitions=3, stopped=True, listener=Meanwhile(), **more)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    (target / "state/0/1/8.delta").unlink()
    assert without_own(bytes_of(target)) == bytes_of(sample(AGG, tmp_path / "another"))
