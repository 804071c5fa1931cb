"""Times of imported rows that Spark would never find: it looks only for those since the last batch.

From 4.2 on, Spark scans its indexes by time from the clock of the last batch on. An expiry time or a timer before it
would stay for ever.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ttlsnap.entries.json_text import json_texts
from ttlsnap.imports.conforming import EXAMPLES, Misfits
from ttlsnap.imports.tables import ImportTable
from ttlsnap.operators.join import TimedSide
from ttlsnap.operators.join_rows import times_of_rows
from ttlsnap.operators.transform_with_state import Timers, Variable
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers

_MS = 1000  # microseconds


@dataclass
class Untimely:
    """What was found in a batch: values that have expired, bool[n], timers that are due, and rows that are late."""

    expired: Mask | None = None
    misfits: Misfits = field(default_factory=Misfits)
    warnings: Counter[str] = field(default_factory=Counter)


def find_untimely(table: ImportTable, keys: Rows, values: Rows, watermark_ms: int | None, batch_ms: int) -> Untimely:
    """Return what is too early in some rows. The times are those of the last batch."""
    untimely, link = Untimely(), table.link
    if isinstance(link, Variable) and link.index is not None:
        is_expired = read_numbers(values, 2, 1) <= batch_ms
        untimely.expired = is_expired if is_expired.any() else None
    elif isinstance(link, Timers):
        clock = batch_ms if table.state.state.startswith("$proc") else watermark_ms
        times = read_numbers(keys, 2, 1)
        due_rows = np.flatnonzero(times <= clock) if clock is not None else np.zeros(0, np.int64)
        if len(due_rows):
            due_keys = json_texts(decode(keys.take(due_rows[:EXAMPLES]), table.state.key_schema)).to_pylist()
            reason = f"{table.name}: the timer is due before the next batch, and Spark 4.2 would never fire it"
            untimely.misfits.add(reason, len(due_rows), [f"{table.name}: {key}" for key in due_keys])
    elif isinstance(link, TimedSide) and watermark_ms is not None:
        late = int((times_of_rows(table.state, values, table.state.value_schema) < watermark_ms * _MS).sum())
        if late:
            untimely.warnings[f"{table.name}: rows are behind the watermark, and Spark may never evict them"] += late
    return untimely
