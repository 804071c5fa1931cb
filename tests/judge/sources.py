"""Sources of events for the judge's queries, in addition to those of Spark."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .queries import Event

_FIRST_MTIME = 1_700_000_000


def put_events(folder: Path, first: int, batches: Sequence[Sequence[Event]]) -> None:
    """Write a file of events for each batch. ``first`` is the number of the first file."""
    for number, events in enumerate(batches, start=first):
        # A running query must find the complete file with its final time, because the source sorts files by time.
        path = folder / f"{number:05d}.json"
        begun = path.with_name(f".{path.name}")
        begun.write_text("".join(json.dumps(asdict(event)) + "\n" for event in events))
        os.utime(begun, (_FIRST_MTIME + number,) * 2)
        begun.rename(path)


def event_files(sources: str) -> list[Path]:
    """Return the files that match a glob of the judge (``folder/{one,two}``), in the order of their creation."""
    folder, names = sources[:-1].split("{")
    found = [file for name in names.split(",") for file in Path(folder, name).glob("*.json")]
    return sorted(found, key=lambda file: file.name)


def in_partitions() -> type:
    """Return a data source with offsets like Kafka's: the number of files read from each partition of a topic.

    A batch reads all new files. From 4.0 on.
    """
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Files(InputPartition):  # type: ignore[misc]
        def __init__(self, paths: list[Path]) -> None:
            self.paths = paths

    class Reader(DataSourceStreamReader):  # type: ignore[misc]
        def __init__(self, sources: str) -> None:
            # A worker cannot load the judge's modules.
            folder, names = sources[:-1].split("{")
            self.folders = [Path(folder, name) for name in names.split(",")]

        def files(self) -> list[Path]:
            found = [file for folder in self.folders for file in folder.glob("*.json")]
            return sorted(found, key=lambda file: file.name)

        def initialOffset(self) -> dict[str, Any]:
            return {"events": {"0": 0, "1": 0}}

        def latestOffset(self) -> dict[str, Any]:
            count = len(self.files())
            return {"events": {"0": (count + 1) // 2, "1": count // 2}}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Files]:
            files = self.files()
            return [
                Files(files[number::2][start["events"][str(number)] : end["events"][str(number)]]) for number in (0, 1)
            ]

        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            for path in partition.paths:
                with path.open() as file:
                    for line in file:
                        event = json.loads(line)
                        yield event["key"], event["ts"], event["value"]

        def commit(self, end: dict[str, Any]) -> None:
            pass

    class InPartitions(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "partitions"

        def schema(self) -> str:
            return "key string, ts long, value long"

        def streamReader(self, schema: Any) -> Reader:
            return Reader(self.options["sources"])

    return InPartitions
