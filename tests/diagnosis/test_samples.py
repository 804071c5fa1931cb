"""Samples of every kind: doctor finds sound ones sound, and names the file of any damage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap import doctor as look
from ttlsnap.cli.app import run
from ttlsnap.publishing.fence import raise_fence
from ttlsnap.publishing.journal import Journal
from ttlsnap.publishing.recording import write_journal
from ttlsnap.storage.open import open_directory

from ..operators.snapshots import rewrite
from ..samples import NAMES, SAMPLES, bytes_of, moved_sample, sample, without_own
from .asked import doctor

MOVED = ("alarms-4.2", "join-format4-4.2", "lists-4.2", "removed-4.2", "visits-4.2")
"""The samples whose operator metadata names their schema files at an earlier place."""

NOTES = {"uncommitted-batch-4.2": ["uncommitted-batch"], "no-schema-3.0": ["no-schema"]}


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_sample_has_no_problem_and_stays_unchanged(name: str, tmp_path: Path) -> None:
    target = moved_sample(name, tmp_path)
    before = bytes_of(target)
    found = doctor(target)
    assert bytes_of(target) == before
    if name in MOVED:
        assert (found.code, set(found.codes)) == (1, {"moved-schema-paths"})
        found = doctor(target, "--fix", "moved-schema-paths", "--stopped")
        assert found.document["fixed"] == ["moved-schema-paths"]
    assert (found.code, found.codes) == (0, NOTES.get(name, []))
    assert set(found.restorable.values()) == {True}
    assert found.document["batch"] == max(found.restorable) - 1
    if name in MOVED:
        assert run(["rollback", str(target), "--stopped"]) == 0
        after = without_own(bytes_of(target))
        assert after == before


def _flip(name: str, place: float = 0.5) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        (path,) = target.glob(name)
        data = bytearray(path.read_bytes())
        data[int(len(data) * place)] ^= 0x41
        path.write_bytes(data)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    return do


def _cut(name: str) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        (target / name).write_bytes((target / name).read_bytes()[:-3])

    return do


def _empty(name: str) -> Callable[[Path], None]:
    def do(target: Path) -> None:
        (target / name).write_bytes(b"")

    return do


def _remove(name: str) -> Callable[[Path], None]:
    return lambda target: (target / name).unlink()


def _stale_checksum(target: Path) -> None:
    shutil.copy(target / "state/0/0/.4.delta.crc", target / "state/0/0/.5.delta.crc")


def _to_come(target: Path) -> None:
    (target / "state/0/0/9.snapshot").write_bytes(b"")


def _extra(target: Path) -> None:
    shutil.copytree(target / "state/0/1", target / "state/0/2")


LZ4, ROCKSDB, CHANGELOG, IDS = "agg-deltas-lz4-4.2", "rocksdb-4.2", "rocksdb-changelog-3.5", "rocksdb-ids-4.2"
ALL = {1, 2, 3, 4, 5, 6, 7}
_Wreck = tuple[str, Callable[[Path], None], list[str], str, set[int]]
WRECKS: dict[str, _Wreck] = {
    # sample, damage, codes, named file, restorable versions
    "a delta in the middle": (
        LZ4, _flip("state/0/1/4.delta"), ["damaged-file", "last-batch-lost"], "state/0/1/4.delta", {1, 2, 3}),
    "the newest delta": (
        LZ4, _cut("state/0/0/7.delta"), ["damaged-file", "last-batch-lost"], "state/0/0/7.delta", ALL - {7}),
    "a delta that is gone": (
        LZ4, _remove("state/0/0/3.delta"), ["missing-delta", "last-batch-lost"], "state/0/0/3.delta", {1, 2}),
    "a stale checksum": (
        LZ4, _stale_checksum, ["damaged-file", "last-batch-lost"], "state/0/0/.5.delta.crc", {1, 2, 3, 4}),
    "the last commit": (
        LZ4, _empty("commits/6"), ["damaged-log", "last-batch-lost"], "commits/6", ALL - {7}),
    "the offsets of the last batch": (
        LZ4, _empty("offsets/6"), ["damaged-log", "last-batch-lost"], "offsets/6", ALL - {7}),
    "older offsets": (LZ4, _empty("offsets/2"), ["damaged-log"], "offsets/2", ALL - {3}),
    "a schema": (
        LZ4, _cut("state/0/0/_metadata/schema"), ["damaged-metadata", "nothing-restorable"], "_metadata/schema", set()),
    "a partition beyond the others": (LZ4, _extra, ["extra-partition"], "state/0/2", ALL),
    "the newest zip": (ROCKSDB, _flip("state/0/0/2.zip"), ["damaged-file", "last-batch-lost"], "state/0/0/2.zip", {1}),
    "an older zip": (ROCKSDB, _flip("state/0/0/1.zip"), ["damaged-file"], "state/0/0/1.zip", {2}),
    "a changelog": (
        CHANGELOG, _cut("state/0/0/2.changelog"), ["damaged-file", "last-batch-lost"], "state/0/0/2.changelog", {1}),
    "a snapshot to come": (LZ4, _to_come, ["stale-snapshot"], "state/0/0/9.snapshot", ALL),
    "a torn offset": (
        "uncommitted-batch-4.2", _empty("offsets/4"), ["torn-offset"], "offsets/4", {1, 2, 3, 4}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRECKS)
def test_damage_is_found_and_named(case: str, tmp_path: Path) -> None:
    name, wreck, codes, named, left = WRECKS[case]
    target = sample(name, tmp_path)
    wreck(target)
    for path in target.glob("**/.*.crc"):
        if "offsets" in path.parts or "commits" in path.parts or path.name == ".schema.crc":
            path.unlink()
    found = doctor(target)
    assert found.code == 1, found.document
    assert sorted(set(found.codes)) == sorted(codes)
    assert any(named in problem["message"] + problem["where"] for problem in found.document["problems"])
    assert {version for version, whole in found.restorable.items() if whole} == left
    fixable = [problem["code"] for problem in found.document["problems"] if problem["fixable"]]
    if fixable:
        fixed = doctor(target, "--fix", fixable[0], "--stopped", "--yes")
        assert fixed.code == 0, (fixed.document, fixed.error)
    for problem in found.document["problems"]:
        assert problem["fix"] and problem["where"] and not problem["where"].startswith("/")


@pytest.mark.parametrize(
    ("name", "where", "to"),
    [
        *((name, name, to) for name in ("metadata", "sources/0") for to in ("there", "nowhere")),
        *(("sources", "sources/0", to) for to in ("there", "nowhere")),
        ("sources/0/3", "sources/0/3", "there"),
    ],
)
def test_a_link_that_leads_outside_does_not_hide_other_problems(name: str, where: str, to: str, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    (target / name).rename(tmp_path / "there")
    (target / name).symlink_to(tmp_path / to)
    found = doctor(target)
    assert (found.code, found.codes) == (3, ["link-outside"])
    assert found.problem("link-outside")["where"] == where
    assert found.problem("link-outside")["severity"] == "unknown"
    assert {version for version, whole in found.restorable.items() if whole} == ALL
    _cut("state/0/0/7.delta")(target)
    found = doctor(target)
    assert (found.code, sorted(set(found.codes))) == (1, ["damaged-file", "last-batch-lost", "link-outside"])
    fixed = doctor(target, "--fix", "last-batch-lost", "--stopped", "--yes")
    assert (fixed.code, fixed.document) == (4, {}), fixed.error  # ttlsnap does not read what is outside


@pytest.mark.parametrize("text", [None, "", '{"id":"1ea6'])
def test_damaged_metadata_does_not_hide_the_versions(text: str | None, tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    path = target / "metadata"
    path.unlink()
    path.with_name(".metadata.crc").unlink(missing_ok=True)
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["damaged-metadata"])
    assert found.problem("damaged-metadata")["where"] == "metadata"
    assert {version for version, whole in found.restorable.items() if whole} == ALL
    _cut("state/0/0/7.delta")(target)
    before = bytes_of(target)
    refused = doctor(target, "--fix", "last-batch-lost", "--stopped")
    assert refused.code == 4 and f"{path}" in refused.error
    assert without_own(bytes_of(target)) == before


def test_tables_of_only_an_older_snapshot_are_checked(tmp_path: Path) -> None:
    target = sample(ROCKSDB, tmp_path)
    keep = ("--ttl", "1d", "--timestamp", "value.max", "--rewrite", "full", "--stopped", "--yes")
    assert run(["compact", str(target), "--engine", "local", "--parallelism", "1", *keep]) == 0
    assert doctor(target).code == 0
    # Tables of only the replaced snapshot are orphans: the backup has them, and Spark removes them.
    (backup,) = target.glob("_ttlsnap/runs/*/backup")
    orphans = {target / path.relative_to(backup) for path in backup.glob("state/0/*/SSTs/*.sst")}
    tables = sorted(set(target.glob("state/0/*/SSTs/*.sst")) - orphans)
    seen = set()
    for path in tables:
        whole = path.read_bytes()
        path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        found = doctor(target)
        assert found.code == 1
        problem = next(p for p in found.document["problems"] if p["code"] in ("damaged-file", "published-file-damaged"))
        assert problem["where"] == str(path.relative_to(target))
        seen.add(problem["severity"])
        path.write_bytes(whole)
    assert seen == {"error", "warning"}, "one of them is only of the older snapshot"
    assert doctor(target).code == 0


def test_an_interrupted_run_is_found_and_left_to_recover(tmp_path: Path) -> None:
    target = sample(LZ4, tmp_path)
    files = open_directory(str(target))
    journal = Journal("20260101T000000Z-abcdef", 1, "compact", 6, "offsets/7", (), "open")
    write_journal(files, journal)
    assert doctor(target).codes == ["cut-off-run"]
    assert raise_fence(files, journal)
    found = doctor(target)
    assert (found.code, found.codes) == (1, ["fence"])
    assert f"ttlsnap recover {target}" in found.problem("fence")["fix"]
    refused = doctor(target, "--fix", "fence")
    assert refused.code == 4 and "ttlsnap recover" in refused.error
    assert run(["recover", str(target)]) == 0
    assert doctor(target).code == 0


_KILLED_WITHOUT_SNAPSHOTS = """
import os, sys
from ttlsnap.cli.app import run

