"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Optional

import typer


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


class EngineName(StrEnum):
    """Who runs the partitions."""

    SPARK = "spark"
    LOCAL = "local"


Target = Annotated[
    str, typer.Argument(help="A checkpoint: a local path, or a URI (file, s3, gs, abfss, hdfs).", show_default=False)
]
FormatOption = Annotated[Format, typer.Option("--format", help="A table for people, or one JSON document.")]
OperatorOption = Annotated[Optional[int], typer.Option("--operator", metavar="N", help="Only this operator.")]  # noqa: UP045
StoreOption = Annotated[Optional[str], typer.Option("--store", metavar="NAME", help="Only this store.")]  # noqa: UP045
StateOption = Annotated[Optional[str], typer.Option("--state", metavar="NAME", help="Only this state.")]  # noqa: UP045
SchemaOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--schema",
        metavar="OP.STORE='KEY | VALUE'",
        help="Schemas for a checkpoint from before Spark 3.1, which records none: "
        "0.default='user STRING | count BIGINT, last TIMESTAMP'. Checked against the bytes.",
    ),
]
NowOption = Annotated[
    str,
    typer.Option(
        "--now",
        metavar="TIME",
        help="What time it is: 'checkpoint' (the last committed batch's watermark for event time, its timestamp for "
        "processing time), 'wall', or ISO 8601.",
    ),
]
MasterOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--master", metavar="URL", help="Spark master, or sc://... for Spark Connect. Default: local[*]."),
]
JarsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--jars", metavar="PATHS", help="Delta tables: Delta's jars, where Maven cannot be reached."),
]
StoppedOption = Annotated[
    bool,
    typer.Option(
        "--stopped",
        envvar="TTLSNAP_STOPPED",
        help="The query is known to be stopped: do not refuse because its logs changed a short time ago.",
    ),
]
