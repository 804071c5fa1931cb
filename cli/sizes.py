"""The result of ``inspect --sizes`` for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ttlsnap.cli.output import MISSING, number, share, size, table

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.cli.tabular import TextTable
    from ttlsnap.inspection.growth import Growth
    from ttlsnap.inspection.sizes import Sizes, StateSizes, StoreSizes

_MOST_PARTITIONS = 3
_LONGEST = 60  # characters of a key
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def show_sizes(out: Console, found: Sizes) -> None:
    """Print what uses the space. Parts that have nothing to say are left out."""
    out.print("")
    if found.is_complete:
        out.print(f"Sizes: all partitions were read, {found.seconds:.1f} s")
    else:
        read = sum(is_read for store in found.stores for *_, is_read in store.files)
        of = sum(len(store.files) for store in found.stores)
        out.print(
            f"Sizes: a sample, {number(read)} of {number(of)} partitions with {share_of(found.share)} of the files, "
            f"{found.seconds:.1f} s\nA ~ marks an estimate. Percentiles, ages, largest entries and keys are those of "
            "the sample. --sample all reads everything."
        )
    _show_states(out, found)
    _show_partitions(out, found)
    _show_percentiles(out, found.states)
    _show_largest(out, found.states)
    _show_keys(out, found.states)
    _show_rule(out, found)
    _show_growth(out, found.growth)


def share_of(part: float) -> str:
    """Return a share as ``12 %``, or with one more digit if it is small."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.1g} %"


def _show_states(out: Console, found: Sizes) -> None:
    whole = sum(state.estimated_bytes for state in found.states)
    right = ("entries", "keys", "values", "together", "of all", "largest / median")
    rows = table("state", *right, right=right)
    for state in found.states:
        mark = "" if state.is_complete else "~"
        rows.add_row(
            str(state),
            number(state.entries) if state.entries is not None else f"~{number(state.estimated_entries)}",
            mark + size(round(state.key_bytes * state.scale)),
            mark + size(round(state.value_bytes * state.scale)),
            mark + size(state.estimated_bytes),
            share(state.estimated_bytes, whole),
            _skew(part.bytes for part in state.parts) if state.is_complete else MISSING,
        )
    out.print(rows)


def _show_partitions(out: Console, found: Sizes) -> None:
    """Print the largest partitions of each store."""
    numbers = ("partition", "entries", "keys and values", "files")
    rows, more = table("store", *numbers, right=numbers), []
    for store in found.stores:
        name = f"{store.operator}.{store.store}"
        states = [s for s in found.states if (s.operator, s.store) == (store.operator, store.store)]
        for partition, file_bytes, entries, together in _largest_partitions(store, states):
            rows.add_row(name, number(partition), number(entries), size(together), size(file_bytes))
        left = len(store.files) - _MOST_PARTITIONS
        if left > 0:
            skew = _skew(size for _, size, _ in store.files)
            noun = "partition" if left == 1 else "partitions"
            more.append(f"{name}: {number(left)} more {noun}; files: largest / median {skew}")
    if any(len(store.files) > 1 for store in found.stores):
        _title(out, "The largest partitions", rows)
        for words in more:
            out.print(words)


def _largest_partitions(
    store: StoreSizes, states: Sequence[StateSizes]
) -> list[tuple[int, int, int | None, int | None]]:
    """Return the largest partitions by their files: the number, the bytes of files, the entries, keys and values."""
    found = []
    for partition, file_bytes, is_read in store.files:
        parts = [part for state in states for part in state.parts if part.partition == partition]
        entries = sum(part.entries for part in parts) if is_read else None
        found.append((partition, file_bytes, entries, sum(part.bytes for part in parts) if is_read else None))
    return sorted(found, key=lambda each: (-(each[3] or 0), -each[1]))[:_MOST_PARTITIONS]


def _show_percentiles(out: Console, states: Sequence[StateSizes]) -> None:
    names = ("p50", "p90", "p99", "max")
    rows = table("state", "of", *names, right=names)
    for state in states:
        for what, found, show in (
            ("key size", state.keys, _bytes),
            ("value size", state.values, _bytes),
            ("age", state.ages.seconds if state.ages is not None else None, _age),
        ):
            if found is not None and found.highest is not None:
                rows.add_row(str(state), what, *(show(value) for value in found.to_json().values()))
    _title(out, "Percentiles", rows)
    for state in states:
        if state.ages is not None:
            ages = state.ages.to_sizes_json()
            missing = [f"{number(ages['null'])} have no time"] if ages["null"] else []
            missing += [f"{number(ages['future'])} are in the future"] if ages["future"] else []
            words = f"{state}: age of {ages['timestamp']} at {ages['now']}"
            out.print("; ".join([words, *missing]))