def die(event, arguments):
    if event == "os.rename" and "/staged/state/" in str(arguments[0]) and "/_ttlsnap/" not in str(arguments[1]):
        os._exit(9)

sys.addaudithook(die)
run(sys.argv[1:])
"""


def test_files_moved_by_an_interrupted_run_are_not_lost(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    before = bytes_of(target)
    command = ["compact", str(target), "--ttl", "2d", "--timestamp", "value.max", "--engine", "local", "--stopped"]
    killed = subprocess.run([sys.executable, "-c", _KILLED_WITHOUT_SNAPSHOTS, *command, "--yes"], check=False)
    assert killed.returncode == 9
    found = doctor(target)
    assert (found.code, found.codes[0]) == (1, "fence")
    assert not {"last-batch-lost", "nothing-restorable"} & set(found.codes)
    assert "missing-delta" in found.codes
    for problem in found.document["problems"]:
        assert f"ttlsnap recover {target}" in problem["fix"] and not problem["fixable"]
    refused = doctor(target, "--fix", "last-batch-lost", "--yes", "--stopped")
    assert refused.code == 4 and f"ttlsnap recover {target}" in refused.error
    assert run(["recover", str(target), "--undo"]) == 0
    assert without_own(bytes_of(target)) == before
    assert doctor(target).code == 0


_KILLED = """
import os, sys
from ttlsnap.publishing import swap
from ttlsnap import doctor

