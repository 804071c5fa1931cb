"""Parts of documents in words: places, times, keys and values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from ttlsnap.amounts import MISSING, number, quantity, share
from ttlsnap.clock import year_of
from ttlsnap.errors import UNLESS_AGREED
from ttlsnap.naming import name_state
from ttlsnap.printable import shell_word

Document = Mapping[str, Any]


_OPTION_OR_KEY = re.compile(r"--[a-z-]+ \(in a policy: ([^)]+)\)")
_FAR = re.compile(r"-?\d+us")
SPARKS_TIMES = "Spark's expiry times"
"""The rule of a run without a rule."""

DRY_RUN = "Dry run: nothing was changed."
PLAN = "Plan: nothing was changed."
"""What ``maintain --plan`` says, which is a dry run of all targets."""


def after_dry_run(document: Document, option: str = "--dry-run", does: str = "publishes this") -> str:
    """Return what a run without ``option`` would do after a dry run, or what to do before."""
    if document.get("refused"):
        return f"Without {option}, ttlsnap would refuse this now. The warnings say why."
    if document["warnings"]:
        return f"Read the warnings before you repeat it without {option}."
    if document.get("destination"):
        return f"Without {option}, ttlsnap writes this to {document['destination']}."
    if document["kind"] in ("checkpoint", "table") and not (
        document["totals"]["dropped"] or document["totals"]["rewritten"]
    ):
        would = "only record when entries were written" if uses_written(document) else "have nothing to change"
        return f"Without {option}, ttlsnap would {would}."
    return f"Without {option}, ttlsnap {does}."


def uses_written(document: Document) -> bool:
    """Return whether a rule of a run uses the times at which entries were written, so that a run records them."""
    return any(state.get("timestamp") == "@written" for state in document.get("stores", ()))


def describe_left_alone(document: Document) -> Iterator[str]:
    """Yield a sentence for each state of a run that no rule can change, with the reason."""
    for state in document.get("stores", ()):
        if state.get("left_alone") and state["role"] == "primary":
            yield f"{place(state)} is not changed: {state['left_alone']}"


def describe_growth(document: Document) -> Iterator[str]:
    """Yield a sentence for each state of a run that drops entries and makes the files larger, with the reason."""
    for state in document.get("stores", ()):
        if document["totals"]["dropped"] and "partitions" in state and state["bytes_after"] > state["bytes_before"]:
            yield (
                f"{place(state)}: the new files are larger than the old ones. A rewritten partition has at least one "
                "table of RocksDB, and changelogs with few entries are smaller than that"
            )


def describe_unread(document: Document) -> str | None:
    """Return how many states are not in the totals of a run, because no rule can change them; None if all are."""
    states = [state for state in document["stores"] if state["role"] == "primary"]
    unread_states = [state for state in states if state.get("left_alone")]
    if not unread_states or len(unread_states) == len(states):
        return None
    return f"{len(unread_states)} other state{'s' if len(unread_states) > 1 else ''} not looked at"


def describe_unused(states: Iterable[Document]) -> str | None:
    """Return which state variables Spark has kept that the query no longer has; None if there are none."""
    unused_states = [state for state in states if state.get("unused")]
    if not unused_states:
        return None
    names = ", ".join(sorted({state["variable"] for state in unused_states}))
    counts = [state["entries"] for state in unused_states]
    entries = "--sizes counts the entries" if None in counts else quantity(sum(counts), "entry", "entries")
    description = f"Spark has kept the values of state variables that the query no longer has: {names} ({entries})"
    return f"{description}. ttlsnap migrate CHECKPOINT --drop NAME removes them"


def known_totals(document: Document) -> Document:
    """Return the totals of a run. The entries are unknown if no rule applies to any state: then none was counted."""
    states = [state for state in document.get("stores", ()) if state.get("role") == "primary"]
    if states and all(state.get("left_alone") for state in states):
        return {**document["totals"], "entries": None, "kept": None}
    totals: Document = document["totals"]
    return totals


def describe_nothing_to_do(document: Document) -> str | None:
    """Return that a run without a rule has nothing to do, and what to give it; None for any other run."""
    if document.get("rules") != [SPARKS_TIMES] or known_totals(document)["entries"] is not None:
        return None
    return (
        "Nothing to do: Spark stores no expiry time in any of these states. Give a rule: --ttl DURATION, and where "
        "Spark stores no time at all, --timestamp FIELD with a field that ttlsnap inspect shows, or @written"
    )


def of_entries(totals: Document) -> str:
    """Return ``9 of 480 entries``, for what a run dropped."""
    is_known = totals["entries"] is not None
    entries = quantity(totals["entries"], "entry", "entries") if is_known else "an unknown number of entries"
    return f"{number(totals['dropped'])} of {entries}"


def describe_unpublished(document: Document) -> str:
    """Return what changed although a run published nothing: at most the ledger of ``@written``."""
    is_ledger_updated = document.get("ledger_updated")
    return "Nothing was dropped. The ledger was updated." if is_ledger_updated else "Nothing was changed."


def describe_made_final(document: Document) -> str | None:
    """Return a sentence about the run that can no longer be rolled back because of this one; None if there is none."""
    if document.get("made_final") is None:
        return None
    if document.get("dry_run"):
        return f"Run {document['made_final']} could then no longer be rolled back: its backup would be removed"
    return f"The backup of run {document['made_final']} was removed, so that run can no longer be rolled back."


def describe_published(target: Document) -> Iterator[str]:
    """Yield sentences about the run that a policy published on a target."""
    if target.get("published"):
        yield f"Published as run {target['run']}."
        yield from filter(None, [describe_made_final(target)])


def after_publishing(targets: Sequence[Document]) -> str | None:
    """Return what to do after runs on several targets; None if no checkpoint was changed."""
    changed = [target for target in targets if target.get("published") and target["kind"] != "table"]
    if not changed:
        return None
    undo = undo_command("CHECKPOINT", *(target.get("expired_to") for target in changed))
    return f"Next: restart the queries of the changed checkpoints. To undo a run before you restart its query: {undo}"


def undo_command(target: str, *archives: str | None) -> str:
    """Return the command that undoes a run on ``target``. It also removes the dropped entries from their archive.

    ``archives`` are those of the possible runs. A function needs no option: it cannot give entries back.
    """
    places = {archive for archive in archives if archive is not None and "/" in archive}
    option = f" --expired-to {shell_word(*places) if len(places) == 1 else 'ARCHIVE'}" if places else ""
    return f"ttlsnap rollback {target} --stopped{option}"


def for_policy(text: str, target: str) -> str:
    """Return an error or a warning of a target for readers who see its name, and who can only change the policy."""
    text = text.replace(UNLESS_AGREED, "A run refuses this.")
    return _OPTION_OR_KEY.sub(r"\1 in the policy", text).replace(f"{target}: ", "", 1)


def at(milliseconds: int | None) -> str:
    """Return a time for people, to the minute, in UTC."""
    if milliseconds is None:
        return MISSING
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return f"{milliseconds} ms"


def age_groups(age: Document) -> list[tuple[str, int]]:
    """Return the groups of ``--age`` from the youngest to the oldest, each with its number of entries."""
    buckets = age["buckets"]
    counts = zip(age_labels(buckets), (bucket["entries"] for bucket in buckets), strict=True)
    return [("in the future", age["future"]), *counts, ("older", age["older"]), ("no timestamp", age["null"])]


def age_labels(buckets: Sequence[Document]) -> list[str]:
    """Return the name of each bucket of ages: ``up to 1h``, ``1h to 6h``, ``older``."""
    ends = [bucket["up_to"] for bucket in buckets]
    first = [f"up to {end}" for end in ends[:1]]
    return [*first, *(f"{start} to {end}" if end else "older" for start, end in pairwise(ends))]


TIMES = ("--timestamp", "--time", "oldest", "newest", "--ttl 7d would drop")
"""The columns of ``times_rows``."""


def times_rows(state: Document) -> list[tuple[str, ...]]:
    """Return a row for each field that can hold the time of an entry; none if they were not looked for."""
    rows: list[tuple[str, ...]] = []
    for times in state.get("times", ()):
        dropped = times["would_drop"]
        dropped_text = "unknown: no current time"
        if dropped is not None:
            entries = times["entries"]
            dropped_text = f"{number(dropped)} of {number(entries)} ({share(dropped, entries)})"
        others = {"null": times["null"], "before 2000 or far in the future": times["unlikely"]}
        dropped_text += "".join(f", {number(count)} {what}" for what, count in others.items() if count)
        rows.append(
            (times["timestamp"], times["time"] or "", minute(times["oldest"]), minute(times["newest"]), dropped_text)
        )
    return rows


def describe_next(document: Document) -> str | None:
    """Return the command that is useful after this ``inspect``; None if another one is."""
    states = [
        state
        for operator in document["operators"]
        for store in operator["stores"]
        for state in store["states"]
        if state["role"] == "primary" and not state.get("unused") and state["fields"]
    ]
    if (
        not states
        or "sizes" in document
        or document["fence"]
        or document["stops_spark"]
        # ttlsnap only reads the state of other providers.
        or any(operator["provider"] not in ("hdfs", "rocksdb") for operator in document["operators"])
        or any("age" in state or "problem" in state for state in states)
    ):
        return None
    target = shell_word(document["target"])
    if not any("times" in state for state in states):
        if all(state["entries"] is not None for state in states):
            return None  # nothing can expire
        return f"Next: ttlsnap inspect {target} --age (reads all entries, and shows which fields hold a time)"
    if any(state["timestamp"] and state["time"] for state in states):
        return _describe_next_by_stored_times(document, states)
    with_times = [state for state in states if state.get("times")]
    if not with_times:
        return f"No field holds a time. {_WRITTEN}"
    chosen = [_choose_time(state) for state in with_times]
    if None in chosen:
        is_time = "is the time of the last event of an entry"
        command = f"ttlsnap compact {target} --ttl 7d --timestamp FIELD --dry-run"
        return f"Next, if one of these fields {is_time}: {command}. Otherwise: {_WRITTEN}"
    known = {id(state): [times] for state, times in zip(with_times, chosen, strict=True)}
    names = _timestamps_of([{**state, "times": known.get(id(state), [])} for state in states])
    if not names:
        return None
    options = " ".join(f"--timestamp {shell_word(name)}" for name in names)
    command = f"ttlsnap compact {target} --ttl 7d {options} --dry-run"
    guesses = [times["timestamp"] for times in chosen if times is not None and not _is_sure(times)]
    if guesses:
        is_are = "is the time" if len(guesses) == 1 else "are the times"
        return f"Next, if {' and '.join(dict.fromkeys(guesses))} {is_are} of an entry: {command}"
    return f"Next: {command}"


def _describe_next_by_stored_times(document: Document, states: Sequence[Document]) -> str:
    """Return what is useful if Spark stores a time: the next command, or why 7 days would drop nothing."""
    command = f"ttlsnap compact {shell_word(document['target'])}"
    stored = [times for state in states for times in state.get("times", ()) if times["timestamp"] == state["timestamp"]]
    oldest = min((times["oldest"] for times in stored if times["oldest"] is not None), default=None)
    is_by_watermark = all(times["time"] == "event" for times in stored) and document["watermark_ms"]
    if oldest is None or not is_by_watermark or any(times["would_drop"] != 0 for times in stored):
        return f"Next: {command} --ttl 7d --dry-run"
    watermark = at(document["watermark_ms"])
    if any(is_expiry(times["timestamp"]) for times in stored):
        return (
            f"--ttl 7d drops what expired more than 7 days ago, and nothing has: the first entry expires at "
            f"{minute(oldest)}, and the watermark is {watermark}. To count from when an entry was written: {command} "
            "--ttl 7d --old-ttl DELAY --dry-run, with the delay of the watermark"
        )
    fields = " and ".join(dict.fromkeys(times["timestamp"] for times in stored))
    reason = f"By {fields}, --ttl 7d drops nothing: the oldest is {minute(oldest)}, and the watermark {watermark}"
    if minute(oldest) <= watermark.removesuffix(" UTC"):
        return f"{reason}. Next, with a shorter time: {command} --ttl DURATION --dry-run"
    return f"{reason}. To compare with another time: {command} --ttl 7d --now TIME --dry-run"


_WRITTEN = "--timestamp @written takes the time at which an entry was last written."


def _choose_time(state: Document) -> Document | None:
    """Return the field that is the time of a state's entries, or may be; None if that is for the user to say.

    A number in a key is nearly always an id, even if it could be a time. If another field may be the time as well, and
    would drop other entries, the first one may be that of the first event, and the other one that of the last.
    """
    candidates = [times for times in state["times"] if not (_is_in_key(times) and _is_number(times))]
    sure = [times for times in candidates if _is_sure(times)]
    found = sure or candidates
    rivals = [times for times in candidates if not (times in sure or _is_in_key(times) or times["unlikely"])]
    is_clear = len({times["would_drop"] for times in (*found, *rivals)}) == 1
    return found[0] if is_clear and (sure or len(found) == 1) else None


def _is_sure(times: Document) -> bool:
    """Return whether a field holds times for certain: its type is one of times, and its values are of our days."""
    is_filled = 2 * times["null"] < times["entries"]
    return not (_is_in_key(times) or _is_number(times) or times["unlikely"]) and is_filled


def _is_in_key(times: Document) -> bool:
    return str(times["timestamp"]).startswith("key.")


def _is_number(times: Document) -> bool:
    return ":" in times["timestamp"]


def _timestamps_of(states: Sequence[Document]) -> list[str]:
    """Return names for ``--timestamp`` that give each state with a time exactly one; none if there are no such names.

    Names that fit many states are preferred. No name is that of a field which is not a time in another state.
    """
    fields = [{field["name"] for field in state["fields"]} for state in states]
    times = [[found["timestamp"] for found in state.get("times", ())] for state in states]
    names: list[str] = []
    named: set[int] = set()
    while open_states := [index for index, found in enumerate(times) if found and index not in named]:
        fitting: dict[str, list[int]] = {}
        for name in dict.fromkeys(name for index in open_states for name in times[index]):
            having = [index for index, found in enumerate(fields) if {name, name.rpartition(":")[0]} & found]
            if all(index not in named and (name in times[index] or states[index]["entries"] == 0) for index in having):
                fitting[name] = having
        if not fitting:
            return []
        names.append(max(fitting, key=lambda name: len(fitting[name])))
        named.update(fitting[names[-1]])
    return names


def describe_history(history_start: Document) -> str:
    """Return a sentence about the entries that were written when the known history begins, or earlier."""
    entries = quantity(history_start["entries"], "entry was", "entries were")
    return (
        f"{entries} written at {history_start['time']} or earlier. For each entry, ttlsnap uses the latest time at "
        "which it can have been written"
    )


def as_text(value: Any) -> str:
    """Return a value as JSON on one line; a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def describe_value(entry: Document) -> str:
    """Return everything of an entry but its place and its key."""
    other_names = (
        "operator",
        "store",
        "state",
        "partition",
        "key",
        "change",
        "rule",
        "time" if "change" in entry else "",
    )
    shown_fields = {name: value for name, value in entry.items() if name not in other_names}
    return as_text(shown_fields["value"]) if list(shown_fields) == ["value"] else as_text(shown_fields)


