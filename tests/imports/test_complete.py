"""Every imported row becomes an entry as it is, and none that Spark would never find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap import export, import_state, open_checkpoint
from ttlsnap.engines.spill import Spills
from ttlsnap.errors import BusyError, CorruptionError, RefusedError
from ttlsnap.imports.partition import TableSource
from ttlsnap.imports.report import ImportReport
from ttlsnap.imports.run import SilentListener
from ttlsnap.storage.open import open_directory
from ttlsnap.unsaferow.rows import Rows

from ..samples import bytes_of, sample, without_own

Part = tuple[Rows, Rows]


def lose(keys: Rows, values: Rows) -> Part:
    """Return the rows without the last one."""
    return keys.take(slice(0, len(keys) - 1)), values.take(slice(0, len(keys) - 1))


def damage(keys: Rows, values: Rows) -> Part:
    """Return the rows with another bit in a value."""
    data = values.data.copy()
    data[values.start[0] + values.size[0] - 8] ^= np.uint8(1)
    return keys, Rows(data, values.start, values.size)


def exchange(keys: Rows, values: Rows) -> Part:
    """Return the rows with the values of other keys."""
    return keys, values.take(np.roll(np.arange(len(values)), 1))


@pytest.mark.parametrize("change", [lose, damage, exchange])
def test_a_row_that_does_not_arrive_as_it_was_stops_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows, Rows], Part]
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    export(str(target), str(tmp_path / "state"))
    before, read = bytes_of(target), TableSource.read

    def careless(self: TableSource, spills: Spills, partition: int) -> Iterator[Part]:
        for keys, values in read(self, spills, partition):
            yield change(keys, values) if partition == 1 else (keys, values)

    monkeypatch.setattr(TableSource, "read", careless)
    with pytest.raises(CorruptionError, match="the new partitions do not have the rows of the tables"):
        import_state(str(target), str(tmp_path / "state"), mode="replace", stopped=True)
    assert bytes_of(target) == before


@pytest.mark.parametrize("copy", [False, True])
def test_a_checkpoint_that_changes_meanwhile_gets_no_rows(tmp_path: Path, copy: bool) -> None:
    target, output = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "copy"
    export(str(target), str(tmp_path / "state"))

    class Meanwhile(SilentListener):
        def confirm(self, report: ImportReport) -> bool:
            (target / "state/0/1/8.delta").write_bytes(b"of a running query")
            return True

    to = str(output) if copy else None
    with pytest.raises(BusyError, match=r"state/0/1/8\.delta changed while ttlsnap worked: the query is running"):
        import_state(
            str(target), str(tmp_path / "state"), mode="replace", stopped=True, output=to, listener=Meanwhile()
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, "state"]
    (target / "state/0/1/8.delta").unlink()
    assert without_own(bytes_of(target)) == bytes_of(sample("agg-deltas-lz4-4.2", tmp_path / "another"))


@pytest.mark.parametrize(("later_ms", "is_due"), [(-1, True), (0, True), (1, False)])
def test_a_timer_must_fire_after_the_watermark(tmp_path: Path, later_ms: int, is_due: bool) -> None:
    target = sample("alarms-4.2", tmp_path)
    watermark_ms = open_checkpoint(open_directory(str(target))).batch.watermark_ms
    assert watermark_ms is not None
    export(str(target), str(tmp_path / "state"), tables=["0.eventTimers"])
    rows = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "state/0.eventTimers").glob("*.parquet")])
    time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=watermark_ms + later_ms)
    times = pa.array([time] * len(rows), rows.schema.field("time").type)
    pq.write_table(rows.set_column(rows.schema.get_field_index("time"), "time", times), tmp_path / "new.parquet")
    words: dict[str, Any] = {"tables": ["0.eventTimers"], "mode": "replace", "stopped": True}
    if is_due:
        with pytest.raises(RefusedError, match=r"the timer is due before the next batch.* \(4 rows\)"):
            import_state(str(target), str(tmp_path / "new.parquet"), **words)
    else:
        assert import_state(str(target), str(tmp_path / "new.parquet"), **words).rows == 4
