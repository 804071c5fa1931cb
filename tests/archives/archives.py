"""Compactions that archive what they drop, and the rows of the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ttlsnap import compact
from ttlsnap.compaction import runner
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

Rows = list[dict[str, Any]]


def run(target: Path, archive: Path, field: str = "value.max", ttl: str = "7d", **options: Any) -> CompactionReport:
    """Drop expired entries, and archive them in a folder."""
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), field)
    return compact(str(target), [factory], stopped=True, max_drop=1.0, expired_to=str(archive), **options)


def archived(archive: Path) -> Rows:
    """Return the rows in the Parquet files of an archive."""
    rows: Rows = []
    for path in sorted(archive.glob("*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows


def cut_off(at: str, monkeypatch: pytest.MonkeyPatch, run_it: Callable[[], object]) -> None:
    """Stop a run as it begins to deliver, or as it puts its first file into the archive."""

    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    rename = LocalDirectory.rename

    def rename_once(self: LocalDirectory, source: str, to: str, **how: Any) -> None:
        rename(self, source, to, **how)
        if to.endswith(".parquet") and "/" not in to:
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if at == "delivery":
            patched.setattr(runner, "deliver", killed)
        else:
            patched.setattr(LocalDirectory, "rename", rename_once)
        run_it()
