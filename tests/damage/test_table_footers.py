"""Damaged footers of SST files. A footer has no checksum, and RocksDB would crash on a length of exabytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..matrix import rotating
from ..samples import COMPACTABLE, sample
from . import wreck
from .confined import Confinement

FOOTER = 53
HUGE = b"\x7f" + b"\xff" * 7


@pytest.mark.parametrize(
    "name", rotating(["rocksdb-4.2", "rocksdb-3.2", "sessions-rocksdb-3.2", "visits-4.2"], 1, "footers")
)
@pytest.mark.parametrize(
    ("place", "data"),
    [(1, HUGE), (2, HUGE), (3, HUGE), (1, b"\xff" * 40), (1, b"\0" * 40), (0, b"\xff"), (45, b"\0" * 8)],
)
def test_a_damaged_footer_is_an_error(
    confinement: Confinement, tmp_path: Path, name: str, place: int, data: bytes
) -> None:
    target = wreck.forget_checksums(sample(name, tmp_path))
    paths = sorted(target.rglob("*.sst"))
    for path in paths:
        whole = path.read_bytes()
        start = len(whole) - FOOTER + place
        path.write_bytes(whole[:start] + data + whole[start + len(data) :])
        assert path.read_bytes() != whole
    options = ("--timestamp", COMPACTABLE[name], "--ttl", "1h") if name in COMPACTABLE else ("--transformer", "keep")
    for command in (("inspect", "--entries", "999", "--age"), ("compact", *options, *wreck.QUICK)):
        told = confinement.run(command[0], target, *command[1:])
        assert (told.code, told.out) == (5, "")
        assert any(str(path) in told.err for path in paths) or "RocksDB says" in told.err
    found = confinement.run("doctor", target, "--format", "json", "--parallelism", "1")
    assert found.code == 1
    assert ".sst" in json.dumps(json.loads(found.out)["problems"])
