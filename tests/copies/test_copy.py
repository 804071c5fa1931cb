"""``copy`` with sample checkpoints: what a copy has, what it says, and how an interrupted one goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ttlsnap import compact, diff, doctor, export, inspect
from ttlsnap.backups.found import find_backups, remove_backup
from ttlsnap.backups.run import copy
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import COPY_MARK
from ttlsnap.copies.manifest import (
    DERIVED,
    MANIFEST,
    CopiedFile,
    CopyFacts,
    read_begun,
    read_manifest,
    write_begun,
    write_part,
)
from ttlsnap.copies.run import SilentCopyListener
from ttlsnap.copies.verify import find_differences
from ttlsnap.errors import CorruptionError, FencedError, RefusedError, StorageError, TtlsnapError, UsageError
from ttlsnap.positions.rewinding import list_restorable, rewind
from ttlsnap.storage.directory import FileInfo
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_directory

from ..backups.sources import read_one_source_twice
from ..cli.running import Ttlsnap
from ..mounts import may_mount
from ..positions import files
from ..publishing.publishers import DropsAFifth
from ..publishing.trees import tree
from ..samples import NAMES, bytes_of, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGG, VISITS, BEGUN, JOIN = "agg-deltas-lz4-4.2", "visits-4.2", "uncommitted-batch-4.2", "join-4.2"
HARMLESS = {"no-schema"}


class Interrupted(BaseException):
    """A stand-in for the end of the process."""


class Doing(SilentCopyListener):
    """A listener that does something when files are ``chosen`` or have ``arrived``."""

    def __init__(self, moment: str, work: Callable[[], object]) -> None:
        self.moment, self._work, self.calls = moment, work, 0

    def chosen(self, batch: int, files: int, size: int) -> None:
        self._at("chosen")

    def arrived(self, files: int, size: int) -> None:
        self._at("arrived")

    def _at(self, moment: str) -> None:
        if moment == self.moment:
            self.calls += 1
            self._work()


def test_what_is_recorded_as_arrived_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, sync, synced = sample(AGG, tmp_path), tmp_path / "copy", os.fsync, set[int]()

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def look() -> None:
        files = [path for path in target.rglob("*") if path.is_file() and path.suffix != ".lease"]
        assert len(files) > 30
        assert [path for path in files if path.stat().st_ino not in synced] == []

    monkeypatch.setattr(os, "fsync", note)
    listener = Doing("arrived", look)
    copy(str(source), str(target), listener=listener)
    assert listener.calls == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_has_the_same_state_and_nothing_is_wrong_with_it(tmp_path: Path, name: str) -> None:
    source, target = sample(name, tmp_path), tmp_path / "copy"
    before = bytes_of(source)
    report = copy(str(source), str(target), verify=True)
    assert bytes_of(source) == before
    assert (report.complete, report.verified, report.sent, report.attempts) == (True, True, report.files, 1)
    assert {problem.code for problem in doctor(str(target)).problems} <= HARMLESS
    if name != "no-schema-3.0":
        assert diff(str(source), str(target)).differs is False
    assert inspect(str(target)).checkpoint.query_id == inspect(str(source)).checkpoint.query_id


def test_files_of_later_batches_stay_behind(tmp_path: Path) -> None:
    source, target = sample(BEGUN, tmp_path), tmp_path / "copy"
    assert (source / "offsets/4").exists() and (source / "sources/0/4").exists()
    report = copy(str(source), str(target))
    assert (report.batch, report.begun_batch) == (3, 4)
    assert copy(str(source), str(tmp_path / "older"), batch=2).begun_batch is None
    assert not (target / "offsets/4").exists() and not (target / "sources/0/4").exists()
    assert {layout.batch_of(path) for path in bytes_of(target)} <= {None, 0, 1, 2, 3}


@pytest.mark.parametrize("positions", [(5, 5, 2), (3, 5, 3), (4, 4, 4)])
def test_a_copy_has_the_logs_of_a_source_that_the_query_uses_twice_and_of_another_one(
    tmp_path: Path, positions: tuple[int, ...]
) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    read_one_source_twice(source, lambda batch: positions)
    copy(str(source), str(target))
    for name, last_number in enumerate(dict.fromkeys(positions) if len(set(positions)) > 1 else positions[:2]):
        names = {path.name for path in (target / f"sources/{name}").glob("[0-9]*")}
        assert names == {str(number) for number in range(last_number + 1)}


def test_if_an_offset_may_be_that_of_several_sources_a_copy_has_their_logs_up_to_the_largest(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    read_one_source_twice(source, lambda batch: (5, 5, 2, 2), logs=3)
    copy(str(source), str(target))
    assert all(len(list((target / f"sources/{name}").glob("[0-9]*"))) == 6 for name in range(3))


def test_an_older_batch_can_be_copied(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    assert copy(str(source), str(target), batch=4).batch == 4
    assert doctor(str(target)).problems == ()
    assert diff(str(source), str(target), old_batch=4).differs is False


def test_a_clone_has_an_id_of_its_own(tmp_path: Path) -> None:
    source, target = sample(VISITS, tmp_path), tmp_path / "copy"
    report = copy(str(source), str(target), new_id=True)
    ids = [json.loads((folder / "metadata").read_text())["id"] for folder in (source, target)]
    assert report.query_id == ids[1] != ids[0]
    assert not (target / ".metadata.crc").exists()
    assert doctor(str(target)).problems == ()


def test_an_interrupted_copy_is_fenced_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttlsnap.copies.run.PART", 5)
    source, target, whole = sample(AGG, tmp_path), tmp_path / "copy", tmp_path / "whole"
    copy(str(source), str(whole))

    def end() -> None:
        if listener.calls == 4:
            raise Interrupted

    listener = Doing("arrived", end)
    with pytest.raises(Interrupted):
        copy(str(source), str(target), listener=listener)
    assert target.stat().st_mode & 0o777 == 0o700
    assert (target / "offsets/7").read_text().startswith("ttlsnap fence: this copy is not complete; run `ttlsnap copy ")
    for command in (inspect, lambda path: export(path, str(tmp_path / "export"))):
        with pytest.raises(TtlsnapError):
            command(str(target))
    with pytest.raises(FencedError, match="is a copy that is not complete; run `ttlsnap copy "):
        doctor(str(target))
    words = f"has an unfinished copy of {source}. To go on with it: ttlsnap copy {source} {target}. Otherwise"
    for other, new_id in ((sample(VISITS, tmp_path), False), (source, True)):
        with pytest.raises(RefusedError, match=re.escape(words)):
            copy(str(other), str(target), new_id=new_id)
    foreseen, report = (copy(str(source), str(target), dry_run=dry_run) for dry_run in (True, False))
    # The offsets are sent again, because a fence can have taken the place of one.
    assert (foreseen.kept, report.kept, report.sent) == (16, 16, report.files - 16)
    assert tree(target) == tree(whole)


@pytest.mark.parametrize("batches", [(6, 2), (2, 6), (6, 2, 6), (2, 6, 3)])
def test_a_copy_that_goes_on_with_another_batch_is_always_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: Sequence[int]
) -> None:
    source, target, whole, fences = sample(AGG, tmp_path), tmp_path / "copies/one", tmp_path / "whole", list[str]()
    copy(str(source), str(whole), batch=batches[-1])
    removed = tmp_path / "copies/removed"
    remove = LocalDirectory.remove

    def remove_and_look(files: LocalDirectory, path: str) -> None:
        remove(files, path)
        place = Path(files.root)
        if place in (target, removed) and any(place.glob("offsets/[0-9]*")) and not (place / MANIFEST).exists():
            look(place)

    def look(place: Path = target) -> None:
        newest_file = max((place / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        fences.append(newest_file.read_text()[:13])

    def end() -> None:
        look()
        raise Interrupted

    monkeypatch.setattr(LocalDirectory, "remove", remove_and_look)
    for number, batch in enumerate(batches[:-1]):
        for listener in (Doing("chosen", end), Doing("arrived", end)):
            if number or listener.moment == "arrived":
                with pytest.raises(Interrupted):
                    copy(str(source), str(target), batch=batch, listener=listener)
                with pytest.raises(FencedError):
                    doctor(str(target))
                (found,) = find_backups(open_directory(str(tmp_path / "copies")))
                assert found.status == "unfinished"
                shutil.copytree(target, removed)
                remove_backup(replace(found, place=str(removed)))
                assert not removed.exists()
    copy(str(source), str(target), batch=batches[-1], listener=Doing("chosen", look))
    assert set(fences) == {"ttlsnap fence"}
    assert tree(target) == tree(whole)


def test_an_unfinished_copy_that_somebody_has_used_is_refused(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"

    def end() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        copy(str(source), str(target), listener=Doing("arrived", end))
    (target / "offsets/7").unlink()
    before = tree(target)
    with pytest.raises(RefusedError, match="is an unfinished copy, but a query or a run of ttlsnap has worked on it"):
        copy(str(source), str(target))
    assert tree(target) == before


def damage(path: Path) -> None:
    """Change the last digit in a file, and keep its size and its time."""
    status, digit = path.stat(), re.compile(rb"\d(?=\D*$)")
    path.write_bytes(digit.sub(lambda match: b"1" if match[0] == b"0" else b"0", path.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("path", "work", "words"),
    [
        ("commits/5", damage, "has another content than the manifest says"),
        ("state/0/_metadata/metadata", Path.unlink, "is missing"),
        ("state/0/0/left-keyToNumValues/_metadata/schema", Path.unlink, "is missing"),
        ("metadata", Path.unlink, "is missing"),
        (MANIFEST, damage, "is not a manifest as ttlsnap wrote it"),
    ],
)
def test_a_damaged_copy_is_not_copied(tmp_path: Path, path: str, work: Callable[[Path], object], words: str) -> None:
    source, first, second = sample(JOIN, tmp_path), tmp_path / "first", tmp_path / "second"
    for file in source.rglob(".*.crc"):
        file.unlink()  # as on an object store
    copy(str(source), str(first))
    work(first / path)
    before = tree(first)
    for dry_run, verify in ((True, False), (False, False), (False, True)):
        with pytest.raises(CorruptionError, match=words):
            copy(str(first), str(second), dry_run=dry_run, verify=verify)
    assert tree(first) == before
    assert read_manifest(open_directory(str(second))) is None


LOST = [(), ("offsets/6", "commits/6"), ("commits/6",), ("offsets/3",), ("commits/3", "state/0/0/7.delta")]


@pytest.mark.parametrize("lost", LOST, ids=" ".join)
def test_a_copy_that_has_lost_files_or_has_a_foreign_one_is_not_copied(tmp_path: Path, lost: Sequence[str]) -> None:
    source, first, second = sample(AGG, tmp_path), tmp_path / "first", tmp_path / "second"
    copy(str(source), str(first))
    for path in lost:
        (first / path).unlink()
        (first / path).with_name(f".{(first / path).name}.crc").unlink(missing_ok=True)
    if not lost:
        shutil.copy(source / "sources/0/0", first / "sources/0/5.compact")
    for options in ({}, {"replace": True}):
        target = second if not options else source
        with pytest.raises(CorruptionError):
            copy(str(first), str(target), stopped=True, **options)  # type: ignore[arg-type]
    assert read_manifest(open_directory(str(second))) is None


def test_what_a_clone_has_instead_of_a_file_is_not_shared(tmp_path: Path) -> None:
    source, clone, backup = sample(AGG, tmp_path), tmp_path / "clone", tmp_path / "backup"
    (source / ".metadata.crc").unlink(missing_ok=True)
    copy(str(source), str(clone), new_id=True)
    report = copy(str(source), str(backup), onto=str(clone), verify=True)
    assert report.shared > 20
    assert (backup / "metadata").read_bytes() == (source / "metadata").read_bytes()
    manifest = read_manifest(open_directory(str(clone)))
    assert manifest is not None
    assert [path for path, file in manifest.files.items() if file.changed_ns == DERIVED] == ["metadata"]


def test_the_last_record_of_a_file_counts(tmp_path: Path) -> None:
    files = open_directory(str(tmp_path))
    write_begun(files, CopyFacts(made_at="", source="s", batch=1, query_id=None, source_query_id=None))
    files.mkdirs("offsets")
    files.replace("offsets/2", f"{COPY_MARK}\n".encode())
    for number in (10, 9, 2):
        write_part(files, number, [CopiedFile("a", number, "", 0)])
    begun = read_begun(files)
    assert begun is not None and begun[1]["a"].size == 10


def test_few_open_files_are_enough(tmp_path: Path) -> None:
    source = sample(JOIN, tmp_path)
    words = f"ulimit -n 64; {sys.executable} -m ttlsnap copy {source} {tmp_path}/copy --verify"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_copy_on_which_an_idle_query_has_written_a_snapshot_can_be_copied(tmp_path: Path) -> None:
    source, first, second = sample(AGG, tmp_path), tmp_path / "first", tmp_path / "second"
    copy(str(source), str(first))
    compact(str(sample(AGG, tmp_path / "other")), [DropsAFifth(0)], output=str(tmp_path / "output"), stopped=True)
    shutil.copy(tmp_path / "output/state/0/0/7.snapshot", first / "state/0/0/7.snapshot")
    for version in (1, 2, 3):
        (first / f"state/0/0/{version}.delta").unlink()
    report = copy(str(first), str(second), verify=True)
    assert "has files of the state that are not in its manifest" in " ".join(report.warnings)
    restored = copy(str(first), str(source), replace=True, dry_run=True, stopped=True)
    assert "has files of the state that are not in its manifest" in " ".join(restored.warnings)


def test_a_log_of_a_source_that_a_listing_lacks_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, whole = sample(AGG, tmp_path), tmp_path / "copy", tmp_path / "whole"
    copy(str(source), str(whole))
    list_tree, missed = LocalDirectory.list_tree, max((source / "sources/0").glob("[0-9]*")).relative_to(source)

    def list_others(files: LocalDirectory, path: str, most: int | None = None) -> dict[str, FileInfo]:
        infos = list_tree(files, path, most)
        if files.root == str(source):
            infos.pop(str(missed), None)
        return infos

    monkeypatch.setattr(LocalDirectory, "list_tree", list_others)
    copy(str(source), str(target))
    assert (target / missed).read_bytes() == (whole / missed).read_bytes()


def test_without_the_id_of_its_query_a_checkpoint_is_not_copied(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    (source / "metadata").unlink()
    with pytest.raises(CorruptionError, match="metadata is missing"):
        copy(str(source), str(target))
    assert not target.exists()


@may_mount
def test_a_place_in_the_checkpoint_is_refused_also_by_another_mount(tmp_path: Path) -> None:
    source, mount = sample(AGG, tmp_path), tmp_path / "mount"
    mount.mkdir()
    script = f"mount --bind {source} {mount} && ! {sys.executable} -m ttlsnap copy {source} {mount}/copy"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], check=True, capture_output=True, text=True)
    assert "must not contain each other" in done.stderr
    assert not (source / "copy").exists()


def test_the_owner_of_a_copy_may_write_to_it_even_if_the_original_is_read_only(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    for path in (*source.rglob("*"), source):
        path.chmod(0o555 if path.is_dir() else 0o444)
    copy(str(source), str(target))
    modes = {path.stat().st_mode & 0o777 for path in target.rglob("*") if "_ttlsnap" not in path.parts}
    assert modes == {0o755, 0o644}
    assert target.stat().st_mode & 0o700 == 0o700


def test_a_refused_place_is_said_to_be_a_copy_or_a_checkpoint_to_restore(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    copy(str(source), str(target))
    with pytest.raises(RefusedError, match=f"is a complete copy of {source} as of batch 6"):
        copy(str(source), str(target))
    with pytest.raises(RefusedError, match=f"To restore {source} from {target}, add replace"):
        copy(str(target), str(source))


def test_a_complete_copy_is_never_overwritten_even_if_it_still_has_the_record_of_an_unfinished_one(
    tmp_path: Path,
) -> None:
    source, clone = sample(AGG, tmp_path), tmp_path / "clone"
    copy(str(source), str(clone), batch=5, new_id=True)
    files = open_directory(str(clone))
    manifest = read_manifest(files)
    assert manifest is not None
    write_begun(files, manifest.facts)  # the command that made the copy was killed before it removed this
    for log in ("offsets/6", "commits/6"):  # the clone's query has run a batch
        (clone / log).write_bytes((source / log).read_bytes())
    before = bytes_of(clone)
    for new_id in (True, False):
        with pytest.raises(RefusedError, match="exists already"):
            copy(str(source), str(clone), new_id=new_id)
    assert {path: data for path, data in bytes_of(clone).items() if "/lock." not in path} == before
    assert copy(str(source), str(clone), replace=True, stopped=True).replaced


def test_a_file_that_is_replaced_meanwhile_is_copied_again(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    replaced = source / "state/0/0/7.delta"

    def replace() -> None:
        if listener.calls == 1:
            os.utime(replaced, ns=(1, 1))

    listener = Doing("arrived", replace)
    report = copy(str(source), str(target), listener=listener, verify=True)
    offsets = [path for path in bytes_of(target) if path.startswith("offsets/")]
    assert (report.attempts, report.sent) == (2, report.files + 1 + len(offsets))


def test_a_source_that_never_rests_is_refused(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    listener = Doing("arrived", lambda: os.utime(source / "state/0/0/7.delta", ns=(1, listener.calls)))
    with pytest.raises(RefusedError, match="changes faster than it can be copied: 5 attempts failed"):
        copy(str(source), str(target), listener=listener)
    with pytest.raises(FencedError, match="is a copy that is not complete; run `ttlsnap copy"):
        export(str(target), str(tmp_path / "export"))
    assert copy(str(source), str(target)).complete


def test_what_a_disk_of_the_copy_has_changed_is_sent_again_and_no_later_call_takes_it_for_the_file(
    tmp_path: Path,
) -> None:
    source, once, always = sample(AGG, tmp_path), tmp_path / "once", tmp_path / "always"

    def change_state(place: Path) -> None:
        state = place / "state/0/0/7.delta"
        state.write_bytes(state.read_bytes()[:-1] + b"x")

    listener = Doing("arrived", lambda: change_state(once) if listener.calls == 1 else None)
    report = copy(str(source), str(once), listener=listener, verify=True)
    words = "state/0/0/7.delta has another content than the manifest says. It was copied again. Check the disk"
    assert report.verified and words in report.warnings[0]
    with pytest.raises(StorageError, match=r"7\.delta has another content .*, although it was copied twice"):
        copy(str(source), str(always), listener=Doing("arrived", lambda: change_state(always)), verify=True)
    damage_first = Doing("arrived", lambda: change_state(always) if damage_first.calls == 1 else None)
    report = copy(str(source), str(always), listener=damage_first)
    assert report.verified and words in report.warnings[0], "a copy that began with --verify is always verified"
    assert tree(once) == tree(always)


def test_each_difference_from_the_manifest_is_found(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    copy(str(source), str(target))
    files = open_directory(str(target))
    manifest = read_manifest(files)
    assert manifest is not None and not list(find_differences(files, manifest))
    state = target / "state/0/0"
    (state / "7.delta").write_bytes((state / "7.delta").read_bytes()[:-1] + b"x")
    (target / "commits/6").unlink()
    (target / "offsets/5").write_text("v1")
    (state / "8.snapshot").touch()
    found = dict(find_differences(files, manifest))
    assert found.keys() == {"state/0/0/7.delta", "commits/6", "offsets/5", "state/0/0/8.snapshot"}
    path = target / MANIFEST
    path.write_text(path.read_text().replace("commits/6", "commits/5"))
    with pytest.raises(CorruptionError, match="is not a manifest as ttlsnap wrote it"):
        read_manifest(files)


@pytest.mark.parametrize(
    ("place", "words"),
    [("ck/copy", "must not contain each other"), (".", "must not contain each other"), ("full", "exists already")],
)
def test_a_place_that_cannot_be_a_copy_is_refused(tmp_path: Path, place: str, words: str) -> None:
    source = sample(AGG, tmp_path).rename(tmp_path / "ck")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    before = bytes_of(tmp_path)
    with pytest.raises((UsageError, RefusedError), match=words):
        copy(str(source), str(tmp_path / place))
    assert bytes_of(tmp_path) == before


def test_a_batch_that_cannot_be_restored_names_those_that_can(tmp_path: Path) -> None:
    source = sample(AGG, tmp_path)
    (source / "state/0/1/4.delta").unlink()  # the sample has snapshots of no version
    with pytest.raises(UsageError, match=r"4\.delta is missing.* Batch 5 cannot be restored; these can: 0 to 2"):
        copy(str(source), str(tmp_path / "copy"), batch=5)
    (source / "commits/1").unlink()
    with pytest.raises(UsageError, match=r"not retained.* These can be restored: 0, 2"):
        copy(str(source), str(tmp_path / "copy"), batch=1)
    assert not (tmp_path / "copy/offsets").exists()


def test_damage_is_reported_and_nothing_is_published(tmp_path: Path) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    (source / "state/0/0/7.delta").unlink()
    with pytest.raises(CorruptionError, match=r"7\.delta is missing"):
        copy(str(source), str(target))
    assert not (target / MANIFEST).exists()


@pytest.mark.parametrize(
    ("name", "pattern"),
    [(AGG, "state/0/1/*.delta"), (AGG, "sources/0/2"), (AGG, "offsets/5"), ("rocksdb-ids-4.2", "state/0/1/SSTs/*.sst")],
)
@pytest.mark.parametrize("is_short", [False, True])
def test_a_file_that_does_not_match_its_checksum_is_damage(
    tmp_path: Path, name: str, pattern: str, is_short: bool
) -> None:
    source, target = sample(name, tmp_path), tmp_path / "copy"
    path = sorted(source.glob(pattern))[-1]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data[: len(data) // 2] if is_short else data)
    before = bytes_of(source)
    with pytest.raises(CorruptionError, match=path.name):
        copy(str(source), str(target))
    assert not (target / MANIFEST).exists()
    assert bytes_of(source) == before


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"v1"])
def test_a_damaged_log_of_a_source_without_a_checksum_is_damage(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    path = source / "sources/0/2"
    path.write_bytes(damage(path.read_bytes()))
    (path.parent / ".2.crc").unlink()
    before = bytes_of(source)
    for goes_on in (partial(copy, target=str(target)), partial(rewind, batch=4, stopped=True)):
        with pytest.raises(CorruptionError, match=r"sources/0/2.*(truncated|does not name)"):
            goes_on(str(source))
    assert not (target / MANIFEST).exists()
    assert bytes_of(source) == before


def test_a_query_goes_on_from_the_oldest_batch_that_is_retained(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(5):
        files.put(folder, f"{number}.json", number, "k")
    files.count(spark, folder, checkpoint)
    oldest = min(batch.batch for batch in list_restorable(str(checkpoint)))
    assert not (checkpoint / f"offsets/{oldest - 1}").exists()
    copy(str(checkpoint), str(tmp_path / "copy"), batch=oldest)
    assert doctor(str(tmp_path / "copy")).exit_code == 0
    assert files.count(spark, folder, tmp_path / "copy") == {"k": 5}


def test_a_stale_checksum_of_spark_is_no_damage(tmp_path: Path) -> None:
    source = sample("agg-snapshot-zstd-4.1", tmp_path)
    checksum = sorted(source.glob("state/0/1/[0-9]*.snapshot.crc"))[-1]
    checksum.with_name(f".{checksum.name}.crc").unlink(missing_ok=True)
    checksum.write_text(checksum.read_text().replace('"value":', '"value":1'))
    copy(str(source), str(tmp_path / "copy"), verify=True)


def test_the_command_says_what_it_did(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    source, target = sample(AGG, tmp_path), tmp_path / "copy"
    assert "Would copy" in ttlsnap("copy", source, target, "--dry-run").out
    assert not target.exists()
    done = ttlsnap("copy", source, target, "--verify", "--format", "json").json
    assert (done["batch"], done["complete"], done["verified"], done["new_id"]) == (6, True, True, False)
    again = ttlsnap("copy", source, target)
    assert (again.code, "exists already" in again.err) == (4, True)
    missing = ttlsnap("copy", source, tmp_path / "other", "--batch", "99")
    assert (missing.code, "batch 99 is not retained" in " ".join(missing.err.split())) == (2, True)


def test_doctor_compares_a_copy_with_its_manifest_until_somebody_works_on_it(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    source, target = sample(VISITS, tmp_path), tmp_path / "copy"
    copy(str(source), str(target))
    assert doctor(str(target)).problems == ()
    # Nothing else finds this, because Spark does without.
    (target / "notes").write_text("x")
    (target / ".metadata.crc").unlink()
    found = {problem.where: problem.code for problem in doctor(str(target)).problems}
    assert found == {"notes": "altered-copy", ".metadata.crc": "altered-copy"}
    text = ttlsnap("doctor", target).out
    assert f"a copy of {source}, which was compared with its manifest" in text
    assert "copy BACKUP" not in text and "use another copy if there is one" in text
    manifest = target / MANIFEST
    manifest.write_text(manifest.read_text().replace("}", "]", 1))
    assert "altered-copy" in {problem.code for problem in doctor(str(target)).problems}
    newest = max(int(path.name) for path in (target / "offsets").iterdir() if path.name.isdigit())
    (target / f"offsets/{newest + 1}").write_bytes((target / f"offsets/{newest}").read_bytes())
    assert {problem.code for problem in doctor(str(target)).problems} <= {"altered-copy", "uncommitted-batch"}


def test_a_copy_shares_with_an_earlier_one_what_has_not_changed(tmp_path: Path) -> None:
    source, last, target = sample("rocksdb-4.2", tmp_path), tmp_path / "last", tmp_path / "copy"
    first = copy(str(source), str(last), batch=0)
    report = copy(str(source), str(target), onto=str(last), verify=True)
    assert report.batch > first.batch and report.verified
    assert report.shared + report.sent == report.files and report.shared > report.sent > 0

    def inodes(folder: Path) -> dict[str, int]:
        return {str(p.relative_to(folder)): p.stat().st_ino for p in folder.rglob("*") if p.is_file()}

    ours, theirs = inodes(target), inodes(last)
    assert sum(theirs.get(path) == inode for path, inode in ours.items()) == report.shared
    assert not {*ours.values(), *theirs.values()} & {*inodes(source).values()}
    assert any(path.endswith(".sst") and theirs.get(path) == inode for path, inode in ours.items())
    assert doctor(str(target)).problems == doctor(str(last)).problems == ()
    whole = tmp_path / "whole"
    copy(str(source), str(whole))
    assert tree(target) == tree(whole)


def test_a_damaged_file_of_an_earlier_copy_is_found_by_verify_and_a_changed_one_is_not_shared(tmp_path: Path) -> None:
    source, last = sample(AGG, tmp_path), tmp_path / "last"
    copy(str(source), str(last))
    damaged = last / "state/0/0/3.delta"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    before, place = tree(last), tmp_path / "copy"
    report = copy(str(source), str(place), onto=str(last), verify=True)
    assert report.sent == 1 and f"{last}/state/0/0/3.delta is damaged, so it was copied from" in report.warnings[0]
    manifest = read_manifest(open_directory(str(place)))
    assert manifest is not None and not list(find_differences(open_directory(str(place)), manifest))
    assert tree(last) == before
    with pytest.raises(RefusedError, match=f"{last} is damaged, as a later copy has found"):
        copy(str(source), str(tmp_path / "other"), onto=str(last))
    os.utime(source / "state/0/0/3.delta", ns=(1, 1))
    assert copy(str(source), str(tmp_path / "other"), onto=str(place), verify=True).sent == 1


def flip_bit(path: Path) -> None:
    """Change a bit of a file, and neither its size nor its time."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


