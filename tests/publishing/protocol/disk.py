"""A checkpoint in the model: a map of paths to contents, and functions that read it.

    offsets/<n>                      "batch <n>" | "batch <n> again" | "planned by <run>" | "fence of <run>"
    commits/<n>                      the content of the batch's offsets
    sink/<n>                         the content of the offsets of the batch whose rows the sink has as batch n
    state/<p>/<v>.snapshot           Full   (HDFS-backed, or RocksDB with changelogs)
    state/<p>/<v>.delta              Delta
    state/<p>/<v>.zip                Full, with the tables that it names (RocksDB without changelogs)
    state/<p>/SSTs/<n>               a table; a higher number is a younger file
    state/<p>/.<...>.tmp             a temporary file of Spark
    runs/<run>/journal               Journal
    runs/<run>/staged/<path>         a new file
    runs/<run>/backup/<path>         an old file

Batch N is the last committed batch, and V is the version of its state. The partitions represent the partitions of a
store, and also linked stores of one partition. Both corrupt a query if one of them is old and the other is new.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

N = 1
V = N + 1
PARTITIONS = (0, 1)
MIXED, LOST = "a mixture", "files are missing"


class Disk(dict[str, Any]):
    """A map that is never changed in place."""

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.items()))

    def put(self, path: str, content: object) -> Disk:
        """Return this disk with one more file, or with another content of a file."""
        return Disk({**self, path: content})

    def without(self, *paths: str) -> Disk:
        """Return this disk without some files."""
        return Disk({path: content for path, content in self.items() if path not in paths})

    def moved(self, source: str, target: str) -> Disk:
        """Return this disk after a rename, which replaces a file at the target."""
        return self.without(source).put(target, self[source])

    @cached_property
    def begun(self) -> int:
        """Return the newest batch of the offset log, even if it is a fence."""
        return max((int(path[8:]) for path in self if path.startswith("offsets/")), default=-1)

    @cached_property
    def committed(self) -> int:
        """Return the newest batch of the commit log."""
        return max((int(path[8:]) for path in self if path.startswith("commits/")), default=-1)

    @cached_property
    def journals(self) -> list[Journal]:
        """Return all journals, oldest first."""
        return sorted(content for path, content in self.items() if path.endswith("/journal"))

    @cached_property
    def open_journal(self) -> Journal | None:
        """Return the journal of the interrupted run."""
        return next((journal for journal in self.journals if journal.status == "open"), None)

    @cached_property
    def last_done(self) -> Journal | None:
        """Return the journal of the last published run."""
        return next((journal for journal in reversed(self.journals) if journal.status == "done"), None)

    @cached_property
    def fence(self) -> int | None:
        """Return the run whose fence is the newest offset file."""
        text = self.get(offsets(self.begun), "")
        return int(text.split()[-1]) if text.startswith("fence") else None


class Full(NamedTuple):
    """The whole state of a partition. ``flavour`` says how it was computed, and ``tables`` which files it names.

    Flavours are ``old``, ``again`` (batch N was set back and run again) and ``old/3`` (``old``, compacted by run 3).
    """

    flavour: str
    tables: tuple[int, ...] = ()
    writer: int = -1  # the query that wrote it, which distinguishes it from an earlier file of the same content


class Delta(NamedTuple):
    """The changes of one batch, computed on the flavour ``base``."""

    base: str
    result: str
    writer: int = -1


class Move(NamedTuple):
    """One rename."""

    source: str
    target: str


class Journal(NamedTuple):
    """The changes of one run, like ``publishing.journal.Journal``. Only the model has ``before``: the old contents."""

    run: int
    kind: str  # compact | rollback | repair
    batch: int
    fence: str
    moves: tuple[Move, ...]
    status: str = "open"  # open | done | undone
    undoes: int = 0
    replaces: str = ""  # the planned batch of the run ``undoes``, which the fence replaces
    published: tuple[tuple[str, Any], ...] = ()
    logs: tuple[tuple[str, Any], ...] = ()
    preserved: tuple[str, ...] = ()
    plans: bool = False
    before: tuple[tuple[str, Any], ...] = ()

    @property
    def to_backup(self) -> tuple[Move, ...]:
        """Return the moves that move old files to the backup."""
        return tuple(move for move in self.moves if move.target.startswith("runs/"))

    @property
    def new(self) -> tuple[Move, ...]:
        """Return the moves that bring files to their places."""
        return tuple(move for move in self.moves if not move.target.startswith("runs/"))


def offsets(batch: int) -> str:
    """Return the offset file of a batch."""
    return f"offsets/{batch}"


def commits(batch: int) -> str:
    """Return the commit file of a batch."""
    return f"commits/{batch}"


def full(partition: int, version: int, kind: str) -> str:
    """Return the snapshot of a version. ``kind`` is the end of its name."""
    return f"state/{partition}/{version}.{kind}"


def delta(partition: int, version: int) -> str:
    """Return the delta of a version."""
    return f"state/{partition}/{version}.delta"


def table(partition: int, number: int) -> str:
    """Return a table of RocksDB."""
    return f"state/{partition}/SSTs/{number}"


def staged(run: int, path: str) -> str:
    """Return the place where the new file for ``path`` is staged."""
    return f"runs/{run}/staged/{path}"


def backup(run: int, path: str) -> str:
    """Return the place of the old file of ``path`` in a run's backup."""
    return f"runs/{run}/backup/{path}"


