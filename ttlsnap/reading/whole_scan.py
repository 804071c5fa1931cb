"""The complete scan of one version of a partition: every row is decoded, every link checked, every count compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from ttlsnap.compaction.task import Progress
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.operators.links import Link, StateId
from ttlsnap.operators.work import begin_work
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StateStore
from ttlsnap.stores.scan import scan_partition
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.unsaferow.rows import Rows


class UnfitError(CorruptionError):
    """Damage of a known kind."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def scan_version(
    files: Directory,
    lineages: Mapping[str, Lineage],
    state_store: StateStore,
    states: Mapping[StateId, StateDescriptor],
    links: Sequence[Link],
    scratch: str | None = None,
    progress: Progress = lambda entries, dropped: None,
    look_at_keys: Callable[[StateId, Rows], None] = lambda place, keys: None,
    look_at_unknown: Callable[[StateId], None] = lambda place: None,
) -> int:
    """Read one version of a partition completely, and check all links. Return the number of its entries.

    ``look_at_keys`` gets the keys of each state. ``look_at_unknown`` gets the name of each state whose entries are not
    decoded, because ``states`` does not have it.

    Raise CorruptionError if a row does not fit its schema, or linked entries do not match.
    """
    partition_folder = next(iter(lineages.values())).new_snapshot.rpartition("/")[0]
    links_with_work = [(link, begin_work(link, f"{files.root}/{partition_folder}")) for link in links]
    entries = 0
    with contextlib.ExitStack() as stack:
        for store, lineage in lineages.items():
            stored_partition = stack.enter_context(state_store.open(files, lineage, scratch))
            states_of_store = {
                name: state for (store_of_state, name), state in states.items() if store_of_state == store
            }
            for batch, state in scan_partition(stored_partition, states_of_store, check=check_whole_rows):
                entries += len(batch)
                progress(len(batch), 0)
                if state is None:
                    look_at_unknown((store, batch.state))
                else:
                    look_at_keys(state.place, batch.keys)
                for link, work in links_with_work:
                    if state is not None and state.place in link.places:
                        with _raise_as("broken-links"):
                            work.look(state.place, batch.keys, batch.values)
        for _, work in links_with_work:
            with _raise_as("broken-links"):
                work.resolve({}, _fetch_nothing)
    return entries


@contextlib.contextmanager
def _raise_as(code: str) -> Iterator[None]:
    try:
        yield
    except CorruptionError as error:
        raise UnfitError(code, str(error)) from error


def check_whole_rows(state: StateDescriptor, keys: Rows, values: Rows) -> None:
    """Raise CorruptionError unless every field of every row can be decoded."""
    with _raise_as("row-does-not-fit-schema"):
        for side, rows, schema in (("key", keys, state.key_schema), ("value", values, state.value_schema)):
            try:
                check_rows(rows, schema)
                decode(rows, schema)
            except CorruptionError as error:
                raise CorruptionError(f"{state}: a {side} does not fit its schema: {error}") from error


def _fetch_nothing(place: StateId, mask: Mask) -> Rows:
    raise AssertionError(f"the values of {place} are not needed, since nothing is written")
