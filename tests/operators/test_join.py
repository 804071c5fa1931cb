"""Joins whose stores contradict each other are damaged: the error names a key, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap import LocalEngine, Selection, compact, inspect, open_checkpoint
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..consistency import check_links
from ..samples import bytes_of, sample
from ..stores.plain import Put
from .snapshots import live, rewrite, write

COUNTS, VALUES = "left-keyToNumValues", "left-keyWithIndexToValue"


def with_first_byte_after_the_nulls(put: Put, number: int) -> Put:
    key, value = put
    assert value is not None
    return key, value[:8] + bytes([number]) + value[9:]


BROKEN: list[tuple[str, Callable[[list[Put]], list[Put]], str]] = [
    (COUNTS, lambda entries: [with_first_byte_after_the_nulls(entries[0], 9), *entries[1:]], "the count says 9 rows"),
    (COUNTS, lambda entries: entries[1:], "its rows have no count"),
    (VALUES, lambda entries: entries[1:], "the count says 1 row, but there are 0"),
    (VALUES, lambda entries: [(with_index(entries[0][0], 1), entries[0][1]), *entries[1:]], "not numbered 0 to 0"),
    (VALUES, lambda entries: [(with_index(entries[0][0], -1), entries[0][1]), *entries[1:]], "not numbered 0 to 0"),
]


def with_index(key: bytes, index: int) -> bytes:
    """Return a key with another index. The key is one string and the index."""
    return key[:16] + index.to_bytes(8, "little", signed=True) + key[24:]


@pytest.mark.parametrize(("store", "change", "words"), BROKEN)
def test_broken_links_between_stores_are_damage(
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
        lambda: compact(
            str(target), [factory], now="2090-01-01T00:00:00Z", engine=LocalEngine(1), stopped=True, max_drop=1.0
        ),
    ):
        with pytest.raises(CorruptionError, match=rf"left side do not match: key .*field0.*{words}"):
            step()
    assert bytes_of(target) == before


def test_a_join_with_an_evicted_side_is_compacted(tmp_path: Path) -> None:
    # The deltas put and delete all rows of the left side, so that no entry is left.
    target = sample("join-4.2", tmp_path)
    checkpoint = open_checkpoint(open_directory(str(target)))
    version = checkpoint.version
    for store in checkpoint.operators[0].stores:
        if store.name not in (COUNTS, VALUES):
            continue
        keys = {key for at in (version - 1, version) for key, _ in live(checkpoint, store, 0, at)}
        assert keys
        write(target / store.directory(0) / f"{version}.delta", [(key, None) for key in sorted(keys)])
        assert live(checkpoint, store, 0, version) == []
    assert check_links(checkpoint) == 2
    factory = TtlTransformerFactory(StateTtlConfig(1))
    report = compact(
        str(target), [factory], now="2090-01-01T00:00:00Z", engine=LocalEngine(1), dry_run=True, stopped=True
    )
    assert report.totals.dropped == report.totals.entries
    assert report.totals.dropped > 0


def test_inspect_shows_rows_without_internal_fields(tmp_path: Path) -> None:
    target = sample("join-4.2", tmp_path)
    found = inspect(str(target), entries=1000)
    shown = found.samples or []
    assert {entry["side"] for entry in shown} == {"left", "right"}
    assert all(set(entry["key"]) == {"field0"} and "matched" not in entry["value"] for entry in shown)
    assert {entry["matched"] for entry in shown} == {True}
    counts = inspect(str(target), entries=1000, selection=Selection(store="left-keyToNumValues", state="default"))
    assert sum(entry["value"]["value"] for entry in counts.samples or []) == sum(e["side"] == "left" for e in shown)
    types = {
        state["type"] for op in found.to_json()["operators"] for store in op["stores"] for state in store["states"]
    }
    assert types == {"row", "count"}
