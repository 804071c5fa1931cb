"""Names of a checkpoint's files. Only this module makes and parses them.

    offsets/<batch>  commits/<batch>                     one file per batch
    state/<operator>/_metadata/metadata                  operator metadata v1 (Spark 4.0 on)
    state/<operator>/_metadata/v2/<batch>                operator metadata v2
    state/<operator>/<partition>/[<store>/]<file>        a store; the default store has no folder
    state/<operator>/<partition>/[<store>/]SSTs/<file>   files that its RocksDB snapshots share
    state/<operator>/0/[<store>/]_metadata/schema        state schema v1, v2
    _ttlsnap/runs/<run>/                                 the files of a run of ttlsnap

Beside any file ``name`` there may be ``.name.crc`` (Hadoop's checksums) and ``name.crc`` (Spark's).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ttlsnap.storage.directory import OWN

METADATA = "metadata"
SOURCES = "sources"
OFFSETS = "offsets"
COMMITS = "commits"
STATE = "state"
RUNS = f"{OWN}/runs"
LEDGERS = f"{OWN}/written"
DEFAULT_STORE = "default"
SSTS = "SSTs"
LOGS = "logs"
MAX_PARTITIONS = 1 << 20
"""The most partitions of an operator. The number is read from an untrusted file, and each partition is a folder."""
SHARED = (SSTS, LOGS)
"""Folders, within a store's folder, with the files that its RocksDB snapshots share."""
CONTENT = (OFFSETS, COMMITS, STATE, SOURCES)
"""The folders in which Spark keeps what it continues from."""

# Spark writes no leading zeros, but takes any name that Java parses as a long for a batch
# (HDFSMetadataLog.isBatchFile). ``starting`` looks for such names.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}(?:[0-9a-f]{6})?")
_UNFINISHED_COPY = re.compile(rf".+\.{_RUN.pattern}\.ttlsnap")
# The id is a UUID of Spark's, and only checkpoint format 2 has it.
_STATE_FILE = re.compile(r"(0|[1-9][0-9]{0,17})(?:_([0-9A-Za-z-]{1,64}))?\.(delta|snapshot|zip|changelog)")
# Spark writes ``.7.<uuid>.tmp`` and renames it to ``7`` (CheckpointFileManager.generateTempPath). Hadoop's checksum of
# that file begins with one more dot.
_LOG_NAME = re.compile(r"\.*(0|[1-9][0-9]{0,17})(?:\..*)?")
_STATE_NAME = re.compile(rf"\.*{_STATE_FILE.pattern}(?:\..*)?")
# The name of a state schema is ``<batch>_<uuid>``.
_METADATA_NAME = re.compile(r"\.*(0|[1-9][0-9]{0,17})(?:[._].*)?")
_OPERATOR_METADATA = re.compile(rf"{STATE}/[0-9]+/_metadata/v2/[0-9]+")
_UNIQUE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def parse_number(name: str) -> int | None:
    """Return the batch, operator or partition that a name denotes, or None for any other name."""
    return int(name) if _NUMBER.fullmatch(name) else None


def number_of_log(path: str) -> int:
    """Return the number in the name of a log's file; -1 for any other file, such as one with a checksum."""
    number = parse_number(path.rpartition("/")[2])
    return -1 if number is None else number


class StateFileName(NamedTuple):
    """The parts of a state file's name; ``unique_id`` is None if the checkpoint has no such ids."""

    version: int
    kind: str
    unique_id: str | None


def parse_state_file(name: str) -> StateFileName | None:
    """Return the parts of a name such as ``7.delta``, ``7.snapshot``, ``7.zip``, ``7.changelog`` or ``7_<id>.zip``.

    None for any other name.
    """
    match = _STATE_FILE.fullmatch(name)
    return StateFileName(int(match[1]), match[3], match[2]) if match else None


def is_unique_id(text: str) -> bool:
    """Return whether a text can be the id in the name of a state file."""
    return _UNIQUE_ID.fullmatch(text) is not None


_DELTAS = {"snapshot": "delta", "zip": "changelog"}
SNAPSHOTS = tuple(_DELTAS)
"""Extensions of snapshots."""


def is_newer_snapshot(path: str, version: int, *kinds: str) -> bool:
    """Return whether a file is a snapshot of a batch after ``version``, which stays when that batch runs again.

    The deltas of that batch do not stay. ``kinds`` are the kinds of snapshots to look for; by default those of all
    stores.
    """
    parsed_name = parse_state_file(path.rpartition("/")[2])
    return parsed_name is not None and parsed_name.version > version and parsed_name.kind in (kinds or SNAPSHOTS)


def delta_beside(path: str) -> str | None:
    """Return the path of the delta or changelog with the version and id of a snapshot; None for another file."""
    stem, _, kind = path.rpartition(".")
    return f"{stem}.{_DELTAS[kind]}" if kind in _DELTAS else None


