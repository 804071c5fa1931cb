"""``ttlsnap inspect``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ttlsnap.cli.options import (
    Format,
    FormatOption,
    NowOption,
    OperatorOption,
    SchemaOption,
    StateOption,
    StoreOption,
    Target,
)
from ttlsnap.cli.output import console, number, print_json, size, table

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.inspection import Inspection, StateInspection

EXAMPLES = """[bold]Examples[/bold]

ttlsnap inspect ck                             operators, states, the fields that --timestamp can name

ttlsnap inspect ck --age --timestamp value.max   how old are the entries?

ttlsnap inspect ck --entries 5 --format json   a few of them

ttlsnap inspect tables/sessions --age --timestamp last_seen      a Delta state table
"""


def register(app: typer.Typer) -> None:
    app.command("inspect", epilog=EXAMPLES)(inspect)


def inspect(
    target: Target,
    entries: Annotated[int, typer.Option("--entries", metavar="N", min=0, help="Show N entries of each state.")] = 0,
    age: Annotated[bool, typer.Option("--age", help="Count all entries, by age.")] = False,
    timestamp: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--timestamp", metavar="FIELD", help="The field for --age; left out: what Spark stores."),
    ] = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--batch", metavar="N", help="An older batch that is still retained."),
    ] = None,
    now: NowOption = "checkpoint",
    operator: OperatorOption = None,
    store: StoreOption = None,
    state: StateOption = None,
    schema: SchemaOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Show what the state in a checkpoint, or a Delta table, is: operators, stores, schemas, sizes, entries, age.

    Needs no JVM, and without --entries and --age opens no state file, so it answers at once.
    """
    from ttlsnap.delta import is_table
    from ttlsnap.filesystem import open_directory

    if is_table(open_directory(target)):
        from ttlsnap.cli.tables import inspect_one, refuse

        given = {"--batch": batch is not None, "--operator": operator is not None, "--store": store, "--state": state}
        refuse(target, {**given, "--schema": schema}, "checkpoints")
        inspect_one(target, entries=entries, age=age, timestamp=timestamp, now=now, output_format=output_format)
        return
    from ttlsnap.inspection import inspect as look
    from ttlsnap.operators import Selection
    from ttlsnap.schema.ddl import parse_schemas

    found = look(
        target,
        batch=batch,
        entries=entries,
        age=age,
        timestamp=timestamp,
        now=now,
        selection=Selection(operator, store, state),
        schemas=parse_schemas(schema),
    )
    if output_format is Format.JSON:
        print_json(found.to_json())
    else:
        _show(console(), found)


def _show(out: Console, found: Inspection) -> None:
    from ttlsnap.clock import iso
    from ttlsnap.inspection import spark_version, uncommitted_batch

    checkpoint = found.checkpoint
    batch = checkpoint.batch
    lines = [
        checkpoint.target,
        f"  query {checkpoint.query_id or 'unknown'}, Spark {spark_version(batch.conf)}, "
        f"provider {checkpoint.provider}, codec {checkpoint.codec}"
        f"{', row checksums' if checkpoint.row_checksums else ''}",
        f"  batch {batch.id} committed, begun {iso(batch.timestamp_ms * 1000)}, watermark "
        f"{iso(batch.watermark_ms * 1000) if batch.watermark_ms else 'none'}",
    ]
    uncommitted = uncommitted_batch(checkpoint)
    if uncommitted is not None and found.planned_by is not None:
        lines.append(f"  batch {uncommitted} planned by ttlsnap run {found.planned_by}: the query restarts with it")
    elif uncommitted is not None:
        lines.append(f"  batch {uncommitted} was begun and not committed: it runs again when the query starts")
    if checkpoint.logs.fence:
        lines.append(f"  FENCED: {checkpoint.logs.fence}")
    lines += [f"  Warning: {warning}" for warning in found.warnings]
    out.print("\n".join(lines))
    for operator, stores in found.operators:
        out.print(f"\noperator {operator.id} {operator.name or '(name not recorded)'}")
        rows = table("store", "state", "partitions", "entries", "size", right=("partitions", "entries", "size"))
        for store, states in stores:
            for state in states:
                rows.add_row(
                    store.name,
                    state.name,
                    number(len(store.partitions)),
                    number(state.entries),
                    size(state.bytes),
                )
        out.print(rows)
        several = sum(len(states) for _, states in stores) > 1
        for store, states in stores:
            for state in states:
                if several:
                    out.print(f"  {store.name}.{state.name}:")
                show_fields(out, state)
                if state.problem:
                    out.print(f"  {state.problem}")
    for sample in found.samples or ():
        place = f"{sample['operator']}.{sample['store']}.{sample['state']}[{sample['partition']}]"
        show_sample(out, place, sample)


def show_sample(out: Console, place: str, sample: dict[str, Any]) -> None:
    """An entry on a line."""
    key, value = _compact(sample["key"]), _compact(sample["value"])
    if "map_key" in sample:
        key += f" {_compact(sample['map_key'])}"
    if "time" in sample:
        value = sample["time"]
    if "matched" in sample:
        value += "  matched" if sample["matched"] else "  not matched"
    out.print(f"{place}  {key} -> {value}")


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_fields(out: Console, state: StateInspection) -> None:
    """The fields of a state, and its ages if they were counted."""
    if state.descriptor is None:
        out.print("  no schema is recorded (Spark before 3.1); --schema gives one")
        return
    for field in state.fields:
        stored = state.descriptor.stored_timestamp or ""
        mark = "   <- Spark's own timestamp" if stored.partition(":")[0] == field.name else ""
        out.print(f"  {field.name}  {field.type.simple_string}{mark}")
    if state.age is None:
        return
    age = state.age
    out.print(f"  age of {age['timestamp']} at {age['now']}:")
    rows = [("in the future", age["future"])]
    rows += [(f"up to {bucket['up_to']}", bucket["entries"]) for bucket in age["buckets"]]
    rows += [("older", age["older"]), ("no timestamp", age["null"])]
    most = max(count for _, count in rows) or 1
    for label, count in rows:
        if count:
            bar = "#" * max(1, round(40 * count / most))
            out.print(f"    {label:14} {number(count):>14}  {bar}")
