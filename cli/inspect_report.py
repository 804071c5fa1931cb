"""The result of ``inspect`` for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ttlsnap.cli.output import number, place, size, table
from ttlsnap.naming import name_state

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.reading.inspected import Inspection, StateInspection


def show_inspection(out: Console, inspection: Inspection) -> None:
    from ttlsnap.clock import iso
    from ttlsnap.pages.words import describe_next, describe_unused
    from ttlsnap.reading.inspected import spark_version, uncommitted_batch

    checkpoint = inspection.checkpoint
    batch, proven = checkpoint.batch, checkpoint.proven_layout
    lines = [
        place(checkpoint.target),
        f"  query {checkpoint.query_id or 'unknown'}, Spark {spark_version(batch.conf)}, "
        f"provider {checkpoint.recorded_provider}, {f'layout {proven} as proven by all files, ' if proven else ''}"
        f"codec {checkpoint.codec}"
        f"{', row checksums' if checkpoint.row_checksums else ''}",
        f"  batch {batch.id} committed, begun {iso(batch.timestamp_ms * 1000)}, watermark "
        f"{iso(batch.watermark_ms * 1000) if batch.watermark_ms else 'none'}",
    ]
    uncommitted = uncommitted_batch(checkpoint)
    if uncommitted is not None and inspection.planned_by is not None:
        lines.append(
            f"  batch {uncommitted} was planned by ttlsnap run {inspection.planned_by}; the query restarts with it"
        )
    elif uncommitted is not None:
        restart_text = "" if inspection.stops_spark else "; it runs again when the query restarts"
        lines.append(f"  batch {uncommitted} was started but not committed{restart_text}")
    out.print(*lines, sep="\n")
    if checkpoint.logs.fence:
        out.print(Text.assemble("  ", ("FENCED:", "bold red"), f" {checkpoint.logs.fence}"))
    for warning in (*inspection.warnings, *inspection.stops_spark):
        out.print(Text.assemble("  ", ("Warning:", "yellow"), f" {warning}"))
    for operator, stores in inspection.operators:
        out.print()
        out.print(f"operator {operator.id} {operator.name or '(name not recorded)'}")
        numbers = ("partitions", "entries", "size")
        rows = table("store", "state", *numbers, right=numbers, spare=("partitions",))
        for store, states in stores:
            for state in states:
                rows.add_row(
                    store.name,
                    f"{state.name} (unused)" if state.unused else state.name,
                    number(len(store.partitions)),
                    number(state.entries),
                    size(state.bytes),
                )
        out.print(rows)
        if any(len(states) > 1 and states[0].bytes is not None for _, states in stores):
            out.print("  The states of a store share its files: the size of all of them is shown at the first.")
        words = describe_unused(state.to_json() for _, states in stores for state in states)
        if words is not None:
            out.print(f"  {words}")
        has_several = sum(len(states) for _, states in stores) > 1
        for store, states in stores:
            for state in states:
                if has_several:
                    out.print(f"  {name_state(operator.id, store.name, state.name)}:")
                show_fields(out, state)
                if state.problem:
                    out.print(Text(f"  {state.problem}"))
                show_times(out, state)
    for sample in inspection.samples or ():
        name = name_state(sample["operator"], sample["store"], sample["state"])
        state_place = f"{name}[{sample['partition']}]"
        show_sample(out, state_place, sample)
    if (next_step := describe_next({**inspection.to_json(), "target": place(checkpoint.target)})) is not None:
        out.print()
        out.print(next_step)


def show_sample(out: Console, state_place: str, sample: dict[str, Any]) -> None:
    """Print an entry on one line."""
    key, value = _compact(sample["key"]), _compact(sample["value"])
    if "map_key" in sample:
        key += f" {_compact(sample['map_key'])}"
    if "time" in sample:
        value = sample["time"]
    if "matched" in sample:
        value += "  matched" if sample["matched"] else "  not matched"
    out.print(f"{state_place}  {key} -> {value}")


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_times(out: Console, state: StateInspection) -> None:
    """Print the fields that can hold the time of an entry."""
    from ttlsnap.pages.words import TIMES, times_rows

    if not state.times:
        return
    shown = table(*TIMES, right=TIMES[-1:], spare=("--time", "newest"), indent="  ")
    for row in times_rows(state.to_json()):
        shown.add_row(*row)
    out.print(shown)


def show_fields(out: Console, state: StateInspection) -> None:
    """Print the fields of a state, and its ages if they were counted."""
    from ttlsnap.pages.inspect import STORED
    from ttlsnap.pages.words import age_groups, describe_history

    if state.descriptor is None:
        reason = "Spark before 3.1 wrote none; a later one was lost"
        out.print(f"  The checkpoint has no schema ({reason}). Describe it with --schema.")
        return
    for field in state.fields:
        stored_timestamp = state.descriptor.stored_timestamp or ""
        mark = f"   <- {STORED}" if stored_timestamp.partition(":")[0] == field.name else ""
        out.print(f"  {field.name}  {field.type.simple_string}{mark}")
    if state.age is None:
        return
    age = state.age
    out.print(f"  age of {age['timestamp']} at {age['now']}:")
    rows = age_groups(age)
    highest_count = max(count for _, count in rows) or 1
    for label, count in rows:
        if count:
            bar = "#" * max(1, round(40 * count / highest_count))
            out.print(f"    {label:14} {number(count):>14}  {bar}")
    if "written_before" in age:
        out.print(f"    {describe_history(age['written_before'])}")
