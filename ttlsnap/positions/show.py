"""The public function ``sources``: where each source of a query stands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import Logs, fenced, named_positions, names_sources, read_logs
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.checkpoint.source_logs import UNREAD, list_source_log
from ttlsnap.errors import CorruptionError
from ttlsnap.keywords import public
from ttlsnap.positions.delta_tables import open_tables
from ttlsnap.positions.file_logs import FileLogs, explain_with_log
from ttlsnap.positions.kafka import connect, require_kafka
from ttlsnap.positions.kinds import find_kind
from ttlsnap.positions.report import SourceLogSize, SourcePosition, SourcesReport
from ttlsnap.publishing.liveness import planned_batch
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_for_reading

_PIECE = 8 << 20
_UNREAD = f'{UNREAD}"'.encode()
_MOST_COUNTED = 256 << 20
"""The bytes of a log above which its entries are not counted."""


@public
def sources(
    target: str,
    *,
    bootstrap_servers: str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    tables: Mapping[str, str] | None = None,
) -> SourcesReport:
    """Return the positions of all sources of a query after its last committed batch. The query may be running.

    ``bootstrap_servers`` are those of a Kafka cluster, and ``kafka_options`` the options of its client. With them, the
    report also says what the topics have. ``tables`` has the paths of Delta tables by the names of the sources that
    read them: then the report says what versions they have.

    Raise UsageError if ``target`` is not a checkpoint, or a path is not that of a table, FencedError if a run was
    interrupted, CorruptionError if a log is damaged, and StorageError if Kafka does not answer.
    """
    kafka = connect(bootstrap_servers, kafka_options)
    files, logs, batch, next_batch = open_logs(target)
    offsets = {} if batch is None else named_positions(files, batch)
    next_offsets = {} if next_batch is None else named_positions(files, next_batch)
    sizes = _measure_logs(files, batch if batch is not None else next_batch)
    if kafka is not None:
        require_kafka([*offsets.values(), *next_offsets.values()])
    present = {name: position for name, position in offsets.items() if position is not None}
    opened = open_tables(tables, {**next_offsets, **present})

    def look_at(name: str) -> SourcePosition:
        position, next_position = offsets.get(name), next_offsets.get(name)
        kind = find_kind(position if position is not None else next_position)
        return SourcePosition(
            name=name,
            kind=kind,
            position=position,
            next_position=next_position,
            log=sizes.get(name),
            partitions=kafka.ranges(position) if kafka is not None and kind == "kafka" and position else None,
            table=opened[name].look(position) if name in opened and position is not None else None,
        )

    runs = Runs.read(files)
    return SourcesReport(
        target=files.root,
        batch=batch,
        next_batch=next_batch,
        is_planned=next_batch is not None and next_batch == planned_batch(runs, logs),
        restored_batch=runs.find_restored(batch) if batch is not None else None,
        log_version=2 if names_sources(files, logs.offsets[-1]) else 1,
        sources=tuple(map(look_at, dict.fromkeys([*offsets, *next_offsets]))),
    )


def explain_rewind(target: str, batch: int) -> dict[str, list[str]]:
    """Return in words what the sources of a query read again if it goes back to ``batch``, by their names.

    Sources that have read nothing since then are left out.
    """
    files = open_for_reading(target)
    newest = max(read_logs(files).commits, default=batch)
    logs, earlier = FileLogs(files, newest), named_positions(files, batch)
    meanings = {}
    for name, position in named_positions(files, newest).items():
        before = earlier.get(name)
        if position is None or position == before:
            continue
        if before is None:
            meanings[name] = ["all that it has read is read again"]
        else:
            meanings[name] = explain_with_log(logs, name, position, before)
    return meanings


def open_logs(target: str) -> tuple[Directory, Logs, int | None, int | None]:
    """Return a checkpoint with its logs, the last batch that is committed, and the one after it if it has offsets.

    One of the two is not None. Raise as ``sources`` does.
    """
    files = open_for_reading(target)
    require_checkpoint(files, layout.OFFSETS)
    logs = read_logs(files)
    if logs.fence is not None:
        raise fenced(files, logs.fence)
    if not logs.offsets:
        raise CorruptionError(f"{files.root}/{layout.OFFSETS} is empty, so nothing shows what the query has read")
    batch, newest = max(logs.commits, default=None), logs.offsets[-1]
    if batch is not None and batch not in logs.offsets:
        raise CorruptionError(f"{files.root}/{layout.offset_file(batch)} is missing, although the batch is committed")
    return files, logs, batch, newest if batch is None or newest > batch else None


def _measure_logs(files: Directory, batch: int | None) -> dict[str, SourceLogSize]:
    """Return the sizes of the logs of sources that read files, by the names of the sources."""
    if batch is None:
        return {}
    logs = FileLogs(files, batch)
    owners = {name: logs.find(name) for name in logs.positions}
    return {name: _measure(files, log, logs.positions[name]) for name, log in owners.items() if log is not None}


def _measure(files: Directory, name: str, last_number: int) -> SourceLogSize:
    log = list_source_log(files, name, last_number)
    size = sum(log.files[file].size for file in log.read)
    is_counted = size <= _MOST_COUNTED
    entries = sum(_count_entries(files, f"{log.folder}/{file}") for file in log.read) if is_counted else None
    return SourceLogSize(folder=log.folder, files=len(log.read), bytes=size, entries=entries)


def _count_entries(files: Directory, path: str) -> int:
    """Return the number of lines that name a file. The first line is the version, and the last one has no end."""
    lines, unread, rest = 0, 0, b""
    with files.open(path) as file:
        for piece in iter(partial(file.read, _PIECE), b""):
            lines += piece.count(b"\n")
            piece = rest + piece  # the end of a path may be in two pieces
            unread, rest = unread + piece.count(_UNREAD), piece[1 - len(_UNREAD) :]
    return lines - unread
