"""How many requests a run needs in an object store, for each partition and for each earlier run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import migrate, rollback

from ..samples import sample
from .late import compacted
from .places import upload
from .proxy import Proxy

AGG = "agg-deltas-lz4-4.2"


def count(proxy: Proxy, run: Any) -> int:
    proxy.reset()
    run()
    return len(proxy.seen)


@pytest.mark.wide
def test_a_partition_costs_few_requests(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    found: dict[int, list[int]] = {}
    for partitions in (4, 12):
        target = tmp_path / f"with-{partitions}"
        migrate(
            str(sample(AGG, tmp_path / "from" / target.name)), partitions=partitions, output=str(target), stopped=True
        )
        shutil.rmtree(target / "_ttlsnap")
        uri = upload(target, f"{bucket}/{target.name}")
        found[partitions] = [count(proxy, lambda: compacted(uri)), count(proxy, lambda: rollback(uri, stopped=True))]
    assert all(many - few <= 8 * 20 for few, many in zip(*found.values(), strict=True)), found


def test_an_earlier_run_costs_few_requests(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    uri = upload(sample(AGG, tmp_path), f"{bucket}/checkpoint")
    found = []
    for _ in range(4):
        found.append(count(proxy, lambda: compacted(uri)))
        rollback(uri, stopped=True)
    # One compaction and its rollback lie between two numbers: the listing of each folder, and its journal.
    assert found[-1] - found[1] <= 2 * 2 * 3, found