def _show_largest(out: Console, states: Sequence[StateSizes]) -> None:
    rows = table("state", "partition", "size", "key size", "key", right=("partition", "size", "key size"))
    for state in (each for each in states if each.role == "primary"):
        for entry in state.largest:
            rows.add_row(
                str(state), number(entry.partition), _bytes(entry.bytes), _bytes(entry.key_bytes), _keys(entry.key)
            )
    _title(out, "The largest entries", rows)


def _show_keys(out: Console, states: Sequence[StateSizes]) -> None:
    rows = table("state", "partition", "rows", "size", "key", right=("partition", "rows", "size"))
    for state in states:
        for key in (each for each in state.with_rows or () if each.rows > 1):
            rows.add_row(str(state), number(key.partition), number(key.rows), size(key.bytes), _short(key.key))
    _title(out, "The keys with the most rows", rows)


def _show_rule(out: Console, found: Sizes) -> None:
    if found.rule is None:
        return
    right = ("entries", "of all", "keys and values", "of all ")
    rows = table("state", *right, right=right)
    left_alone: list[str] = []
    followers: list[str] = []
    for state in found.states:
        outcome = state.rule
        if outcome is None or outcome.left_alone is not None:
            left_alone += [f"{state}: {outcome.left_alone}"] if outcome is not None and state.role == "primary" else []
            continue
        mark = "" if state.is_complete else "~"
        rows.add_row(
            str(state),
            mark + number(round(outcome.freed.entries * state.scale)),
            share(outcome.freed.entries, state.entries_read),
            mark + size(round(outcome.freed.bytes * state.scale)),
            share(outcome.freed.bytes, state.bytes_read),
        )
        followers += outcome.followers
    _title(out, f"What {found.rule} would drop", rows)
    for reason in left_alone:
        out.print(f"not changed: {reason}")
    if followers:
        out.print(
            f"Not counted: what would follow in {', '.join(followers)}. ttlsnap compact --dry-run counts it, with the "
            "same options."
        )


def _show_growth(out: Console, growth: Growth) -> None:
    rows = table(
        "batch", "begun", "stored keys", "files", "written", right=("batch", "stored keys", "files", "written")
    )
    for point in growth.batches:
        at = point.to_json()["at"]
        rows.add_row(
            number(point.batch), at, number(point.stored_keys), size(point.file_bytes), size(point.written_bytes)
        )
    _title(out, "Growth over the retained batches", rows)
    runs = table(
        "run", "at", "kind", "status", "entries before", "after", "files before", "after ",
        right=("entries before", "after", "files before", "after "),
    )  # fmt: skip
    for run in growth.runs:
        counts = (number(run.entries_before), number(run.entries_after))
        runs.add_row(
            run.run, run.at or MISSING, run.kind, run.status, *counts, size(run.bytes_before), size(run.bytes_after)
        )
    _title(out, "Growth over the runs of ttlsnap", runs)
    for words in growth.unknown:
        out.print(f"unknown: {words}")


def _title(out: Console, title: str, rows: TextTable) -> None:
    """Print a table below its title, unless it is empty."""
    if rows.is_empty:
        return
    out.print(f"\n{title}")
    out.print(rows)


def _skew(sizes: Iterable[int]) -> str:
    from ttlsnap.inspection.sizes import skew

    found = skew(sizes)
    return MISSING if found is None else f"{found:.2f}"


def _bytes(value: int | None) -> str:
    return MISSING if value is None else f"{number(value)} B" if value < 10_000 else size(value)


def _age(seconds: int | None) -> str:
    """Return an age in the largest unit that it has two of: ``36h``, ``29d``."""
    if seconds is None:
        return MISSING
    name, unit = next((pair for pair in _UNITS if seconds >= 2 * pair[1]), _UNITS[-1])
    return f"{number(seconds // unit)}{name}"


def _keys(shown: dict[str, Any]) -> str:
    """Return a key, and what else identifies an entry, on one line."""
    rest = [_short(value) for name, value in shown.items() if name not in ("key", "side")]
    return " ".join([_short(shown["key"]), *rest])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
