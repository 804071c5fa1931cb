"""Stored inputs are what Spark writes, and a restart on one gives the results of a restart on a new one."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import inspect

from ..matrix import FULL, narrow
from .inputs import STORED, Input, code_of, describe, store
from .layouts import layout_of
from .processes import PYTHON
from .queries import Event, Query
from .spark import Judge

ARCHIVES = sorted(STORED.glob("*.tar.xz"))
T, H = 1_700_006_400, 3600
BATCHES = (
    (Event("a", T, 1), Event("b", T + 60, 2), Event(None, T + 5, 3)),
    (Event("a", T + 3 * H, 5), Event("c", T + H, 6)),
)
LATER = (Event("a", T + 4 * H, 7), Event("d", T + 4 * H, 8))
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(rb'(?<="batchTimestampMs":)\d+|(?<="timestamp":)\d+|(?<="modificationTime":)\d+')


@pytest.mark.slow
def test_every_stored_input_matches_the_code_that_writes_it() -> None:
    stale = [archive.name for archive in ARCHIVES if describe(archive).archive != archive]
    assert not stale, f"their code has changed, so run: {PYTHON} -m tests.judge.renew --stale"
    assert ARCHIVES


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def test_a_stored_input_is_small_and_names_no_place_of_a_machine(archive: Path) -> None:
    assert archive.stat().st_size < 200_000
    with tarfile.open(archive) as members:
        for member in members:
            packed = members.extractfile(member)
            places = re.findall(rb"file:/+([\w.-]+)", packed.read()) if packed else []
            assert set(places) <= {b"ttlsnap"}, member.name


def test_a_description_survives_json() -> None:
    asked = Input(Query(conf=(("spark.some.setting", "1"),)), BATCHES, "both", "4.1", LATER)
    assert Input.from_json(asked.to_json()) == asked
    assert asked.archive != Input(Query(), BATCHES, "both", "4.1", LATER).archive


MODULE = """
WIDTH = 3
HEIGHT = 4

def area(side):
    '''Return the area.'''
    # a comment
    for _ in range(2):
        side += 1
        side *= 2
    return side * WIDTH

def unused():
    return HEIGHT
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("WIDTH = 3", "WIDTH = 5", True),
        ("side * WIDTH", "side + WIDTH", True),
        ("    side *= 2", "side *= 2", True),
        ("HEIGHT = 4", "HEIGHT = 5", False),
        ("Return the area.", "Return it.", False),
        ("# a comment", "# another one", False),
    ],
)
def test_the_digest_covers_the_code_that_is_used(tmp_path: Path, old: str, new: str, changes: bool) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text(MODULE)
    two.write_text(MODULE.replace(old, new))
    assert (code_of(one, "area") != code_of(two, "area")) is changes


@pytest.mark.parametrize(
    ("query", "uncommitted"),
    narrow([(Query("dedup", sink="parquet"), None), (Query(provider="rocksdb", changelog=True), LATER)], 1),
)
def test_a_restart_on_a_stored_input_gives_the_same_results(
    judge: Judge, query: Query, uncommitted: tuple[Event, ...] | None, tmp_path: Path
) -> None:
    asked = Input(query, BATCHES, "both", uncommitted=uncommitted)
    written = judge.write_with_spark(asked)
    events = [judge.events_of(name) for name in written.sources]
    assert store(asked, written.path, written.out, events, tmp_path)
    (archive,) = tmp_path.iterdir()
    again = judge.unpack(asked, archive)
    assert contents(again.path) == contents(written.path)
    restarted = [judge.restart(made, [[Event("e", T + 9 * H, 1)]]) for made in (written, again)]
    assert restarted[0] == restarted[1] == written.expected.run([[Event("e", T + 9 * H, 1)]])
    assert judge.state(again) == judge.state(written)


def contents(checkpoint: Path) -> dict[str, Any]:
    """Return the names, logs, schemas and entries of a checkpoint, without ids, times and paths."""
    found: dict[str, Any] = {}
    names: Counter[str] = Counter()
    for path in checkpoint.rglob("*"):
        if path.is_file() and "SSTs" not in path.parts:
            name = _ID.sub(b"ID", str(path.relative_to(checkpoint)).encode()).decode()
            # Maintenance writes a snapshot of the last version, and of earlier ones if it finds the time.
            if not {".zip", ".snapshot"} & set(path.suffixes):
                names[name] += 1
            if path.suffix not in (".delta", ".snapshot", ".changelog", ".zip", ".crc"):
                data = path.read_bytes().replace(str(checkpoint).encode(), b"HERE")
                data = re.sub(rb"file:[^\"]*(?=/\d{5}\.json)", b"EVENTS", data)
                found[name] = _TIME.sub(b"TIME", _ID.sub(b"ID", data))
    samples = inspect(str(checkpoint), entries=100_000).samples or []
    return {**found, "names": names, "layout": layout_of(checkpoint), "entries": sorted(map(repr, samples))}


@pytest.mark.wide
@pytest.mark.parametrize("archive", ARCHIVES if FULL else [], ids=lambda archive: archive.name)
def test_spark_still_writes_a_stored_input(judge: Judge, archive: Path, tmp_path: Path) -> None:
    asked = describe(archive)
    new = judge.write_with_spark(asked)
    old = judge.unpack(asked, archive)
    assert contents(old.path) == contents(new.path)
