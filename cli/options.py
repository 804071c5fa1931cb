"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from ttlsnap.operators.registry import AnyOf, Selection


class Format(StrEnum):
    """The formats of a result."""

    TEXT = "text"
    JSON = "json"


class EngineName(StrEnum):
    """The engines that run the partitions."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


REPORT = "Pages"
STATES = "Which states"
RUN = "How it runs"
PUBLISH = "Publishing"

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A checkpoint, as a local path or a URI (file, s3, gs, abfss, hdfs), or a Delta table, as a local path.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A checkpoint: a local path, or a URI (file, s3, gs, abfss, hdfs).", show_default=False
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Print a table for people, or one JSON document.")]
OperatorOption = Annotated[
    Optional[list[int]],  # noqa: UP045
    typer.Option("--operator", metavar="N", help="Only this operator. Can be repeated.", rich_help_panel=STATES),
]
StoreOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--store", metavar="NAME", help="Only this store. Can be repeated.", rich_help_panel=STATES),
]
StateOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--state", metavar="NAME", help="Only this state. Can be repeated.", rich_help_panel=STATES),
]
TablesOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--table", metavar="NAME", help="Only this table, as 0.left. Can be repeated.", rich_help_panel=STATES
    ),
]
SchemaOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--schema",
        metavar="OP.STORE='KEY | VALUE'",
        help="The schemas of a store, for checkpoints that record none (Spark before 3.1): "
        "0.default='user STRING | count BIGINT, last TIMESTAMP'. ttlsnap compares them with the stored bytes.",
        rich_help_panel=STATES,
    ),
]
NowOption = Annotated[
    str,
    typer.Option(
        "--now",
        metavar="TIME",
        help="The current time. checkpoint: for event time the watermark of the last committed batch, for processing "
        "time the timestamp of that batch. wall: this machine's clock. Or a time in ISO 8601.",
    ),
]
MasterOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark master, or sc://... for Spark Connect. Default: local[*].",
        rich_help_panel=RUN,
    ),
]
JarsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--jars",
        metavar="PATHS",
        help="Delta's jars, for machines that cannot reach Maven.",
        rich_help_panel="Delta tables",
    ),
]
StoppedOption = Annotated[
    bool,
    typer.Option(
        "--stopped",
        envvar="TTLSNAP_STOPPED",
        help="Confirm that the query is stopped. Without this, ttlsnap refuses a checkpoint whose logs changed "
        "recently, or in which a batch was begun and not committed.",
    ),
]
OutputOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--output",
        metavar="DIR",
        help="Write a new checkpoint there. The source stays as it is.",
        rich_help_panel=PUBLISH,
    ),
]
NoPlannedBatchOption = Annotated[
    bool,
    typer.Option(
        "--no-planned-batch",
        help="Omit the planned batch, which stops a query that is still running. Dangerous: such a query would "
        "damage the state.",
        rich_help_panel=PUBLISH,
    ),
]
ParallelismOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--parallelism",
        metavar="N",
        min=1,
        help="How many partitions to process at the same time. Default: the number of cores.",
        rich_help_panel=RUN,
    ),
]
ReportOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--report",
        metavar="html=FILE",
        help="Also write the result as a page for a browser, in one file that needs no network.",
        rich_help_panel=REPORT,
    ),
]
ShowKeysOption = Annotated[
    bool,
    typer.Option(
        "--show-keys",
        help="Show keys and values of entries on the page, and texts that may quote them. Default: leave them out.",
        rich_help_panel=REPORT,
    ),
]


def select(operators: list[int] | None, stores: list[str] | None, states: list[str] | None) -> Selection | AnyOf:
    """Return the selection of the states with one of the operators, one of the stores and one of the names."""
    from ttlsnap.operators.registry import AnyOf, Selection

    chosen = product(operators or (None,), stores or (None,), states or (None,))
    first, *others = (Selection(*parts) for parts in chosen)
    return AnyOf((first, *others)) if others else first
