"""The sections about sizes: what uses the space of a state. A document has them only with ``--sizes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ttlsnap.amounts import MISSING, age, exact_size, number, share, size
from ttlsnap.pages.model import Section, Table, Tile
from ttlsnap.pages.privacy import tell, tell_rule
from ttlsnap.pages.svg import Bar, CutOff, bar_chart, line_chart
from ttlsnap.pages.targets import MOST, largest
from ttlsnap.pages.words import as_text, minute, place

Document = Mapping[str, Any]
_PERCENTILES = ("p50", "p90", "p99", "max")


def size_tiles(document: Document) -> Iterator[Tile]:
    """Yield what a rule would drop of all states."""
    freed = [state["would_free"] for state in document.get("sizes", {}).get("states", ()) if state["would_free"]]
    if freed:
        entries, held = sum(each["entries"] for each in freed), sum(each["bytes"] for each in freed)
        yield Tile("a rule would drop", number(entries), f"entries of {size(held)}")


def size_sections(document: Document, show_keys: bool) -> Iterator[Section]:
    """Yield the sizes by state and partition, ages with their cut-off, a rule's effect, growth, and large entries."""
    sizes = document.get("sizes")
    if sizes is None:
        return
    yield _states(sizes)
    yield _partitions(sizes)
    yield from _percentiles(sizes["states"])
    for state in sizes["states"]:
        if state["ages"] is not None:
            yield _ages(state)
    yield from _rule(sizes, show_keys)
    yield from _growth(sizes["growth"], show_keys)
    yield from _large_entries(sizes["states"], show_keys)


def _states(sizes: Document) -> Section:
    states = sizes["states"]
    total = sum(state["estimated_bytes"] for state in states)
    bars = [Bar(place(state), state["estimated_bytes"], size(state["estimated_bytes"])) for state in states]
    rows = [
        (
            place(state),
            state["role"],
            number(state["estimated_entries"]),
            size(state["key_bytes"]),
            size(state["value_bytes"]),
            size(state["estimated_bytes"]),
            share(state["estimated_bytes"], total),
        )
        for state in states
    ]
    numbers = ("entries", "keys", "values", "size", "share")
    table = Table("Keys and values of each state", ("state", "role", *numbers), rows, numbers, ("state",))
    texts = []
    if not sizes["complete"]:
        part = share(round(100 * sizes["share_read"]), 100)
        texts = [
            f"ttlsnap read {part} of the files. Entries and sizes are estimates; keys and values are what was read."
        ]
    charts = [bar_chart("Size of keys and values", bars)] if len(bars) > 1 else []
    return Section("What uses the space", texts, charts, [table])


def _partitions(sizes: Document) -> Section:
    files = {
        f"{_store(store)}, partition {part['partition']}": part["file_bytes"]
        for store in sizes["stores"]
        for part in store["partitions"]
    }
    ordered = sorted(files.items(), key=lambda item: -item[1])
    title = "Files by partition"
    caption = title if len(ordered) <= MOST else f"{title}: the largest {MOST} of {len(ordered):,}"
    rows = [(name, size(held)) for name, held in ordered[:MOST]]
    skews = [f"{_store(store)}: {store['skew']:.2f}" for store in sizes["stores"] if store["skew"] is not None]
    texts = [f"The largest partition, divided by the median: {', '.join(skews)}."] if skews else []
    table = Table(caption, ("partition", "size"), rows, ("size",), ("partition",))
    return Section("Partitions", texts, list(largest(title, files, size)), [table])


def _percentiles(states: list[Document]) -> Iterator[Section]:
    """Yield the percentiles of the sizes of keys and values, and of ages."""
    rows = []
    for state in states:
        for of, found, show in (
            ("key size", state["key_sizes"], exact_size),
            ("value size", state["value_sizes"], exact_size),
            ("age", state["ages"] and state["ages"]["seconds"], age),
        ):
            if found is not None and found["max"] is not None:
                rows.append((place(state), of, *(show(found[name]) for name in _PERCENTILES)))
    if rows:
        table = Table("Percentiles", ("state", "of", *_PERCENTILES), rows, _PERCENTILES, ("state",))
        yield Section("Percentiles", [], [], [table])


def _store(store: Document) -> str:
    return place({**store, "state": "default"})


