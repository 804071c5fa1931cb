"""Every figure and every name that a command prints on the terminal is on its page, in the same words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import sample
from .making import Parsed

NOW = ("--now", "2026-11-21T09:00:00Z")
BY_MAX = ("--timestamp", "value.max", *NOW)
WEEK = ("--ttl", "7d", *BY_MAX)
LOCAL = ("--engine", "local")
AGG = "agg-deltas-lz4-4.2"
COMMANDS = {
    "inspect": ["inspect", AGG],
    "inspect a join": ["inspect", "join-format4-4.2"],
    "ages": ["inspect", AGG, "--age", *BY_MAX],
    "ages of writing": ["inspect", "dedup-columns-rocksdb-3.2", "--age", "--timestamp", "@written"],
    "sizes": ["inspect", AGG, "--sizes", *WEEK],
    "a sample": ["inspect", AGG, "--sizes", "--sample", "10kB", *WEEK],
    "sizes of lists": ["inspect", "lists-4.2", "--sizes"],
    "sizes of a join": ["inspect", "join-format4-4.2", "--sizes", "--ttl", "1d"],
    "sizes of timers": ["inspect", "alarms-4.2", "--sizes"],
    "a folder": ["inspect", "folder"],
    "compact": ["compact", AGG, *WEEK, *LOCAL, "--dry-run"],
    "compact RocksDB": ["compact", "rocksdb-4.2", *WEEK, *LOCAL, "--dry-run"],
    "compact groups": ["compact", "groups-3.1", "--now", "2026-12-21", *LOCAL, "--dry-run", "--max-drop", "100%"],
    "compact a join": ["compact", "join-format4-4.2", "--ttl", "1d", "--now", "2026-11-16", *LOCAL, "--dry-run"],
    "compact by writing": [
        "compact",
        "dedup-columns-3.1",
        "--ttl",
        "1h",
        "--timestamp",
        "@written",
        *LOCAL,
        "--dry-run",
    ],
    "maintain": ["maintain", "policy.toml", "--plan", *LOCAL],
    "doctor": ["doctor", AGG],
    "doctor damaged": ["doctor", "damaged"],
    "check": ["check", AGG, "dedup-watermark-4.2"],
    "compact with examples": ["compact", AGG, *WEEK, *LOCAL, "--dry-run", "--show", "2"],
    "compact several": ["compact", AGG, "rocksdb-4.2", *WEEK, *LOCAL, "--dry-run"],
    "compact timers": ["compact", "alarms-4.2", "--ttl", "1d", "--timestamp", "value.seen:s", *LOCAL, "--dry-run"],
    "maintain a migration": ["maintain", "migrate.toml", "--plan", *LOCAL],
    "inspect with examples": ["inspect", "join-format4-4.2", "--entries", "1"],
}
POLICY = "".join(
    f'[[target]]\npath = "{name}"\n[[target.rule]]\nttl = "7d"\ntimestamp = "{field}"\n'
    for name, field in ((AGG, "value.max"), ("dedup-columns-3.1", "@written"))
)
# Numbers with what belongs to them: 1,234  12.3 kB  77 %  1.02  2 to 7  ~9  36h  2026-11-21T09:00:00.000Z
_FIGURE = re.compile(r"~?\d[\d,.:TZ-]*(?: (?:%|[kMGT]?B\b|s\b)|[dhms]\b)?")
# The columns with names, and the lines that name a state, a field with its type, a rule, and a finding or a problem.
_NAMED = {"operator", "store", "state", "timestamp", "--timestamp", "--time", "of", "target", "status", "checkpoint"}
_NAMING = re.compile(
    r"^operator (\d+ \w+)$|^  ([\w.$-]+):$|^  ((?:key|value)\.\S+)  (\S+)(?:   <- (.*))?$|^What (.+) would drop$"
    r"|by rule: (.+)$|^\w+\[([\w-]+)\]: |^(?:error|warning|note): ([\w-]+)$|^  age of (\S+) at"
)
_SECONDS = re.compile(r"\d+\.\d s\b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with copies of the samples."""
    made = tmp_path_factory.mktemp("samples")
    names = [word for words in COMMANDS.values() for word in words if re.fullmatch(r"[a-z\d-]+-\d\.\d", word)]
    for name in dict.fromkeys([AGG, "dedup-columns-3.1", *names]):
        sample(name, made)
    for name in (AGG, "rocksdb-4.2"):
        sample(name, made / "folder")
    shutil.copytree(made / AGG, made / "damaged")
    (made / "damaged/state/0/0/5.delta").write_bytes(b"no delta")
    (made / "policy.toml").write_text(POLICY)
    (made / "migrate.toml").write_text('[[target]]\npath = "rocksdb-4.2"\npartitions = 3\n')
    return made


def names(text: str) -> Iterator[str]:
    """Yield the names in the output of a command: those in tables, and those in lines that name something."""
    columns: list[str] = []
    for line in text.splitlines():
        yield from filter(None, (found for match in _NAMING.finditer(line) for found in match.groups()))
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) > 1 and _NAMED & {*cells}:
            columns = cells
        elif len(cells) != len(columns):
            columns = []
        yield from (cell for cell, column in zip(cells, columns, strict=False) if column in _NAMED and cell != "-")


def compare(words: list[str], page: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command with a page, and assert that the page has every figure of its text. Return the text."""
    capsys.readouterr()
    run([*words, "--report", f"html={page}", "--show-keys"])
    text = capsys.readouterr().out
    shown = Parsed(page).words
    # A number in the name of an entry or a file is not a figure.
    lines = [re.sub(r"\{.*?\}|\S*/\S*|[\da-f]{8}-[\da-f-]{27}", "", line) for line in text.splitlines()]
    assert page.exists() and any(map(_FIGURE.search, lines)), text
    places = re.compile(r"\b(?:operator )?\d+(?:\.[\w$-]+){1,3}(?=:| )|^\d+\.\S+", re.MULTILINE)
    missing = [
        (found, line)
        for line in lines
        for found in _FIGURE.findall(places.sub("", line))
        if not re.search(rf"(?<![\d,.~]){re.escape(found.rstrip('.:,-'))}(?![\d,]|\.\d)", shown)
    ]
    assert not missing, missing
    unnamed = [name for name in names(text) if not re.search(rf"(?<![\w$-]){re.escape(name)}(?![\w$-])", shown)]
    assert not unnamed, unnamed
    return text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_figure_and_every_name_of_the_text(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "250")
    compare(COMMANDS[name], folder / "page.html", capsys)


@pytest.mark.parametrize("read", ["all", "8kB"])
def test_the_figures_of_a_skewed_state_agree(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample(AGG, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    for words in (["compact", AGG, *WEEK, *LOCAL], ["migrate", AGG, "--partitions", "7", *LOCAL]):
        assert run([*words, "--stopped", "--yes"]) == 0
    text = compare(["inspect", AGG, "--sizes", "--sample", read, *WEEK], tmp_path / "page.html", capsys)
    ratios = re.findall(r"(?<=[ :])\d\.\d\d$", text, re.MULTILINE)
    assert len(set(ratios)) == 2 and "1.00" not in ratios  # those of the state and of the files
