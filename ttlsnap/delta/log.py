"""The transaction log of a Delta table, read without a JVM: protocol, metadata, data files and commits.

    _delta_log/00000000000000000012.json                                 a commit: an action on each line
    _delta_log/00000000000000000010.checkpoint.parquet                   all actions up to there, a column for each kind
    _delta_log/00000000000000000010.checkpoint.0000000001.0000000002.parquet     the same in parts
    _delta_log/00000000000000000010.checkpoint.<uuid>.json or .parquet   the same with files in others (V2)

The newest protocol and the newest metadata count: those of the newest checkpoint, and of the commits after it.

Dangers: Delta removes the oldest commits. So without a checkpoint the first commit must exist, and with one the commit
after it; a gap could hide a newer schema. If a catalog holds the commits, the log is not complete.

``docs/delta.md`` explains why ``deltalake`` does not read the log here.

Source: delta-io/delta, PROTOCOL.md, and tables of Delta 4.4.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.errors import BusyError, CorruptionError, NotACheckpointError, UnsupportedError, UsageError, require_damage
from ttlsnap.schema.json import parse_struct
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.schema.types import StructType
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_local
from ttlsnap.storage.uris import is_local
from ttlsnap.suggestions import did_you_mean

LOG = "_delta_log"
_IN_COMMIT = "inCommitTimestamp"
KEY = "ttlsnap.key"
"""The table property that names the columns of a row's key, with commas between, or as an array in JSON."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-fA-F-]{36})?\.(json|parquet)")
_ELSEWHERE = ("catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits-preview")
_CHANGES = re.compile(rb'"dataChange"\s*:\s*true')
_MAX_LINE = 64 << 20
_HEAD = 64
_ACTION_BYTES = 1000  # memory for an action. Its path is unique, so it takes some bytes of a checkpoint
_CHECKPOINT_BYTES = 64 << 20  # what the actions of a small checkpoint may need


@dataclass(frozen=True)
class Protocol:
    """The versions and features that readers and writers must support. Features are sorted, and empty before 3 or 7."""

    reader: int
    writer: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableMetadata:
    """The schema and the properties of a table."""

    id: str
    schema: StructType
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_id(self) -> bool:
        """Whether the columns of data files are found by their ids. Otherwise an id in a file has no meaning."""
        return self.properties.get("delta.columnMapping.mode") == "id"

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of a row's key, if the table has recorded them."""
        text = self.properties.get(KEY, "")
        if text.startswith("["):
            with contextlib.suppress(ValueError, TypeError):
                return tuple(require_type(name, str) for name in require_type(parse_json(text), list))
        return tuple(name.strip() for name in text.split(",") if name.strip())

    def key_of(self, key_names: Sequence[str], table: str) -> tuple[str, ...]:
        """Return the columns ``key_names`` of a key, as the table spells them; by default those that it has recorded.

        Raise UsageError for a column that the table does not have.
        """
        spelling_of = {name.lower(): name for name in self.schema.names}  # to Spark's SQL they are the same
        for name in key_names or self.key:
            if name.lower() not in spelling_of:
                columns = ", ".join(self.schema.names)
                hint = did_you_mean(name, self.schema.names)
                raise UsageError(f"{table} has no column {name}{hint}; its columns are {columns}")
        return tuple(dict.fromkeys(spelling_of[name.lower()] for name in key_names or self.key))


@dataclass(frozen=True)
class TableState:
    """A table as of its newest version."""

    version: int
    protocol: Protocol
    metadata: TableMetadata


def key_property(names: Sequence[str]) -> str:
    """Return the value of the property that names these columns."""
    has_plain_names = all(name == name.strip() and "," not in name and not name.startswith("[") for name in names)
    return ",".join(names) if has_plain_names else json.dumps(list(names))


def set_key(names: Sequence[str]) -> str:
    """Return the part of an ``ALTER TABLE`` statement that sets this property."""
    value = key_property(names).replace("\\", "\\\\").replace("'", "\\'")
    return f"SET TBLPROPERTIES ('{KEY}' = '{value}')"


def is_table(files: Directory) -> bool:
    """Return whether the directory is that of a Delta table."""
    return files.stat(LOG) is not None


def open_table(target: str) -> LocalDirectory:
    """Return the folder of a table. Raise UnsupportedError if it is not on a file system of this machine."""
    if not is_local(target):
        raise UnsupportedError(
            f"{target} is a Delta table in an object store or HDFS. ttlsnap supports tables on file systems only"
        )
    return open_local(target)


