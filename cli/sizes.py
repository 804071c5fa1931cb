"""The result of ``inspect --sizes`` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ttlsnap.amounts import ratio
from ttlsnap.cli.output import number, table
from ttlsnap.pages.words import state_name

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.reading.sizes import Sizes

Document = Mapping[str, Any]
Row = dict[str, str]

_MOST_PARTITIONS = 4
_LONGEST = 60  # characters of a key
_TEXTS = ("state", "store", "of", "key", "run", "at", "begun", "kind", "status")
"""Columns with text. All others have numbers, and are aligned to the right."""


def show_sizes(out: Console, measured_sizes: Sizes) -> None:
    """Print what uses the space. Tables without rows are left out, and so are columns that a narrow terminal lacks."""
    from ttlsnap.pages.size_rows import describe_sample

    sizes = measured_sizes.to_json()
    out.print(Text(f"\nSizes: {describe_sample(sizes)}"))
    _show_states(out, sizes["states"])
    _show_partitions(out, sizes["stores"])
    _show_percentiles(out, sizes["states"])
    _show_largest(out, sizes["states"])
    _show_keys(out, sizes["states"])
    _show_rule(out, sizes)
    _show_growth(out, sizes["growth"])


def _show_states(out: Console, states: Sequence[Document]) -> None:
    from ttlsnap.pages.size_rows import SKEW, state_row

    total_bytes = sum(state["estimated_bytes"] for state in states)
    rows = [{"state": state_name(state), **state_row(state, total_bytes)} for state in states]
    _print(out, None, rows, (SKEW, "keys", "values"))


def _show_partitions(out: Console, stores: Sequence[Document]) -> None:
    """Print the largest partitions of each store, unless no store has several."""
    from ttlsnap.pages.size_rows import SKEW, partition_row

    rows: list[Row] = []
    remarks = []
    for store in stores:
        name = f"{store['operator']}.{store['store']}"
        # A sample shows the files of the partitions that it left out, and nothing else.
        sort_field = "bytes" if all(partition["read"] for partition in store["partitions"]) else "file_bytes"
        sorted_partitions = sorted(store["partitions"], key=lambda partition: -partition[sort_field])
        rows += [{"store": name, **partition_row(partition)} for partition in sorted_partitions[:_MOST_PARTITIONS]]
        omitted = len(store["partitions"]) - _MOST_PARTITIONS
        if omitted > 0:
            remarks.append(f"{name}: {number(omitted)} more; {SKEW} of the files: {ratio(store['skew'])}")
    if any(len(store["partitions"]) > 1 for store in stores):
        _print(out, "The largest partitions", rows)
        for words in remarks:
            out.print(words)


def _show_percentiles(out: Console, states: Sequence[Document]) -> None:
    from ttlsnap.pages.size_rows import describe_ages, percentile_rows

    _print(
        out, "Percentiles", [{"state": state_name(state), **row} for state in states for row in percentile_rows(state)]
    )
    for state in states:
        if (words := describe_ages(state)) is not None:
            out.print(f"{state_name(state)}: {words}")


def _show_largest(out: Console, states: Sequence[Document]) -> None:
    from ttlsnap.pages.size_rows import largest_row

    rows = [
        {"state": state_name(state), **largest_row(entry), "key": _keys(entry)}
        for state in states
        if state["role"] == "primary"
        for entry in state["largest"]
    ]
    _print(out, "The largest entries", rows, ("partition",))


def _show_keys(out: Console, states: Sequence[Document]) -> None:
    from ttlsnap.pages.size_rows import keys_with_rows

    rows = [
        {"state": state_name(state), **row, "key": _keys(key)} for state in states for key, row in keys_with_rows(state)
    ]
    _print(out, "The keys with the most rows", rows, ("partition",))


def _show_rule(out: Console, sizes: Document) -> None:
    from ttlsnap.pages.size_rows import rule_row

    rule = sizes["rule"]
    if rule is None:
        return
    rows: list[Row] = []
    left_alone: list[str] = []
    followers: list[str] = []
    for state in sizes["states"]:
        row, freed = rule_row(state), state["would_free"]
        if row is not None:
            rows.append({"state": state_name(state), **row})
            followers += freed["followers"]
        elif freed is not None and state["role"] == "primary":
            left_alone.append(f"{state_name(state)}: {freed['left_alone']}")
    _print(out, f"What {rule} would drop", rows)
    if not rows:
        out.print()
        out.print(f"{rule} would drop nothing")
    for reason in left_alone:
        out.print(f"not changed: {reason}")
    if followers:
        out.print(
            f"Not counted: what would follow in {', '.join(followers)}. ttlsnap compact --dry-run counts it, with the "
            "same options."
        )


def _show_growth(out: Console, growth: Document) -> None:
    from ttlsnap.pages.size_rows import batch_row, run_row

    batches, runs = map(batch_row, growth["batches"]), map(run_row, growth["runs"])
    _print(out, "Growth over the retained batches", [*batches], ("written", "begun"))
    _print(out, "Growth over the runs of ttlsnap", [*runs], ("at", "kind", "files before", "files after", "status"))
    for words in growth["unknown"]:
        out.print(f"unknown: {words}")


def _print(out: Console, title: str | None, rows: Sequence[Row], spare_names: Sequence[str] = ()) -> None:
    """Print a table below its title, unless it is empty. A narrow terminal lacks some columns of ``spare_names``."""
    if not rows:
        return
    if title is not None:
        out.print()
        out.print(title)
    right = tuple(name for name in rows[0] if name not in _TEXTS)
    text_table = table(*rows[0], right=right, spare=tuple(spare_names))
    for row in rows:
        text_table.add_row(*row.values())
    out.print(text_table.fitted(out.width))


def _keys(entry: Document) -> str:
    """Return a key, and what else identifies an entry, on one line."""
    from ttlsnap.pages.size_rows import key_texts

    return " ".join(map(_short, key_texts(entry)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
