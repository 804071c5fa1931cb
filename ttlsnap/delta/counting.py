"""The number of rows that a ``DELETE`` would drop, from the files' statistics, or from a column of the other files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ttlsnap.delta.log import DataFile
from ttlsnap.delta.planning import TablePlan
from ttlsnap.delta.reading import read_rows
from ttlsnap.delta.report import TableReport


def count_rows(plan: TablePlan, report: TableReport) -> TableReport:
    """Return the report with the counts, and with the number of files that had to be opened."""
    entries, dropped, files_opened = 0, 0, 0
    for file, decision in zip(plan.live, plan.decided, strict=True):
        rows = file.rows
        if decision is None or rows is None:
            dropped_rows, rows = _read(plan, file)
            files_opened += 1
        else:
            dropped_rows = rows if decision else 0
        entries, dropped = entries + rows, dropped + dropped_rows
    counts = replace(report.counts, entries=entries, kept=entries - dropped, dropped=dropped)
    return replace(report, counts=counts, opened=files_opened)


def _read(plan: TablePlan, file: DataFile) -> tuple[int, int]:
    """Return how many rows of a file would be dropped, and how many it has."""
    assert plan.cutoffs is not None
    columns = {cutoff.column.names[0]: cutoff.column for _, cutoff in plan.cutoffs}
    fields = [field for field in plan.table.metadata.schema if field.name in columns]
    dropped = rows = 0
    for batch in read_rows(plan.files, file, fields, by_id=plan.table.metadata.by_id):
        is_dropped = np.zeros(batch.num_rows, np.bool_)
        for _, cutoff in plan.cutoffs:
            is_dropped |= cutoff.mask(batch)
        dropped, rows = dropped + int(is_dropped.sum()), rows + batch.num_rows
    return dropped, rows
