"""The sample checkpoints match their README, are small, and Spark restarts queries on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .layouts import last_batch, layout_of, store_folders
from .outcomes import Batch, canonical, expired
from .queries import Event, Query, stamp
from .spark import Judge

SAMPLES = Path(__file__).parents[2] / "sample_checkpoints"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if (path / "offsets").is_dir())
DAY = 86400


def _names(sample: str) -> set[str]:
    return {path.name for path in (SAMPLES / sample).rglob("*") if path.is_file()}


def test_the_readme_names_every_sample() -> None:
    told = re.findall(r"^\| `([^`]+)` \| .{10,} \|$", (SAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(told) == NAMES and len(NAMES) >= 12


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_small_and_names_no_private_path(name: str) -> None:
    files = [path for path in (SAMPLES / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 60_000
    places = {place for path in files for place in re.findall(rb"file:/+([^/\"]+/[^/\"]+)", path.read_bytes())}
    assert places <= {b"tmp/ttlsnap-samples"}


def test_file_names_show_the_special_features_of_samples() -> None:
    assert layout_of(SAMPLES / "agg-deltas-lz4-4.2") == "deltas"
    assert layout_of(SAMPLES / "agg-snapshot-zstd-4.1") == "snapshot"
    assert layout_of(SAMPLES / "lzf-both-4.2") == "both"
    assert {"1.delta.crc", ".1.delta.crc.crc"} <= _names("agg-snapshot-zstd-4.1")
    assert "metadata" in {path.name for path in (SAMPLES / "agg-deltas-lz4-4.2" / "state" / "0").rglob("*")}
    assert not (SAMPLES / "agg-format1-3.5" / "state" / "0" / "_metadata").exists()
    assert "schema" in _names("agg-format1-3.5") and "schema" not in _names("no-schema-3.0")
    assert (SAMPLES / "offsets-v2-4.2" / "offsets" / "0").read_text().startswith("v2\n")
    assert any(name.endswith(".sst") for name in _names("rocksdb-4.2"))
    assert layout_of(SAMPLES / "rocksdb-changelog-3.5") == "deltas"
    assert {layout_of(SAMPLES / name) for name in ("rocksdb-ids-4.2", "visits-4.2")} == {"both"}
    assert {path.name for path in store_folders(SAMPLES / "join-4.2")} >= {"left-keyToNumValues"}
    uncommitted = SAMPLES / "uncommitted-batch-4.2"
    batch = last_batch(uncommitted)
    assert (uncommitted / "offsets" / str(batch + 1)).exists()
    assert all((folder / f"{batch + 2}.delta").exists() for folder in store_folders(uncommitted))


def test_the_demo_drops_some_entries_by_either_clock(judge: Judge) -> None:
    sample = judge.adopt(SAMPLES / "agg-deltas-lz4-4.2", Query("agg_update_watermark"))
    offsets = (sample.path / "offsets" / str(last_batch(sample.path))).read_text()
    found = judge.state(sample)
    assert len(found) > 300
    for clock in ("batchTimestampMs", "batchWatermarkMs"):
        match = re.search(rf'"{clock}":(\d+)', offsets)
        assert match is not None
        gone = sum(map(expired("value.max", int(match.group(1)) // 1000 - 7 * DAY), found))
        assert 0.3 < gone / len(found) < 0.9


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("agg-deltas-lz4-4.2", Query("agg_update_watermark")),
        ("agg-format1-3.5", Query()),
        ("no-schema-3.0", Query()),
        ("rocksdb-3.2", Query(provider="rocksdb")),
        # Spark's own state reader fails on this sample, because the sample does not contain the number of partitions.
        ("offsets-v2-4.2", Query()),
    ],
)
def test_spark_resumes_from_a_sample(judge: Judge, name: str, query: Query) -> None:
    sample = judge.adopt(SAMPLES / name, query)
    batch = last_batch(sample.path) + 1
    moment = 4_000_000_000  # later than the watermark of every sample
    first, *rest = judge.restart(sample, [[Event("new", moment, 5), Event("new", moment, 6)]])
    assert first == Batch(batch, canonical([{"key": "new", "last_seen": stamp(moment), "n": 2, "total": 11}]))
    assert [later.rows for later in rest] in ([], [()])


def test_samples_have_entries_and_difficult_keys(judge: Judge) -> None:
    for name, operator in [
        ("agg-rowchecksum-deletes-4.2", "agg_append"),
        ("dedup-watermark-4.2", "dedup"),
        ("dedup-within-4.2", "dedup_within"),
        ("window-append-snappy-4.0", "agg_append"),
        ("rocksdb-4.2", "agg_update"),
    ]:
        assert len(judge.state(judge.adopt(SAMPLES / name, Query(operator)))) >= 5
    for name in ("agg-format1-3.5", "lzf-both-4.2", "uncommitted-batch-4.2"):
        keys = {found.at("key.key") for found in judge.state(judge.adopt(SAMPLES / name, Query()))}
        assert {None, "ключ", "timeless", "key-0"} <= keys
