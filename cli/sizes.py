"""The result of ``inspect --sizes`` for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ttlsnap.amounts import age, exact_size
from ttlsnap.cli.output import MISSING, number, share, size, table

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.cli.tabular import TextTable
    from ttlsnap.inspection.growth import Growth
    from ttlsnap.inspection.sizes import Sizes, StateSizes, StoreSizes

Row = dict[str, str]

_MOST_PARTITIONS = 4
_LONGEST = 60  # characters of a key
_TEXTS = ("state", "store", "of", "key", "run", "at", "begun", "kind", "status")
"""Columns with text. All others have numbers, and are aligned to the right."""


def show_sizes(out: Console, found: Sizes) -> None:
    """Print what uses the space. Tables without rows are left out, and so are columns that a narrow terminal lacks."""
    out.print("")
    if found.is_complete:
        out.print(f"Sizes: all partitions were read, {found.seconds:.1f} s")
    else:
        read = sum(is_read for store in found.stores for *_, is_read in store.files)
        of = sum(len(store.files) for store in found.stores)
        out.print(
            f"Sizes: a sample, {number(read)} of {number(of)} partitions with {_share_of(found.share)} of the files, "
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


def _share_of(part: float) -> str:
    """Return a share as ``12 %``, or with one digit if it is small."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.1g} %"


def _show_states(out: Console, found: Sizes) -> None:
    whole = sum(state.estimated_bytes for state in found.states)
    rows = []
    for state in found.states:
        mark = "" if state.is_complete else "~"
        entries = "" if state.entries is not None else mark
        rows.append(
            {
                "state": str(state),
                "entries": entries + number(state.estimated_entries),
                "keys": mark + size(round(state.key_bytes * state.scale)),
                "values": mark + size(round(state.value_bytes * state.scale)),
                "size": mark + size(state.estimated_bytes),
                "share": share(state.estimated_bytes, whole),
                "largest / median": _skew(part.bytes for part in state.parts) if state.is_complete else MISSING,
            }
        )
    _print(out, None, rows, ("largest / median", "keys", "values"))


def _show_partitions(out: Console, found: Sizes) -> None:
    """Print the largest partitions of each store, unless no store has several."""
    rows: list[Row] = []
    more = []
    for store in found.stores:
        name = f"{store.operator}.{store.store}"
        states = [s for s in found.states if (s.operator, s.store) == (store.operator, store.store)]
        rows += [{"store": name, **row} for row in _largest_partitions(store, states)]
        left = len(store.files) - _MOST_PARTITIONS
        if left > 0:
            skew = _skew(size for _, size, _ in store.files)
            more.append(f"{name}: {number(left)} more; largest / median of the files: {skew}")
    if any(len(store.files) > 1 for store in found.stores):
        _print(out, "The largest partitions", rows)
        for words in more:
            out.print(words)


def _largest_partitions(store: StoreSizes, states: Sequence[StateSizes]) -> list[Row]:
    """Return the largest partitions: by keys and values if all were read, otherwise by their files."""
    found = []
    for partition, file_bytes, is_read in store.files:
        parts = [part for state in states for part in state.parts if part.partition == partition]
        size_of = sum(part.bytes for part in parts)
        row = {
            "partition": number(partition),
            "entries": number(sum(part.entries for part in parts) if is_read else None),
            "size": size(size_of if is_read else None),
            "files": size(file_bytes),
        }
        found.append((size_of if store.is_complete else file_bytes, row))
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])[:_MOST_PARTITIONS]]


def _show_percentiles(out: Console, states: Sequence[StateSizes]) -> None:
    rows, notes = [], []
    for state in states:
        for what, found, show in (
            ("key size", state.keys, exact_size),
            ("value size", state.values, exact_size),
            ("age", state.ages.seconds if state.ages is not None else None, age),
        ):
            if found is not None and found.highest is not None:
                percentiles = {name: show(value) for name, value in found.to_json().items()}
                rows.append({"state": str(state), "of": what, **percentiles})
        if state.ages is not None:
            ages = state.ages.to_sizes_json()
            others = {"have no time": ages["null"], "are in the future": ages["future"]}
            others["may be older: the known history begins there"] = state.ages.older
            missing = [f"{number(count)} {words}" for words, count in others.items() if count]
            notes.append("; ".join([f"{state}: age of {ages['timestamp']} at {ages['now']}", *missing]))
        elif state.no_ages is not None and state.role == "primary":
            notes.append(f"{state}: {state.no_ages}")
    _print(out, "Percentiles", rows)
    for words in notes:
        out.print(words)


