"""How many requests a run needs in an object store, for each partition and for each earlier run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ttlsnap import copy, migrate

from ..samples import sample
from .late import compacted, rolled_back
from .places import upload
from .proxy import Proxy

AGG = "agg-deltas-lz4-4.2"


def count(proxy: Proxy, run: Callable[[], object]) -> int:
    proxy.reset()
    run()
    return len(proxy.seen)


@pytest.mark.wide
def test_a_partition_costs_few_requests(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    found = []
    for partitions in (4, 12):
        source, target = sample(AGG, tmp_path / f"from-{partitions}"), tmp_path / f"with-{partitions}"
        migrate(str(source), partitions=partitions, output=str(target), stopped=True)
        shutil.rmtree(target / "_ttlsnap")
        uri = upload(target, f"{bucket}/{target.name}")
        found.append([count(proxy, partial(run, uri)) for run in (compacted, rolled_back)])
    costs = [(many - few) / 8 for few, many in zip(*found, strict=True)]
    assert max(costs) <= 28, costs


@pytest.mark.wide
def test_an_earlier_run_costs_few_requests(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    uri = upload(sample(AGG, tmp_path), f"{bucket}/checkpoint")
    found = []
    for _ in range(4):
        found.append(count(proxy, partial(compacted, uri)))
        rolled_back(uri)
    # One compaction and its rollback lie between two numbers: the listing of each folder, and its journal.
    assert found[-1] - found[1] <= 2 * 2 * 3, found


@pytest.mark.wide
def test_a_copied_file_costs_few_requests(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    found, files = [], []
    for partitions in (4, 12):
        local, uri = tmp_path / f"with-{partitions}", f"{bucket}/from-{partitions}"
        migrate(str(sample(AGG, tmp_path / str(partitions))), partitions=partitions, output=str(local), stopped=True)
        shutil.rmtree(local / "_ttlsnap")
        files.append(copy(str(local), uri).files)
        shutil.rmtree(tmp_path / str(partitions))
        runs = [
            partial(copy, str(local), f"{uri}-up"),
            partial(copy, uri, str(tmp_path / f"down-{partitions}")),
            partial(copy, uri, f"{uri}-within"),
            partial(copy, uri, f"{uri}-again", onto=f"{uri}-within"),
            partial(copy, uri, f"{uri}-verified", verify=True),
        ]
        found.append([count(proxy, run) for run in runs])
    costs = [(many - few) / (files[1] - files[0]) for few, many in zip(*found, strict=True)]
    # A file is got and put, and each partition of a remote source, which has one file here, is listed.
    most = (1, 2, 3, 3, 4)
    assert all(cost <= limit for cost, limit in zip(costs, most, strict=True)), (files, found, costs)
