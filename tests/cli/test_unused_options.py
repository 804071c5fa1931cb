"""An option that would have no effect is an error, so that nobody relies on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap import LocalEngine, Selection, migrate
from ttlsnap.cli.app import run
from ttlsnap.errors import UsageError

from ..samples import bytes_of, sample

TTL = ("--ttl", "7d", "--timestamp", "value.max")
KEEP = ("--transformer", "keep")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("migrate", "--partitions", "3", "--now", "wall"), "--now needs --ttl or --transformer"),
        (("migrate", "--partitions", "3", "--now", ""), "--now needs --ttl or --transformer"),
        (("migrate", "--partitions", "3", *TTL, "--now", ""), "--now '' is not valid"),
        (("migrate", "--partitions", "3", *KEEP, "--time", "event"), "--time needs --ttl or --timestamp"),
        (("compact", *KEEP, "--time", "event"), "--time needs --ttl or --timestamp"),
        (("compact", "--ttl", "1h", "--old-ttl", ""), "'' is not a duration"),
        (("compact", "--transformer", "ttl", "--set", "ttl="), "'' is not a duration"),
        (("compact", "--transformer", "ttl", "--set", "ttl=30d", "--set", "ttl=1d"), "--set ttl is given twice"),
        (("compact", *TTL, "--scratch", ""), "--scratch '' is not a folder"),
        (
            ("compact", *TTL, "--state", "default", "--state", "nonesuch"),
            "nothing that matches --state nonesuch; it has",
        ),
        (("compact", *TTL, "--operator", "0", "--operator", "7"), "nothing that matches --operator 7; it has"),
        (("inspect", "--store", "default", "--store", "x"), "nothing that matches --store x; it has"),
        (("export", "--to", "t", "--state", "default", "--state", "x"), "nothing that matches --state x; it has"),
    ],
)
def test_an_option_without_effect_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: Any, told: str
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    monkeypatch.chdir(tmp_path)
    command, *options = words
    more = [] if command in ("inspect", "export") else ["--stopped", "--engine", "local"]
    assert run([command, str(target), *options, *more]) == 2
    assert told in capsys.readouterr().err
    assert bytes_of(target) == before


def test_several_selections_may_cross(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    assert run(["inspect", str(target), "--state", "last", "--state", "numbers"]) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_drop": 0.5},
        {"drop_unmatched": True},
        {"selection": Selection(operator=0)},
        {"timers": "follow"},
        {"now": "wall"},
    ],
)
def test_migrate_without_transformers_takes_no_option_of_what_is_dropped(tmp_path: Path, options: Any) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    with pytest.raises(UsageError, match=r"needs transformers: without them, a migration drops nothing"):
        migrate(str(target), partitions=3, stopped=True, **options)
    assert bytes_of(target) == before


def test_there_is_at_least_one_thread() -> None:
    for number in (0, -5):
        with pytest.raises(UsageError, match=f"parallelism is a number of threads from 1 on, not {number}"):
            LocalEngine(number)
