"""Zips that swell: every member may be only as large as Spark writes it, and none is held in memory."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ..matrix import narrow
from ..samples import sample
from . import wreck
from .confined import Confinement
from .conftest import Overtaxes

pytestmark = pytest.mark.slow

NAME = "rocksdb-4.2"
PIECE = 4 << 20
MEMBERS = {
    "MANIFEST": 900 << 20,
    "MANIFEST of 64 MiB": 64 << 20,
    "OPTIONS": 100 << 20,
    "CURRENT": 1 << 20,
    "metadata": 100 << 20,
    "000101.log": 100 << 20,
    "IDENTITY": 1 << 20,
}


def _swollen(target: Path, kind: str, size: int) -> Path:
    """Replace a member of the newest zip by one of zeros. Return the path of the zip."""
    path = max(target.glob("state/0/0/*.zip"))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = next((name for name in members if name.startswith(kind)), kind)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, data in members.items():
            if other != name:
                archive.writestr(other, data)
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(info, "w") as member:
            for start in range(0, size, PIECE):
                member.write(bytes(min(PIECE, size - start)))
    assert path.stat().st_size < 2 << 20
    wreck.forget_checksums(target)
    return path


@pytest.mark.parametrize("case", narrow(list(MEMBERS), 0, 4, 5))
def test_a_member_that_swells_is_refused(
    refuses_in_little_room: Overtaxes, confinement: Confinement, tmp_path: Path, case: str
) -> None:
    target = sample(NAME, tmp_path)
    kind = case.partition(" ")[0]
    path = _swollen(target, kind, MEMBERS[case])
    told = refuses_in_little_room(target, NAME)
    assert f"{path}: {kind}" in told and "bytes" in told
    found = confinement.run("doctor", target, "--format", "json", "--parallelism", "1")
    assert found.peak < 64 << 20
    assert found.code == 1
    assert str(path) in json.dumps(json.loads(found.out)["problems"])


@pytest.mark.parametrize("names", [[f"{number:06}.log" for number in range(101, 1001)], ["IDENTITY"] * 30_000])
def test_the_members_of_a_zip_have_a_common_limit(
    refuses_in_little_room: Overtaxes, tmp_path: Path, names: list[str], recwarn: pytest.WarningsRecorder
) -> None:
    target = sample(NAME, tmp_path)
    path = max(target.glob("state/0/0/*.zip"))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        data = bytes(1 << 20) if len(names) < 1000 else b""
        for name in names:
            archive.writestr(name, data)
    wreck.forget_checksums(target)
    assert str(path) in refuses_in_little_room(target, NAME)


def test_a_zip_directory_of_gigabytes_is_refused(refuses_in_little_room: Overtaxes, tmp_path: Path) -> None:
    target = sample(NAME, tmp_path)
    path = max(target.glob("state/0/0/*.zip"))
    end = bytearray(path.read_bytes()[-22:])
    assert end[:4] == b"PK\5\6"
    size = 3 << 30
    end[12:16], end[16:20] = size.to_bytes(4, "little"), bytes(4)
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(0, 2)
        file.write(end)
    wreck.forget_checksums(target)
    assert f"{path} is damaged or truncated" in refuses_in_little_room(target, NAME)
