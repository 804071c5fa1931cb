"""A query whose state variables are given as data, for one batch inside a Spark session.

It tells what each variable held before the batch. The code of the processor runs on a worker, which gets it by value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .attempts import refusal

_CENTURY_MS = 100 * 365 * 24 * 3600 * 1000


class Declared(NamedTuple):
    """A state variable as the code declares it: a ``value``, a ``list`` or a ``map`` with one field ``x``."""

    name: str
    kind: str
    type: str = "int"
    ttl: bool = False


def run_once(
    spark: Any,
    declared: Sequence[Sequence[Any]],
    deleted: Sequence[str],
    checkpoint: str,
    source: str,
    encoding: str,
) -> dict[str, Any]:
    """Run a batch with these variables, in a session of its own, and call ``deleteIfExists`` for those ``deleted``.

    Return what each variable held before, or the error with which Spark refused the query.
    """
    session = spark.newSession()
    store = "spark.sql.streaming.stateStore."
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    for name, value in {
        "spark.sql.shuffle.partitions": "1",
        f"{store}providerClass": provider,
        f"{store}encodingFormat": encoding,
    }.items():
        session.conf.set(name, value)
    held: dict[str, Any] = {}
    failures: list[Exception] = []

    def collect(frame: Any, batch: int) -> None:
        try:
            for row in frame.collect():
                held[row["name"]] = row["held"]
        except Exception as failure:
            failures.append(failure)
            raise

    rows = session.readStream.schema("key string, number int").json(source).groupBy("key")
    processor, schema = _processor([Declared(*each) for each in declared], list(deleted)), "name string, held string"
    result = rows.transformWithStateInPandas(processor, schema, "Update", "ProcessingTime")
    writer = result.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    stream = None
    try:
        stream = writer.trigger(once=True).foreachBatch(collect).start()
        stream.awaitTermination()
    except Exception as failure:
        return refusal(failures[0] if failures else failure, stream, in_batch=bool(failures))
    return {"held": held}


def _processor(declared: Sequence[Declared], deleted: Sequence[str]) -> Any:
    from pyspark.sql.streaming import StatefulProcessor

    told = [tuple(each) for each in declared]
    ttl_ms = _CENTURY_MS

    class Keeps(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.states = []
            for name, kind, type_, ttl in told:
                more = [ttl_ms] if ttl else []
                if kind == "map":
                    state = handle.getMapState(name, "of string", f"x {type_}", *more)
                elif kind == "list":
                    state = handle.getListState(name, f"x {type_}", *more)
                else:
                    state = handle.getValueState(name, f"x {type_}", *more)
                self.states.append(state)
            for name in deleted:
                handle.deleteIfExists(name)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            import pandas as pd

            numbers = [int(number) for frame in rows for number in frame["number"]]
            held = []
            for (_, kind, type_, _), state in zip(told, self.states, strict=True):
                new = (str(numbers[0]) if type_ == "string" else numbers[0],)
                if kind == "map":
                    held.append(",".join(sorted(f"{of}:{x}" for (of,), (x,) in state.iterator())))
                    state.updateValue((f"n{numbers[0]}",), new)
                elif kind == "list":
                    held.append(",".join(str(x) for (x,) in state.get()))
                    state.appendValue(new)
                else:
                    held.append(str(state.get()[0]) if state.exists() else "")
                    state.update(new)
            yield pd.DataFrame({"name": [name for name, *_ in told], "held": held})

        def close(self) -> None:
            pass

    return Keeps()
