"""The sections about sizes: what uses the space of a state. A document has them only with ``--sizes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ttlsnap.amounts import MISSING, estimate, number, ratio, size
from ttlsnap.pages.ages import age_histogram
from ttlsnap.pages.model import Section, Table, Tile
from ttlsnap.pages.privacy import tell, tell_rule
from ttlsnap.pages.size_rows import (
    SKEW,
    batch_row,
    describe_ages,
    describe_sample,
    key_texts,
    keys_with_rows,
    largest_row,
    partition_row,
    percentile_rows,
    rule_row,
    run_row,
    state_row,
)
from ttlsnap.pages.svg import Bar, bar_chart, line_chart
from ttlsnap.pages.targets import MOST, largest
from ttlsnap.pages.words import state_name

Document = Mapping[str, Any]
_PERCENTILES = ("p50", "p90", "p99", "max")


def size_tiles(document: Document) -> Iterator[Tile]:
    """Yield what a rule would drop of all states."""
    states = [state for state in document.get("sizes", {}).get("states", ()) if rule_row(state) is not None]
    if states:
        is_exact = all(state["complete"] for state in states)
        entries = sum(state["would_free"]["estimated_entries"] for state in states)
        bytes_freed = sum(state["would_free"]["estimated_bytes"] for state in states)
        entries_text = estimate(number(entries), exact=is_exact)
        yield Tile("a rule would drop", entries_text, f"entries of {estimate(size(bytes_freed), exact=is_exact)}")


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
    state_rows = [state_row(state, total) for state in states]
    bars = [
        Bar(state_name(state), state["estimated_bytes"], row["size"])
        for state, row in zip(states, state_rows, strict=True)
    ]
    rows = [(state_name(state), state["role"], *row.values()) for state, row in zip(states, state_rows, strict=True)]
    numbers = [*state_rows[0]] if state_rows else []
    table = Table("Keys and values of each state", ("state", "role", *numbers), rows, numbers, ("state",))
    charts = [bar_chart("Size of keys and values", bars)] if len(bars) > 1 else []
    first_line, _, other_lines = describe_sample(sizes).partition("\n")
    texts = [f"{first_line[0].upper()}{first_line[1:]}.", *([other_lines] if other_lines else [])]
    return Section("What uses the space", texts, charts, [table])


def _partitions(sizes: Document) -> Section:
    stores_and_partitions = [
        (_store(store), partition) for store in sizes["stores"] for partition in store["partitions"]
    ]
    stores_and_partitions.sort(key=lambda pair: -pair[1]["file_bytes"])
    title = "Files by partition"
    caption = (
        title
        if len(stores_and_partitions) <= MOST
        else f"{title}: the largest {MOST} of {len(stores_and_partitions):,}"
    )
    rows = [(name, *partition_row(partition).values()) for name, partition in stores_and_partitions[:MOST]]
    texts = [
        f"{_store(store)}: {SKEW} of the files: {ratio(store['skew'])}."
        for store in sizes["stores"]
        if store["skew"] is not None
    ]
    columns = [*partition_row(stores_and_partitions[0][1])] if stores_and_partitions else []
    files = {
        f"{name}, partition {store_partition['partition']}": store_partition["file_bytes"]
        for name, store_partition in stores_and_partitions
    }
    table = Table(caption, ("store", *columns), rows, columns, ("store",), folded=True)
    return Section("Partitions", texts, list(largest(title, files, size)), [table])


def _percentiles(states: list[Document]) -> Iterator[Section]:
    """Yield the percentiles of the sizes of keys and values, and of ages."""
    rows = [(state_name(state), *row.values()) for state in states for row in percentile_rows(state)]
    texts = [
        f"{state_name(state)}: {ages_text}." for state in states if (ages_text := describe_ages(state)) is not None
    ]
    if rows or texts:
        table = Table("Percentiles", ("state", "of", *_PERCENTILES), rows, _PERCENTILES, ("state",))
        yield Section("Percentiles", texts, [], [table] if rows else [])


def _store(store: Document) -> str:
    return f"{store['operator']}.{store['store']}"


def _ages(state: Document) -> Section:
    ages = state["ages"]
    chart, table = age_histogram(f"Age of {state_name(state)} by {ages['timestamp']}", ages)
    text = f"Ages at {ages['now']}. The oldest entry is from {ages['oldest'] or MISSING}."
    return Section(f"Age: {state_name(state)}", [text], [chart], [table])


def _rule(sizes: Document, show_keys: bool) -> Iterator[Section]:
    if sizes["rule"] is None:
        return
    rows, texts = [], []
    for state in sizes["states"]:
        would_free, row = state["would_free"], rule_row(state)
        if row is not None:
            rows.append((state_name(state), *row.values()))
            if would_free["followers"]:
                texts.append(
                    f"What would follow {state_name(state)} is not counted: {', '.join(would_free['followers'])}."
                )
        elif would_free is not None and state["role"] == "primary":
            texts.append(f"{state_name(state)} is not changed: {would_free['left_alone']}.")
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
    known_sizes = [
        (float(point["batch"]), float(point["file_bytes"])) for point in batches if point["file_bytes"] is not None
    ]
    charts = []
    if len(known_sizes) > 1:
        end_labels = (f"batch {known_sizes[0][0]:.0f}", f"batch {known_sizes[-1][0]:.0f}")
        largest_text = size(int(max(file_bytes for _, file_bytes in known_sizes)))
        charts = [line_chart("Size of the files after each retained batch", known_sizes, end_labels, largest_text)]
    rows = [tuple(batch_row(point).values()) for point in batches]
    columns = [*batch_row(batches[0])]
    number_columns = [name for name in columns if name != "begun"]
    tables = [Table("Retained batches", columns, rows, number_columns, (), ("begun",), bool(charts))]
    if growth["runs"]:
        runs = [tuple(run_row(run).values()) for run in growth["runs"]]
        columns = [*run_row(growth["runs"][0])]
        tables.append(Table("Runs of ttlsnap", columns, runs, columns[4:], ("run",), ("at",)))
    texts = [f"Unknown: {tell(line, show_keys).removesuffix('.')}." for line in growth["unknown"]]
    yield Section("Growth", texts, charts, tables)


def _large_entries(states: list[Document], show_keys: bool) -> Iterator[Section]:
    """Yield the largest entries, and the keys with the most rows; without their keys unless these are wanted."""
    entries_by_caption = {
        "The largest entries": [
            (state, entry, largest_row(entry))
            for state in states
            if state["role"] == "primary"
            for entry in state["largest"]
        ],
        "Keys with the most rows": [(state, key, row) for state in states for key, row in keys_with_rows(state)],
    }
    tables = []
    for caption, entries in entries_by_caption.items():
        if entries:
            number_columns = [*entries[0][2]]
            rows = [
                (state_name(state), *row.values(), *([" ".join(key_texts(entry))] if show_keys else []))
                for state, entry, row in entries
            ]
            columns = ("state", *number_columns, *(("key",) if show_keys else ()))
            tables.append(Table(caption, columns, rows, number_columns, ("state", "key")))
    texts = () if show_keys else ("The keys are left out. --show-keys adds them.",)
    if tables:
        yield Section("Large entries", texts, (), tables)
