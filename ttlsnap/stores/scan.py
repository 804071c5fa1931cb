"""The scan of a partition: every batch of its entries, with rows that have been checked against their schemas."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from types import MappingProxyType

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.stores.protocols import EntryBatch, StoredPartition
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.rows import Rows

CheckBatch = Callable[[StateDescriptor, Rows, Rows], None]
"""Function that raises CorruptionError if the keys and values of a batch do not fit the schemas of their state."""


def check_batch(state: StateDescriptor, keys: Rows, values: Rows) -> None:
    """Raise CorruptionError if keys or values have sizes that their schemas do not allow."""
    check_rows(keys, state.key_schema)
    check_rows(values, state.value_schema)


def scan_partition(
    partition: StoredPartition,
    states: Mapping[str, StateDescriptor],
    *,
    only: str | None = None,
    check: CheckBatch | None = check_batch,
    with_rows: Mapping[str, StateDescriptor] = MappingProxyType({}),
) -> Generator[tuple[EntryBatch, StateDescriptor | None], None, None]:
    """Yield each batch of live entries with the descriptor of its state, or None if ``states`` does not have it.

    ``only`` limits the scan to one state. ``check`` examines each batch that has a descriptor. It can be None if an
    earlier scan has checked the rows. The batches of the states ``with_rows`` have rows, too. Read the generator to its
    end, or close it before the partition.
    """
    with contextlib.closing(partition.batches({**with_rows, **states}, only=only)) as batches:
        for batch in batches:
            if only is not None and batch.state != only:
                continue
            state = states.get(batch.state)
            if state is not None and check is not None:
                check(state, batch.keys, batch.values)
            yield batch, state


@contextlib.contextmanager
def locate_errors(where: str) -> Iterator[None]:
    """Add the partition to an error about its rows, which knows only the position in a batch.

    ``where`` is its folder, and perhaps its version. An error that names the folder stays as it is.
    """
    try:
        yield
    except CorruptionError as error:
        if where.partition(", version ")[0] in str(error):
            raise
        raise CorruptionError(f"{where}: " + error.text) from error
