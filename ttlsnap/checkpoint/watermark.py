"""A watermark in the future, to which a single event with a wrong time has moved it."""

from __future__ import annotations

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import MicroBatch
from ttlsnap.clock import describe_ahead


def find_future_watermark(batch: MicroBatch) -> tuple[str, str] | None:
    """Return the path of the log that shows a watermark in the future of a batch, and what is wrong; None if none is.

    The log is that of the batch, or that of its commit for the watermark of the next batch.
    """
    words = describe_ahead(batch.watermark_ms, batch.timestamp_ms)
    if words is not None:
        return layout.offset_file(batch.id), words
    words = describe_ahead(batch.next_watermark_ms, batch.timestamp_ms, "nextBatchWatermarkMs")
    return (layout.commit_file(batch.id), words) if words is not None else None


FUTURE_ADVICE = (
    "If the watermark is right, there is nothing to do. If not: Spark takes older rows for late and drops them, and "
    "the watermark never goes back. Runs refuse it as the clock of a TTL: name a time with --now (in a policy: now)"
)
