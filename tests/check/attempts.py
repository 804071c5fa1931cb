"""One run of one side of a pair, inside a Spark session: its rows, or the error with which Spark refused it."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from .pairs import PAIRS
from .queries import EVENTS, START

_PATIENCE_S = 90
_DEEPEST = 20
_CODE = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*)\]")
# This is a fault of the machine, not of the query.
_TOO_BUSY = "Python worker failed to connect back"
# These codes only wrap the error that is the cause.
_WRAPPERS = (
    "STREAM_FAILED",
    "FOREACH_BATCH_USER_FUNCTION_ERROR",
    "FAILED_EXECUTE_UDF",
    "PYTHON_EXCEPTION",
    "CANNOT_LOAD_STATE_STORE",
    "CANNOT_WRITE_STATE_STORE",
    "TASK_WRITE_FAILED",
)


def attempt(spark: Any, pair: str, side: int, checkpoint: str, source: str, out: str) -> dict[str, Any]:
    """Run the old (0) or the new (1) query of a pair over the rest of the source, in a session of its own."""
    asked = PAIRS[pair]
    query = (asked.old, asked.new)[side]
    session = spark.newSession()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    for name, value in {**settings, **asked.settings[side]}.items():
        session.conf.set(name, value)
    rows: list[Any] = []
    failures: list[Exception] = []

    def collect(frame: Any, batch: int) -> None:
        try:
            rows.extend([_plain(value) for value in row] for row in frame.collect())
        except Exception as failure:
            failures.append(failure)
            raise

    stream = None
    try:
        result = query.build(session.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(source))
        writer = result.writeStream.outputMode(asked.modes[side] or query.mode).option("checkpointLocation", checkpoint)
        writer = writer.trigger(once=True) if query.once else writer.trigger(availableNow=True)
        if asked.sinks[side] == "rows":
            stream = writer.foreachBatch(collect).start()
        else:
            stream = writer.format(asked.sinks[side]).option("path", out).start()
        if not stream.awaitTermination(_PATIENCE_S):
            raise TimeoutError(f"{pair} did not end in {_PATIENCE_S} s")
    except TimeoutError:
        raise
    except Exception as failure:
        if _TOO_BUSY in str(failure):
            raise
        # An error of the sink means that the batch had begun: Spark plans it and compares schemas before.
        return refusal(failures[0] if failures else failure, stream, in_batch=bool(failures))
    finally:
        if stream is not None:
            stream.stop()
    if asked.sinks[side] != "rows":
        # The sink's log begins in the middle, which Spark's reader refuses. So the files are read directly.
        sink = session.read.schema(result.schema).format(asked.sinks[side]).load(out + "/part-*")
        rows = [[_plain(value) for value in row] for row in sink.collect()]
    return {"rows": rows}


def refusal(failure: Exception, stream: Any, in_batch: bool = False) -> dict[str, Any]:
    """Return the code of the deepest cause that has one, or its class, and whether the batch had begun."""
    cause = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    # The stream knows only the text of an error of the sink, so that error is read from the sink.
    if stream is not None and not in_batch and stream._jsq.exception().isDefined():
        cause = stream._jsq.exception().get()
    code, kind, texts = "", type(failure).__name__, [str(failure)]
    while cause is not None and len(texts) < _DEEPEST:
        message = cause.getMessage() or ""
        kind = cause.getClass().getSimpleName()
        texts.append(f"{cause.getClass().getName()}: {message}")
        code = next((each for each in _CODE.findall(message) if not each.startswith(_WRAPPERS)), code)
        in_batch = in_batch or any("TaskRunner" in str(frame) for frame in cause.getStackTrace())
        cause = cause.getCause()
    where = "batch" if in_batch or any("Lost task" in text for text in texts) else "start"
    return {"error": code or kind, "where": where, "text": "\n".join(reversed(texts))}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return (value - START).total_seconds() / 60
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value
