"""The offset log and the commit log: the batches of a query, and the settings that each batch pinned.

    offsets/<batch>:  "v1" LF  metadata JSON  (LF source offset JSON | "-")*
                      "v2" LF  metadata JSON  (LF source id ":" offset)*
    commits/<batch>:  "v1" LF  {"nextBatchWatermarkMs": n}
                      "v2" LF  {"nextBatchWatermarkMs": n, "stateUniqueIds": {operator: [[id per store]...]}}
                      "v3" LF  as v2, with "sinkMetadataMap": {sink's name: {...}}

The state after batch N is version N+1. A batch that is planned but not committed runs again when the query restarts.

Source: Spark's ``OffsetSeqLog`` and ``CommitLog``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.checkpoint.layout import is_unique_id
from ttlsnap.clock import describe_ahead
from ttlsnap.errors import CorruptionError, FencedError, UnsupportedError
from ttlsnap.printable import shell_word
from ttlsnap.quoting import quotes_nothing
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.storage.directory import Directory

FENCE_MARK = "ttlsnap fence"
COPY_MARK = f"{FENCE_MARK}: this copy is not complete"
MAX_LOG_BYTES = 64 << 20
# Offsets v2 need a setting of Spark 4.2. Commits v2 are checkpoint format 2, and v3 adds named sinks (Spark 4.3).
_OFFSET_VERSIONS, _COMMIT_VERSIONS = ("v1", "v2"), ("v1", "v2", "v3")
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
NO_OFFSET = "-"
"""What stands in the offset log for a source that has no offset yet."""
_DIGITS = re.compile(r"0*([0-9]+)")
_SOURCE_METADATA = "sourceMetadataInfo"
_MAX_OFFSET = 1 << 16  # characters of a source's offset
_MAX_PARSED_OFFSET = 4 << 20  # characters; 100,000 partitions of a topic have less
# FileStreamSourceOffset, the form of all sources that read files.
_LOG_OFFSET = re.compile(r'\{\s*"logOffset"\s*:\s*(0|[1-9][0-9]{0,18})\s*\}')
_OBJECT = re.compile(r'\{\s*("|$)')
_SOURCE = re.compile(r"\w+")  # DataStreamReader.name allows ASCII letters, digits and underscores
_MAX_MILLIS = ((1 << 63) - 1) // 1000  # the most that is still an int64 in microseconds


@dataclass(frozen=True)
class MicroBatch:
    """The log entries of one committed batch; times in milliseconds since the epoch.

    ``watermark_ms`` is the watermark that the batch ran with. It is None before the first watermark, for which Spark
    writes 0. ``next_watermark_ms`` is the watermark of the following batch. ``conf`` has the pinned settings.

    ``unique_ids`` (checkpoint format 2) has the ids of the state files: one id per store, for each operator and
    partition. ``log_version`` is the version of the offset log. ``sources`` is the number of sources that have offsets
    in it.
    """

    id: int
    watermark_ms: int | None
    timestamp_ms: int
    next_watermark_ms: int | None
    conf: Mapping[str, str] = field(default_factory=dict)
    unique_ids: Mapping[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    log_version: int = 1
    sources: int = 0

    @property
    def checkpoint_format(self) -> int:
        """The format of the checkpoint: 2 if the names of state files have ids, otherwise 1."""
        return 2 if self.unique_ids else 1


@dataclass(frozen=True)
class Logs:
    """The batches of a checkpoint: ``offsets`` and ``commits``, sorted, and the first line of a ``fence`` or None."""

    offsets: tuple[int, ...]
    commits: tuple[int, ...]
    fence: str | None

    @property
    def blocked(self) -> tuple[int, ...]:
        """The batches that were never run, and whose offsets keep an idle query from beginning them.

        A restore writes them (see ``backups.numbers``). They must stay as long as such a query may be there.
        """
        last_committed = max(self.commits, default=0)
        return tuple(batch for batch in sorted({*self.offsets} - {*self.commits}) if batch < last_committed)


def read_logs(files: Directory) -> Logs:
    """List both logs. The newest offset file is a fence if its first line begins with ttlsnap's mark."""
    offsets, commits = _numbers(files, layout.OFFSETS), _numbers(files, layout.COMMITS)
    fence = None
    if offsets:
        first_line = files.read(layout.offset_file(offsets[-1]), MAX_LOG_BYTES).split(b"\n", 1)[0]
        if first_line.startswith(FENCE_MARK.encode()):
            fence = first_line.decode("utf-8", "replace")
            offsets = offsets[:-1]
    return Logs(offsets, commits, fence)