def read_table(files: Directory) -> TableState:
    """Return the newest version of a table.

    Raise NotACheckpointError for a folder that is not a table, CorruptionError for a log with a gap or without protocol
    or metadata, and UnsupportedError if a catalog holds the commits.
    """
    names = [info.name for info in files.list(LOG)]
    commits = sorted(int(name_match[1]) for name in names if (name_match := _COMMIT.fullmatch(name)))
    checkpoint, part_names = _newest_checkpoint(names)
    if not commits and not part_names:
        raise NotACheckpointError(f"{files.root} is not a Delta table: its {LOG} has no commit")
    later_versions = [version for version in commits if checkpoint is None or version > checkpoint]
    first_version = 0 if checkpoint is None else checkpoint + 1
    if later_versions != list(range(first_version, first_version + len(later_versions))):
        missing_version = next(
            version for version in range(first_version, later_versions[-1]) if version not in later_versions
        )
        raise CorruptionError(f"{files.root}/{LOG}/{missing_version:020d}.json is missing; newer versions need it")
    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    for name in [*part_names, *(f"{version:020d}.json" for version in later_versions)]:
        for kind, action in _actions(files, f"{LOG}/{name}"):
            if kind == "protocol":
                protocol = action
            else:
                metadata = action
    if protocol is None or metadata is None:
        raise CorruptionError(f"{files.root}/{LOG} names no {'protocol' if protocol is None else 'metadata'}")
    try:
        log_actions = _protocol(protocol), _metadata(metadata)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptionError(f"{files.root}/{LOG}: its protocol or metadata has an unknown form: {error!r}") from error
    catalog_features = [
        name for name in _ELSEWHERE if name in (*log_actions[0].reader_features, *log_actions[0].writer_features)
    ]
    if catalog_features:
        raise UnsupportedError(
            f"{files.root}: a catalog, not the log, holds the commits of this table ({catalog_features[0]})"
        )
    return TableState(later_versions[-1] if later_versions else (checkpoint or 0), *log_actions)


def first_commit(files: Directory, newest: int) -> int:
    """Return the first version whose changes the log still has, up to the ``newest`` without a gap.

    It is the version after the newest if Delta has removed the commits of all.
    """
    commits = {int(match[1]) for info in files.list(LOG) if (match := _COMMIT.fullmatch(info.name))}
    first = newest + 1
    while first - 1 in commits:
        first -= 1
    return first


def first_whole(files: Directory, first: int) -> int:
    """Return the oldest version that can still be read as a whole. ``first`` is the one that ``first_commit`` returns.

    Each table that ``read_table`` can read has such a version.
    """
    if first == 0:
        return 0
    checkpoints = _complete_checkpoints([info.name for info in files.list(LOG)])
    return min(version for version in checkpoints if version >= first - 1)


def _newest_checkpoint(names: list[str]) -> tuple[int | None, list[str]]:
    """Return the version of the newest complete checkpoint, and its files. Several of one version are equivalent."""
    complete_checkpoints = _complete_checkpoints(names)
    newest = max(complete_checkpoints, default=None)
    return newest, complete_checkpoints[newest] if newest is not None else []


def _complete_checkpoints(names: list[str]) -> dict[int, list[str]]:
    """Return the names of the files of each complete checkpoint, by its version."""
    complete_checkpoints: dict[int, list[str]] = {}
    parts_of_checkpoint: dict[tuple[int, int], list[str]] = {}
    for name in names:
        name_match = _CHECKPOINT.fullmatch(name)
        if name_match is None:
            continue
        version = int(name_match[1])
        if name_match[3] is None:
            complete_checkpoints[version] = [name]
            continue
        count = int(name_match[3])
        part_names = parts_of_checkpoint.setdefault((version, count), [])
        part_names.append(name)
        # A writer that died can leave only some parts of a checkpoint.
        if len(part_names) == count:
            complete_checkpoints.setdefault(version, part_names)
    return complete_checkpoints


