"""The page of ``compact``: of one target, or of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any

from ttlsnap.amounts import MISSING, number, quantity, share, size
from ttlsnap.pages.ages import age_histograms
from ttlsnap.pages.model import Card, Page, Section, Table, Tile, Tone, facts
from ttlsnap.pages.privacy import tell, tell_rule
from ttlsnap.pages.svg import Bar, Chart, bar_chart, parts_chart, time_chart
from ttlsnap.pages.targets import targets_page
from ttlsnap.pages.words import (
    DRY_RUN,
    after_dry_run,
    as_text,
    describe_growth,
    describe_history,
    describe_left_alone,
    describe_made_final,
    describe_nothing_to_do,
    describe_unpublished,
    describe_value,
    field_words,
    is_expiry,
    is_later,
    known_totals,
    minute,
    moment,
    operator_words,
    place,
    second,
    state_words,
)

Document = Mapping[str, Any]

_NUMBERS = ("entries", "kept", "dropped", "rewritten", "before", "after")
_SHARES = ("of entries", "saved")
_TIMES = ("state", "timestamp", "oldest", "newest", "cut-off", "now")
_WAYS = {"full": "written whole", "tombstones": "written as tombstones over the old files", "untouched": "untouched"}


def compact_page(document: Document | Sequence[Document], show_keys: bool) -> Page:
    """Return the page of a run on one target, or on each of several."""
    if not isinstance(document, Mapping):
        page = targets_page(document, quantity(len(document), "target"), show_keys)
        return replace(page, sections=[*page.sections, *_states_of(document)])
    totals = known_totals(document)
    return Page(
        answer=_answer(document),
        target=document["target"],
        tone=_tone(document),
        banner=DRY_RUN if document["dry_run"] else "",
        tiles=_tiles(totals, document["dry_run"]),
        sections=[
            *_warnings(document, show_keys),
            _before_and_after(totals),
            *_times(document),
            _state_section(document),
            *_shown(document, show_keys),
            Section("Details", list(_next(document)), tables=[_details(document, show_keys)]),
        ],
    )


def _answer(document: Document) -> str:
    totals = document["totals"]
    entries, dropped, rewritten = (totals[name] for name in ("entries", "dropped", "rewritten"))
    noun = "rows" if document["kind"] == "table" else "entries"
    if not dropped and not rewritten:
        if entries:
            return f"There was nothing to drop: all {number(entries)} {noun} stay."
        if all(state.get("left_alone") for state in document["stores"]):
            return describe_nothing_to_do(document) or "Nothing was dropped: no rule applies to this state."
        return "There was nothing to drop: the state is empty."
    is_done = document["published"]
    changes = []
    if dropped:
        amount_text = f"{number(dropped)} of {number(entries)} {noun} ({share(dropped, entries)})"
        changes.append(f"{'dropped' if is_done else 'drop'} {amount_text}")
    if rewritten:
        changes.append(f"{'rewrote' if is_done else 'rewrite'} {number(rewritten)}")
    bytes_saved = (totals["bytes_before"] or 0) - (totals["bytes_after"] or 0)
    if bytes_saved > 0 and totals["bytes_after"] is not None:
        amount_text = f"{size(bytes_saved)} ({share(bytes_saved, totals['bytes_before'])})"
        changes.append(f"{'saved' if is_done else 'save'} {amount_text}")
    changes_text = f"{', '.join(changes[:-1])} and {changes[-1]}" if len(changes) > 1 else changes[0]
    if document["dry_run"]:
        return (
            f"A run would be refused now. It would {changes_text}."
            if document.get("refused")
            else f"A run would {changes_text}."
        )
    if not is_done:
        return f"Nothing was changed: the run did not {changes_text}."
    where = f", in the new checkpoint {document['output']}" if document["output"] else ""
    return f"The run {changes_text}{where}."


def _tone(document: Document) -> Tone:
    if document["warnings"]:
        return Tone.WARNING
    return Tone.GOOD if document["published"] else Tone.PLAIN


def _tiles(totals: Document, dry_run: bool) -> list[Tile]:
    bytes_before, bytes_after = totals["bytes_before"], totals["bytes_after"]
    bytes_saved = bytes_before - bytes_after if bytes_before and bytes_after is not None else None
    tiles = [
        Tile(
            "would be dropped" if dry_run else "dropped",
            number(totals["dropped"]),
            f"{share(totals['dropped'], totals['entries'])} of the entries",
        ),
        Tile("kept", number(totals["kept"])),
    ]
    tiles += [Tile("rewritten", number(totals["rewritten"]))] if totals["rewritten"] else []
    tiles += [Tile("size before", size(bytes_before)), Tile("size after", size(bytes_after))]
    if bytes_saved is not None:
        tiles.append(
            Tile(
                "saved" if bytes_saved >= 0 else "added", size(abs(bytes_saved)), share(abs(bytes_saved), bytes_before)
            )
        )
    return tiles


def _warnings(document: Document, show_keys: bool) -> Iterator[Section]:
    cards = [Card(Tone.WARNING, "warning", tell(text, show_keys)) for text in document["warnings"]]
    if cards:
        yield Section("Warnings", cards=cards)


def _before_and_after(totals: Document) -> Section:
    return Section(
        "Before and after", charts=[*entries_chart(totals), *size_chart(totals)], tables=[totals_table(totals)]
    )


def entries_chart(totals: Document) -> Iterator[Chart]:
    """Yield the entries before the run, as parts: kept, rewritten, dropped."""
    if totals["entries"]:
        colours = {"kept": "accent", "rewritten": "second", "dropped": "drop"}
        parts = [
            Bar(name, totals[name], f"{number(totals[name])} ({share(totals[name], totals['entries'])})", colour)
            for name, colour in colours.items()
            if totals[name] or name != "rewritten"
        ]
        yield parts_chart("Entries", parts)


def size_chart(totals: Document) -> Iterator[Chart]:
    """Yield the sizes before and after the run."""
    bytes_before, bytes_after = totals["bytes_before"], totals["bytes_after"]
    if bytes_before and bytes_after is not None:
        bars = [Bar("before", bytes_before, size(bytes_before), "second"), Bar("after", bytes_after, size(bytes_after))]
        yield bar_chart("Size of the files", bars)


def totals_table(totals: Document) -> Table:
    """Return the numbers of the two charts."""
    names = ("entries", "kept", "dropped", "rewritten")
    row = (*(number(totals[name]) for name in names), size(totals["bytes_before"]), size(totals["bytes_after"]))
    columns = (*names, "before", "after")
    return Table("All states together", columns, [row], columns, folded=True)


def _times(document: Document) -> Iterator[Section]:
    histograms = list(age_histograms(document))
    charts = [chart for chart, _ in histograms]
    timed_states = [state for state in document["stores"] if _cut_off_place(state) is not None]
    texts = []
    for state in timed_states:
        entries = "Entries" if len(timed_states) == 1 else f"{place(state)}: entries"
        texts.append(f"{entries} up to the cut-off {minute(state['cutoff'])} UTC have expired.")
        if "ages" not in state and (times := _cut_off_place(state)) is not None:
            labels = (minute(state["oldest"]), minute(state["newest"]), minute(state["cutoff"]))
            charts.append(time_chart(f"{state['timestamp']} of {place(state)}", *times, labels))
    if charts:
        tables = [_state_table("Times", _TIMES, [(document, state) for state in timed_states])] if timed_states else []
        yield Section("Ages and cut-off", texts, charts, [*tables, *(table for _, table in histograms)])


def _cut_off_place(state: Document) -> tuple[float, float, float] | None:
    """Return the oldest and the newest time of a state, and the cut-off; None if one of them is unknown."""
    oldest, newest, cut_off = (moment(state[name]) for name in ("oldest", "newest", "cutoff"))
    return None if oldest is None or newest is None or cut_off is None else (oldest, newest, cut_off)


def _state_section(document: Document) -> Section:
    columns = ("operator", "state", "role", "timestamp", *_NUMBERS)[document["kind"] == "table" :]
    table = _state_table("Each state", columns, [(document, state) for state in document["stores"]])
    changed_states = [state for state in document["stores"] if state["dropped"]]
    bars = [Bar(place(state), state["dropped"], number(state["dropped"]), "drop") for state in changed_states]
    return Section(
        "States",
        list(_texts(document)),
        [bar_chart("Dropped entries by state", bars)] if len(bars) > 1 else [],
        [table],
    )


def _states_of(targets: Sequence[Document]) -> Iterator[Section]:
    """Yield the states of several targets: what is dropped of them, and the times by which the rule decided."""
    states = [(target, state) for target in targets for state in target.get("stores", ())]
    if states:
        columns = ("target", "operator", "state", "timestamp", *_NUMBERS, *_SHARES)
        tables = [_state_table("Each state", columns, states), _state_table("Times", ("target", *_TIMES), states)]
        yield Section("States", tables=tables)


def _state_table(caption: str, columns: Sequence[str], states: Sequence[tuple[Document, Document]]) -> Table:
    """Return a table with these columns for states, each with the document of its target."""
    rows = [[words[name] for name in columns] for words in starmap(_state_words, states)]
    return Table(
        caption, columns, rows, (*_NUMBERS, *_SHARES), ("target", "state", "timestamp"), ("operator", *_TIMES[2:])
    )


def _state_words(document: Document, state: Document) -> dict[str, str]:
    """Return all that tables show of a state, by the names of their columns."""
    bytes_before, bytes_after = state["bytes_before"], state["bytes_after"]
    bytes_saved = None if bytes_before is None or bytes_after is None else max(bytes_before - bytes_after, 0)
    counts = (number(state[name]) for name in ("entries", "kept", "dropped", "rewritten"))
    return {
        "target": document["target"],
        "operator": MISSING if state["operator"] is None else operator_words(state),
        "state": state_words(state),
        "role": state["role"],
        "timestamp": field_words(state),
        **dict(zip(_NUMBERS, (*counts, size(bytes_before), size(bytes_after)), strict=True)),
        "of entries": share(state["dropped"], state["entries"]),
        "saved": MISSING if bytes_saved is None else share(bytes_saved, bytes_before),
        **{name: second(state[name.replace("-", "")]) for name in ("oldest", "newest", "cut-off")},
        "now": second(state.get("now", document["now"])),
    }


def notes(document: Document) -> Iterator[tuple[str, bool]]:
    """Yield what a reader must know about each state, and whether it is a warning."""
    for text in describe_left_alone(document):
        yield text, False
    for text in describe_growth(document):
        yield text, False
    foreseen = describe_made_final(document) if document["dry_run"] else None
    if foreseen is not None:
        yield foreseen, True
    if document["totals"]["dropped"] and any(state["role"] == "derived" for state in document["stores"]):
        yield "The total does not count derived entries, which are indexes and counts of others", False
    for state in document["stores"]:
        operator, name = place({**state, "store": "default", "state": "default"}), place(state)
        operator = operator or "the table"
        if "partitions" in state:
            way_texts = [f"{number(count)} {_WAYS[way]}" for way, count in state["partitions"].items() if count]
            of_store = [
                one
                for one in document["stores"]
                if (one["operator"], one["store"]) == (state["operator"], state["store"])
            ]
            # All states of a store are in the same files, and the first has the numbers.
            where = f"store {state['operator']}.{state['store']}" if len(of_store) > 1 else name or operator
            yield f"{where}, partitions: {', '.join(way_texts)}", False
        if state["null_timestamps"]:
            kept_text = quantity(state["null_timestamps"], "entry that has", "entries that have")
            yield f"{name or operator}: kept {kept_text} no timestamp", False
        oldest = state.get("oldest")
        if "event_now" in state:
            is_before = ". That is before all of these times: nothing would expire"
            yield (
                (
                    f"{operator}: {state['timestamp']} is compared with the time of the last batch. If it is an event "
                    f"time, add --time event (in a policy: time): that compares it with the watermark "
                    f"{second(state['event_now'])}{is_before if is_later(oldest, state['event_now']) else ''}"
                ),
                False,
            )
        if state.get("time") == "event" and is_later(oldest, state.get("now")) and not state["dropped"]:
            clock = "the watermark" if document["now_source"] == "checkpoint" else "now"
            yield (
                (
                    f"{name or operator}: no entry has expired: the oldest {state['timestamp']} is {second(oldest)} "
                    f"and {clock} is {second(state['now'])}. {_other_clock(state)}"
                ),
                False,
            )
        if "written_before" in state:
            yield f"{name}: {describe_history(state['written_before'])}", False
        if state.get("unclosed"):
            yield f"{operator}: {describe_unclosed(state)}", True
        if state.get("unmatched_dropped"):
            yield (
                (
                    f"{name}: {number(state['unmatched_dropped'])} of the dropped rows have not matched; an outer join "
                    "will never emit them"
                ),
                False,
            )
        if state["dropped"] and state["dropped"] == state["entries"] and state["role"] == "primary":
            yield f"{name or operator}: every entry is dropped. Check the field and its unit", True


def _other_clock(state: Document) -> str:
    if is_expiry(state["timestamp"]):
        return "To count from when an entry was written, add --old-ttl (in a policy: old_ttl)"
    return "To compare with another time, add --now (in a policy: now)"


def describe_unclosed(state: Document) -> str:
    """Return how many of the dropped entries Spark has not closed, and what is lost with them."""
    groups = f"{number(state['unclosed'])} of the dropped groups"
    if state["timeout"]:
        return f"{groups} still had a timeout ahead, which will never fire"
    return f"{groups} are ahead of the watermark; a query in append mode will never emit them"


def engine_words(document: Document) -> str:
    """Return what ran the partitions, why, and how long it took."""
    reason = f" ({document['engine_reason']})" if document.get("engine_reason") else ""
    return f"{document['engine']} engine{reason}, {document['seconds']:.1f} s"


def _texts(document: Document) -> Iterator[str]:
    """Yield the notes about the states, and the progress of an incremental cleanup."""
    for note, _ in notes(document):
        yield f"{note}."
    if "visited" in document:
        visited_partitions = document["visited"]
        yield (
            f"Incremental cleanup: this run visited {number(visited_partitions['partitions'])} of "
            f"{quantity(visited_partitions['of'], 'partition')}; "
            f"{number(visited_partitions['left'])} are left in this round."
        )


def _shown(document: Document, show_keys: bool) -> Iterator[Section]:
    shown_entries = document.get("shown")
    if not shown_entries:
        return
    if not show_keys:
        left_out_text = (
            f"The keys and values of {quantity(len(shown_entries), 'entry', 'entries')} are left out. "
            "--show-keys adds them."
        )
        yield Section("Dropped and rewritten entries", [left_out_text])
        return
    rows = [
        (
            entry["change"],
            place(entry),
            str(entry["partition"]),
            as_text(entry["key"]),
            describe_value(entry),
            entry["time"] or MISSING,
            entry["rule"],
        )
        for entry in shown_entries
    ]
    columns = ("change", "state", "partition", "key", "value", "time", "rule")
    table = Table("The first of them", columns, rows, ("partition",), ("state", "key", "value"), ("time",))
    yield Section("Dropped and rewritten entries", tables=[table])


def _next(document: Document) -> Iterator[str]:
    if document["dry_run"]:
        yield after_dry_run(document)
    elif not document["published"]:
        yield describe_unpublished(document)
    elif document["output"]:
        yield f"Next: start the query with the checkpoint location {document['output']}."
    elif document["published"] and document["kind"] == "checkpoint":
        yield from filter(None, [describe_made_final(document)])
        yield "Next: restart the query. Until it commits a new batch, ttlsnap rollback undoes this run."
    elif document["published"]:
        yield "ttlsnap rollback undoes this run."


def _details(document: Document, show_keys: bool) -> Table:
    engine = document["engine"]
    reason = document.get("engine_reason")
    invisible_from = document.get("logically_gone")
    return facts(
        "Facts about the run",
        [
            ("run", document["run"]),
            *(("rule", tell_rule(rule, show_keys)) for rule in document.get("rules", ())),
            ("now", f"{document['now']} ({document['now_source']})"),
            ("batch", str(document["batch"]) if "batch" in document else None),
            ("engine", f"{engine} ({reason})" if reason else engine),
            ("duration", f"{document['seconds']:.1f} s"),
            ("new checkpoint", document["output"]),
            ("replaced files", document["backup"]),
            ("archive of dropped entries", document["expired_to"]),
            ("key", ", ".join(document["key"]) if "key" in document else None),
            ("versions", ", ".join(map(str, document["versions"])) if document.get("versions") else None),
            ("dropped rows are invisible from", f"version {invisible_from['version']}" if invisible_from else None),
            ("VACUUM can remove old files after", document.get("physically_gone_by")),
        ],
    )
