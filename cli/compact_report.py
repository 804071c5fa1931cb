"""The report of a compaction for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ttlsnap.cli.output import MISSING, name_target, number, place, share, size, table
from ttlsnap.cli.published import describe_published
from ttlsnap.cli.tabular import TextTable

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.compaction.report import CompactionReport, StateReport

_NUMBERS = ("entries", "kept", "dropped", "rewritten", "before", "after")
# The parts that a table leaves out, one after another, until it is narrow enough.
_SPARE = ("clock", "time of day", "operator name", "rewritten", "state", "kept", "before", "oldest")


def show_report(out: Console, report: CompactionReport, *, tables: bool = True, target: str | None = None) -> None:
    """Print what a run did, and what to do next. ``target`` is named if it is one of several."""
    from ttlsnap.archives.receivers import describe_place
    from ttlsnap.pages.words import DRY_RUN, after_dry_run, describe_unpublished

    if tables:
        show_counts(out, report)
    lines = []
    if report.dry_run:
        lines.append(f"{DRY_RUN} {after_dry_run(report.to_json())}")
    elif not report.published:
        lines.append(describe_unpublished(report.to_json()))
    elif report.output is not None:
        lines.append(f"A new checkpoint is at {report.output}; {report.target} is unchanged.")
        lines.append(f'Next: start the query with the checkpoint location "{report.output}".')
    else:
        archived = None
        if report.expired_to is not None and report.totals.dropped and not report.warnings:
            archived = f"The dropped entries are archived {describe_place(report.expired_to, report.run)}"
        lines += describe_published(report, archive=report.expired_to, archived=archived)
    lines[0] = name_target(lines[0], target)
    out.print(*lines, sep="\n")


def show_counts(out: Console, report: CompactionReport) -> None:
    """Print a table of the states, a line with the totals, and notes."""
    from ttlsnap.clock import iso
    from ttlsnap.pages.words import describe_nothing_to_do

    out.print(f"{place(report.target)}, batch {report.batch}, now {iso(report.now_us)} ({report.now_source})")
    states = [state for state in report.states if state.state.role == "primary" or state.counts.entries is not None]
    out.print(fit_table(states, out.width))
    out.print(describe_nothing_to_do(report.to_json()) or _total(report))
    _show_notes(out, report)
    for entry in report.shown:
        out.print(_describe(entry))


def _describe(entry: Mapping[str, Any]) -> str:
    """Return an entry that is dropped or rewritten, with what decided about it."""
    names = [entry[name] for name in ("store", "state") if entry[name] != "default"]
    entry_place = ", ".join([f"operator {entry['operator']}", *names, f"partition {entry['partition']}"])
    parts = {name: entry[name] for name in ("key", "map_key", "value", "new_value") if entry.get(name) is not None}
    texts = [f"{name.replace('_', ' ')} {json.dumps(part, ensure_ascii=False)}" for name, part in parts.items()]
    time = f", time {entry['time']}" if entry["time"] is not None else ""
    return f"{entry['change']} in {entry_place}: {', '.join(texts)}{time}, by rule: {entry['rule']}"


def fit_table(states: Sequence[StateReport], width: int) -> TextTable:
    """Return the table of the states; one that is wider than ``width`` has fewer columns, and shorter cells."""
    fitted = _table(states, ())
    for spared_count in range(1, len(_SPARE) + 1):
        if fitted.width <= width:
            break
        fitted = _table(states, _SPARE[:spared_count])
    return fitted.fitted(width)


def _table(states: Sequence[StateReport], spared_columns: Sequence[str]) -> TextTable:
    columns: dict[str, Callable[[StateReport], str | Text]] = {
        "operator": lambda state_report: _operator(state_report, "operator name" not in spared_columns),
        "state": _place,
        "timestamp": lambda state_report: _field(state_report, "clock" not in spared_columns),
        "oldest": lambda state_report: _oldest(state_report, "time of day" not in spared_columns),
        "entries": lambda state_report: number(state_report.counts.entries),
        "kept": lambda state_report: number(state_report.counts.kept),
        "dropped": lambda state_report: Text(
            number(state_report.counts.dropped), "yellow" if state_report.counts.dropped else ""
        ),
        "rewritten": lambda state_report: number(state_report.counts.rewritten),
        "before": lambda state_report: size(state_report.counts.bytes_before),
        "after": lambda state_report: size(state_report.counts.bytes_after),
    }
    is_needed = {
        "state": any(_place(state) != "default" for state in states),
        "rewritten": any(state.counts.rewritten for state in states),
    }
    shown_columns = [name for name in columns if name not in spared_columns or is_needed.get(name)]
    text_table = table(*shown_columns, right=_NUMBERS)
    for state in states:
        text_table.add_row(*(columns[name](state) for name in shown_columns))
    return text_table


def _operator(state: StateReport, with_name: bool) -> str:
    from ttlsnap.pages.words import operator_words

    return operator_words(state.to_json()) if with_name else str(state.state.operator)


def _place(state: StateReport) -> str:
    from ttlsnap.pages.words import state_words

    return state_words(state.to_json())


def _field(state: StateReport, with_clock: bool) -> str:
    """Return the field, and the clock that it was compared with."""
    from ttlsnap.pages.words import field_words

    return field_words(state.to_json()) if with_clock else state.timestamp or MISSING


def _oldest(state: StateReport, with_time: bool) -> str:
    from ttlsnap.clock import iso
    from ttlsnap.pages.words import second

    text = second(iso(state.oldest_us))
    return text if with_time else text.partition("T")[0]


def _total(report: CompactionReport) -> Text:
    """Return the line with the totals, and the share that was saved."""
    from ttlsnap.pages.words import describe_unread, known_totals, of_entries

    counts, document = report.totals, report.to_json()
    verb = "would drop" if report.dry_run else "dropped"
    dropped = Text(f"{verb} {of_entries(known_totals(document))}")
    if counts.dropped:
        dropped.append(f" ({share(counts.dropped, counts.entries)})")
        dropped.stylize("yellow")
    parts = [dropped]
    if counts.rewritten:
        parts.append(Text(f"{'would rewrite' if report.dry_run else 'rewritten'} {number(counts.rewritten)}"))
    if counts.bytes_before and counts.bytes_after is not None:
        files = f"{size(counts.bytes_before)} before, {size(counts.bytes_after)} after"
        saved_bytes = counts.bytes_before - counts.bytes_after
        parts.append(Text(f"{files} ({share(saved_bytes, counts.bytes_before)} saved)" if saved_bytes > 0 else files))
    if (unread := describe_unread(document)) is not None:
        parts.append(Text(unread))
    return Text("Total: ") + Text("; ").join(parts)


def _show_notes(out: Console, report: CompactionReport) -> None:
    from ttlsnap.pages.compact import engine_words, notes

    document = report.to_json()
    for words, is_warning in notes(document):
        out.print(Text(words, "yellow" if is_warning else ""))
    out.print(engine_words(document))