def _actions(files: Directory, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the protocol and metadata actions of a file of the log, with their kinds."""
    kinds = ("protocol", "metaData")
    if path.endswith(".parquet"):
        for row in _parquet_rows(files, path, kinds):
            yield from ((kind, row[kind]) for kind in kinds if kind in row)
        return
    for line in _lines(files, path):
        # An action's kind comes first; most are of files, and there may be a million of them.
        if b'"protocol"' in line[:_HEAD] or b'"metaData"' in line[:_HEAD]:
            value = _parse_action(files, path, line)
            yield from ((kind, value[kind]) for kind in kinds if kind in value)


def _lines(files: Directory, path: str) -> Iterator[bytes]:
    with files.open(path) as stream:
        while line := stream.readline(_MAX_LINE):
            if len(line) == _MAX_LINE:
                raise CorruptionError(f"{files.root}/{path} has a line of more than {_MAX_LINE} bytes")
            yield line


def _parse_action(files: Directory, path: str, line: bytes) -> dict[str, dict[str, Any]]:
    """Return the action of a line, by its kind."""
    try:
        return {kind: require_type(action, dict) for kind, action in require_type(parse_json(line), dict).items()}
    except (ValueError, TypeError) as error:
        raise CorruptionError(f"{files.root}/{path} has a line that is not an action: {error}") from error


def _parquet_rows(files: Directory, path: str, kinds: tuple[str, ...]) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the actions of these kinds in a checkpoint, each by its kind."""
    import pyarrow as pa  # a log without a checkpoint is read in no time, and a look at a checkpoint of Spark's, too

    from ttlsnap.storage.parquet import ParquetRows, size_of

    try:
        with files.open(path) as stream:
            parquet = ParquetRows(stream, size_of(files, path), f"{files.root}/{path}", _CHECKPOINT_BYTES)
            columns = [name for name in kinds if name in parquet.schema.names]
            for batch in parquet.batches(columns, constants=_ACTION_BYTES):
                for kind in columns:
                    column = batch.column(kind)
                    yield from ({kind: row} for row in column.filter(column.is_valid()).to_pylist())
    except (pa.ArrowException, OSError, ValueError) as error:  # whatever a damaged file makes of Arrow
        require_damage(error, f"{files.root}/{path}")
        raise CorruptionError(f"{files.root}/{path} is not a checkpoint of the log: {str(error)[:200]}") from error


def _protocol(action: dict[str, Any]) -> Protocol:
    features = [tuple(sorted(map(str, action.get(name) or ()))) for name in ("readerFeatures", "writerFeatures")]
    return Protocol(int(action["minReaderVersion"]), int(action["minWriterVersion"]), *features)


def _metadata(action: dict[str, Any]) -> TableMetadata:
    configuration = dict(action.get("configuration") or {})
    return TableMetadata(
        id=str(action["id"]),
        schema=parse_struct(str(action["schemaString"])),
        partition_columns=tuple(map(str, action["partitionColumns"])),
        properties={str(name): str(value) for name, value in configuration.items()},
    )


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    ``path`` is percent-encoded and relative to the table, or a URI, as in the log. ``partition`` has the values of the
    partition columns as text, by their physical names. ``stats`` has the log's statistics of the columns, or nothing.
    ``vector`` describes the deletion vector of its ``deleted`` rows. ``modified_ms`` is the time of its creation, in
    milliseconds since the epoch.
    """

    path: str
    size: int
    partition: Mapping[str, str | None]
    stats: Mapping[str, Any]
    vector: Mapping[str, Any] | None = None
    modified_ms: int = 0

    @property
    def deleted(self) -> int:
        """The number of its rows that a deletion vector marks as deleted."""
        return 0 if self.vector is None else int(self.vector["cardinality"])

    @property
    def rows(self) -> int | None:
        """The number of its rows that are not deleted; None if the log does not have it."""
        count = self.stats.get("numRecords")
        return int(count) - self.deleted if isinstance(count, int) else None


def newest_version(files: Directory) -> int:
    """Return the number of the last commit; -1 if there is none."""
    return max(
        (int(name_match[1]) for info in files.list(LOG) if (name_match := _COMMIT.fullmatch(info.name))), default=-1
    )


def find_gap(files: Directory, version: int) -> str | None:
    """Return the path of a commit that a version needs and that the log no longer has; None if there is none."""
    names = [info.name for info in files.list(LOG)]
    versions = {int(name_match[1]) for name in names if (name_match := _COMMIT.fullmatch(name))}
    checkpoint, _ = _newest_checkpoint([name for name in names if _version_of(name) <= version])
    first_version = 0 if checkpoint is None else checkpoint + 1
    missing_version = next((number for number in range(first_version, version + 1) if number not in versions), None)
    return None if missing_version is None else f"{LOG}/{missing_version:020d}.json"


def _version_of(name: str) -> int:
    """Return the version of a file of the log; -1 for another file."""
    name_match = _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)
    return -1 if name_match is None else int(name_match[1])


def live_files(files: Directory, version: int) -> list[DataFile]:
    """Return the data files of a version that ``read_table`` has returned."""
    names = [info.name for info in files.list(LOG) if _version_of(info.name) <= version]
    checkpoint, part_names = _newest_checkpoint(names)
    live: dict[tuple[str, str], DataFile] = {}
    for name in part_names:
        for action in _read_added_files(files, f"{LOG}/{name}"):
            live[_identity(action)] = _data_file(files, action)
    for name in sorted(names):
        name_match = _COMMIT.fullmatch(name)
        if name_match is None or (checkpoint is not None and int(name_match[1]) <= checkpoint):
            continue
        for line in _lines(files, f"{LOG}/{name}"):
            if b'"add"' not in line[:_HEAD] and b'"remove"' not in line[:_HEAD]:
                continue
            actions = _parse_action(files, f"{LOG}/{name}", line)
            if "add" in actions:
                live[_identity(actions["add"])] = _data_file(files, actions["add"])
            elif "remove" in actions:
                live.pop(_identity(actions["remove"]), None)
    return list(live.values())


def added_files(files: Directory, version: int) -> Iterator[str]:
    """Yield the paths of the data files that a commit has added with new rows, as they stand in it."""
    path = f"{LOG}/{version:020d}.json"
    for line in _lines(files, path):
        if b'"add"' in line[:_HEAD]:
            action = _parse_action(files, path, line).get("add", {})
            if action.get("dataChange"):
                yield str(action.get("path"))


def _read_added_files(files: Directory, path: str) -> Iterator[dict[str, Any]]:
    """Yield the files that a checkpoint and its sidecars name."""
    sidecars: list[str] = []
    rows = (
        (_parse_action(files, path, line) for line in _lines(files, path))
        if path.endswith(".json")
        else _parquet_rows(files, path, ("add", "sidecar"))
    )
    for row in rows:
        if "add" in row:
            yield row["add"]
        if "sidecar" in row:
            sidecars.append(str(row["sidecar"]["path"]))
    for name in dict.fromkeys(sidecars):
        yield from (row["add"] for row in _parquet_rows(files, f"{LOG}/_sidecars/{name.rpartition('/')[2]}", ("add",)))


def _identity(action: Mapping[str, Any]) -> tuple[str, str]:
    """Return the identity of a file's entry: with a deletion vector, the same file is another entry."""
    vector = action.get("deletionVector") or {}
    vector_parts = (vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset"))
    return str(action["path"]), "" if not vector else ":".join(map(str, vector_parts))


def _data_file(files: Directory, action: Mapping[str, Any]) -> DataFile:
    text = action.get("stats")
    try:
        stats = parse_json(text) if text else {}
        vector = action.get("deletionVector")
        if vector is not None:
            require_type(vector["cardinality"], int)
        return DataFile(
            path=str(action["path"]),
            size=int(action["size"]),
            partition=dict(action.get("partitionValues") or {}),
            stats=stats if isinstance(stats, dict) else {},
            vector=vector,
            modified_ms=int(action["modificationTime"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{files.root}/{LOG}: the entry of a file has an unknown form: {error!r}") from error


@dataclass(frozen=True)
class Commit:
    """A commit of a table: its time in milliseconds since the epoch, and its writer's information.

    ``path`` is its file.
    """

    version: int
    path: str
    timestamp_ms: int | None = None
    operation: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    user_metadata: str | None = None


def commits(files: Directory) -> Iterator[Commit]:
    """Yield the log's commits, newest first. One without its writer's information has only its number."""
    names = (_COMMIT.fullmatch(info.name) for info in files.list(LOG))
    for version in sorted((int(name_match[1]) for name_match in names if name_match), reverse=True):
        path = f"{LOG}/{version:020d}.json"
        info = _read_info(files, path)
        # With in-commit timestamps, this time counts, and never goes back (PROTOCOL.md).
        moment, metrics = info.get(_IN_COMMIT, info.get("timestamp")), info.get("operationMetrics")
        user = info.get("userMetadata")
        yield Commit(
            version,
            path,
            moment if isinstance(moment, int) else None,
            str(info.get("operation", "")),
            {str(name): str(value) for name, value in metrics.items()} if isinstance(metrics, dict) else {},
            user if isinstance(user, str) else None,
        )


def _read_info(files: Directory, path: str) -> dict[str, Any]:
    """Return what the writer of a commit says about it."""
    for line in _lines(files, path):
        if b'"commitInfo"' in line[:_HEAD]:
            info = _parse_action(files, path, line).get("commitInfo")
            return info if isinstance(info, dict) else {}
    return {}


def first_since(files: Directory, state: TableState, first: int, moment_ms: int) -> int:
    """Return the first version from ``first`` on that was committed at a moment or later, in milliseconds.

    It is the version after the newest if there is none. As for Delta (``DeltaHistoryManager``), a commit has the time
    of its file, unless the table has in-commit timestamps. Raise BusyError if Delta removes a commit at the same time.
    """
    times_ms = {info.name: info.mtime_ns // 1_000_000 for info in files.list(LOG)}
    in_commits = state.metadata.properties.get("delta.enableInCommitTimestamps") == "true"
    for version in range(first, state.version + 1):
        name = f"{version:020d}.json"
        if name not in times_ms:
            raise BusyError(f"{files.root}/{LOG}/{name} was removed while ttlsnap read the log. Repeat the command")
        moment = _read_info(files, f"{LOG}/{name}").get(_IN_COMMIT) if in_commits else None
        if (moment if isinstance(moment, int) else times_ms[name]) >= moment_ms:
            return version
    return state.version + 1


def changes_data(files: Directory, commit: Commit) -> bool:
    """Return whether a commit added or removed rows. Rewriting files and changing properties do not."""
    return any(_CHANGES.search(line) for line in _lines(files, commit.path))
