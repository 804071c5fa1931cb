"""Parts of documents in words: places, times, keys and values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ttlsnap.amounts import MISSING, number

Document = Mapping[str, Any]


DRY_RUN = "Dry run: nothing was changed."


def after_dry_run(document: Document, option: str = "--dry-run", does: str = "publishes this") -> str:
    """Return what a run without ``option`` would do after a dry run, or what to do before."""
    if document.get("refused"):
        return f"Without {option}, ttlsnap would refuse this now. The warnings say why."
    if document["warnings"]:
        return f"Read the warnings before you repeat it without {option}."
    if document.get("destination"):
        return f"Without {option}, ttlsnap writes this to {document['destination']}."
    if document["kind"] in ("checkpoint", "table") and not (
        document["totals"]["dropped"] or document["totals"]["rewritten"]
    ):
        return f"Without {option}, ttlsnap would have nothing to change."
    return f"Without {option}, ttlsnap {does}."


def at(milliseconds: int | None) -> str:
    """Return a time for people, to the minute, in UTC."""
    if milliseconds is None:
        return MISSING
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return f"{milliseconds} ms"


def age_groups(age: Document) -> list[tuple[str, int]]:
    """Return the groups of ``--age`` from the youngest to the oldest, each with its number of entries."""
    buckets = [(f"up to {bucket['up_to']}", bucket["entries"]) for bucket in age["buckets"]]
    return [("in the future", age["future"]), *buckets, ("older", age["older"]), ("no timestamp", age["null"])]


def describe_age_history(age: Document) -> str | None:
    """Return how many entries may be older than their group says; None if there are none."""
    count = age.get("written_before_history")
    return None if count is None else f"{number(count)} entries may be older: the known history begins there"


def describe_history(before: Document) -> str:
    """Return a sentence about the entries that were written when the known history begins, or earlier."""
    begins = f"the known history of {number(before['entries'])} entries begins at {before['time']}"
    return f"{begins}. They were written then or earlier, and count as written then"


def as_text(value: Any) -> str:
    """Return a value as JSON on one line; a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def describe_value(entry: Document) -> str:
    """Return everything of an entry but its place and its key."""
    own = ("operator", "store", "state", "partition", "key", "change", "rule", "time" if "change" in entry else "")
    rest = {name: value for name, value in entry.items() if name not in own}
    return as_text(rest["value"]) if list(rest) == ["value"] else as_text(rest)


def moment(text: str | None) -> float | None:
    """Return a time of a document in seconds since 1970; None if it is unknown or no calendar has it."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def minute(text: str | None) -> str:
    """Return a time of a document to the minute."""
    return MISSING if text is None else text[:16].replace("T", " ") if "T" in text else text


def second(text: str | None) -> str:
    """Return a time of a document to the second; one that no calendar has as it is."""
    return MISSING if text is None else text[:19] if "T" in text else text


def place(state: Document) -> str:
    """Return a state's place: ``0.left.default`` without the parts that are called default."""
    names = [name for name in (state["store"], state["state"]) if name != "default"]
    operator = [] if state["operator"] is None else [f"operator {state['operator']}"]
    return ", ".join([*operator, ".".join(names)] if names else operator)
