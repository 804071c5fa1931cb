"""How state is laid out: one seam for both of Spark's state store providers.

A ``StateStore`` finds the files that make up one version of one partition, and opens them: its entries come in
batches, and a writer puts a new snapshot together from what is kept. Plain data goes in and out, so that the work on
a partition can cross to another process or machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from ttlsnap.errors import TtlsnapError, UnsupportedError
from ttlsnap.stores.lineage import Lineage

if TYPE_CHECKING:
    from ttlsnap.checkpoint import Checkpoint, Store
    from ttlsnap.filesystem import Directory
    from ttlsnap.state import StateDescriptor
    from ttlsnap.unsaferow.gather import Int64s, Mask
    from ttlsnap.unsaferow.rows import Rows

Rewrite = Literal["auto", "full", "tombstones"]
"""How a partition is written in which something changed: whole, or as what changed over the files there are."""

RewriteChoice = Rewrite | float
"""The same, or as what changed up to this share of a partition's entries, and whole beyond it."""


class Batch(Protocol):
    """Live entries of one state (a column family), in the order they are stored in."""

    def __len__(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def keys(self) -> Rows: ...
    @property
    def values(self) -> Rows: ...


@dataclass(frozen=True)
class Staging:
    """Where new files go at first: ``below`` a folder of ``files``, under the paths they will have."""

    files: Directory
    below: str

    def place(self, target: str) -> str:
        """Where the new file for ``target`` waits."""
        return f"{self.below}/{target}" if self.below else target


@dataclass(frozen=True)
class StagedFile:
    """A new file of ``size`` bytes that lies at ``path`` in the staging directory and belongs at ``target``.

    ``digest`` is the XXH3 (128 bits, hexadecimal) of its bytes, as the worker wrote them.
    """

    path: str
    target: str
    size: int
    digest: str


@dataclass(frozen=True)
class Written:
    """A new snapshot: ``size`` bytes on disk with the older files that it goes on using (``reused``).

    ``superseded`` are files of the old snapshot that no snapshot uses any more. ``files`` is empty in a dry run.
    """

    files: tuple[StagedFile, ...]
    size: int
    rewrite: Rewrite = "full"
    reused: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Moves:
    """Entries of a state whose keys begin with a number in order, that get another number and so another place.

    ``which`` of the state's n entries those are (bool[n]), ``numbers`` what they get (int64, one for each).
    """

    which: Mask
    numbers: Int64s


class SnapshotWriter(Protocol):
    """Makes a new snapshot of one partition out of its batches, which come in the order they were read.

    What it leaves behind when the block ends without ``finish`` is removed.
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: Any) -> None: ...
    def keep(self, batch: Any) -> None:
        """All entries of one of the partition's own batches, as they are."""
        ...

    def change(self, batch: Any, kept: Int64s, rewritten: Mask, values: Rows) -> None:
        """Of a batch only the entries ``kept`` (ascending), with new ``values`` for those that are ``rewritten``.

        Both have one item for each that is kept.
        """
        ...

    def finish(self) -> Written:
        """Complete the files, reopen them, and compare; raises CorruptionError if what was written is not in them."""
        ...


class StoredPartition(Protocol):
    """One version of one partition."""

    def batches(self, states: Mapping[str, StateDescriptor], only: str | None = None) -> Generator[Batch, None, None]:
        """Every live entry once, those of ``states`` as rows, the others as the bytes that are stored.

        With ``only`` the others than those of that state may be left out.

        Raises CorruptionError for a file that is missing, torn or damaged.
        """
        ...

    def writer(
        self,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Moves],
        changes: int = 0,
    ) -> SnapshotWriter:
        """A writer that stages its files, or in a dry run (None) leaves none.

        ``states`` are those that may change. Entries that move, by their state, it puts into their new places itself.
        ``changes`` is how many entries will change, as far as that is known.
        """
        ...


class StateStore(Protocol):
    """A provider's files, with the settings that a checkpoint pins for them. Picklable.

    ``effort`` is how many times as long as with the HDFS-backed store the work on a byte of its files takes.
    """

    effort: ClassVar[int]

    def find(self, files: Directory, directory: str, version: int, unique_id: str | None = None) -> Lineage:
        """The files of ``version`` in a partition's folder; raises CorruptionError when one is missing.

        ``unique_id`` tells apart several files of one version, where the commit log records it.
        """
        ...

    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, again: bool = False
    ) -> AbstractContextManager[StoredPartition]:
        """Open a partition; ``scratch`` is a local folder for the work, made if need be.

        ``again`` says that it will be scanned more than once, so that what was read may be worth keeping.
        """
        ...

    def damaged(
        self, files: Directory, lineage: Lineage, wanted: Collection[str], look: Look, scratch: str | None
    ) -> Iterator[tuple[str, TtlsnapError]]:
        """Read those files of a lineage that are ``wanted``, each by itself: the damaged ones, and what is wrong.

        ``look`` is shown the entries where a file's can be told without the others; what it raises is damage, too.
        """
        ...


Look = Callable[[str, "Rows", "Rows"], None]
"""Shown some entries of a state, their keys and values; may raise CorruptionError."""


def state_store(checkpoint: Checkpoint) -> StateStore:
    """The store of a checkpoint's provider; raises UnsupportedError for another, or for a setting that is unknown."""
    if checkpoint.provider == "hdfs":
        from ttlsnap.stores.hdfs import HdfsStore

        return HdfsStore.of(checkpoint)
    if checkpoint.provider == "rocksdb":
        from ttlsnap.stores.rocksdb import RocksDbStore

        return RocksDbStore.of(checkpoint)
    raise UnsupportedError(f"{checkpoint.target}: the state store provider {checkpoint.provider} is unknown")


def lineage_of(checkpoint: Checkpoint, state_store: StateStore, store: Store, partition: int) -> Lineage:
    """The files of one partition of ``store`` at the checkpoint's version."""
    unique_id = checkpoint.unique_id(store, partition)
    return state_store.find(checkpoint.files, store.directory(partition), checkpoint.version, unique_id)