def batch_of(path: str) -> int | None:
    """Return the batch that writes a file of the logs, the state, the operator metadata or the state schemas.

    Temporary files and checksum files belong to the same batch. None for a file whose name has no batch or version.
    """
    parts = path.split("/")
    name = parts[-1]
    if parts[0] in (OFFSETS, COMMITS):
        match = _LOG_NAME.fullmatch(name)
    elif parts[0] == STATE and len(parts) > 3 and parts[2] in ("_metadata", "_stateSchema"):
        match = _METADATA_NAME.fullmatch(name)
    else:
        match = _STATE_NAME.fullmatch(name) if parts[0] == STATE else None
        # The state after batch N has version N + 1.
        return int(match[1]) - 1 if match else None
    return int(match[1]) if match else None


def is_state_file(path: str) -> bool:
    """Return whether a path is a delta, a snapshot, a file that snapshots share, or a checksum of one of them."""
    parts = path.split("/")
    is_state = parse_state_file(strip_checksum(parts[-1])) is not None or (len(parts) > 1 and parts[-2] in SHARED)
    return parts[0] == STATE and "_metadata" not in parts and is_state


def offset_file(batch: int) -> str:
    """Return the path of a batch's file in the offset log."""
    return f"{OFFSETS}/{batch}"


def commit_file(batch: int) -> str:
    """Return the path of a batch's file in the commit log."""
    return f"{COMMITS}/{batch}"


def operator_directory(operator: int) -> str:
    """Return the folder of a stateful operator."""
    return f"{STATE}/{operator}"


def store_directory(operator: int, partition: int, store: str) -> str:
    """Return the folder of one partition of one store."""
    base = f"{STATE}/{operator}/{partition}"
    # The default store is where Spark 2.2 and earlier, which had no names of stores, kept their only one
    # (StateStoreId.storeCheckpointLocation).
    return base if store == DEFAULT_STORE else f"{base}/{store}"


def state_schema_directory(operator: int, store: str) -> str:
    """Return the folder of the state schemas of a store with column families."""
    return f"{operator_directory(operator)}/_stateSchema/{store}"


def is_operator_metadata(path: str) -> bool:
    """Return whether a file is operator metadata v2, which contains paths."""
    return _OPERATOR_METADATA.fullmatch(path) is not None


def checksum_files(path: str) -> tuple[str, str]:
    """Return the checksum files that may lie beside ``path``: Hadoop's hidden one and Spark's."""
    parent, _, name = path.rpartition("/")
    prefix = f"{parent}/" if parent else ""
    return f"{prefix}.{name}.crc", f"{prefix}{name}.crc"


def all_checksums(path: str) -> tuple[str, ...]:
    """Return all checksum files that may lie beside ``path``; the checksum files of a checksum file precede it."""
    hadoop_checksum, spark_checksum = checksum_files(path)
    # Hadoop's checksum of Spark's checksum file exists on local disks. If it stayed, it would be stale.
    return (*checksum_files(spark_checksum), hadoop_checksum, spark_checksum)


def strip_checksum(path: str) -> str:
    """Return the file that a checksum file belongs to; any other path is returned unchanged."""
    parent, slash, name = path.rpartition("/")
    if name.endswith(".crc"):
        name = name.removeprefix(".")
    while name.endswith(".crc"):
        name = name.removesuffix(".crc")
    return f"{parent}{slash}{name}"


def folder_of_ttlsnap(path: str) -> str | None:
    """Return the folder in which a path lies, or which it is, if the folder is ttlsnap's; otherwise None.

    Such a folder is ``_ttlsnap`` of a checkpoint, whose backups can look like checkpoints, or an unfinished copy
    (``<copy>.<run>.ttlsnap``).
    """
    parts = path.split("/")
    for number, part in enumerate(parts, 1):
        if part == OWN or _UNFINISHED_COPY.fullmatch(part):
            return "/".join(parts[:number])
    return None


def is_run(name: str) -> bool:
    """Return whether a folder in ``RUNS`` can be the folder of a run."""
    return _RUN.fullmatch(name) is not None


def newest_folder(names: Iterable[str], kind: str) -> str:
    """Return the newest of a run's folders of a kind, such as "backup".

    Who takes an interrupted run over gives its folders new names: ``backup``, ``backup-2``, ``backup-3``.
    """
    return max(
        (name for name in names if folder_number(name, kind)),
        key=lambda folder_name: folder_number(folder_name, kind),
        default=kind,
    )


def folder_number(name: str, kind: str) -> int:
    """Return the number of a run's folder, from 1; 0 for a folder of another kind."""
    match = re.fullmatch(rf"{kind}(?:-([1-9]\d{{0,8}}))?", name)
    return int(match[1] or 1) if match is not None else 0


def run_directory(run: str) -> str:
    """Return the folder with the journal, the staged files and the backup of a run."""
    return f"{RUNS}/{run}"
