"""Entries of RocksDB that contradict each other are damage: the error names a key, and nothing changes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ttlsnap import LocalEngine, Selection, StateDescriptor, StateEntries, compact, inspect, open_checkpoint
from ttlsnap.clock import Clock
from ttlsnap.errors import CorruptionError, TransformerError, UnsupportedError
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.open import lineage_of, open_state_store
from ttlsnap.stores.rocksdb import database, lists, partition
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.unsaferow.rows import Rows

from ..consistency import check_links
from ..samples import bytes_of, sample

Edit = Callable[[bytes, bytes], tuple[bytes, bytes] | None]
"""A function that changes the first entry of a column family. None removes the entry."""


def gone(key: bytes, value: bytes) -> None:
    return None


def another_value(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    (number,) = struct.unpack("<q", value[-8:])
    return key, value[:-8] + struct.pack("<q", number + 1)


def another_moment(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    (moment,) = struct.unpack(">q", key[24:32])
    return key[:24] + struct.pack(">q", moment + 1) + key[32:], value


def one_element(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    (size,) = struct.unpack("<i", value[:4])
    assert len(value) > 4 + size
    return key, value[: 4 + size]


def family_of(target: Path, name: str) -> bytes:
    checkpoint = open_checkpoint(open_directory(str(target)))
    store = checkpoint.operators[0].stores[0]
    state_store = open_state_store(checkpoint)
    with state_store.open(checkpoint.files, lineage_of(checkpoint, state_store, store, 0), None) as opened:
        assert isinstance(opened, partition.RocksDbPartition) and opened.metadata is not None
        return struct.pack("<h", opened.metadata.families[name])


def damage(monkeypatch: pytest.MonkeyPatch, family: bytes, edit: Edit) -> None:
    """Edit what scans of the database return."""
    real = database.scan

    def damaged(*arguments: Any, **options: Any) -> Iterator[Any]:
        done = False
        for keys, values in real(*arguments, **options):
            pairs = []
            for key, value in zip(keys.to_list(), values.to_list(), strict=True):
                if key.startswith(family) and not done:
                    done = True
                    changed = edit(key, value)
                    pairs += [changed] if changed else []
                else:
                    pairs.append((key, value))
            yield tuple(map(Rows.of, zip(*pairs, strict=True)))

    monkeypatch.setattr(partition, "scan", damaged)
    # Otherwise the number of entries would reveal the damage first.
    monkeypatch.setattr(partition.RocksDbPartition, "replay", lambda self: setattr(self, "expected", None))


CASES: list[tuple[str, str, Edit, str]] = [
    ("lists-4.2", "$ttl_recent", gone, r"variable recent .* key .*key-0.*: \$ttl_recent does not have it"),
    ("lists-4.2", "$ttl_recent", another_moment, r"key-0.*: \$ttl_recent has \d+ for it, where it should be \d+"),
    ("lists-4.2", "$min_recent", gone, r"key-0.*: \$min_recent does not have it"),
    ("lists-4.2", "$min_recent", another_value, r"key-0.*: \$min_recent has \d+ for it, where it should be \d+"),
    ("lists-4.2", "$count_recent", gone, r"key-0.*: \$count_recent does not have it"),
    ("lists-4.2", "$count_recent", another_value, r"key-0.*: \$count_recent has 3 for it, where it should be 2"),
    ("lists-4.2", "$rowCounter_all", another_value, r"variable all .*key-0.*: \$rowCounter_all has 3 for it, where"),
    ("lists-4.2", "recent", gone, r"key-0.*: \$\w+_recent has \d+ for it, and the variable does not have it"),
    ("lists-4.2", "recent", one_element, r"key-0.*: \$count_recent has 2 for it, where it should be 1"),
    ("alarms-4.2", "$eventTimers_keyToTimestamp", gone, r"timers by key and by time .* key .*key-0"),
    ("alarms-4.2", "$eventTimers_timestampToKey", gone, r"timers by key and by time .* key .*key-"),
    ("join-format4-4.2", "left-tsWithKey", gone, r"left side .*key-\d.*: the index has 0 entries for \d rows?"),
    ("join-format4-4.2", "right-tsWithKey", one_element, r"right side .*key-\d.*: the index has 1 entry for 2 rows"),
    ("join-format4-4.2", "right-keyWithTsToValues", gone, r"right side .*key-0.*: the index has 2 entries for 0 rows"),
]


@pytest.mark.parametrize(("name", "family", "edit", "words"), CASES)
def test_entries_that_contradict_each_other_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, family: str, edit: Edit, words: str
) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)
    checkpoint = open_checkpoint(open_directory(str(target)))
    assert check_links(checkpoint) == 1
    damage(monkeypatch, family_of(target, family), edit)
    with pytest.raises(CorruptionError, match=words):
        check_links(checkpoint)
    fields = {"lists-4.2": "value.seen:s", "alarms-4.2": "value.seen:s"}
    state = family.partition("_")[2] or family
    timestamp = None if state == "recent" else fields.get(name)
    factory = TtlTransformerFactory(StateTtlConfig(3600 * 1_000_000), timestamp)
    options: dict[str, Any] = {
        "now": "2099-01-01T00:00:00Z",
        "engine": LocalEngine(1),
        "stopped": True,
        "max_drop": 1.0,
    }
    if name == "alarms-4.2":
        options["timers"] = "follow"
    with pytest.raises(CorruptionError, match=words):
        compact(str(target), [factory], **options)
    assert bytes_of(target) == before


def cut(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return key, value[:-1]


def longer(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return key, value + b"\0\0\0"


def nothing(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return key, b""


def sized(size: int) -> Edit:
    return lambda key, value: (key, struct.pack("<i", size) + value[4:])


@pytest.mark.parametrize("edit", [cut, longer, nothing, sized(-1), sized(1 << 30), sized(3), sized((1 << 31) - 1)])
@pytest.mark.parametrize("many", [False, True])
def test_values_that_are_not_lists_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Edit, many: bool
) -> None:
    # A few lists are read one by one, and many lists all at once.
    target = sample("lists-4.2", tmp_path)
    before = bytes_of(target)
    damage(monkeypatch, family_of(target, "all"), edit)
    if many:
        monkeypatch.setattr(lists, "TOGETHER", 0)
    with pytest.raises(CorruptionError, match="its value is not a list of rows with their sizes"):
        check_links(open_checkpoint(open_directory(str(target))))
    assert bytes_of(target) == before


@pytest.mark.parametrize(
    ("variable", "kind", "words"),
    [
        ("recent", "HeapState", "recent, a HeapState"),
        ("recent", "MapState", r"\$count_recent"),
        ("all", None, r"\$rowCounter_all"),
    ],
)
def test_unknown_variables_are_refused_by_name(tmp_path: Path, variable: str, kind: str | None, words: str) -> None:
    target = sample("lists-4.2", tmp_path)
    metadata = target / "state/0/_metadata/v2/0"
    head, text = metadata.read_text().split("\n")
    document = json.loads(text)
    properties = json.loads(document["operatorPropertiesJson"])
    variables = {each["stateName"]: each for each in properties["stateVariables"]}
    if kind is None:
        del variables[variable]
    else:
        variables[variable]["stateVariableType"] = kind
    document["operatorPropertiesJson"] = json.dumps({**properties, "stateVariables": list(variables.values())})
    metadata.write_text(f"{head}\n{json.dumps(document)}")
    metadata.with_name(".0.crc").unlink()
    before = bytes_of(target)
    factory = TtlTransformerFactory(StateTtlConfig(3600 * 1_000_000), "value.seen:s")
    for selection in (None, Selection(state="all")):
        with pytest.raises(UnsupportedError, match=rf"operator 0: {words}, is not a known part .* operator N leaves"):
            compact(str(target), [factory], selection=selection, engine=LocalEngine(1), stopped=True, max_drop=1.0)
    assert bytes_of(target) == before
    assert inspect(str(target)).operators


class ExpiresAt:
    """A transformer that sets the expiry time of every value."""

    def __init__(self, moment: int | None) -> None:
        self.moment = moment

    def create(self, state: StateDescriptor, clock: Clock) -> ExpiresAt | None:
        return self if state.state == "recent" else None

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        values = entries.value_structs
        new = [{**value, "ttlExpirationMs": self.moment} for value in values.to_pylist()]
        return entries.replace_values(pa.array(new, values.type))


def test_an_expiry_time_that_spark_would_never_find_is_refused(tmp_path: Path) -> None:
    # Spark 4.2 looks only for entries that have expired since its last batch, and would never find earlier ones.
    target = sample("lists-4.2", tmp_path)
    last = open_checkpoint(open_directory(str(target))).batch.timestamp_ms
    before = bytes_of(target)
    options: dict[str, Any] = {"engine": LocalEngine(1), "stopped": True, "max_drop": 1.0}
    for moment in (last, 1, -1, None):
        with pytest.raises(
            TransformerError, match=rf"ttlExpirationMs of 6 entries .* \({last}\); .*. Spark would never"
        ):
            compact(str(target), [ExpiresAt(moment)], **options)
    assert bytes_of(target) == before
    report = compact(str(target), [ExpiresAt(last + 1)], **options)
    counts = {state.state.state: state.counts for state in report.states}
    assert counts["recent"].rewritten == 6
    assert counts["$ttl_recent"].rewritten == counts["$min_recent"].rewritten == counts["$ttl_recent"].entries == 4
    assert check_links(open_checkpoint(open_directory(str(target)))) == 1
