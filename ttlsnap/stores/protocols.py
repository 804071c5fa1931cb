"""Interface of a state store, the same for both of Spark's providers.

A ``StateStore`` finds the files of one version of one partition, and opens them. The entries are read in batches. A
``SnapshotWriter`` writes a new snapshot from the kept entries. Everything is plain data, so that the work on a
partition can be sent to another process or machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from ttlsnap.errors import TtlsnapError
from ttlsnap.stores.families import NO_FAMILY_CHANGES, FamilyChanges
from ttlsnap.stores.lineage import Lineage, StateFile

if TYPE_CHECKING:
    from ttlsnap.entries.descriptor import StateDescriptor
    from ttlsnap.storage.directory import Directory
    from ttlsnap.unsaferow.gather import Int64s, Mask
    from ttlsnap.unsaferow.rows import Rows

Rewrite = Literal["auto", "full", "tombstones"]
"""How a changed partition is written: in full, or as tombstones, which are the changes over the existing files.

``auto`` chooses between them.
"""


RewriteChoice = Rewrite | float
"""The same, or the largest share of changed entries for which a partition is written as tombstones."""


@dataclass(frozen=True, eq=False)
class StoredSizes:
    """The bytes of n entries as they are stored.

    ``keys`` and ``records`` have the bytes of each stored key and of the value beside it. ``values`` has those of the
    value of each entry, int64[n]. They are the same as ``records``, except in a state of lists: there each element is
    an entry, and ``owner`` has the number of its key (int64[n], ascending).
    """

    keys: Int64s
    records: Int64s
    values: Int64s
    owner: Int64s | None = None


class EntryBatch(Protocol):
    """Live entries of one state (a column family), in stored order."""

    def __len__(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def keys(self) -> Rows: ...
    @property
    def values(self) -> Rows: ...
    @property
    def stored(self) -> tuple[Rows, Rows, Rows]:
        """The stored keys and values, and the row of each stored key."""
        ...

    @property
    def sizes(self) -> StoredSizes: ...


@dataclass(frozen=True)
class Staging:
    """The place where new files wait: the folder ``below`` in ``files``, under their final paths."""

    files: Directory
    below: str

    def place(self, target: str) -> str:
        """Return the path where the new file for ``target`` waits."""
        return f"{self.below}/{target}" if self.below else target


@dataclass(frozen=True)
class StagedFile:
    """A new file of ``size`` bytes at ``path`` in the staging directory, which belongs at ``target``.

    ``digest`` is the XXH3 (128 bits, hexadecimal) of its bytes, as the worker wrote them.
    """

    path: str
    target: str
    size: int
    digest: str


@dataclass(frozen=True)
class Written:
    """A new snapshot; ``size`` is its bytes on disk, including the older files that it still uses (``reused``).

    ``superseded`` has files of the old snapshot that no snapshot uses any more. ``files`` is empty in a dry run.
    """

    files: tuple[StagedFile, ...]
    size: int
    rewrite: Rewrite = "full"
    reused: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Renumbering:
    """Entries of a state that get another ordered number at the start of their keys, and therefore another place.

    ``which`` marks them among the state's n entries (bool[n]). ``numbers`` has their new numbers (int64, one for each).
    """

    which: Mask
    numbers: Int64s


class SnapshotWriter(Protocol):
    """Writer of a new snapshot of one partition; its batches come in the order in which they were read.

    If the block ends without ``finish``, the writer removes its files.
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: Any) -> None: ...
    def keep(self, batch: Any) -> None:
        """Write all entries of one of the partition's own batches unchanged."""
        ...

    def change(self, batch: Any, kept: Int64s, rewritten: Mask, values: Rows) -> None:
        """Write only the entries ``kept`` (ascending) of a batch, with new ``values`` for those that are ``rewritten``.

        ``rewritten`` and ``values`` have one item for each kept entry.
        """
        ...

    def finish(self) -> Written:
        """Complete the files, reopen them, and compare; raises CorruptionError if they differ from what was written."""
        ...


class PartitionBuilder(Protocol):
    """A new partition, with the settings of an old one."""

    def put(self, keys: Rows, values: Rows) -> None:
        """Add entries as they are stored, in any order."""
        ...

    def finish(self) -> Written:
        """See ``SnapshotWriter.finish``."""
        ...


