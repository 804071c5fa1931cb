"""``--output`` to an object store or HDFS: the new checkpoint is complete, or Spark refuses to start on it."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import compact, diff, doctor, migrate
from ttlsnap.backups.run import copy
from ttlsnap.compaction.listener import SilentListener
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import BusyError, RefusedError, StorageError, TtlsnapError, UsageError
from ttlsnap.schema.units import parse_duration
from ttlsnap.storage.directory import LOCK
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..compaction.stories import BATCHES, FIELDS, MORE, H, limit_of, unwanted
from ..judge.queries import Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL, rotating
from ..samples import sample
from .conftest import PLACES
from .places import download, files_of, objects_of, upload
from .proxy import CHANGING, Proxy, Request, fine

pytestmark = pytest.mark.slow


def compacted(source: str, output: str, **options: Any) -> CompactionReport:
    ttl = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
    return compact(source, [ttl], stopped=True, max_drop=1.0, output=output, **options)


def own_files(uri: str) -> list[str]:
    return sorted(path for path in open_directory(uri).list_tree("_ttlsnap") if path != LOCK)


def without_checksums(found: dict[str, str]) -> dict[str, str]:
    return {path: digest for path, digest in found.items() if not path.rpartition("/")[2].startswith(".")}


@pytest.mark.parametrize("place", PLACES if FULL else ["moto", "hdfs"], indirect=True)
def test_an_output_is_the_same_everywhere(place: str, tmp_path: Path) -> None:
    local = sample("agg-deltas-lz4-4.2", tmp_path)
    uri, on_disk = upload(local, f"{place}/checkpoint"), tmp_path / "new"
    old = objects_of(uri)
    compacted(uri, str(on_disk))
    assert files_of(on_disk).keys() == without_checksums(files_of(on_disk)).keys()
    shutil.rmtree(on_disk)
    assert compacted(str(local), str(on_disk)).output == str(on_disk)
    for number, source in enumerate((uri, str(local))):
        new = f"{place}/new-{number}"
        report = compacted(source, new)
        assert diff(new, str(on_disk)).differs is False
        assert (report.output, report.published) == (new, True)
        # In a remote place, Spark reads no checksum files of Hadoop's local file system.
        assert objects_of(new) == without_checksums(files_of(on_disk))
        assert own_files(new) == [f"_ttlsnap/runs/{report.run}/report.json"]
        assert doctor(new).problems == ()
    assert objects_of(uri) == old


@pytest.mark.wide
@pytest.mark.parametrize("place", PLACES if FULL else ["moto", "hdfs"], indirect=True)
@pytest.mark.parametrize("name", ["rocksdb-ids-4.2", "visits-4.2"])
def test_a_migrated_output_is_the_same_everywhere(place: str, tmp_path: Path, name: str) -> None:
    local, on_disk = sample(name, tmp_path), tmp_path / "new"
    uri = upload(local, f"{place}/checkpoint")
    migrate(str(local), partitions=3, output=str(on_disk), stopped=True)
    migrate(uri, partitions=3, output=f"{place}/new", stopped=True)
    assert diff(f"{place}/new", str(on_disk)).differs is False
    # The names of tables in RocksDB are random.
    counts = [len(objects_of(f"{place}/new")), len(without_checksums(files_of(on_disk)))]
    assert counts[0] == counts[1]
    copy(f"{place}/new", str(tmp_path / "back"))
    assert diff(str(tmp_path / "back"), str(on_disk)).differs is False


@pytest.mark.parametrize(
    ("provider", "place"),
    [*product(["hdfs", "rocksdb"], PLACES)] if FULL else [("rocksdb", "moto")],
    indirect=["place"],
)
def test_real_spark_starts_from_an_output(judge: Judge, place: str, provider: str) -> None:
    query = Query("agg_update", provider=provider, changelog=provider == "rocksdb")
    checkpoint = judge.write(query, BATCHES)
    ttl = TtlTransformerFactory(StateTtlConfig(parse_duration("2h")), FIELDS[query.operator])
    now = stamp(limit_of(query) + 2 * H)
    report = compact(str(checkpoint.path), [ttl], now=now, stopped=True, max_drop=1.0, output=f"{place}/new")
    shutil.rmtree(checkpoint.path)
    download(f"{place}/new", checkpoint.path)
    model = checkpoint.expected
    assert report.totals.dropped == model.drop(unwanted(query)) > 0
    assert judge.restart(checkpoint, MORE) == model.run(MORE)
    assert judge.state(checkpoint) == model.state()


def test_what_exists_is_not_touched(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    source, place = sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/new"
    for path in ("state/0/0/1.delta", "notes.txt", "_ttlsnap/runs/other/report.json"):
        open_directory(place).replace(path, b"mine")
        with pytest.raises(UsageError, match=r"exists and is not an empty folder\. Name another folder"):
            compacted(str(source), place)
        assert open_directory(place).list_tree("").keys() == {path}
        open_directory(place).remove(path)
    uri = upload(source, f"{bucket}/checkpoint")
    for inside in (uri, f"{uri}/new", f"{uri}/state/new", f"{uri}/new".replace("s3://", "s3a://")):
        with pytest.raises(UsageError, match=r"exists and is not|must not contain each other"):
            compacted(uri, inside)
    with open_directory(place).lock(), pytest.raises(BusyError, match="another ttlsnap is working"):
        compacted(str(source), place)
    assert not objects_of(place)


def test_a_person_who_declines_gets_no_new_checkpoint(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    class Declines(SilentListener):
        def confirm(self, report: CompactionReport) -> bool:
            found.update(objects_of(f"{bucket}/new"))
            return False

    found: dict[str, str] = {}
    source = sample("agg-deltas-lz4-4.2", tmp_path)
    assert not compacted(str(source), f"{bucket}/new", listener=Declines()).published
    assert any(path.startswith("offsets/") for path in found)  # the fence was there
    assert open_directory(f"{bucket}/new").list("") == []


def test_a_batch_that_is_begun_meanwhile_does_not_take_the_place_of_the_fence(
    proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    source = sample("agg-deltas-lz4-4.2", tmp_path)

    place, fences = f"{bucket}/new", list[bytes]()

    def look(request: Request) -> str | None:
        if request.method == "PUT" and request.path.endswith("/sources/0/5"):
            proxy.fault = fine
            fences.append(open_directory(place).read("offsets/7", 1000))
        return None

    class Meanwhile(SilentListener):
        def confirm(self, report: CompactionReport) -> bool:
            shutil.copy(source / "offsets/6", source / "offsets/7")
            proxy.fault = look
            return True

    with pytest.raises(BusyError):
        compacted(str(source), place, listener=Meanwhile())
    assert [fence[:13] for fence in fences] == [b"ttlsnap fence"]
    assert not objects_of(place)


def changes_of(proxy: Proxy, source: Path, place: str) -> int:
    """Return the number of changing requests of a run, and remove what it wrote."""
    proxy.reset()
    compacted(str(source), place)
    count = sum(request.method in CHANGING for request in proxy.seen)
    open_directory(place).remove_tree("")
    return count


def interrupt(proxy: Proxy, source: Path, place: str, number: int, fault_of_change: str, *, dies: bool) -> None:
    """Let a changing request of a run fail, and all later requests, if the process ``dies``."""

    def fault(request: Request) -> str | None:
        if request.method in CHANGING and request.changes == number:
            return fault_of_change
        return "lost" if dies and request.changes > number else None

    proxy.reset()
    proxy.fault = fault
    try:
        compacted(str(source), place)
    except TtlsnapError as error:
        assert isinstance(error, StorageError | BusyError), error
    proxy.reset()


def test_an_output_is_complete_or_fenced(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    source, place = sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/new"
    compacted(str(source), f"{bucket}/whole")
    whole = objects_of(f"{bucket}/whole")
    count = changes_of(proxy, source, place)
    changes = [*range(1, count + 1)]
    ends = set()
    pinned = [1, count - 3, count - 2, count - 1, count]
    for number in rotating(changes, 6, "changes of an output", pinned=lambda change: change in pinned):
        for fault in ("lost", "unanswered"):
            interrupt(proxy, source, place, number, fault, dies=True)
            found = objects_of(place)
            is_fenced = "offsets/7" in found
            ends.add("fenced" if is_fenced else "complete" if found == whole else "empty" if not found else "torn")
            assert "torn" not in ends, (number, fault)
            if is_fenced:
                open_directory(place).remove(LOCK)  # as if the lease had expired
                with pytest.raises(UsageError, match="a copy that is not complete; if the command that writes it has"):
                    compacted(str(source), place)
                with pytest.raises(RefusedError, match="a copy that is not complete; if the command that writes it"):
                    copy(str(source), place)
                assert objects_of(place) == found
            open_directory(place).remove_tree("")
    assert ends == {"fenced", "complete", "empty"}


def test_a_run_that_fails_leaves_nothing(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    source, place = sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/new"
    for number in rotating([*range(3, changes_of(proxy, source, place) - 3)], 4, "failing changes of an output"):
        interrupt(proxy, source, place, number, "forbidden", dies=False)
        assert open_directory(place).list_tree("").keys() <= {LOCK}, number