def read_batch(files: Directory, batch: int) -> MicroBatch:
    """Read the log entries of a committed batch.

    Raises CorruptionError for a truncated or malformed file, UnsupportedError for an unknown log version.
    """
    offset_path, commit_path = layout.offset_file(batch), layout.commit_file(batch)
    lines = _offset_lines(files, offset_path)
    metadata = _offset_metadata(files, offset_path, lines)
    commit_lines = _lines(files, commit_path, _COMMIT_VERSIONS)
    commit_document = _json_object(files, commit_path, commit_lines[1] if len(commit_lines) > 1 else "")
    if "nextBatchWatermarkMs" not in commit_document:  # Spark would go back to a watermark of 0
        raise CorruptionError(f"{files.root}/{commit_path} is truncated: it has no nextBatchWatermarkMs")
    return MicroBatch(
        id=batch,
        # Spark writes 0 while the query has no watermark, or none that has moved.
        watermark_ms=_millis(files, offset_path, metadata, "batchWatermarkMs") or None,
        timestamp_ms=_millis(files, offset_path, metadata, "batchTimestampMs"),
        next_watermark_ms=_millis(files, commit_path, commit_document, "nextBatchWatermarkMs") or None,
        conf=metadata["conf"],
        unique_ids=_unique_ids(files, commit_path, commit_document.get("stateUniqueIds")),
        log_version=int(lines[0].strip()[1:]),
        sources=sum(1 for line in lines[2:] if line.strip()),
    )


def batch_time(files: Directory, batch: int) -> int:
    """Return when a batch began, in milliseconds since the epoch; raises as ``read_batch`` does."""
    return batch_start(files, batch).time_ms


@dataclass(frozen=True)
class BatchStart:
    """When a batch began, as ``batch_time``, the ``text`` of its offset log, and the text ``without_settings``."""

    time_ms: int
    text: str
    without_settings: str


def batch_start(files: Directory, batch: int) -> BatchStart:
    """Return what the offset log says about the start of a batch."""
    path = layout.offset_file(batch)
    lines = _offset_lines(files, path)
    metadata = _offset_metadata(files, path, lines)
    other_fields = json.dumps({name: metadata[name] for name in sorted(metadata) if name != "conf"})
    time_ms = _millis(files, path, metadata, "batchTimestampMs")
    return BatchStart(time_ms, "\n".join(lines), "\n".join([lines[0], other_fields, *lines[2:]]))


def with_conf(files: Directory, batch: int, conf: Mapping[str, str]) -> str:
    """Return the offset log entry of a batch with other settings; raises as ``read_batch`` does."""
    path = layout.offset_file(batch)
    lines = _offset_lines(files, path)
    metadata = _offset_metadata(files, path, lines)
    metadata["conf"] |= conf
    lines[1] = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    return "\n".join(lines)


def with_unique_ids(files: Directory, batch: int, ids: Mapping[int, Sequence[Sequence[str]]]) -> str:
    """Return the commit log entry of a batch with other ids of state files for some operators; without ids if empty.

    Only entries with ids need version 2, which Spark does not read if its session asks for checkpoint format 1.
    """
    path = layout.commit_file(batch)
    lines = _lines(files, path, _COMMIT_VERSIONS)
    commit_document = _json_object(files, path, lines[1]) if lines[1:] else {}
    known_ids = commit_document.pop("stateUniqueIds", None) or {}
    version = lines[0].strip()
    if ids:
        commit_document["stateUniqueIds"] = known_ids | {
            str(operator): partitions for operator, partitions in ids.items()
        }
        version = "v2" if version == "v1" else version
    # Version 2 has nothing but the ids beyond version 1. Version 3 also has the sinks.
    elif version == "v2":
        version = "v1"
    return "\n".join([version, json.dumps(commit_document, separators=(",", ":"), ensure_ascii=False), *lines[2:]])