def moment(text: str | None) -> float | None:
    """Return a time of a document in seconds since 1970; None if it is unknown or no calendar has it."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def minute(text: str | None) -> str:
    """Return a time of a document to the minute; of one that ISO 8601 does not have, the year."""
    return MISSING if text is None else text[:16].replace("T", " ") if "T" in text else readable(text)


def is_expiry(timestamp: str) -> bool:
    """Return whether a field has the time at which an entry of ``dropDuplicatesWithinWatermark`` expires."""
    return "expiresAt" in timestamp


def is_later(first: str | None, second: str | None) -> bool:
    """Return whether a time of a document is at least a second later than another; False for what no calendar has."""
    return first is not None and second is not None and "T" in first and "T" in second and first[:19] > second[:19]


def second(text: str | None) -> str:
    """Return a time of a document to the second, in UTC; of one that ISO 8601 does not have, the year."""
    return MISSING if text is None else f"{text[:19]}Z" if "T" in text else readable(text)


def readable(time: str) -> str:
    """Return a time of a document as it is; of one that ISO 8601 does not have, the year: ``the year 58813``."""
    return f"the year {year_of(int(time.removesuffix('us')))}" if _FAR.fullmatch(time) else time


def state_name(state: Document) -> str:
    """Return the name of a state: ``0.default.last``."""
    return name_state(state["operator"], state["store"], state["state"])


def operator_words(state: Document) -> str:
    """Return the number of a state's operator, and its name if it is recorded."""
    return f"{state['operator']} {state['operator_name'] or ''}".strip()


def state_words(state: Document) -> str:
    """Return the name of a state within its operator: of a store's only state, that of the store."""
    return str(state["store"]) if state["state"] == "default" else f"{state['store']}.{state['state']}"


def place(state: Document) -> str:
    """Return the name of a state; only its operator if that has no other state, and "" for a table."""
    if state["operator"] is None:
        return ""
    if (state["store"], state["state"]) == ("default", "default"):
        return f"operator {state['operator']}"
    return state_name(state)


def field_words(state: Document) -> str:
    """Return the field that decided, and the clock that it was compared with."""
    if state["timestamp"] is None:
        return MISSING
    return f"{state['timestamp']} ({state['time']} time)" if state.get("time") else str(state["timestamp"])
