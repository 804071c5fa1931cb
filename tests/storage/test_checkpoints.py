"""All commands give the same results on checkpoints in an object store or in HDFS as on a disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import Forget, Move, diff, doctor, history, recover, rewind, rollback, set_positions
from ttlsnap import compact as compact_here
from ttlsnap.backups.run import copy
from ttlsnap.cli.app import run
from ttlsnap.storage import objects
from ttlsnap.transform.protocols import EntryTransformerFactory, Replace

from ..compaction.stories import BATCHES, FIELDS, MORE, H, limit_of, unwanted
from ..judge.queries import Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL, narrow, rotating
from ..samples import COMPACTABLE, ROCKSDB, sample
from .commands import run_json
from .conftest import PLACES
from .places import download, files_of, objects_of, upload

pytestmark = pytest.mark.slow

SLICE = [("agg-deltas-lz4-4.2", "moto"), ("rocksdb-changelog-3.5", "hdfs"), ("rocksdb-ids-4.2", "moto")]
OLD = ("--ttl", "7d", "--timestamp", "value.max")


def compact(capsys: pytest.CaptureFixture[str], target: str, *more: str) -> Any:
    return run_json(capsys, "compact", target, *more, "--engine", "local", "--stopped", "--yes")


@pytest.mark.parametrize(
    ("name", "place"), [*product(COMPACTABLE, PLACES)] if FULL else narrow(SLICE, 2), indirect=["place"]
)
def test_commands_give_the_same_results_as_on_a_disk(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    local = sample(name, tmp_path)
    uri = upload(local, f"{place}/query/checkpoint")
    old = objects_of(uri)
    assert old == files_of(local)
    # All entries expire, except the newest ones.
    words = ("--ttl", "1s", "--time", "processing", "--timestamp", COMPACTABLE[name], "--max-drop", "100%")
    dry = compact(capsys, uri, *words, "--dry-run")
    assert objects_of(uri) == old
    now = next(store["newest"] for store in dry["stores"] if store["newest"] is not None)
    reports = [compact(capsys, target, *words, "--now", now) for target in (uri, str(local))]
    assert reports[0]["target"] == uri
    assert reports[0]["totals"]["dropped"] == reports[1]["totals"]["dropped"] > 0
    assert reports[0]["published"]
    if name in ROCKSDB:
        shown = [run_json(capsys, "inspect", target, "--entries", "1000") for target in (uri, str(local))]
        assert shown[0]["entries"] == shown[1]["entries"]
    else:
        assert objects_of(uri) == files_of(local)
    found = [[problem["code"] for problem in doctor(str(target)).to_json()["problems"]] for target in (uri, local)]
    assert found[0] == found[1]
    assert [entry.status for entry in history(uri)] == ["done"]
    assert recover(uri).outcome == "nothing"
    rollback(uri, stopped=True)
    assert objects_of(uri) == old


TO_ROCKSDB, TO_HDFS = ("--provider", "rocksdb"), ("--provider", "hdfs", "--set", "checkpoint-format=1")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "other"),
    [("rocksdb-ids-4.2", TO_HDFS), *([("agg-deltas-lz4-4.2", TO_ROCKSDB)] if FULL else [])],
)
def test_a_migration_gives_the_same_result_as_on_a_disk(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, other: tuple[str, ...]
) -> None:
    local = sample(name, tmp_path)
    uri = upload(local, f"{place}/query/checkpoint")
    old = objects_of(uri)
    for change in (("--partitions", "3"), ("--partitions", "1"), other):
        words = ("migrate", *change, "--stopped", "--yes")
        reports = [run_json(capsys, *words, target) for target in (uri, str(local))]
        assert reports[0]["published"]
        assert reports[0]["totals"]["entries"] == reports[1]["totals"]["entries"] > 0
        shown = [run_json(capsys, "inspect", target, "--entries", "1000") for target in (uri, str(local))]
        assert shown[0]["entries"] == shown[1]["entries"]
        if reports[0]["provider"] == "hdfs":
            assert objects_of(uri) == files_of(local)
        rollback(uri, stopped=True)
        rollback(str(local), stopped=True)
        assert objects_of(uri) == old


@pytest.mark.parametrize(
    ("name", "place"),
    [*product(COMPACTABLE, PLACES)] if FULL else [("visits-4.2", "moto"), ("rocksdb-ids-4.2", "hdfs")],
    indirect=["place"],
)
def test_a_backup_in_a_store_can_be_copied_back(place: str, tmp_path: Path, name: str) -> None:
    local, back = sample(name, tmp_path), tmp_path / "back"
    backup, second = f"{place}/backup", f"{place}/second"
    copied = copy(str(local), backup, verify=True)
    uploaded = objects_of(backup)
    assert copied.files == len([path for path in uploaded if not path.startswith("_ttlsnap/")])
    assert not [path for path in uploaded if path.rpartition("/")[2].startswith(".")]
    copy(backup, second, verify=True)
    copy(second, str(back), verify=True)
    shared = copy(str(local), f"{place}/third", onto=backup, verify=True)
    assert (shared.shared > shared.sent) is (not place.startswith("hdfs"))
    assert copy(backup, f"{place}/third", replace=True, stopped=True).replaced
    assert diff(backup, f"{place}/third").differs is False
    rollback(f"{place}/third", stopped=True)
    assert (objects_of(backup), doctor(str(back)).problems) == (uploaded, ())
    assert diff(str(local), str(back)).differs is False


def test_a_policy_keeps_backups_in_a_store(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, policy = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "policy.toml"
    policy.write_text(
        f'[[target]]\npath = "ck"\n[target.backup]\nto = "{place}/backups/{{name}}/{{batch}}"\nkeep = 1\n'
    )
    for batch in (4, 5):
        shutil.rmtree(tmp_path / "ck", ignore_errors=True)
        copy(str(whole), str(tmp_path / "ck"), batch=batch)
        (target,) = run_json(capsys, "maintain", str(policy), "--engine", "local")["targets"]
        backup = target["policy_backup"]
        assert (backup["status"], backup["batch"], backup["backups"]) == ("done", batch, 1)
        assert backup["removed"] == ([f"{place}/backups/ck/4"] if batch == 5 else [])
    (found,) = run_json(capsys, "history", str(tmp_path / "ck"), "--backups", f"{place}/backups/ck")["backups"]
    assert (found["place"], found["status"]) == (f"{place}/backups/ck/5", "complete")
    assert {path.split("/")[0] for path in objects_of(f"{place}/backups/ck")} == {"5"}


def test_a_checkpoint_in_a_store_is_restored_from_a_backup_and_rolled_back(place: str, tmp_path: Path) -> None:
    local = sample("agg-deltas-lz4-4.2", tmp_path)
    uri, backup = upload(local, f"{place}/query/checkpoint"), f"{place}/backup"
    copy(str(local), backup, batch=4)
    before = objects_of(uri)
    copy(backup, uri, replace=True, stopped=True)
    assert diff(backup, uri).differs is False
    rollback(uri, stopped=True)
    assert objects_of(uri) == before


def test_sources_and_rewind_give_the_same_results_as_on_a_disk(place: str, tmp_path: Path) -> None:
    local = sample("agg-deltas-lz4-4.2", tmp_path)
    uri = upload(local, f"{place}/query/checkpoint")
    changes: list[partial[Any]] = [
        partial(set_positions, positions={"0": {"logOffset": 3}}),
        partial(set_positions, log_edits={"0": Forget(["/**/0000[24].json"])}),
        partial(set_positions, log_edits={"0": Move("/tmp/ttlsnap-samples", "s3a://b/in")}),
        partial(set_positions, new_names={"0": "visits"}),
        partial(rewind, batch=3),
    ]
    for change in rotating(changes, 1, "changes of sources"):
        before = objects_of(uri)
        reports = [change(target, stopped=True) for target in (uri, str(local))]
        assert [report.target for report in reports] == [uri, str(local)]
        after = objects_of(uri)
        # A store needs no new checksums.
        assert after.items() <= files_of(local).items()
        assert {path for path in files_of(local).keys() - after.keys() if not path.endswith(".crc")} == set()
        assert after != before
        rollback(uri, stopped=True)
        assert objects_of(uri) == before
        change(uri, stopped=True)
        assert objects_of(uri) == after


def test_dropped_entries_are_archived_until_a_rollback(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{place}/checkpoint")
    report = compact(capsys, uri, *OLD, "--expired-to", f"{place}/expired")
    found = download(f"{place}/expired", tmp_path / "expired")
    assert sum(pq.read_table(path).num_rows for path in found.iterdir()) == report["totals"]["dropped"] > 0
    rollback(uri, stopped=True, expired_to=f"{place}/expired")
    assert objects_of(f"{place}/expired") == {}


def test_rollback_works_if_nothing_was_archived(bucket: str, tmp_path: Path) -> None:
    def doubled(key: dict[str, Any], value: dict[str, Any]) -> Replace:
        return Replace({**value, "count": 2 * value["count"]})

    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    old = objects_of(uri)
    report = compact_here(
        uri, [EntryTransformerFactory(doubled)], stopped=True, max_drop=1.0, expired_to=f"{bucket}/expired"
    )
    assert (report.published, report.totals.dropped) == (True, 0)
    rollback(uri, stopped=True)
    assert objects_of(uri) == old


def test_dropped_entries_are_archived_in_a_delta_table_until_a_rollback(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from deltalake import DeltaTable

    uri = upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/checkpoint")
    report = compact(capsys, uri, *OLD, "--expired-to", f"delta:{bucket}/expired")
    options = objects.storage_options(bucket)
    rows = DeltaTable(f"{bucket}/expired", storage_options=options).to_pyarrow_table()
    assert rows["run"].to_pylist() == [report["run"]] * report["totals"]["dropped"]
    rollback(uri, stopped=True, expired_to=f"delta:{bucket}/expired")
    assert DeltaTable(f"{bucket}/expired", storage_options=options).to_pyarrow_table().num_rows == 0


@pytest.mark.parametrize(
    ("provider", "engine", "place"),
    [*product(["hdfs", "rocksdb"], ["local", "spark"], PLACES)] if FULL else [("hdfs", "local", "hdfs")],
    indirect=["place"],
)
def test_real_spark_resumes_from_the_compacted_checkpoint(judge: Judge, place: str, provider: str, engine: str) -> None:
    query = Query("agg_update", provider=provider, changelog=provider == "rocksdb")
    checkpoint = judge.write(query, BATCHES)
    uri = upload(checkpoint.path, f"{place}/checkpoint")
    now = stamp(limit_of(query) + 2 * H)
    words = ("--ttl", "2h", "--timestamp", FIELDS[query.operator], "--now", now, "--engine", engine)
    # Workers inherit the environment of their JVM, so the command runs in its own process.
    command = [sys.executable, "-m", "ttlsnap", "compact", uri, *words]
    command += ["--stopped", "--yes", "--format", "json"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    shutil.rmtree(checkpoint.path)
    download(uri, checkpoint.path)
    model = checkpoint.expected
    assert report["totals"]["dropped"] == model.drop(unwanted(query)) > 0
    assert judge.restart(checkpoint, MORE) == model.run(MORE)
    assert judge.state(checkpoint) == model.state()


def test_globs_of_a_policy_match_folders_in_the_store(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("queries/a/checkpoint", "queries/b/checkpoint", "queries/.hidden/checkpoint", "queries/c/other"):
        upload(sample("agg-deltas-lz4-4.2", tmp_path / name), f"{bucket}/{name}")
    policy = tmp_path / "policy.toml"
    rule = 'stopped = true\nttl = "7d"\ntimestamp = "value.max"\n'
    policy.write_text(
        f'[[target]]\npath = "{bucket}/queries/*/check*"\nexclude = ["{bucket}/queries/b/checkpoint", "x"]\n{rule}'
        f'[[target]]\npath = "{bucket}/*/b/checkpoint"\n{rule}'
    )
    told = run_json(capsys, "maintain", str(policy), "--engine", "local", "--plan")
    found = [(target["target"].removeprefix(f"{bucket}/"), target["status"]) for target in told["targets"]]
    assert found == [("queries/a/checkpoint", "planned"), ("queries/b/checkpoint", "planned")]
    for path, words in (("none*/x", "matches no folder"), ("**/x", "works on this machine's file systems only")):
        policy.write_text(f'[[target]]\npath = "{bucket}/{path}"\n{rule}')
        assert run(["maintain", str(policy), "--engine", "local"]) == 2
        captured = capsys.readouterr()
        assert words in captured.out + captured.err


def test_errors_explain_missing_and_unsupported_places(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> tuple[int, str]:
        code = run([*words])
        return code, capsys.readouterr().err

    code, words = said("inspect", f"{bucket}/nothing")
    assert (code, "is not the checkpoint" in words or "does not exist" in words) == (2, True), words
    code, words = said("inspect", "s3:///checkpoint")
    assert code == 2
    assert "does not name a bucket" in words
    code, words = said("inspect", "s3://no-such-bucket-here/checkpoint")
    assert code == 5 and "cannot look at s3://no-such-bucket-here/checkpoint" in words
    is_s3 = bucket.startswith("s3:")  # otherwise, nothing is there to ask
    assert ("there is no such bucket" if is_s3 else "no credentials were found") in words
    code, words = said("compact", "ftp://name/checkpoint", "--ttl", "1h")
    assert code == 3
    assert "the scheme 'ftp' is not supported" in words
    code, words = said("inspect", "hdfs:///checkpoint")
    assert code == 2
    assert "does not name a name node" in words
    upload(sample("agg-deltas-lz4-4.2", tmp_path), f"{bucket}/table/_delta_log")
    code, words = said("compact", f"{bucket}/table", "--ttl", "1h")
    assert code == 3
    assert "is a Delta table in an object store or HDFS" in words