STATE_FILE = "state/0/1/3.delta"


@pytest.mark.parametrize("shares", [False, True])
def test_a_file_that_is_read_again_must_have_the_same_content(tmp_path: Path, shares: bool) -> None:
    source, last, target = sample(AGG, tmp_path), tmp_path / "last", tmp_path / "copy"
    for checksum in source.rglob(".*.crc"):  # as in an object store
        checksum.unlink()
    copy(str(source), str(last))
    damaged = iter([last if shares else target, source])

    def damage() -> None:
        for place in damaged:
            flip_bit(place / STATE_FILE)

    listener, onto = Doing("arrived", damage), str(last) if shares else None
    with pytest.raises(StorageError, match=f"{source}/{STATE_FILE} was read twice, and had another content"):
        copy(str(source), str(target), onto=onto, verify=True, listener=listener)
    assert "unfinished" in {backup.status for backup in find_backups(open_directory(str(tmp_path)))}
    flip_bit(source / STATE_FILE)  # this time, it is read as it is
    assert copy(str(source), str(target)).verified
    assert (target / STATE_FILE).read_bytes() == (source / STATE_FILE).read_bytes()


def test_a_file_that_cannot_be_shared_must_have_the_content_that_the_earlier_copy_has(tmp_path: Path) -> None:
    source, last, target = sample(AGG, tmp_path), tmp_path / "last", tmp_path / "copy"
    for checksum in source.rglob(".*.crc"):  # as in an object store
        checksum.unlink()
    copy(str(source), str(last))
    (last / STATE_FILE).rename(last / "elsewhere")
    (last / STATE_FILE).symlink_to(last / "elsewhere")  # a link is not shared
    flip_bit(source / STATE_FILE)
    with pytest.raises(CorruptionError, match=f"{source}/{STATE_FILE} looks as it did .* another content"):
        copy(str(source), str(target), onto=str(last))
    assert read_manifest(open_directory(str(target))) is None
    flip_bit(source / STATE_FILE)
    report = copy(str(source), str(target), onto=str(last))
    assert report.shared and not (target / STATE_FILE).is_symlink()