def _ages(state: Document) -> Section:
    ages = state["ages"]
    labels = [(f"up to {bucket['up_to']}" if bucket["up_to"] else "older", bucket) for bucket in ages["buckets"]]
    found = [n for n, (_, bucket) in enumerate(labels) if bucket["entries"]]
    # Empty groups at the ends say nothing.
    labels = labels[found[0] : found[-1] + 1] if found else []
    cutoff = ages["cutoff_seconds"]
    mark = None
    if cutoff is not None:
        ends = [bucket["up_to_seconds"] for _, bucket in labels]
        after = sum(end is not None and end <= cutoff for end in ends)
        exact = after and ends[after - 1] == cutoff
        mark = CutOff(after, "cut-off: what is below has expired" if exact else "cut-off, within the next group")
    total = sum(bucket["entries"] for _, bucket in labels) + ages["future"] + ages["null"]
    extra = [(name, ages[key]) for name, key in (("in the future", "future"), ("no timestamp", "null")) if ages[key]]
    bars = [
        Bar(label, bucket["entries"], number(bucket["entries"]), _colour(bucket, cutoff)) for label, bucket in labels
    ]
    rows = [
        (label, number(bucket["entries"]), share(bucket["entries"], total), size(bucket["bytes"]))
        for label, bucket in labels
    ]
    rows += [(name, number(entries), share(entries, total), MISSING) for name, entries in extra]
    title = f"Age of {place(state)} by {ages['timestamp']}"
    table = Table(title, ("age", "entries", "share", "size"), rows, ("entries", "share", "size"), whole=("age",))
    text = f"Ages at {minute(ages['now'])} UTC. The oldest entry is from {minute(ages['oldest'])}."
    return Section(f"Age: {place(state)}", [text], [bar_chart(title, bars, mark)], [table])


def _colour(bucket: Document, cutoff: float | None) -> str:
    """Return the colour of entries that have expired, or that of the others."""
    if cutoff is None:
        return "accent"
    return "drop" if bucket["up_to_seconds"] is None or bucket["up_to_seconds"] > cutoff else "accent"


def _rule(sizes: Document, show_keys: bool) -> Iterator[Section]:
    if sizes["rule"] is None:
        return
    rows, texts = [], []
    for state in sizes["states"]:
        freed = state["would_free"]
        if freed is None:
            continue
        if freed["left_alone"]:
            texts.append(f"{place(state)} is not changed: {freed['left_alone']}.")
        if freed["followers"]:
            texts.append(f"What would follow {place(state)} is not counted: {', '.join(freed['followers'])}.")
        entries, held = state["entries_read"], state["bytes_read"]
        part = (share(freed["entries"], entries), size(freed["bytes"]), share(freed["bytes"], held))
        rows.append((place(state), number(freed["entries"]), *part))
    columns = ("state", "entries", "of entries", "size", "of size")
    rule = tell_rule(sizes["rule"], show_keys)
    yield Section(
        "What a rule would drop",
        [f"The rule: {rule}", *texts],
        (),
        [Table("By state", columns, rows, columns[1:], ("state",))],
    )


def _growth(growth: Document, show_keys: bool) -> Iterator[Section]:
    batches = growth["batches"]
    if not batches:
        return
    known = [
        (float(point["batch"]), float(point["file_bytes"])) for point in batches if point["file_bytes"] is not None
    ]
    charts = []
    if len(known) > 1:
        ends = (f"batch {known[0][0]:.0f}", f"batch {known[-1][0]:.0f}")
        most = size(int(max(held for _, held in known)))
        charts = [line_chart("Size of the files after each retained batch", known, ends, most)]
    rows = [
        (
            number(point["batch"]),
            minute(point["at"]),
            number(point["stored_keys"]),
            size(point["file_bytes"]),
            size(point["written_bytes"]),
        )
        for point in batches
    ]
    columns = ("batch", "begun", "stored keys", "files", "written")
    tables = [Table("Retained batches", columns, rows, ("batch", *columns[2:]), (), ("begun",))]
    if growth["runs"]:
        runs = [
            (
                run["run"],
                run["kind"],
                run["status"],
                number(run["entries_before"]),
                number(run["entries_after"]),
                size(run["bytes_before"]),
                size(run["bytes_after"]),
            )
            for run in growth["runs"]
        ]
        numbers = ("entries before", "entries after", "size before", "size after")
        tables.append(Table("Runs of ttlsnap", ("run", "kind", "status", *numbers), runs, numbers, ("run",)))
    texts = [f"Unknown: {tell(line, show_keys).removesuffix('.')}." for line in growth["unknown"]]
    yield Section("Growth", texts, charts, tables)


def _large_entries(states: list[Document], show_keys: bool) -> Iterator[Section]:
    """Yield the largest entries, and the keys with the most rows; without their keys unless these are wanted."""
    tables = []
    for caption, name, numbers in (
        ("The largest entries", "largest", ("key_bytes", "value_bytes", "bytes")),
        ("Keys with the most rows", "most_rows", ("rows", "bytes")),
    ):
        rows = [
            (
                place(state),
                str(entry["partition"]),
                *(number(entry[each]) if each == "rows" else size(entry.get(each)) for each in numbers),
                *([as_text(entry["key"])] if show_keys else []),
            )
            for state in states
            for entry in state[name] or ()
        ]
        if rows:
            right = ("partition", *(each.replace("_bytes", " size").replace("bytes", "size") for each in numbers))
            columns = ("state", *right, *(("key",) if show_keys else ()))
            tables.append(Table(caption, columns, rows, right, ("state", "key")))
    texts = () if show_keys else ("The keys are left out. --show-keys adds them.",)
    if tables:
        yield Section("Large entries", texts, (), tables)
