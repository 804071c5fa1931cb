"""The page of ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ttlsnap.amounts import number, quantity, size
from ttlsnap.clock import MICROS, iso
from ttlsnap.pages.ages import age_histogram
from ttlsnap.pages.model import Card, Page, Section, Table, Tile, Tone, facts
from ttlsnap.pages.privacy import tell
from ttlsnap.pages.sizes import size_sections, size_tiles
from ttlsnap.pages.svg import Bar, bar_chart
from ttlsnap.pages.words import (
    TIMES,
    as_text,
    at,
    describe_history,
    describe_next,
    describe_unused,
    describe_value,
    state_name,
    times_rows,
)

Document = Mapping[str, Any]

STORED = "the timestamp that Spark stores"
"""What marks the field by which Spark itself lets entries expire."""


def inspect_page(document: Document, show_keys: bool) -> Page:
    """Return the page of a checkpoint, a Delta table, or a folder with checkpoints."""
    if document["kind"] == "folder":
        return _folder_page(document)
    states = list(_states(document))
    is_table = document["kind"] == "table"
    entries = _sum(state["entries"] for _, state in states if state["role"] == "primary")
    bytes_held = _sum(state["bytes"] for _, state in states if state["bytes"] is not None)
    return Page(
        answer=_answer(document, entries, bytes_held, len(states)),
        target=document["target"],
        tone=Tone.BAD if document["fence"] else Tone.WARNING if _told(document) else Tone.PLAIN,
        tiles=_table_tiles(document, entries, bytes_held)
        if is_table
        else [*_tiles(document, entries, bytes_held, len(states)), *size_tiles(document)],
        sections=[
            *_warnings(document, show_keys),
            _state_section(states, show_keys),
            *size_sections(document, show_keys),
            *(section for place, state in states for section in _age_sections(place, state)),
            *_entries(document, show_keys),
            _field_section(states),
            *([Section("Next", [next_step])] if not is_table and (next_step := describe_next(document)) else []),
            Section("Details", tables=[_details(document)]),
        ],
    )


def _folder_page(document: Document) -> Page:
    names = document["checkpoints"]
    rows = [(summary["path"], *checkpoint_words(summary)) for summary in document["summaries"]]
    numbers = ("last batch", "size")
    table = Table("The checkpoints in the folder", ("checkpoint", *numbers), rows, numbers, ("checkpoint",))
    answer = f"This folder contains {quantity(len(names), 'checkpoint')}."
    return Page(answer, document["target"], sections=[Section("Checkpoints", tables=[table])])


def checkpoint_words(summary: Document) -> tuple[str, str]:
    """Return the last batch of a checkpoint in a folder, or what is wrong with it, and the size of its state."""
    return summary["problem"] or number(summary["batch"]), size(summary["bytes"])


def _answer(document: Document, entries: int | None, bytes_held: int | None, states: int) -> str:
    if document["fence"]:
        return "A run of ttlsnap was interrupted here: run ttlsnap recover before anything else."
    is_table = document["kind"] == "table"
    nouns = ("row", "rows") if is_table else ("entry", "entries")
    content_text = "state" if entries is None else quantity(entries, *nouns)
    if states != 1:
        content_text += f" in {quantity(states, 'state')}"
    if bytes_held is not None:
        content_text += f" ({size(bytes_held)})"
    if is_table:
        return f"This Delta table holds {content_text}, as of version {document['version']}."
    return f"This checkpoint holds {content_text}, as of batch {document['batch']}."


def _sum(values: Iterator[int | None]) -> int | None:
    all_values = list(values)
    return None if not all_values or None in all_values else sum(value for value in all_values if value is not None)


def _states(document: Document) -> Iterator[tuple[dict[str, str], Document]]:
    """Yield each state with its place in words."""
    is_table = document["kind"] == "table"
    for operator in document["operators"]:
        for store in operator["stores"]:
            for state in store["states"]:
                state_place = {"operator": operator["id"], "store": store["name"], "state": state["name"]}
                names = [name for name in (store["name"], state["name"]) if name != "default"]
                place = {
                    "operator": f"{operator['id']} {operator['name'] or ''}".strip(),
                    "state": ".".join(dict.fromkeys(names)) or "default",
                    "partitions": number(operator["partitions"]),
                    "name": ".".join(names) if is_table else state_name(state_place),
                }
                yield place, state


def _tiles(document: Document, entries: int | None, bytes_held: int | None, states: int) -> list[Tile]:
    operators = document["operators"]
    partitions = max((operator["partitions"] for operator in operators), default=0)
    note = "" if entries is not None else "--age counts them"
    return [
        Tile("entries", number(entries), note),
        Tile("size", size(bytes_held), "files of the newest version"),
        Tile("partitions", number(partitions)),
        Tile("states", number(states), f"in {quantity(len(operators), 'operator')}"),
        Tile("committed batch", number(document["batch"]), f"begun {at(document['batch_timestamp_ms'])}"),
        Tile("watermark", at(document["watermark_ms"]) if document["watermark_ms"] else "none"),
    ]


def _table_tiles(document: Document, entries: int | None, bytes_held: int | None) -> list[Tile]:
    return [
        Tile("rows", number(entries)),
        Tile("size", size(bytes_held)),
        Tile("files", number(document["files"])),
        Tile("version", number(document["version"]), f"written {at(document['batch_timestamp_ms'])}"),
        Tile("rows marked as deleted", number(document["deleted_rows_in_files"]), "still in the files"),
        Tile("runs of ttlsnap", number(document["runs"])),
    ]


def _warnings(document: Document, show_keys: bool) -> Iterator[Section]:
    cards = [Card(Tone.WARNING, "warning", tell(text, show_keys)) for text in _told(document)]
    if document["fence"]:
        cards.insert(0, Card(Tone.BAD, "fenced", document["fence"]))
    if cards:
        yield Section("Warnings", cards=cards)


def _state_section(states: Sequence[tuple[dict[str, str], Document]], show_keys: bool) -> Section:
    rows = [
        (
            place["operator"],
            f"{place['state']} (unused)" if state.get("unused") else place["state"],
            state["type"],
            state["role"],
            place["partitions"],
            number(state["entries"]),
            size(state["bytes"]),
        )
        for place, state in states
    ]
    columns = ("operator", "state", "type", "role", "partitions", "entries", "size")
    table = Table("The states of the query", columns, rows, columns[4:], ("state",), ("operator",))
    states_with_size = [(place, state) for place, state in states if state["bytes"]]
    bars = [Bar(place["name"], state["bytes"], size(state["bytes"])) for place, state in states_with_size]
    charts = [bar_chart("Size by state", bars)] if len(bars) > 1 else []
    texts = (
        ["States of one store share their files; the first of them has the size."]
        if len(states_with_size) < len(states)
        else []
    )
    if (unused_text := describe_unused(state for _, state in states)) is not None:
        texts.append(f"{unused_text}.")
    return Section("States", texts, charts, [table], list(_state_notes(states, show_keys)))


def _state_notes(states: Sequence[tuple[dict[str, str], Document]], show_keys: bool) -> Iterator[Card]:
    """Yield why states have no ages or cannot be read, each reason once."""
    reasons: dict[str, list[str]] = {}
    for place, state in states:
        if "problem" in state:
            reasons.setdefault(tell(state["problem"], show_keys), []).append(place["name"])
    for reason, names in reasons.items():
        has_no_ages = reason.startswith("no ages")
        tone_and_label = (Tone.PLAIN, "note") if has_no_ages else (Tone.WARNING, "not read")
        yield Card(*tone_and_label, reason, ", ".join(names))


def _age_sections(place: dict[str, str], state: Document) -> Iterator[Section]:
    if "age" not in state:
        return
    age = state["age"]
    title = f"Age of the entries by {age['timestamp']}"
    buckets = [*age["buckets"], {"up_to": None, "entries": age["older"]}]
    chart, table = age_histogram(title, {**age, "buckets": buckets})
    heading = f"Age: {place['name']}" if place["state"] != "default" else "Age"
    texts = [f"Age by {age['timestamp']} at {age['now']}."]
    if "written_before" in age:
        texts.append(f"{describe_history(age['written_before'])}.")
    yield Section(heading, texts, [chart], [table])


def _entries(document: Document, show_keys: bool) -> Iterator[Section]:
    if "entries" not in document:
        return
    entries = document["entries"]
    if not show_keys:
        yield Section(
            "Entries",
            [
                f"The keys and values of {quantity(len(entries), 'entry', 'entries')} are left out. --show-keys adds "
                "them."
            ],
        )
        return
    rows = [
        (
            state_name(entry),
            str(entry["partition"]),
            as_text(entry["key"]),
            describe_value(entry),
        )
        for entry in entries
    ]
    columns = ("state", "partition", "key", "value")
    yield Section(
        "Entries", tables=[Table("Entries of each state", columns, rows, ("partition",), ("state", "key", "value"))]
    )


def _field_section(states: Sequence[tuple[dict[str, str], Document]]) -> Section:
    several = len(states) > 1
    rows = [
        (
            place["name"],
            field["name"],
            field["type"],
            STORED if _is_stored(state, field) else "",
        )
        for place, state in states
        for field in state["fields"]
    ]
    columns = ("state", "field", "type", "")
    times = [
        Table(
            f"The times in {place['name']}" if several else "The times in the fields",
            TIMES,
            times_rows(state),
            TIMES[-1:],
            TIMES[:1],
            TIMES[2:4],
        )
        for place, state in states
        if state.get("times")
    ]
    table = Table(
        "What --timestamp can name",
        columns if several else columns[1:],
        rows if several else [row[1:] for row in rows],
        code=("state", "field", "type"),
    )
    return Section("Fields", tables=[*times, table])


def _is_stored(state: Document, field: Document) -> bool:
    return bool((state["timestamp"] or "").partition(":")[0] == field["name"])


def _details(document: Document) -> Table:
    if document["kind"] == "table":
        protocol = document["protocol"]
        return facts(
            "Facts about the table",
            [
                ("key", ", ".join(document["key"]) or "unknown"),
                ("partition columns", ", ".join(document["partition_columns"])),
                ("protocol", f"reader {protocol['reader']}, writer {protocol['writer']}"),
                ("features", ", ".join(protocol["features"])),
            ],
        )
    uncommitted, planned_by = document["uncommitted_batch"], document["planned_by"]
    runs_again = "" if document["stops_spark"] else ", runs again"
    started = f"{uncommitted}, planned by ttlsnap run {planned_by}" if planned_by else f"{uncommitted}{runs_again}"
    return facts(
        "Facts about the checkpoint",
        [
            ("query", document["query_id"]),
            ("Spark", document["spark_version"]),
            ("batch begun", iso(document["batch_timestamp_ms"] * MICROS)),
            ("watermark", iso(document["watermark_ms"] * MICROS) if document["watermark_ms"] else None),
            ("state store", ", ".join(dict.fromkeys(operator["provider"] for operator in document["operators"]))),
            ("codec", document["codec"]),
            ("row checksums", "yes" if document["row_checksums"] else "no"),
            ("uncommitted batch", started if uncommitted is not None else None),
        ],
    )


def _told(document: Document) -> list[str]:
    """Return what is wrong, also for a Delta table, which has no logs that stop Spark."""
    return [*document.get("warnings", ()), *document.get("stops_spark", ())]