def test_an_interrupted_copy_still_finds_that_an_earlier_one_is_damaged(tmp_path: Path) -> None:
    source, last, target = sample(AGG, tmp_path), tmp_path / "last", tmp_path / "copy"
    copy(str(source), str(last))
    flip_bit(last / STATE_FILE)

    def end() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        copy(str(source), str(target), onto=str(last), verify=True, listener=Doing("arrived", end))
    report = copy(str(source), str(target), onto=str(last))
    assert report.onto_is_damaged and f"Do not restore from {last}" in report.warnings[0]


def test_a_copy_is_verified_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, events = sample(AGG, tmp_path), tmp_path / "copy", dict[int, str]()
    sync, advise = os.fsync, os.posix_fadvise

    def note_sync(descriptor: int) -> None:
        sync(descriptor)
        events[os.fstat(descriptor).st_ino] = "synced"

    def note_advice(descriptor: int, *rest: int) -> None:
        advise(descriptor, *rest)
        events[os.fstat(descriptor).st_ino] = "forgotten"

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "posix_fadvise", note_advice)
    copy(str(source), str(target), verify=True)
    files = [path for folder in ("state", "offsets", "commits") for path in (target / folder).rglob("*.*")]
    assert len(files) > 10 and {events[path.stat().st_ino] for path in files if path.is_file()} == {"forgotten"}


