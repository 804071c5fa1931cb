"""Joins whose stores do not fit together are damage: a key is named, and nothing changes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap import LocalEngine, compact, open_checkpoint
from ttlsnap.consistency import check_links
from ttlsnap.errors import CorruptionError
from ttlsnap.filesystem import open_directory
from ttlsnap.stores import lineage_of, state_store
from ttlsnap.stores.codecs import Compressor
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..samples import bytes_of, sample
from ..stores.plain import Put, state_file

COUNTS, VALUES = "left-keyToNumValues", "left-keyWithIndexToValue"


def rewrite(target: Path, store: str, change: Callable[[list[Put]], list[Put]]) -> None:
    """Put a snapshot with changed entries where Spark looks first, in the first partition that has any."""
    checkpoint = open_checkpoint(open_directory(str(target)))
    files = state_store(checkpoint)
    (found,) = (s for s in checkpoint.operators[0].stores if s.name == store)
    for partition in found.partitions:
        lineage = lineage_of(checkpoint, files, found, partition)
        with files.open(checkpoint.files, lineage, None) as stored:
            entries: list[Put] = [
                entry
                for batch in stored.batches({})
                for entry in zip(batch.keys.to_arrow().to_pylist(), batch.values.to_arrow().to_pylist(), strict=True)
            ]
        if entries:
            sink = io.BytesIO()
            compressor = Compressor(sink, "lz4")
            compressor.write(state_file(change(entries)))
            compressor.close()
            target.joinpath(lineage.new_snapshot).write_bytes(sink.getvalue())
            return
    raise AssertionError(f"no entries in {store}")


def with_first_byte_after_the_nulls(put: Put, number: int) -> Put:
    key, value = put
    assert value is not None
    return key, value[:8] + bytes([number]) + value[9:]


BROKEN: list[tuple[str, Callable[[list[Put]], list[Put]], str]] = [
    (COUNTS, lambda entries: [with_first_byte_after_the_nulls(entries[0], 9), *entries[1:]], "9 rows are counted"),
    (COUNTS, lambda entries: entries[1:], "its rows are not counted"),
    (VALUES, lambda entries: entries[1:], "rows are counted where 0 are"),
    (VALUES, lambda entries: [(with_index(entries[0][0], 1), entries[0][1]), *entries[1:]], "not numbered 0 to 0"),
    (VALUES, lambda entries: [(with_index(entries[0][0], -1), entries[0][1]), *entries[1:]], "not numbered 0 to 0"),
]


def with_index(key: bytes, index: int) -> bytes:
    """The key is one string and the index."""
    return key[:16] + index.to_bytes(8, "little", signed=True) + key[24:]


@pytest.mark.parametrize(("store", "change", "words"), BROKEN)
def test_links_that_are_broken_are_damage(
    tmp_path: Path, store: str, change: Callable[[list[Put]], list[Put]], words: str
) -> None:
    target = sample("join-4.2", tmp_path)
    assert check_links(open_checkpoint(open_directory(str(target)))) == 2
    rewrite(target, store, lambda entries: entries)
    assert check_links(open_checkpoint(open_directory(str(target)))) == 2
    rewrite(target, store, change)
    before = bytes_of(target)
    factory = TtlTransformerFactory(StateTtlConfig(1), time=None)
    for step in (
        lambda: check_links(open_checkpoint(open_directory(str(target)))),
        lambda: compact(str(target), [factory], now="2090-01-01T00:00:00Z", engine=LocalEngine(1), quiet_period=0),
    ):
        with pytest.raises(CorruptionError, match=rf"left side do not fit together: key .*field0.*{words}"):
            step()
    assert bytes_of(target) == before
