"""The names of a checkpoint's files: made and parsed here and nowhere else.

    offsets/<batch>  commits/<batch>                     one file a batch
    state/<operator>/_metadata/metadata                  operator metadata v1 (Spark 4.0 on)
    state/<operator>/_metadata/v2/<batch>                operator metadata v2
    state/<operator>/<partition>/[<store>/]<file>        a store; the default store has no folder
    state/<operator>/<partition>/[<store>/]SSTs/<file>   what its RocksDB snapshots share
    state/<operator>/0/[<store>/]_metadata/schema        state schema v1, v2
    _ttlsnap/runs/<run>/                                 what ttlsnap keeps of a run

Beside any file ``name`` there may be ``.name.crc`` (Hadoop's checksums) and ``name.crc`` (Spark's).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ttlsnap.filesystem import OWN

OFFSETS = "offsets"
COMMITS = "commits"
STATE = "state"
RUNS = f"{OWN}/runs"
DEFAULT_STORE = "default"
SSTS = "SSTs"
LOGS = "logs"
MAX_PARTITIONS = 1 << 20
"""No operator has more: a number of partitions is read from a file, and each is a folder."""
SHARED = (SSTS, LOGS)
"""The folders, within a store's, that hold what its RocksDB snapshots share."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}(?:[0-9a-f]{6})?")
_STATE_FILE = re.compile(r"(0|[1-9][0-9]{0,17})(?:_([0-9A-Za-z-]{1,64}))?\.(delta|snapshot|zip|changelog)")
_OPERATOR_METADATA = re.compile(rf"{STATE}/[0-9]+/_metadata/v2/[0-9]+")
_UNIQUE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def parse_number(name: str) -> int | None:
    """The batch, operator or partition that a name stands for; None for any other name."""
    return int(name) if _NUMBER.fullmatch(name) else None


class StateFileName(NamedTuple):
    """What the name of a state file says; ``unique_id`` is None where the checkpoint has no such ids."""

    version: int
    kind: str
    unique_id: str | None


def parse_state_file(name: str) -> StateFileName | None:
    """The parts of ``7.delta``, ``7.snapshot``, ``7.zip``, ``7.changelog`` or ``7_<id>.zip``; else None."""
    match = _STATE_FILE.fullmatch(name)
    return StateFileName(int(match[1]), match[3], match[2]) if match else None


def is_unique_id(text: str) -> bool:
    """Whether a text can be the id in the name of a state file."""
    return _UNIQUE_ID.fullmatch(text) is not None


SNAPSHOTS = ("snapshot", "zip")
"""What the names of snapshots end in."""


def outlives(path: str, version: int, *kinds: str) -> bool:
    """Whether a file that a batch after ``version`` left stays when that batch runs again, as its deltas do not.

    ``kinds`` are those of snapshots to look for; by default those of all stores.
    """
    parsed = parse_state_file(path.rpartition("/")[2])
    return parsed is not None and parsed.version > version and parsed.kind in (kinds or SNAPSHOTS)


def offset_file(batch: int) -> str:
    """The offset log's file of a batch."""
    return f"{OFFSETS}/{batch}"


def commit_file(batch: int) -> str:
    """The commit log's file of a batch."""
    return f"{COMMITS}/{batch}"


def operator_directory(operator: int) -> str:
    """The folder of a stateful operator."""
    return f"{STATE}/{operator}"


def store_directory(operator: int, partition: int, store: str) -> str:
    """The folder that holds one partition of one store."""
    base = f"{STATE}/{operator}/{partition}"
    return base if store == DEFAULT_STORE else f"{base}/{store}"


def is_operator_metadata(path: str) -> bool:
    """Whether a file is operator metadata v2, which has paths in it."""
    return _OPERATOR_METADATA.fullmatch(path) is not None


def checksum_files(path: str) -> tuple[str, str]:
    """The checksum files that may lie beside ``path``: Hadoop's hidden one and Spark's."""
    parent, _, name = path.rpartition("/")
    prefix = f"{parent}/" if parent else ""
    return f"{prefix}.{name}.crc", f"{prefix}{name}.crc"


def all_checksums(path: str) -> tuple[str, ...]:
    """All checksum files that may lie beside ``path``: those of a checksum file before it."""
    hadoop, spark = checksum_files(path)
    return (*checksum_files(spark), hadoop, spark)


def checksummed(path: str) -> str:
    """The file that a checksum file is about; any other name as it is."""
    parent, slash, name = path.rpartition("/")
    if name.endswith(".crc"):
        name = name.removeprefix(".")
    while name.endswith(".crc"):
        name = name.removesuffix(".crc")
    return f"{parent}{slash}{name}"


def is_run(name: str) -> bool:
    """Whether a folder below ``RUNS`` can be that of a run."""
    return _RUN.fullmatch(name) is not None


def run_directory(run: str) -> str:
    """Where ttlsnap keeps the journal, the staged files and the backup of a run."""
    return f"{RUNS}/{run}"