def _show_largest(out: Console, states: Sequence[StateSizes]) -> None:
    rows = [
        {
            "state": str(state),
            "partition": number(entry.partition),
            "key size": exact_size(entry.key_bytes),
            "value size": exact_size(entry.value_bytes),
            "key": _keys(entry.key),
        }
        for state in states
        if state.role == "primary"
        for entry in state.largest
    ]
    _print(out, "The largest entries", rows, ("partition",))


def _show_keys(out: Console, states: Sequence[StateSizes]) -> None:
    rows = [
        {
            "state": str(state),
            "partition": number(key.partition),
            "rows": number(key.rows),
            "size": size(key.bytes),
            "key": _short(key.key),
        }
        for state in states
        for key in state.with_rows or ()
        if key.rows > 1
    ]
    _print(out, "The keys with the most rows", rows, ("partition",))


def _show_rule(out: Console, found: Sizes) -> None:
    if found.rule is None:
        return
    rows: list[Row] = []
    left_alone: list[str] = []
    followers: list[str] = []
    for state in found.states:
        outcome = state.rule
        if outcome is None or outcome.left_alone is not None:
            left_alone += [f"{state}: {outcome.left_alone}"] if outcome is not None and state.role == "primary" else []
            continue
        mark = "" if state.is_complete else "~"
        rows.append(
            {
                "state": str(state),
                "entries": mark + number(round(outcome.freed.entries * state.scale)),
                "of entries": share(outcome.freed.entries, state.entries_read),
                "size": mark + size(round(outcome.freed.bytes * state.scale)),
                "of size": share(outcome.freed.bytes, state.bytes_read),
            }
        )
        followers += outcome.followers
    _print(out, f"What {found.rule} would drop", rows)
    if not rows:
        out.print(f"\n{found.rule} would drop nothing")
    for reason in left_alone:
        out.print(f"not changed: {reason}")
    if followers:
        out.print(
            f"Not counted: what would follow in {', '.join(followers)}. ttlsnap compact --dry-run counts it, with the "
            "same options."
        )


def _show_growth(out: Console, growth: Growth) -> None:
    batches = [
        {
            "batch": number(point.batch),
            "begun": point.to_json()["at"],
            "stored keys": number(point.stored_keys),
            "files": size(point.file_bytes),
            "written": size(point.written_bytes),
        }
        for point in growth.batches
    ]
    runs = [
        {
            "run": run.run,
            "at": run.at or MISSING,
            "kind": run.kind,
            "status": run.status,
            "entries before": number(run.entries_before),
            "after": number(run.entries_after),
            "files before": size(run.bytes_before),
            "files after": size(run.bytes_after),
        }
        for run in growth.runs
    ]
    _print(out, "Growth over the retained batches", batches, ("written", "begun"))
    _print(out, "Growth over the runs of ttlsnap", runs, ("at", "kind", "files before", "files after", "status"))
    for words in growth.unknown:
        out.print(f"unknown: {words}")


def _print(out: Console, title: str | None, rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
    """Print a table below its title, unless it is empty. A narrow terminal lacks some of the ``spare`` columns."""
    if not rows:
        return
    names = [*rows[0]]
    made = _table(rows, names)
    for spared in spare:
        if made.width <= out.width:
            break
        names.remove(spared)
        made = _table(rows, names)
    if title is not None:
        out.print(f"\n{title}")
    out.print(made)


def _table(rows: Sequence[Row], names: Sequence[str]) -> TextTable:
    made = table(*names, right=tuple(name for name in names if name not in _TEXTS))
    for row in rows:
        made.add_row(*(row[name] for name in names))
    return made


def _skew(sizes: Iterable[int]) -> str:
    from ttlsnap.inspection.sizes import skew

    found = skew(sizes)
    return MISSING if found is None else f"{found:.2f}"


def _keys(shown: dict[str, Any]) -> str:
    """Return a key, and what else identifies an entry, on one line."""
    rest = [_short(value) for name, value in shown.items() if name not in ("key", "side")]
    return " ".join([_short(shown["key"]), *rest])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