def test_the_text_says_if_nothing_is_shared(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    source, last = sample(AGG, tmp_path), tmp_path / "last"
    copy(str(source), str(last))
    for times in ("kept", "changed"):
        text = ttlsnap("copy", source, tmp_path / times, "--onto", last).out
        assert (
            ("No file could be shared" in text) == ("Shared with the earlier copy" not in text) == (times == "changed")
        )
        for path in source.rglob("*"):
            os.utime(path, ns=(1, 1))


def test_an_earlier_copy_that_was_used_is_refused(tmp_path: Path) -> None:
    """A rewind writes other files in the places of old ones, with the same sizes."""
    source, last = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "last"
    copy(str(source), str(last))
    rewind(str(last), 4, stopped=True)
    with pytest.raises(RefusedError, match=f"has worked on {last} since it was made"):
        copy(str(source), str(tmp_path / "copy"), onto=str(last))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("onto", "words"),
    [("missing", "does not exist"), ("visits", "is a copy of another query"), ("ck", "must not contain")],
)
def test_an_earlier_copy_must_be_one_of_the_same_checkpoint(tmp_path: Path, onto: str, words: str) -> None:
    source = sample(AGG, tmp_path).rename(tmp_path / "ck")
    copy(str(source), str(source.with_name("last")))
    (source / "_ttlsnap").mkdir(exist_ok=True)
    (source / MANIFEST).write_bytes((tmp_path / "last" / MANIFEST).read_bytes())
    copy(str(sample(VISITS, tmp_path)), str(tmp_path / "visits"))
    with pytest.raises(TtlsnapError, match=words):
        copy(str(source), str(tmp_path / "copy"), onto=str(tmp_path / onto))
    assert not (tmp_path / "copy/offsets").exists()


def test_a_copy_that_goes_on_never_writes_into_a_file_of_an_earlier_one(tmp_path: Path) -> None:
    source, earlier, target = sample(AGG, tmp_path), tmp_path / "earlier", tmp_path / "copy"
    copy(str(source), str(earlier), batch=4)

    def end() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        copy(str(source), str(target), onto=str(earlier), listener=Doing("arrived", end))
    before = bytes_of(earlier)
    for path in source.rglob("*"):  # as after a restore of the checkpoint by other tools
        os.utime(path, (0, 0))
    (source / "commits/3").write_bytes((source / "commits/3").read_bytes() + b" ")
    (source / "commits/.3.crc").unlink()
    copy(str(source), str(target), onto=str(earlier))
    assert bytes_of(earlier) == before
    assert (target / "commits/3").read_bytes() == (source / "commits/3").read_bytes()