class StoredPartition(Protocol):
    """One version of one partition. ``families`` are its column families by the ids in its keys, if keys have ids."""

    @property
    def families(self) -> Mapping[int, str]: ...

    def batches(
        self, states: Mapping[str, StateDescriptor], only: str | None = None
    ) -> Generator[EntryBatch, None, None]:
        """Yield every live entry once: those of ``states`` as rows, the others as the stored bytes.

        With ``only``, entries of other states may be omitted.

        Raises CorruptionError for a file that is missing, truncated or damaged.
        """
        ...

    def change(self, batch: Any, state: StateDescriptor, kept: Int64s, rewritten: Mask, values: Rows) -> EntryBatch:
        """Return the kept entries of a batch as the store would hold them; see ``SnapshotWriter.change``."""
        ...

    def moved(self, states: Mapping[str, StateDescriptor], moves: Mapping[str, Renumbering]) -> Iterator[EntryBatch]:
        """Yield the entries that ``moves`` gives new numbers, by state, as the store would then hold them."""
        ...

    def writer(
        self,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
        changes: int = 0,
    ) -> SnapshotWriter:
        """Return a writer that stages its files; in a dry run (``staging`` is None) it leaves no files.

        ``states`` has the states that may change. The writer itself puts the entries of ``moves``, given by state, into
        their new places. ``changes`` is the number of entries that will change, as far as it is known.
        """
        ...


class StateStore(Protocol):
    """Files of a provider, with the settings that a checkpoint pins for them. Picklable.

    ``codec`` compresses deltas and changelogs. With ``row_checksums`` each row has a checksum. ``relative_cost`` is
    the time to process a byte of its files, as a multiple of the HDFS-backed store's time.
    """

    provider: ClassVar[str]
    relative_cost: ClassVar[int]

    @property
    def codec(self) -> str: ...
    @property
    def row_checksums(self) -> bool: ...

    def snapshot_name(self, version: int, unique_id: str | None) -> str:
        """Return the file name of a snapshot."""
        ...

    def encode(
        self,
        state: StateDescriptor,
        keys: Rows,
        values: Rows,
        *,
        family: int | None = None,
        owner: Int64s | None = None,
    ) -> tuple[Rows, Rows]:
        """Return entries as they are stored, from their rows; raises UnsupportedError for a state it cannot hold.

        ``family`` is the id of the column family, if keys have one. In a state of lists, ``owner`` has the number of
        the list of each element; there is a key for each list.
        """
        ...

    def decode(self, state: StateDescriptor, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        """Return the rows of entries that ``encode`` made; raises CorruptionError if a checksum does not match."""
        ...

    def find(self, files: Directory, directory: str, version: int, unique_id: str | None = None) -> Lineage:
        """Return the files of ``version`` in a partition's folder; raises CorruptionError if one is missing.

        ``unique_id`` selects one of several files of a version, if the commit log records it.
        """
        ...

    def build(
        self,
        files: Directory,
        like: Lineage,
        target: str,
        staging: Staging | None,
        scratch: str | None,
        changes: FamilyChanges = NO_FAMILY_CHANGES,
    ) -> AbstractContextManager[PartitionBuilder]:
        """Build the snapshot ``target`` of a partition that is new, with the settings of the partition ``like``.

        ``changes`` are those of its column families.
        """
        ...

    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, keep_in_memory: bool = False
    ) -> AbstractContextManager[StoredPartition]:
        """Open a partition; ``scratch`` is a local folder for the work, created if needed.

        ``keep_in_memory`` says that the partition will be scanned more than once, so that it may keep its entries.
        """
        ...

    def writes(
        self, files: Directory, lineage: Lineage, states: Mapping[str, StateDescriptor]
    ) -> Iterator[tuple[StateFile, Iterator[tuple[str, Rows]]]]:
        """Yield the deltas or changelogs that are retained without a gap, newest first.

        Each is yielded with the keys that it put, as rows, by state. Raise CorruptionError for a damaged file.
        """
        ...

    def find_damaged(
        self, files: Directory, lineage: Lineage, paths: Collection[str], look: Look, scratch: str | None
    ) -> Iterator[tuple[str, TtlsnapError]]:
        """Read each of the files ``paths`` of a lineage separately, and yield the damaged ones with their errors.

        ``look`` gets the entries of a file if they can be read without the other files. An error from ``look`` is
        damage, too.
        """
        ...


Look = Callable[[str, "Rows", "Rows"], None]
"""Function that gets a state and the keys and values of some of its entries; may raise CorruptionError."""
