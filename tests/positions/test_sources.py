"""``sources``: the positions in checkpoints that Spark wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttlsnap import TtlsnapError, sources
from ttlsnap.cli.app import run
from ttlsnap.errors import CorruptionError, FencedError, NotACheckpointError

from ..judge.queries import Query, rated
from ..judge.spark import Judge
from ..samples import bytes_of, sample


def test_a_file_source_shows_its_log(tmp_path: Path) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(checkpoint)
    report = sources(str(checkpoint))
    (source,) = report.sources
    log = [path for path in (checkpoint / "sources/0").iterdir() if not path.name.startswith(".")]
    assert (report.batch, report.next_batch, report.log_version) == (6, None, 1)
    assert (source.name, source.kind, source.position, source.next_position) == ("0", "files", {"logOffset": 5}, None)
    assert source.log is not None
    assert source.log.files == len(log) == 6
    assert source.log.bytes == sum(path.stat().st_size for path in log)
    assert source.log.entries == sum(path.read_text().count('"path"') for path in log) > 0
    assert bytes_of(checkpoint) == before


def test_a_begun_batch_shows_where_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = sample("uncommitted-batch-4.2", tmp_path)
    report = sources(str(checkpoint))
    assert report.next_batch == (report.batch or 0) + 1
    (source,) = report.sources
    assert source.next_position == {"logOffset": source.position["logOffset"] + 1}
    assert run(["sources", str(checkpoint)]) == 0
    printed = capsys.readouterr().out
    assert f"batch {report.next_batch} reads up to: entry {source.next_position['logOffset']} of its log" in printed


def test_a_planned_batch_reads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    assert run(["rewind", str(checkpoint), "--batch", "4", "--stopped", "--yes"]) == 0
    capsys.readouterr()
    assert run(["sources", str(checkpoint)]) == 0
    assert "  batch 7 reads nothing\n" in capsys.readouterr().out


def test_version_2_of_the_offset_log_names_the_sources(tmp_path: Path) -> None:
    report = sources(str(sample("offsets-v2-4.2", tmp_path)))
    assert report.log_version == 2
    assert [(source.name, source.kind) for source in report.sources] == [("0", "files")]


def test_a_source_that_makes_rows_shows_how_many(inputs: Judge) -> None:
    query = Query("agg_append", source="rate-micro-batch", provider="hdfs")
    written = inputs.write(query, [rated(batch) for batch in range(4)])
    (source,) = sources(str(written.path)).sources
    assert source.kind == "rate-micro-batch"
    assert source.position["offset"] > 0
    assert source.log is None


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    (checkpoint / "offsets/6").write_bytes(b"")
    with pytest.raises(CorruptionError, match="offsets/6 is empty"):
        sources(str(checkpoint))
    entry = (checkpoint / "offsets/4").read_bytes()
    (checkpoint / "offsets/6").write_bytes(b"\n".join(entry.split(b"\n")[:2]))
    (checkpoint / "offsets/.6.crc").unlink()
    with pytest.raises(CorruptionError, match="offsets/6 is truncated"):
        sources(str(checkpoint))
    (checkpoint / "offsets/6").unlink()
    with pytest.raises(CorruptionError, match="offsets/6 is missing, although the batch is committed"):
        sources(str(checkpoint))


@pytest.mark.parametrize("place", ["", "state", "nowhere"])
def test_a_place_that_is_not_a_checkpoint_is_refused(tmp_path: Path, place: str) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    with pytest.raises(NotACheckpointError):
        sources(str(tmp_path if place == "" else checkpoint / place))


def test_a_fenced_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    (checkpoint / "offsets/8").write_text("ttlsnap fence: a run is publishing\n")
    with pytest.raises(FencedError):
        sources(str(checkpoint))


def test_names_of_topics_are_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint from elsewhere may have any text as the position of a source that ttlsnap does not know."""
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    path = checkpoint / "offsets/6"
    head = path.read_text().splitlines()[:2]
    path.write_text("\n".join([*head, json.dumps({"\x1b[31m[bold]": {"0": 3}}, ensure_ascii=False)]))
    (checkpoint / "offsets/.6.crc").unlink(missing_ok=True)
    try:
        code = run(["sources", str(checkpoint)])
    except TtlsnapError:
        code = 5
    printed = capsys.readouterr().out
    assert code == 0
    assert "\x1b" not in printed
    assert "[bold]" in printed