swap._require_targets = lambda *_: os._exit(9)
doctor(sys.argv[1], fix=["torn-offset", "moved-schema-paths"], stopped=True, parallelism=1)
"""


def test_recover_finishes_or_undoes_a_killed_repair(tmp_path: Path) -> None:
    target = moved_sample("visits-4.2", tmp_path)
    (target / "offsets/4").write_bytes(b"")
    (target / "state/0/0/5.zip").write_bytes(b"what the batch left")
    before = bytes_of(target)
    undone = Path(shutil.copytree(target, tmp_path / "undone"))
    for each in (target, undone):
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(each)], capture_output=True, check=False)
        assert killed.returncode == 9, killed.stderr
        assert doctor(each).codes[0] == "fence"
    assert run(["recover", str(undone), "--undo"]) == 0
    assert without_own(bytes_of(undone)) == before
    assert run(["recover", str(target)]) == 0
    assert doctor(target).code == 0
    assert not (target / "offsets/4").exists() and not (target / "state/0/0/5.zip").exists()
    assert run(["history", str(target)]) == 0
    assert run(["rollback", str(target), "--stopped"]) == 0
    assert without_own(bytes_of(target)) == before


def test_mistakes_have_their_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor(tmp_path / "nothing").code == 2
    assert doctor(tmp_path).code == 2
    target = sample(LZ4, tmp_path)
    before = bytes_of(target)
    for name, words in (("nonsense", "unknown problem"), ("torn-offset", "does not have this problem")):
        answer = doctor(target, "--fix", name)
        assert answer.code == 2 and words in answer.error
    assert bytes_of(target) == before
    moved = moved_sample("visits-4.2", tmp_path)
    (moved / "offsets/4").write_bytes((moved / "offsets/3").read_bytes())
    monkeypatch.delenv("TTLSNAP_STOPPED")
    answer = doctor(moved, "--fix", "moved-schema-paths")
    assert answer.code == 4 and "the query may be running" in answer.error
    unknown = sample("rocksdb-4.2", tmp_path)
    for path in [*unknown.glob("offsets/[0-9]"), *unknown.glob("offsets/.*")]:
        path.write_text(path.read_text().replace('codec":"lz4', 'codec":"abc')) if path.name[
            0
        ] != "." else path.unlink()
    answer = doctor(unknown)
    assert (answer.code, set(answer.codes)) == (3, {"unsupported"})
    assert set(answer.restorable.values()) == {None}


def test_the_text_names_the_repair_and_its_consequences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample(LZ4, tmp_path)
    _remove("state/0/0/3.delta")(target)
    assert run(["doctor", str(target)]) == 1
    told = capsys.readouterr().out
    for words in (
        "3 to 7",
        "1 to 2",
        "error: missing-delta",
        "To restore the whole checkpoint from a backup: ttlsnap copy BACKUP",
        "--fix last-batch-lost",
        "the sink gets their rows",
    ):
        assert words in told
    assert look(str(target), parallelism=2).to_json() == json.loads(json.dumps(look(str(target)).to_json()))


def _codes(target: Path) -> tuple[int, set[str]]:
    found = doctor(target)
    return found.code, set(found.codes)


def test_broken_links_are_found(tmp_path: Path) -> None:
    target = sample("join-4.2", tmp_path)
    rewrite(target, "left-keyToNumValues", lambda entries: entries[:-1])
    assert _codes(target) == (1, {"broken-links"})
    assert "left side do not match" in doctor(target).problem("broken-links")["message"]


def test_a_wrong_count_is_found(tmp_path: Path) -> None:
    target = sample(ROCKSDB, tmp_path)
    (path,) = target.glob("state/0/0/2.zip")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head, _, body = members["metadata"].partition(b"\n")
    document = json.loads(body)
    document["numKeys"] += 1
    members["metadata"] = head + b"\n" + json.dumps(document).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    assert _codes(target) == (1, {"wrong-count"})


def test_rows_that_do_not_fit_their_schema_are_found(tmp_path: Path) -> None:
    target, other = sample(LZ4, tmp_path), SAMPLES / "window-append-snappy-4.0"
    for name in ("schema", ".schema.crc"):
        shutil.copy(other / "state/0/0/_metadata" / name, target / "state/0/0/_metadata" / name)
    found = doctor(target)
    assert (found.code, set(found.codes)) == (1, {"row-does-not-fit-schema", "nothing-restorable"})
    assert len(found.codes) == 3, "once in each partition"


def test_a_huge_offset_of_a_file_source_is_an_error(tmp_path: Path) -> None:
    """Doctor stops at the first missing file of the source's log, so that a huge offset costs no time."""
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    path = target / "offsets/6"
    text = path.read_text()
    assert text.count('{"logOffset":5}') == 1
    path.write_text(text.replace('{"logOffset":5}', '{"logOffset":999999999999999999}'))
    path.with_name(".6.crc").unlink(missing_ok=True)
    assert "sources/0/6" in doctor(target).problem("damaged-log")["message"]


def test_a_missing_commit_in_the_middle_does_not_stop_spark(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    (target / "commits/5").unlink()
    (found,) = look(str(target)).problems
    assert (found.code, found.severity) == ("missing-commit", "warning")
    assert found.fix.endswith("; Spark does not read it, and continues with the newest commit")
