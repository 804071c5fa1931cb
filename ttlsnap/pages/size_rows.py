"""The figures of ``inspect --sizes`` in words, which the terminal and the page both show.

A row has the words by the names of their columns. The names of states and the keys are not in it, because the terminal
and the page show them in different ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ttlsnap.amounts import MISSING, age, estimate, exact_size, number, part_of, quantity, ratio, share, size
from ttlsnap.pages.words import as_text, describe_history

Document = Mapping[str, Any]
Row = dict[str, str]

SKEW = "largest / median"


def describe_sample(sizes: Document) -> str:
    """Return how much was read."""
    if sizes["complete"]:
        return f"all partitions were read, {sizes['seconds']:.1f} s"
    partitions = [partition for store in sizes["stores"] for partition in store["partitions"]]
    read = sum(partition["read"] for partition in partitions)
    count = f"{number(read)} of {quantity(len(partitions), 'partition')}"
    return (
        f"a sample, {count} with {part_of(sizes['share_read'])} of the files, {sizes['seconds']:.1f} s\nA ~ marks an "
        "estimate. Percentiles, ages, largest entries and keys are those of the sample. --sample all reads everything."
    )


def state_row(state: Document, total: int) -> Row:
    """Return the sizes of a state. ``total`` is the size of all states."""
    is_exact = state["complete"]
    return {
        "entries": estimate(number(state["estimated_entries"]), exact=is_exact or state["entries"] is not None),
        "keys": estimate(size(state["estimated_key_bytes"]), exact=is_exact),
        "values": estimate(size(state["estimated_value_bytes"]), exact=is_exact),
        "size": estimate(size(state["estimated_bytes"]), exact=is_exact),
        "share": share(state["estimated_bytes"], total),
        SKEW: ratio(state["skew_bytes"]),
    }


def partition_row(partition: Document) -> Row:
    """Return the sizes of a partition: its entries, their keys and values if it was read, and its files."""
    return {
        "partition": number(partition["partition"]),
        "entries": number(partition["entries"]),
        "size": size(partition["bytes"]),
        "files": size(partition["file_bytes"]),
    }


def percentile_rows(state: Document) -> Iterator[Row]:
    """Yield the percentiles of the sizes of keys and values, and of ages."""
    ages = state["ages"]
    for measure, percentiles, show in (
        ("key size", state["key_sizes"], exact_size),
        ("value size", state["value_sizes"], exact_size),
        ("age", ages["seconds"] if ages is not None else None, age),
    ):
        if percentiles is not None and percentiles["max"] is not None:
            yield {"of": measure, **{name: show(value) for name, value in percentiles.items()}}


def describe_ages(state: Document) -> str | None:
    """Return what the ages of a state are about, or why it has none; None if that needs no words."""
    ages = state["ages"]
    if ages is None:
        return state["no_ages"] if state["role"] == "primary" else None
    counts_without_age = {
        "have no time": ages["null"],
        "are in the future": ages["future"],
    }
    missing_texts = [f"{number(count)} {description}" for description, count in counts_without_age.items() if count]
    if "written_before" in ages:
        missing_texts.append(describe_history(ages["written_before"]))
    return "; ".join([f"age of {ages['timestamp']} at {ages['now']}", *missing_texts])


def largest_row(entry: Document) -> Row:
    """Return the sizes of one of the largest entries."""
    return {
        "partition": number(entry["partition"]),
        "key size": exact_size(entry["key_bytes"]),
        "value size": exact_size(entry["value_bytes"]),
    }


def key_texts(entry: Document) -> list[str]:
    """Return the key of an entry, and what else identifies it: a key of the user's, or a time."""
    other_names = ("partition", "key", "side", "rows", "bytes", "key_bytes", "value_bytes")
    return [as_text(entry["key"]), *(as_text(value) for name, value in entry.items() if name not in other_names)]


def keys_with_rows(state: Document) -> Iterator[tuple[Document, Row]]:
    """Yield the keys with several rows, with the words about each."""
    for key in state["most_rows"] or ():
        if key["rows"] > 1:
            row = {"partition": number(key["partition"]), "rows": number(key["rows"]), "size": size(key["bytes"])}
            yield key, row


def rule_row(state: Document) -> Row | None:
    """Return what the rule would drop of a state; None if it leaves the state alone."""
    would_free, is_exact = state["would_free"], state["complete"]
    if would_free is None or would_free["left_alone"] is not None:
        return None
    return {
        "entries": estimate(number(would_free["estimated_entries"]), exact=is_exact),
        "of entries": share(would_free["entries"], state["entries_read"]),
        "size": estimate(size(would_free["estimated_bytes"]), exact=is_exact),
        "of size": share(would_free["bytes"], state["bytes_read"]),
    }


def batch_row(point: Document) -> Row:
    """Return the state after a retained batch."""
    return {
        "batch": number(point["batch"]),
        "begun": point["at"],
        "stored keys": number(point["stored_keys"]),
        "files": size(point["file_bytes"]),
        "written": size(point["written_bytes"]),
    }


def run_row(run: Document) -> Row:
    """Return a run of ttlsnap."""
    return {
        "run": run["run"],
        "at": run["at"] or MISSING,
        "kind": run["kind"],
        "status": run["status"],
        "entries before": number(run["entries_before"]),
        "after": number(run["entries_after"]),
        "files before": size(run["bytes_before"]),
        "files after": size(run["bytes_after"]),
    }
