"""The work on one partition, and its result, as plain data that can be sent to another process or machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ttlsnap import errors
from ttlsnap.clock import Clock
from ttlsnap.documents import ReadableDocument
from ttlsnap.errors import TtlsnapError
from ttlsnap.operators.links import Link
from ttlsnap.quoting import Quoting
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import Rewrite, RewriteChoice, StagedFile, Staging, StateStore
from ttlsnap.transform.chain import StateResult
from ttlsnap.transform.protocols import TransformerFactory
from ttlsnap.written.history import History


@dataclass(frozen=True)
class PartitionTask:
    """One partition to compact, of one store or of several stores with ``links``.

    A transformer may see the ``states`` of a store. Its ``others`` are copied unchanged, or follow.
    New files are staged below ``staged_below`` in ``staging_root``; None in a dry run. ``scratch`` is the local folder
    for the work. ``expired_of`` is the run whose dropped entries are archived, or None. ``whole`` says that every store
    is written, even if nothing in it changes. ``show`` is how many dropped and rewritten entries the result contains.
    ``ages`` says that it counts the entries by age.
    ``history`` says when entries were written; None if nobody needs that. A ``run`` that is given writes new ledgers.
    """

    stores: tuple[StorePartition, ...]
    factories: tuple[TransformerFactory, ...]
    clock: Clock
    staging_root: str
    staged_below: str | None
    links: tuple[Link, ...] = ()
    rewrite: RewriteChoice = "auto"
    scratch: str | None = None
    expired_of: str | None = None
    whole: bool = False
    show: int = 0
    ages: bool = False
    history: History | None = None
    run: str | None = None

    def __str__(self) -> str:
        states = [state for store in self.stores for state in store.states]
        return str(states[0] if len(states) == 1 else replace(states[0], state="default"))

    @property
    def root(self) -> str:
        """The checkpoint."""
        return self.stores[0].root

    @property
    def operator(self) -> int:
        return self.stores[0].operator

    @property
    def partition(self) -> int:
        return self.stores[0].partition

    @property
    def state_store(self) -> StateStore:
        return self.stores[0].state_store

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return sum(store.size for store in self.stores)

    @property
    def staging(self) -> Staging | None:
        """The place for the new files; None in a dry run."""
        if self.staged_below is None:
            return None
        return Staging(open_directory(self.staging_root), self.staged_below)

    @property
    def directory(self) -> str:
        """The partition's folder in the first store."""
        return self.stores[0].directory


@dataclass(frozen=True)
class PartitionResult(ReadableDocument):
    """The result of one store's partition: counts of entries for each state, and bytes on disk before and after.

    ``staged`` are the new files; None if nothing changed (the partition keeps its files), and in a dry run. ``rewrite``
    says how it was written, or would be. ``reused`` and ``superseded`` are as in ``Written``. The result of the task's
    first store has ``expired``, the file with the dropped entries of all its stores, and the number of these that
    ``followed`` others. ``ledgers`` are the paths of the new ledgers. ``failure`` is an error's class name, its
    message, and the message without keys; the rest is then meaningless.
    """

    operator: int
    store: str
    partition: int
    states: tuple[StateResult, ...] = ()
    bytes_before: int = 0
    bytes_after: int = 0
    staged: tuple[StagedFile, ...] | None = None
    rewrite: Rewrite | None = None
    reused: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    expired: StagedFile | None = None
    followed: int = 0
    ledgers: tuple[str, ...] = ()
    failure: tuple[str, str, str] | None = None

    @property
    def entries(self) -> int:
        """The number of entries in all states."""
        return sum(state.entries for state in self.states)

    @property
    def dropped(self) -> int:
        """The number of dropped entries in all states."""
        return sum(state.dropped for state in self.states)

    def raise_failure(self) -> None:
        """Raise the error that stopped the partition, if one did."""
        if self.failure is not None:
            kind, *texts = self.failure
            raise getattr(errors, kind, TtlsnapError)(Quoting(*texts))


PartitionResults = tuple[PartitionResult, ...]
"""A task's results, one for each of its stores."""


Progress = Callable[[int, int], None]
"""A callback during the work on a partition, with the numbers of entries seen and dropped since the last call."""