def is_done(disk: Disk, move: Move) -> bool:
    """Return whether a move has been carried out, judged by its end in the run's folder."""
    return move.target in disk if move.target.startswith("runs/") else move.source not in disk


def activity(disk: Disk) -> frozenset[tuple[str, Any]]:
    """Return the files that a running query changes: logs, state files, temporary files."""
    return frozenset((p, c) for p, c in disk.items() if p[:7] in ("offsets", "commits") or is_state(p))


def is_state(path: str) -> bool:
    """Return whether a file is in the folder of a partition. Tables have their own folder."""
    return path.startswith("state") and "SSTs" not in path


def version_of(path: str) -> int:
    """Return the version of a state file, or 0 for any other file."""
    name = path.rpartition("/")[2].partition(".")[0]
    return int(name) if is_state(path) and name else 0


def is_snapshot(path: str, version: int) -> bool:
    """Return whether a file is a snapshot of this version."""
    return version_of(path) == version and not path.endswith("delta")


def temporary(path: str) -> str:
    """Return the temporary file through which Spark's maintenance writes a snapshot."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.tmp"


def load(disk: Disk, partition: int, version: int, kind: str, *, misread: bool = False) -> str:
    """Return the flavour of a partition's state as Spark loads it. MIXED means a wrong state, and LOST a failure.

    With ``misread`` Spark fails to read the snapshot of this version, and starts from an older one.
    """
    start = version - misread
    while kind == "snapshot" and start and full(partition, start, kind) not in disk:
        start -= 1
    found: Full | None = disk.get(full(partition, start, kind))
    if found is None or any(table(partition, number) not in disk for number in found.tables):
        return LOST
    flavour = found.flavour
    for later in range(start + 1, version + 1):
        change: Delta | None = disk.get(delta(partition, later))
        if change is None:
            return LOST
        flavour = change.result if change.base == flavour else MIXED
    return flavour


def load_all(disk: Disk, version: int, kind: str) -> str:
    """Return the flavour of all partitions, or MIXED or LOST if they do not have the same one."""
    found = {load(disk, partition, version, kind) for partition in PARTITIONS}
    return found.pop() if len(found) == 1 else LOST if LOST in found else MIXED


def named_tables(disk: Disk, partition: int, apart_from: Iterable[str] = ()) -> set[int]:
    """Return the tables that the zips of a partition name."""
    zips = [p for p in disk if p.startswith(f"state/{partition}/") and p.endswith(".zip") and p not in apart_from]
    return {number for path in zips for number in disk[path].tables}


def rewritten(disk: Disk, journal: Journal) -> list[str]:
    """Return the files of a run, published or still staged, whose content has changed."""
    ends = {move.target: move.target if is_done(disk, move) else move.source for move in journal.new}
    return [path for path, content in journal.published if disk.get(ends.get(path, path)) != content]


def unclear(disk: Disk, journal: Journal) -> list[str]:
    """Return old files that a new file seems to replace, although the backup does not have the old file."""
    come = {move.target for move in journal.new if move.source not in disk and move.target in disk}
    return [move.source for move in journal.to_backup if move.source in come and move.target not in disk]


def was_run_again(disk: Disk, journal: Journal) -> bool:
    """Return whether the logs of the run's batch have changed, because it was set back and perhaps run again."""
    return any(disk.get(path) != content for path, content in journal.logs)


def shadows(disk: Disk) -> list[str]:
    """Return ttlsnap's snapshots that hide a batch which was set back, as ``doctor`` can recognise them."""
    return sorted(
        path
        for journal in disk.journals
        if journal.kind == "compact" and journal.status != "undone" and was_run_again(disk, journal)
        for path, content in journal.published
        if is_snapshot(path, journal.batch + 1) and disk.get(path) == content
    )


def has_state(disk: Disk, batch: int) -> bool:
    """Return whether Spark has begun to run a batch, so that state of it exists."""
    return any(version_of(path) == batch + 1 for path in disk)


def find_held_tables(disk: Disk, run: int) -> set[str]:
    """Return the tables in a run's backup that a zip names and that are missing in their places."""
    needed = {table(partition, number) for partition in PARTITIONS for number in named_tables(disk, partition)}
    return {path for path in needed if path not in disk and backup(run, path) in disk}
