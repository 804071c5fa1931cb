"""What an idle query writes into the log of a source after a run, or during one, does not hide the log."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ttlsnap import Forget, Move, recover, rollback, set_positions, sources
from ttlsnap.copies.run import SilentCopyListener
from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.positions.rewinding import rewind

from ..positions import files
from ..transaction.killing import killed
from .trees import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Writing(SilentCopyListener):
    """Agrees, after a file was written."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target

    def confirm(self, report: object) -> bool:
        shutil.copy(self._source, self._target)
        return True


@pytest.mark.parametrize("change", ["rewind", "sources"])
def test_a_rollback_removes_what_an_idle_query_has_compacted_since(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files.put_each(folder, 8, 0.1)
    counts: dict[str, int] = {}
    idle = files.start(spark, folder, checkpoint, counts, processingTime="100 milliseconds")
    idle.processAllAvailable()
    before = tree(checkpoint)
    original = shutil.copytree(checkpoint, tmp_path / "original", symlinks=True)
    words = {"rewind": ["--batch", "6"], "sources": ["--forget", "0", "--files", f"{folder}/*.json"]}[change]
    # ttlsnap refuses to change a checkpoint while a query in its own process uses it.
    command = [sys.executable, "-m", "ttlsnap", change, str(checkpoint), *words, "--stopped", "--yes"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files.put(folder, "8.json", 1, "k8")
    with pytest.raises(Exception, match="CONCURRENT_STREAM_LOG_UPDATE"):
        idle.awaitTermination(60)
    compacted = tmp_path / "8.compact"
    compacted.write_bytes((checkpoint / "sources/0/8.compact").read_bytes())
    (source,) = sources(str(checkpoint)).sources
    assert source.log is not None and (source.log.files, source.log.entries) == (1, {"rewind": 8, "sources": 1}[change])
    shutil.copytree(folder, tmp_path / "moved")
    (moved,) = set_positions(
        str(checkpoint), log_edits={"0": Move(str(folder), str(tmp_path / "moved"))}, dry_run=True, stopped=True
    ).log_changes
    assert moved.changed == source.log.entries
    rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == before
    assert files.count(spark, folder, checkpoint) == {"k8": 1}

    # The same file during a run: before its fence is in place, and after it was interrupted.
    late = original / "sources/0/8.compact"
    with pytest.raises(BusyError, match=r"8\.compact appeared during the run"):
        if change == "rewind":
            rewind(str(original), batch=6, stopped=True, listener=Writing(compacted, late))
        else:
            forgets = {"0": Forget([f"{folder}/*.json"])}
            confirm = Writing(compacted, late).confirm
            set_positions(str(original), log_edits=forgets, stopped=True, confirm=confirm)
    late.unlink()
    assert tree(original) == before
    changes = {
        "rewind": f"rewind({str(original)!r}, batch=6, stopped=True)",
        "sources": f"set_positions({str(original)!r}, log_edits={{'0': Forget(['{folder}/*'])}}, stopped=True)",
    }
    killed("ttlsnap.publishing.swap:replace_fence", changes[change])
    shutil.copy(compacted, late)
    for prefer_undo in (False, True):
        with pytest.raises(RefusedError, match="move that file"):
            recover(str(original), prefer_undo=prefer_undo)
    late.unlink()
    assert recover(str(original), prefer_undo=True).outcome == "undone"
    assert tree(original) == before


def test_a_compact_file_that_no_batch_reads_yet_is_left_out_by_a_rewind(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files.put_each(folder, 9, 0.1)
    files.count(spark, folder, checkpoint, retained=3)
    # The query ended when only its log had the last file.
    files.remove(checkpoint, "offsets/8", "commits/8", "state/0/0/9.delta")
    (source,) = sources(str(checkpoint)).sources
    assert source.log is not None and (source.log.files, source.log.entries) == (1, 9)
    rewind(str(checkpoint), batch=6, stopped=True)
    assert files.count(spark, folder, checkpoint) == {"k7": 1, "k8": 1}
