"""``keep_tables`` reduces a database to some of its tables. RocksDB itself reads the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, Options, Rdict

from ttlsnap.errors import CorruptionError
from ttlsnap.stores.rocksdb.manifest import keep_tables

BLOCK = 32 << 10


def _database(folder: Path, sizes: list[int]) -> dict[int, bytes]:
    """Make a database in which each table has one key of the given size. Return the keys by table number."""
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    opened = Rdict(str(folder), options)
    keys: dict[int, bytes] = {}
    for number, size in enumerate(sizes):
        key = b"%04d" % number + b"k" * (size - 4)
        opened[key] = b"value"
        opened.flush()
        (table,) = {int(str(file["name"]).strip("/")[:-4]) for file in opened.live_files()} - keys.keys()
        keys[table] = key
    opened.close()
    return keys


def _manifest(folder: Path) -> Path:
    return folder / (folder / "CURRENT").read_text().strip()


def _keys(folder: Path) -> set[Any]:
    opened = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        return {key for key, _ in opened.items()}
    finally:
        opened.close()


@pytest.mark.parametrize("sizes", [[10] * 3, [20_000] * 5, [10, 50_000, 10, 70_000, 10]])
def test_only_the_kept_tables_remain(tmp_path: Path, sizes: list[int]) -> None:
    keys = _database(tmp_path / "all", sizes)
    for kept in [set(keys), set(), {min(keys)}, set(list(keys)[::2])]:
        folder = tmp_path / f"{len(kept)}-{min(kept, default=0)}"
        folder.mkdir()
        for path in (tmp_path / "all").iterdir():
            if path.suffix != ".sst" or int(path.stem) in kept:
                (folder / path.name).write_bytes(path.read_bytes())
        keep_tables(folder, keys, kept, "here")
        assert _keys(folder) == {keys[number] for number in kept}


@pytest.mark.parametrize("room", [2, 6, 10, 14, 18, 30])
def test_the_manifest_may_end_anywhere_in_a_block(tmp_path: Path, room: int) -> None:
    _database(tmp_path / "short", [100, 100])
    short = _manifest(tmp_path / "short").stat().st_size
    keys = _database(tmp_path / "all", [100, 100 + (BLOCK - short - room) // 2])
    manifest = _manifest(tmp_path / "all")
    assert -8 < BLOCK - manifest.stat().st_size - room < 8
    (tmp_path / "all" / f"{max(keys):06d}.sst").unlink()
    keep_tables(tmp_path / "all", keys, {min(keys)}, "here")
    assert _keys(tmp_path / "all") == {keys[min(keys)]}


def test_a_table_missing_from_the_manifest_is_damage(tmp_path: Path) -> None:
    keys = _database(tmp_path / "all", [10, 10])
    with pytest.raises(CorruptionError, match=r"here: 000099\.sst is listed, but the MANIFEST does not have it"):
        keep_tables(tmp_path / "all", [*keys, 99], [], "here")


def test_a_truncated_manifest_is_damage_if_it_lost_a_table(tmp_path: Path) -> None:
    keys = _database(tmp_path / "all", [10, 10])
    manifest = _manifest(tmp_path / "all")
    whole = manifest.read_bytes()
    for size in range(0, len(whole), 3):
        manifest.write_bytes(whole[:size])
        try:
            keep_tables(tmp_path / "all", keys, [], "here")
        except CorruptionError:
            continue
        # All tables precede the cut. RocksDB itself checks the rest.
        assert size > whole.rindex(b"0001kkkkkk")


@pytest.mark.parametrize("name", ["", "../all/MANIFEST-000001", "MANIFEST-999999", "MANIFEST-1\0", "/etc/passwd"])
def test_current_must_name_a_manifest_of_the_snapshot(tmp_path: Path, name: str) -> None:
    keys = _database(tmp_path / "all", [10])
    (tmp_path / "all/CURRENT").write_text(f"{name}\n")
    with pytest.raises(CorruptionError, match="which is not a MANIFEST in this snapshot"):
        keep_tables(tmp_path / "all", keys, [], "here")