def plan_next(files: Directory, batch: MicroBatch, conf: Mapping[str, str] | None = None) -> str:
    """Return the offset log entry of a batch after ``batch`` that has no data, with other settings if given.

    Spark itself plans such a batch when the watermark moved. The sources' offsets, the settings and the timestamp are
    those of ``batch``: the batch reads nothing, and fires no timer that has not fired yet. The watermark is the one
    that the commit of ``batch`` names as next.
    """
    path = layout.offset_file(batch.id)
    lines = _offset_lines(files, path)
    metadata = _offset_metadata(files, path, lines)
    metadata["batchWatermarkMs"] = max(batch.watermark_ms or 0, batch.next_watermark_ms or 0)
    metadata["conf"] |= conf or {}
    # The lines of the sources stay: if two batches have the same offsets, the second one reads nothing.
    lines[1] = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    return "\n".join(lines)


def source_positions(files: Directory, batch: int) -> list[Any]:
    """Return where each source reads on after a batch, in the source's own form: JSON, or a text that is not JSON."""
    return [parse_offset(line) for line in source_offsets(files, batch)]


def named_positions(files: Directory, batch: int) -> dict[str, Any]:
    """Return the same by the names of the sources, or else by their numbers; None for a source without an offset."""
    offsets = named_offsets(files, batch)
    return {name: None if offset == NO_OFFSET else parse_offset(offset) for name, offset in offsets.items()}


def named_offsets(files: Directory, batch: int) -> dict[str, str]:
    """Return the same as text, which is ``NO_OFFSET`` for a source without an offset.

    Raise CorruptionError also if there is no source at all: every query has one.
    """
    path = layout.offset_file(batch)
    offsets = dict(_named_offsets(_offset_lines(files, path)))
    if not offsets:
        raise CorruptionError(f"{files.root}/{path} is truncated: it has no offsets of sources")
    return offsets


