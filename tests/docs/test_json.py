"""``docs/json.md`` has every key of the documents that the commands print, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
# No document of the tests has a table that a run has changed, or that a source reads.
ELSEWHERE = {"purged", "table", "undoes"}
# Of these, Spark, the states or the columns of an entry decide on the keys.
FOREIGN = {
    "new_value", "key_schema", "value_schema", "key", "value", "settings", "session_settings", "old", "new", "sources",
    "position", "next_position", "before", "after", "unused",
}  # fmt: skip


@pytest.fixture(scope="module")
def documents(made_documents: dict[str, Any]) -> dict[str, list[str]]:
    """Return the keys of the documents of each command."""
    found: dict[str, list[str]] = {}
    for name, document in made_documents.items():
        command = name.partition(" ")[0]
        if command not in ("check", "contract", "journals"):  # other pages describe these
            is_sources = command == "sources"
            parts = [document, *document.get("sources", document.get("changes", ()))] if is_sources else document
            found.setdefault(command, []).extend(_keys(parts))
    return found


def _keys(document: Any) -> Iterator[str]:
    if isinstance(document, list):
        for item in document:
            yield from _keys(item)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in FOREIGN:
                yield from _keys(value)


def test_every_key_is_documented(documents: dict[str, list[str]]) -> None:
    words = set(re.findall(r"`([a-z0-9_]+)`", PAGE))
    for command, keys in documents.items():
        assert set(keys) <= words, command


def test_every_documented_key_exists(documents: dict[str, list[str]]) -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.M)
    documented = {word for row in rows for word in re.findall(r"`([a-z0-9_]+)`", row)}
    printed = {key for keys in documents.values() for key in keys}
    assert documented - printed <= ELSEWHERE
    assert not ELSEWHERE & printed
