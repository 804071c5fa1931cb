"""Damaged snapshots that Spark can do without, and stale checksum files, on real Spark.

From 4.2 on, Spark skips a damaged snapshot and replays the deltas after an older one ("automatic snapshot repair").
``doctor --fix damaged-snapshot`` makes every Spark do so.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..compaction.stories import BATCHES, MORE, digest, drop_expired, rocksdb, settled, unwanted
from ..judge.processes import NEWEST
from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from ..publishing.snapshots import damage, published_snapshots
from .asked import doctor

OLDER = {
    "hdfs": ("4.1", Query("agg_update")),
    "changelogs": ("4.1", rocksdb("agg_update", True)),
    **({"changelogs with ids": ("4.1", rocksdb("agg_update", True, 2))} if FULL else {}),
    **({"hdfs 3.5": ("3.5", Query("agg_update")), "join": ("4.1", Query("join_parities"))} if FULL else {}),
}


def newest_snapshots(checkpoint: Checkpoint) -> list[Path]:
    """Return the newest snapshot of each store of each partition."""
    found: dict[Path, Path] = {}
    for path in (checkpoint.path / "state").rglob("[0-9]*"):
        if path.suffix in (".snapshot", ".zip"):
            last = found.setdefault(path.parent, path)
            found[path.parent] = max(last, path, key=lambda each: int(each.name.split(".")[0].split("_")[0]))
    return sorted(found.values())


@pytest.mark.wide
@pytest.mark.parametrize("name", OLDER)
def test_a_damaged_snapshot_is_moved_away_if_the_deltas_are_enough(judge: Judge, name: str) -> None:
    version, query = OLDER[name]
    if query.operator == "join_parities":
        written = judge.write(query, BATCHES, layout="both", version=version)
        wanted = judge.restart(judge.copy(written), MORE)
    else:
        written = judge.write(query, BATCHES, layout="both", version=version)
        wanted = written.expected.run(MORE)
    settled(written.path)
    for path in newest_snapshots(written):
        damage(path)
    before = digest(written.path)

    found = doctor(written.path)
    assert (found.code, set(found.codes)) == (1, {"damaged-snapshot"})
    assert set(found.restorable.values()) == {True}
    assert judge.refusal(judge.copy(written), MORE, fresh=True)
    # Later versions of Spark do the same by themselves.
    assert judge.restart(judge.copy(written), MORE, version=NEWEST, fresh=True) == wanted

    back = judge.copy(written)
    for each in (written, back):
        fixed = doctor(each.path, "--fix", "damaged-snapshot", "--stopped")
        assert (fixed.code, fixed.document["fixed"]) == (0, ["damaged-snapshot"]), fixed.error
    assert run(["rollback", str(back.path), "--stopped"]) == 0
    assert digest(back.path) == before
    assert judge.restart(written, MORE, fresh=True) == wanted


@pytest.mark.wide
def test_several_damaged_snapshots_and_a_stale_checksum_are_repaired_together(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), BATCHES, layout="snapshots", version="4.1")
    settled(written.path)
    folder = newest_snapshots(written)[0].parent
    snapshots = sorted(folder.glob("*.snapshot"))
    assert len(snapshots) >= 2
    for snapshot in snapshots:
        damage(snapshot)
    checksum = folder / "3.delta.crc"
    document = json.loads(checksum.read_text())
    checksum.write_text(json.dumps({**document, "value": document["value"] ^ 1}))
    (folder / ".3.delta.crc.crc").unlink()
    found = doctor(written.path)
    assert (found.code, set(found.codes)) == (1, {"damaged-snapshot", "stale-checksum"})
    assert found.codes.count("damaged-snapshot") == len(snapshots)
    assert set(found.restorable.values()) == {True}
    fixed = doctor(written.path, "--fix", "damaged-snapshot", "--fix", "stale-checksum", "--stopped")
    assert (fixed.code, fixed.codes) == (0, [])
    assert judge.restart(written, MORE, fresh=True) == written.expected.run(MORE)


def test_a_snapshot_is_needed_if_a_delta_is_missing_or_damaged(inputs: Judge) -> None:
    written = inputs.write(Query("agg_update"), BATCHES, layout="snapshots")
    settled(written.path)
    (snapshot, *_) = newest_snapshots(written)
    damage(snapshot)
    missing, damaged = inputs.copy(written), inputs.copy(written)
    delta = snapshot.relative_to(written.path).with_suffix(".delta")
    for path in (missing.path / delta, damaged.path / delta):
        path.with_name(f".{path.name}.crc").unlink()
    (missing.path / delta).unlink()
    damage(damaged.path / delta)
    for each in (missing, damaged):
        found = doctor(each.path)
        assert found.code == 1
        assert "damaged-snapshot" not in found.codes and "damaged-file" in found.codes
        assert found.restorable[3] is False
        assert doctor(each.path, "--fix", "damaged-snapshot", "--stopped").code == 2


@pytest.mark.parametrize("query", [Query("agg_update"), rocksdb("agg_update", True)], ids=["hdfs", "changelogs"])
def test_a_damaged_snapshot_of_ttlsnap_is_not_skipped_but_the_run_can_be_rolled_back(
    judge: Judge, query: Query
) -> None:
    written = judge.write(query, BATCHES)
    before = settled(written.path)
    drop_expired(written.path, query)
    (snapshot, *_) = published_snapshots(written)
    damage(snapshot)
    # ttlsnap 0.2 left the deltas where they were. They have the state from before the run.
    older = judge.copy(written)
    for delta in (older.path / "_ttlsnap").rglob("backup/state/**/3.*"):
        shutil.copy(delta, older.path / delta.relative_to(next(p for p in delta.parents if p.name == "backup")))
    for each in (written, older):
        found = doctor(each.path)
        assert found.code == 1
        assert [code for code in found.codes if code != "planned-batch"] == ["published-file-damaged"]
        assert "rollback" in found.problem("published-file-damaged")["fix"]
        assert doctor(each.path, "--fix", "published-file-damaged", "--stopped").code == 4
    snapshot.unlink()
    # The delta is missing, too, because the run moved it. Only a rollback brings back both.
    found = doctor(written.path)
    assert [code for code in found.codes if code != "planned-batch"] == ["published-file-missing"]
    assert "Do not restart" in found.problem("planned-batch")["fix"]
    # With the old delta of one partition, the version would load, as a mixture.
    mixed = judge.copy(written)
    for delta in (mixed.path / "_ttlsnap").rglob(f"backup/state/0/{snapshot.parent.name}/3.*"):
        shutil.copy(delta, mixed.path / "state/0" / snapshot.parent.name)
    found = doctor(mixed.path)
    assert "published-file-missing" in found.codes
    assert found.restorable[3] is False
    assert run(["rollback", str(written.path), "--stopped"]) == 0
    assert digest(written.path) == before
    assert judge.restart(written, MORE, fresh=True) == written.expected.run(MORE)


def test_bytes_that_only_differ_from_what_the_run_published_are_found(inputs: Judge) -> None:
    query = Query("agg_update")
    written = inputs.write(query, BATCHES)
    before = settled(written.path)
    drop_expired(written.path, query)
    first, second = published_snapshots(written)[:2]
    # Each is a good file, but in the wrong partition.
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    found = doctor(written.path)
    damaged = ["published-file-damaged"] * 2
    assert sorted(set(found.codes) - {"planned-batch"}) == ["misplaced-keys", "published-file-damaged"]
    assert [code for code in found.codes if code in damaged] == damaged
    assert found.restorable[3] is False
    for problem in found.document["problems"]:
        if problem["code"] == "published-file-damaged":
            assert "has other bytes" in problem["message"]
            assert str(first) in problem["fix"] and str(second) in problem["fix"], "a rollback needs both removed"
    for path in (first, second):
        path.unlink()
    assert run(["rollback", str(written.path), "--stopped"]) == 0
    assert digest(written.path) == before


def test_no_repair_keeps_the_last_run_from_being_rolled_back(inputs: Judge) -> None:
    query = Query("agg_update")
    written = inputs.write(query, BATCHES, layout="snapshots", version="4.1")
    before = settled(written.path)
    drop_expired(written.path, query)
    (mine, *_), older = published_snapshots(written), sorted((written.path / "state/0/0").glob("[0-9]*.snapshot"))[0]
    assert older not in published_snapshots(written)
    good = older.read_bytes()
    damage(older)
    warned = doctor(written.path).problem("damaged-snapshot")
    assert warned["fixable"] and "can no longer be rolled back" in warned["fix"]
    damage(mine)
    found = doctor(written.path)
    assert {"damaged-snapshot", "published-file-damaged"} <= set(found.codes)
    assert doctor(written.path, "--fix", "damaged-snapshot", "--stopped").code == 4
    mine.unlink()
    assert run(["rollback", str(written.path), "--stopped"]) == 0
    assert doctor(written.path).problem("damaged-snapshot")["fixable"]
    older.write_bytes(good)
    assert digest(written.path) == before


@pytest.mark.wide
def test_a_retry_by_a_later_spark_leaves_a_stale_checksum(judge: Judge) -> None:
    query = rocksdb("agg_update", False)
    written = judge.write(query, BATCHES[:2], layout="snapshot", version="4.1", uncommitted=BATCHES[2])
    settled(written.path)
    assert judge.restart(written, [], version=NEWEST) == written.expected.run([])
    before = settled(written.path)
    found = doctor(written.path)
    assert (found.code, set(found.codes)) == (1, {"stale-checksum"})
    assert found.restorable[3] is True
    assert run(["compact", str(written.path), "--ttl", "2h", "--timestamp", "value.max", "--stopped", "--yes"]) == 5
    assert digest(written.path) == before
    fixed = doctor(written.path, "--fix", "stale-checksum", "--stopped")
    assert (fixed.code, fixed.document["fixed"], fixed.codes) == (0, ["stale-checksum"], [])
    drop_expired(written.path, query)
    model = written.expected
    assert model.drop(unwanted(query)) > 0
    assert judge.restart(written, MORE, version="4.1", fresh=True) == model.run(MORE, version="4.1")


@pytest.mark.wide
@pytest.mark.parametrize("query", [Query("agg_update"), rocksdb("agg_update", True)], ids=["hdfs", "changelogs"])
def test_a_stale_checksum_keeps_4_1_from_starting_until_it_is_moved_away(judge: Judge, query: Query) -> None:
    written = judge.write(query, BATCHES, version="4.1")
    settled(written.path)
    (delta, *_) = sorted(path for path in (written.path / "state").rglob("3.*") if path.suffix != ".crc")
    checksum = delta.with_name(f"{delta.name}.crc")
    document = json.loads(checksum.read_text())
    checksum.write_text(json.dumps({**document, "value": document["value"] ^ 1}))
    checksum.with_name(f".{checksum.name}.crc").unlink()
    assert "CHECKSUM" in judge.refusal(judge.copy(written), MORE, fresh=True)
    # In an object store there is no checksum file of Hadoop. Then the checksums of LZ4 prove that the file is intact.
    bare = judge.copy(written)
    (bare.path / delta.relative_to(written.path)).with_name(f".{delta.name}.crc").unlink()
    for each in (bare, written):
        found = doctor(each.path)
        assert (found.code, found.codes) == (1, ["stale-checksum"])
        assert doctor(each.path, "--fix", "stale-checksum", "--stopped").code == 0
    assert judge.restart(written, MORE, fresh=True) == written.expected.run(MORE)
    # If the file itself is damaged, its checksum is not stale.
    data = (bare.path / delta.relative_to(written.path)).read_bytes()
    broken = judge.copy(bare)
    path = broken.path / delta.relative_to(written.path)
    path.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])
    path.with_name(checksum.name).write_text(json.dumps(document))
    assert "stale-checksum" not in doctor(broken.path).codes
    assert "damaged-file" in doctor(broken.path).codes


def test_without_checksums_of_its_own_a_file_is_not_called_intact(inputs: Judge) -> None:
    written = inputs.write(Query("agg_update", codec="zstd"), BATCHES, version="4.1")
    settled(written.path)
    (delta, *_) = sorted((written.path / "state").rglob("3.delta"))
    checksum = delta.with_name(f"{delta.name}.crc")
    document = json.loads(checksum.read_text())
    checksum.write_text(json.dumps({**document, "value": document["value"] ^ 1}))
    for path in (checksum, delta):
        path.with_name(f".{path.name}.crc").unlink()
    assert "damaged-file" in doctor(written.path).codes
