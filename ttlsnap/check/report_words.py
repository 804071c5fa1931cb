"""Findings in words, in which names are printable (``ttlsnap.printable``)."""

from __future__ import annotations

from ttlsnap.check.findings import Finding
from ttlsnap.entries.place import Place
from ttlsnap.printable import printable


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, each printable."""
    return [printable(line.removesuffix("\r")) for line in text.split("\n")]


def describe_place(place: Place) -> str:
    """Return a place in words: ``operator 0 (stateStoreSave), store default, state default, value.count``."""
    parts = []
    if place.operator is not None:
        name = f" ({place.operator_name})" if place.operator_name else ""
        parts.append(f"operator {place.operator}{name}")
    parts += [f"store {place.store}"] if place.store is not None else []
    parts += [f"state {place.state}"] if place.state is not None else []
    parts += [place.field] if place.field is not None else []
    return printable(", ".join(parts) or "the query")


def spark_does(finding: Finding) -> str:
    """Return what Spark does."""
    return "silent: it starts without a message" if finding.spark == "silent" else printable(finding.spark)