def _named_offsets(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the offset of each source in an entry of the offset log.

    Version 1 has no names of sources: the number of the line is the number of the source. Later versions have the name,
    which is a number for a source without one, at the beginning of the line.
    """
    is_named = lines[0].strip() != "v1"
    for number, line in enumerate(map(str.strip, lines[2:])):
        if is_named and ":" in line:
            name, offset = line.split(":", 1)
            yield name, offset
        elif line:
            yield str(number), line


def parse_offset(text: str) -> Any:
    """Return an offset as JSON. What is not JSON, or very long, stays a text: a source may write anything."""
    if len(text) > _MAX_PARSED_OFFSET:
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text


def source_offsets(files: Directory, batch: int) -> list[str]:
    """Return the same as text."""
    lines = _offset_lines(files, layout.offset_file(batch))[2:]
    return [line.strip() for line in lines if line.strip()]


def names_sources(files: Directory, batch: int) -> bool:
    """Return whether each offset has the name of its source, and does not belong to it by its place."""
    return _offset_lines(files, layout.offset_file(batch))[0].strip() != "v1"


def read_file_logs(files: Directory, batch: int, positions_before: Mapping[str, int]) -> dict[str, int]:
    """Return the positions of sources that read files, in the sources' own logs, by the names of these logs' folders.

    ``positions_before`` has the positions at an earlier batch. Raises as ``read_batch`` does. Raises CorruptionError
    for an offset that is truncated or that its source did not write. The same is true of a position that is missing or
    lower than in ``positions_before``.
    """
    path = layout.offset_file(batch)
    lines = _offset_lines(files, path)
    is_named = lines[0].strip() != "v1"
    positions = {}
    for name, offset in _named_offsets(lines):
        try:
            position = _log_offset(offset)
        except ValueError as error:
            raise CorruptionError(f"{files.root}/{path}: the offset of source {name} {error}") from error
        if position is not None:
            if not _SOURCE.fullmatch(name):
                raise CorruptionError(f"{files.root}/{path}: {name[:80]!r} is not the name of a source")
            positions[name] = position
    for source, earlier_position in positions_before.items():
        if source not in positions:
            if is_named:
                continue  # the query may have another source now
            message = f"source {source} reads files, and its offset is gone, or is not one of such a source"
            raise CorruptionError(f"{files.root}/{path}: {message}")
        if positions[source] < earlier_position:
            message = f"source {source} is at {positions[source]} of its log, and had come to {earlier_position} before"
            raise CorruptionError(f"{files.root}/{path}: {message}")
    return positions


def with_file_logs(text: str, positions: Mapping[str, int]) -> str:
    """Return an entry of the offset log with other ``positions`` of sources that read files."""
    return with_offsets(text, {name: f'{{"logOffset":{position}}}' for name, position in positions.items()})


def with_offsets(text: str, offsets: Mapping[str, str]) -> str:
    """Return an entry of the offset log with other ``offsets`` of some sources, by the names of these."""
    lines = text.split("\n")
    is_named = lines[0].strip() != "v1"
    for number, line in enumerate(lines[2:]):
        name, separator, _ = line.partition(":") if is_named else (str(number), "", "")
        if name in offsets:
            lines[number + 2] = f"{name}{separator}{offsets[name]}" if is_named else offsets[name]
    return "\n".join(lines)


def with_source_names(text: str, names: Mapping[str, str], *, have_names: bool) -> str:
    """Return an entry of the offset log in version 2, with other ``names`` of sources by their old names or numbers.

    ``have_names`` says whether source evolution is on for the query. Raise UnsupportedError if the entry has more about
    its sources than their offsets.
    """
    lines = text.split("\n")
    metadata = json.loads(lines[1])
    if metadata.setdefault(_SOURCE_METADATA, {}):
        raise UnsupportedError(f"the offset log has {_SOURCE_METADATA}, which ttlsnap does not know")
    metadata["conf"][SOURCE_EVOLUTION] = str(have_names).lower()
    offsets = [f"{names.get(name, name)}:{offset}" for name, offset in _named_offsets(lines)]
    return "\n".join(["v2", json.dumps(metadata, separators=(",", ":"), ensure_ascii=False), *offsets])


def _log_offset(text: str) -> int | None:
    """Return the log position in the offset of a source that reads files; None for the offset of any other source.

    An offset of another source may have any form. Raises ValueError if an offset begins as a JSON object and does not
    end as one, or if the position is impossible.
    """
    if offset_match := _LOG_OFFSET.fullmatch(text):
        return int(offset_match[1])
    if not _OBJECT.match(text):
        return None
    if len(text) > _MAX_OFFSET:  # its parsed form could take thirty times as much memory
        if not text.endswith("}") or text.startswith('{"logOffset"'):
            raise ValueError(f"({text[:20]}...) is truncated, or not written by Spark")
        return None
    try:
        # A source's own parser may be as lenient. Floats, because int() limits the number of digits.
        offset = json.loads(text, strict=False, parse_int=float)
    except RecursionError:
        return None
    except ValueError as error:
        raise ValueError(f"is incomplete ({error})") from error
    if offset.keys() != {"logOffset"}:
        return None
    number = offset["logOffset"]
    if not isinstance(number, float) or not 0 <= number < 1 << 63:
        raise ValueError(f"is {text[:40]}, which is not an offset")
    return int(number)  # Spark reads 5.0 as 5


def read_conf(files: Directory, batch: int) -> Mapping[str, str]:
    """Return the settings that a planned or committed batch pinned; raises as ``read_batch`` does."""
    path = layout.offset_file(batch)
    conf: Mapping[str, str] = _offset_metadata(files, path, _offset_lines(files, path))["conf"]
    return conf


def shuffle_partitions(conf: Mapping[str, str]) -> int | None:
    """Return the number of partitions that a batch's settings pin, or None."""
    return layout.parse_number(conf.get(SHUFFLE_PARTITIONS, ""))


def _offset_lines(files: Directory, path: str) -> list[str]:
    lines = _lines(files, path, _OFFSET_VERSIONS)
    if len(lines) < 2 or (len(lines) == 2 and not lines[1]):
        raise CorruptionError(f"{files.root}/{path} is truncated: it ends after its first line")
    return lines


def _offset_metadata(files: Directory, path: str, lines: list[str]) -> dict[str, Any]:
    metadata = _json_object(files, path, lines[1])
    conf = metadata.get("conf")
    # In place of a missing setting, Spark takes that of the session, which may be another one.
    if not isinstance(conf, dict) or not conf or not all(isinstance(setting, str) for setting in conf.values()):
        raise CorruptionError(f"{files.root}/{path}: 'conf' is missing, or not an object of strings")
    if SHUFFLE_PARTITIONS not in conf and lines[0].strip() == "v1":  # Spark 4.2.0 leaves it out in version 2
        raise CorruptionError(f"{files.root}/{path}: 'conf' has no {SHUFFLE_PARTITIONS}")
    count_text = conf.get(SHUFFLE_PARTITIONS, "1")
    count_match = _DIGITS.fullmatch(count_text)
    if not (count_match and len(count_match[1]) < 10 and 0 < int(count_match[1]) <= layout.MAX_PARTITIONS):
        raise CorruptionError(f"{files.root}/{path}: {SHUFFLE_PARTITIONS} is {count_text[:40]}, which is impossible")
    return metadata


def _unique_ids(files: Directory, path: str, document: Any) -> dict[int, tuple[tuple[str, ...], ...]]:
    try:
        ids = {
            int(operator): tuple(tuple(stores) for stores in partitions)
            for operator, partitions in (document or {}).items()
        }
        invalid_ids = [
            unique_id
            for partitions in ids.values()
            for stores in partitions
            for unique_id in stores
            if not is_unique_id(unique_id)
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{files.root}/{path}: stateUniqueIds is not what Spark writes ({error})") from error
    if invalid_ids:
        raise CorruptionError(
            f"{files.root}/{path}: {invalid_ids[0]!r} in stateUniqueIds is not the id of a state file"
        )
    return ids


def _numbers(files: Directory, folder: str) -> tuple[int, ...]:
    numbers = (layout.parse_number(info.name) for info in files.list(folder) if not info.is_dir)
    return tuple(sorted(number for number in numbers if number is not None))


def _lines(files: Directory, path: str, known_versions: Sequence[str]) -> list[str]:
    """Return the lines of a log file, whose first line must be one of the ``known_versions``."""
    info = files.stat(path)
    if info is None or info.is_dir:
        words = f"{files.root}/{path} is missing; ttlsnap cannot read the batch without it"
        raise CorruptionError(quotes_nothing(words))
    # Spark refuses to start with such a file: "Incomplete log file".
    if info.size == 0:
        raise CorruptionError(f"{files.root}/{path} is empty: its content never reached the disk, or was truncated")
    try:
        lines = read_checked(files, path, MAX_LOG_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{files.root}/{path} is not text (byte {error.start})") from error
    version = lines[0].strip()
    if version not in known_versions:
        if version.startswith("v") and version[1:].isdigit():
            raise UnsupportedError(
                f"{files.root}/{path}: log version {version!r} is unknown (known: {', '.join(known_versions)})"
            )
        raise CorruptionError(f"{files.root}/{path}: the first line is {version[:40]!r}, not a log version")
    return lines


def _json_object(files: Directory, path: str, text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise CorruptionError(f"{files.root}/{path}: the second line is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CorruptionError(f"{files.root}/{path}: the second line is not a JSON object")
    return value


def _millis(files: Directory, path: str, values: Mapping[str, Any], name: str) -> int:
    value = values.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_MILLIS:
        raise CorruptionError(f"{files.root}/{path}: {name} is {str(value)[:40]}, not a number of milliseconds")
    return value


def find_future_watermark(batch: MicroBatch) -> tuple[str, str] | None:
    """Return the path of the log that shows a watermark in the future of a batch, and what is wrong; None if none is.

    The log is that of the batch, or that of its commit for the watermark of the next batch.
    """
    message = describe_ahead(batch.watermark_ms, batch.timestamp_ms)
    if message is not None:
        return layout.offset_file(batch.id), message
    message = describe_ahead(batch.next_watermark_ms, batch.timestamp_ms, "nextBatchWatermarkMs")
    return (layout.commit_file(batch.id), message) if message is not None else None


FUTURE_ADVICE = (
    "If the watermark is right, there is nothing to do. If not: Spark takes older rows for late and drops them, and "
    "the watermark never goes back. Runs refuse it as the clock of a TTL: name a time with --now (in a policy: now)"
)


def is_copy_fence(fence: str | None) -> bool:
    """Return whether a fence is that of a copy that is not complete."""
    return fence is not None and fence.startswith(COPY_MARK)


def fenced(files: Directory, fence: str | None) -> FencedError:
    """Return the error for a checkpoint with this fence.

    Its files are from two states, because a run has moved only some of them, or a copy does not have all of them.
    """
    if fence is not None and is_copy_fence(fence):
        return FencedError(f"{files.root} is a copy that is not complete{fence.removeprefix(COPY_MARK)}")
    return FencedError(
        f"{files.root} is fenced: a run is publishing, or was interrupted. If none is running: ttlsnap recover "
        f"{shell_word(files.root)}"
    )
