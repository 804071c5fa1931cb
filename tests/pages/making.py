"""Pages of real runs over copies of the samples, and what they are searched for."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ttlsnap import inspect
from ttlsnap.cli.app import run

from ..samples import SAMPLES, sample

WEEK = ["--ttl", "7d", "--timestamp", "value.max", "--now", "2026-11-21T09:00:00Z"]
LOCAL = ["--engine", "local"]
AGG = "agg-deltas-lz4-4.2"
POLICY = f"""
[[target]]
path = "{AGG}"
[[target.rule]]
ttl = "7d"
timestamp = "value.max"

[[target]]
path = "rocksdb-4.2"
[[target.rule]]
transformer = "page_rules:quote"
"""
RULES = """
from ttlsnap.transform.protocols import Keep

def quote(key, value):
    raise ValueError(f"I do not like {key}")

def refuse(key, value):
    raise ValueError(f"cannot archive {key}")

class Named:
    def describe(self):
        return "drop <script>alert('user-0034')</script>"

    def create(self, state, clock):
        return self

    def filter_or_transform(self, entries):
        return entries
"""
_VOID = {"meta", "br", "hr", "img", "input", "link"}


class Parsed(HTMLParser):
    """A page as its elements, its text, and the elements that are not closed in the order of their beginning.

    ``words`` is the text with a space between elements.
    """

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.html = page.read_text()
        self.feed(self.html)
        self.close()
        self.wrong += self._open
        self.text = "".join(self._texts)
        self.words = " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if self._open[-1:] != [tag]:
            self.wrong.append(tag)
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self._texts.append(data)


@dataclass
class Pages:
    """A folder of copies and pages. ``codes`` has the exit code of each page's run, ``documents`` its JSON."""

    folder: Path
    codes: dict[str, int] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)

    def make(self, name: str, *words: str) -> Path:
        """Run a command with a page of this name, and with JSON. Return the page."""
        page = self.folder / f"{name}.html"
        printed: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr("sys.stdout.write", printed.append)
            self.codes[name] = run([*words, "--format", "json", "--report", f"html={page}"])
        self.documents[name] = json.loads("".join(printed)) if printed else None
        return page


def keys_of(target: Path) -> set[str]:
    """Return the texts in the keys of all entries."""
    samples = inspect(str(target), entries=10_000).samples
    found = {value for entry in samples or [] for value in entry["key"].values() if isinstance(value, str)}
    assert found
    return found


def make_pages(folder: Path) -> Pages:
    """Make the pages of all five commands."""
    for name in (AGG, "rocksdb-4.2", "alarms-4.2", "join-4.2", "dedup-watermark-4.2"):
        sample(name, folder)
    shutil.copytree(folder / AGG, folder / "swapped")
    parts = folder / "swapped/state/0"
    for old, new in (("0", "x"), ("1", "0"), ("x", "1")):
        (parts / old).rename(parts / new)
    (parts / "1/_metadata").rename(parts / "0/_metadata")  # the schema
    (folder / "page_rules.py").write_text(RULES)
    (folder / "policy.toml").write_text(POLICY)
    (folder / "misplaced.toml").write_text('[[target]]\npath = "swapped"\npartitions = 3\n')
    (folder / "migrate.toml").write_text('[[target]]\npath = "rocksdb-4.2"\npartitions = 3\n')
    pages = Pages(folder)
    shown = ["--dry-run", "--show", "3", *LOCAL]
    pages.make("inspect", "inspect", AGG, "--age", "--timestamp", "value.max", "--entries", "3")
    pages.make("inspect-keys", "inspect", AGG, "--entries", "3", "--show-keys")
    pages.make("inspect-states", "inspect", "alarms-4.2", "--entries", "2")
    pages.make("inspect-folder", "inspect", ".")
    pages.make("compact-dry", "compact", AGG, *WEEK, *shown)
    pages.make("compact-keys", "compact", AGG, *WEEK, *shown, "--show-keys")
    pages.make("compact-rule", "compact", AGG, "--transformer", "page_rules:Named", *shown)
    pages.make("compact-several", "compact", AGG, "rocksdb-4.2", "missing", *WEEK, *shown)
    times = pa.array([datetime(2026, month, 1, tzinfo=UTC) for month in (1, 10, 11)], pa.timestamp("us", "UTC"))
    write_deltalake(folder / "table", pa.table({"user": ["user-a", "user-b", "user-c"], "at": times}))
    by_time = ["--timestamp", "at", "--now", "2026-11-21T09:00:00Z"]
    pages.make("inspect-table", "inspect", "table", "--age", *by_time, "--entries", "2")
    pages.make("compact-table", "compact", "table", "--key", "user", "--ttl", "30d", *by_time, "--dry-run")
    pages.make("maintain-migrate", "maintain", "migrate.toml", "--plan", *LOCAL)
    pages.make("maintain-misplaced", "maintain", "misplaced.toml", "--plan", *LOCAL)
    pages.make("maintain", "maintain", "policy.toml", "--plan", *LOCAL)
    pages.make("maintain-keys", "maintain", "policy.toml", "--plan", *LOCAL, "--show-keys")
    pages.make("check", "check", AGG, str(SAMPLES / "dedup-within-4.2"))
    pages.make("check-good", "check", AGG, AGG)
    pages.make("doctor", "doctor", "swapped")
    pages.make("doctor-keys", "doctor", "swapped", "--show-keys")
    pages.make("doctor-good", "doctor", "join-4.2")
    with min((folder / "join-4.2/state").rglob("*.delta")).open("ab") as file:
        file.write(b"x")
    pages.make("doctor-damaged", "doctor", "join-4.2")
    stopped = ["--yes", "--stopped", *LOCAL]
    shutil.copytree(folder / AGG, folder / "archived")
    pages.make("compact-archive", "compact", "archived", *WEEK, *stopped, "--expired-to", "page_rules:refuse")
    pages.make("compact", "compact", AGG, *WEEK, *stopped)
    return pages
