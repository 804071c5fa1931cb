"""What it means that a source gets another position: which rows it reads again, and which it never reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint.logs import NO_OFFSET
from ttlsnap.clock import iso
from ttlsnap.errors import UsageError
from ttlsnap.positions.kinds import BASES_OF_DELTA, TITLES, Kind, describe, find_kind

_MOST_CHARACTERS = 1 << 20
_LONGEST_EXAMPLE = 400


def parse_position(name: str, before: Any, wanted: Any) -> Any:
    """Return the new position of a source whose offset is ``before``. Raise UsageError if it cannot be one.

    Spark would not start with the offset of a source of another kind. And it would read all of a partition of Kafka
    that has no offset. So each one that has an offset must have a new one, or None if the topic has lost it.
    """
    if before is None:
        raise UsageError(f"source {name} has no position yet. Start the query, and let it commit a batch")
    kind = find_kind(before)
    after = json.loads(_to_json(name, wanted))
    if kind == "kafka":
        after = _without_lost(name, before, after)
    if isinstance(after, str) and kind not in ("kafka", "other"):
        raise UsageError(
            f"source {name} is of the kind {TITLES[kind]}. Its position is one like {json.dumps(before)}: earliest, "
            "latest and times are only possible for Kafka and Delta"
        )
    other_kind = find_kind(after)
    if kind != other_kind or (kind == "other" and type(before) is not type(after)):
        what = f"; it has the form of one of {TITLES[other_kind]}" if other_kind != "other" else ""
        example = json.dumps(before, ensure_ascii=False)
        raise UsageError(
            f"source {name}: this is not a position of a source of the kind {TITLES[kind]}{what}. Write one like "
            + (example if len(example) <= _LONGEST_EXAMPLE else "that in: ttlsnap sources CHECKPOINT --format json")
        )
    if impossible := _find_impossible(kind, after):
        raise UsageError(f"source {name}: {impossible}. An offset is 0 or more, and less than 2^63")
    if kind == "delta" and before["sourceVersion"] != after["sourceVersion"]:
        raise UsageError(f"source {name}: the sourceVersion of its offsets is {before['sourceVersion']}")
    if kind == "files" and after["logOffset"] > before["logOffset"]:
        raise UsageError(
            f"source {name}: a source of files can only go back, here from entry {before['logOffset']}. To undo the "
            "last run, use ttlsnap rollback"
        )
    return after


def _without_lost(name: str, before: Mapping[str, Any], wanted: Any) -> Any:
    """Return a position of Kafka without the topics and partitions that are None."""
    if not isinstance(wanted, dict):
        return wanted
    after = {}
    for topic, partitions in wanted.items():
        if isinstance(partitions, dict):
            missing = sorted(before.get(topic, {}).keys() - partitions.keys(), key=int)
            if missing:
                raise _not_named(name, f"topic {topic} without its partition {missing[0]}", "partition")
            after[topic] = {number: offset for number, offset in partitions.items() if offset is not None}
        elif partitions is not None:
            return wanted
    other_topics = sorted(before.keys() - wanted.keys())
    if other_topics and before.keys() & wanted.keys():
        raise _not_named(name, f"no topic {other_topics[0]}", "topic")
    if not any(after.values()):
        raise UsageError(f"source {name}: the new position has no offset. Give at least one")
    return {topic: partitions for topic, partitions in after.items() if partitions}


def _not_named(name: str, what: str, unit: str) -> UsageError:
    return UsageError(
        f"source {name}: the new position has {what}. If the query still has it, Spark would read all of it. Give an "
        f"offset for every {unit}, and null for one that is gone"
    )


def as_offset(name: str, position: Any, old_offset: str) -> str:
    """Return a position of a source as it stands in the offset log, where ``old_offset`` has stood.

    Raise UsageError for one that cannot stand there.
    """
    is_text = isinstance(position, str) and not old_offset.startswith('"')
    text = position if is_text else _to_json(name, position)
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"source {name}: the new position has more than {_MOST_CHARACTERS:,} characters")
    if text in ("", NO_OFFSET) or text != text.strip() or len(text.splitlines()) != 1:
        raise UsageError(f"source {name}: the new position is empty, or not one line without spaces at its ends")
    return str(text)


def _to_json(name: str, position: Any) -> str:
    """Return a position as JSON in one line. Raise UsageError if it cannot be JSON."""
    try:
        text = json.dumps(position, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"source {name}: the new position is not JSON ({error})") from error
    return text


def explain(before: Any, after: Any, recorded: int | None = None) -> list[str]:
    """Return what it means that a source goes on at ``after`` in place of ``before``, in one line for each part.

    ``recorded`` is the number of files that the log of a source of files has between the two, if that is known.
    """
    if recorded is not None:
        return [f"{quantity(recorded, 'file is', 'files are')} read again"]
    return list(_MEANINGS.get(find_kind(before), _explain_other)(before, after))


def _find_impossible(kind: Kind, position: Any) -> str | None:
    numbers: dict[str, int] = {}
    if kind == "kafka":
        for topic, partitions in position.items():
            numbers |= {f"partition {number} of {topic}": offset for number, offset in partitions.items()}
    elif kind == "files":
        numbers = {"logOffset": position["logOffset"]}
    elif kind == "delta":
        numbers = {"reservoirVersion": position["reservoirVersion"]}
    elif kind == "number":
        numbers = {"it": position}
    elif kind == "rate-micro-batch":
        numbers = dict(position)
    wrong = [name for name, number in numbers.items() if not 0 <= number < 1 << 63]
    return f"{wrong[0]} has the offset {numbers[wrong[0]]}" if wrong else None


def _explain_kafka(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for topic in sorted(before.keys() - after.keys()):
        yield f"{topic} has no position any more. If the query still reads this topic, Spark reads all of it"
    for topic in sorted(after.keys() - before.keys()):
        yield f"a new topic: {describe({topic: after[topic]})[0]}"
    for topic in sorted(before.keys() & after.keys()):
        yield from _explain_topic(topic, before[topic], after[topic])


def _explain_topic(topic: str, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    steps = [after[partition] - offset for partition, offset in before.items() if partition in after]
    back, ahead = -sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    if back:
        yield f"{topic}: {quantity(back, 'offset is', 'offsets are')} read again"
    if ahead:
        yield f"{topic}: {quantity(ahead, 'offset is', 'offsets are')} never read"
    for partition in sorted(after.keys() - before.keys(), key=int):
        yield f"{topic}: partition {partition} is read from offset {after[partition]}"
    for partition in sorted(before.keys() - after.keys(), key=int):
        yield f"{topic}: partition {partition} has no position any more. If the topic has it, Spark reads all of it"


def _explain_files(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    old, new = before["logOffset"], after["logOffset"]
    if new < old:
        yield f"the files of {quantity(old - new, 'entry', 'entries')} of its log are read again"


def _explain_number(before: int, after: int) -> Iterator[str]:
    if before != after:
        amount = quantity(abs(after - before), "step")
        yield f"it goes back by {amount}" if after < before else f"it skips {amount}"


def _explain_delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["reservoirId"] != after["reservoirId"]:
        yield f"another table: {describe(after)[0]}"
        return
    if after["isStartingVersion"] and after["index"] in BASES_OF_DELTA:
        yield f"all rows of the table are read again: {describe(after)[0]}"
        return
    if before["isStartingVersion"] and not after["isStartingVersion"]:
        version, first = before["reservoirVersion"], after["reservoirVersion"]
        yield f"it has read only a part of the table as of version {version}. The rest is never read"
        if first <= version:
            yield f"what the versions {first} to {version} have added is read, also if it has read this already"
        else:
            yield f"what comes before this is never read, either: {describe(after)[0]}"
        return
    places = [(position["reservoirVersion"], position["index"]) for position in (before, after)]
    if places[1] < places[0]:
        yield f"it goes back to {describe(after)[0]}"
    elif places[1] > places[0]:
        yield f"what comes before this is never read: {describe(after)[0]}"


def _explain_rate(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    rows = after["offset"] - before["offset"]
    if rows:
        effect = "read again" if rows < 0 else "never read"
        yield f"{quantity(abs(rows), 'row is', 'rows are')} {effect}"
    if after["timestamp"] != before["timestamp"]:
        yield f"the next row has the time {iso(after['timestamp'] * 1000)}"


def _explain_other(before: Any, after: Any) -> Iterator[str]:
    if before != after:
        yield "ttlsnap does not know what rows lie between the two positions of such a source"


_MEANINGS: Mapping[Kind, Callable[[Any, Any], Iterator[str]]] = {
    "delta": _explain_delta,
    "files": _explain_files,
    "kafka": _explain_kafka,
    "number": _explain_number,
    "rate-micro-batch": _explain_rate,
}
