"""The histogram of ages: how many entries are how old, with the cut-off of the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ttlsnap.amounts import MISSING, number, share, size
from ttlsnap.pages.model import Table
from ttlsnap.pages.svg import Bar, Chart, CutOff, bar_chart
from ttlsnap.pages.words import age_labels, field_words, place

Document = Mapping[str, Any]


def age_histograms(document: Document, name: str = "") -> Iterator[tuple[Chart, Table]]:
    """Yield the entries of each state by age, as a chart and a table. ``name`` is that of one of several targets."""
    for state in document.get("stores", ()):
        if "ages" in state:
            names = ", ".join(filter(None, [name, place(state)]))
            yield age_histogram(f"Age of {names or 'the rows'} by {field_words(state)}", state["ages"])


def age_histogram(title: str, ages: Document) -> tuple[Chart, Table]:
    """Return the entries by age as a chart, and as the table behind it.

    ``ages`` has ``buckets`` with ``up_to`` (None: what is older), ``entries`` and perhaps ``bytes``, the entries in the
    ``future`` and without a time (``null``), and perhaps ``cutoff_seconds``; then the buckets have ``up_to_seconds``.
    """
    buckets = [
        {**bucket, "label": label} for bucket, label in zip(ages["buckets"], age_labels(ages["buckets"]), strict=True)
    ]
    filled_buckets = [place for place, bucket in enumerate(buckets) if bucket["entries"]]
    # Empty buckets at the ends say nothing.
    buckets = buckets[filled_buckets[0] : filled_buckets[-1] + 1] if filled_buckets else []
    cutoff = ages.get("cutoff_seconds")
    kept = [bucket for bucket in buckets if cutoff is None or not _is_older(bucket, cutoff)]
    future, timeless = {"entries": ages["future"]}, {"entries": ages["null"]}
    groups = [
        *([("in the future", future, "accent")] if ages["future"] else []),
        *((bucket["label"], bucket, "accent") for bucket in kept),
        *((bucket["label"], bucket, "drop") for bucket in buckets[len(kept) :]),
        *([("no timestamp", timeless, "accent")] if ages["null"] else []),
    ]
    total = sum(group["entries"] for _, group, _ in groups)
    bars = [Bar(label, group["entries"], number(group["entries"]), colour) for label, group, colour in groups]
    cut_off = CutOff(bool(ages["future"]) + len(kept), "cut-off: older entries have expired")
    has_bytes = any("bytes" in bucket for bucket in buckets)
    rows = [
        (
            label,
            number(group["entries"]),
            share(group["entries"], total),
            *([size(group["bytes"]) if "bytes" in group else MISSING] if has_bytes else []),
        )
        for label, group, _ in groups
    ]
    columns = ("age", "entries", "share", *(["size"] if has_bytes else []))
    table = Table(title, columns, rows, columns[1:], whole=("age",), folded=True)
    return bar_chart(title, bars, None if cutoff is None else cut_off), table


def _is_older(bucket: Document, cutoff: float) -> bool:
    return bucket["up_to_seconds"] is None or bucket["up_to_seconds"] > cutoff
