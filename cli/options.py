"""Options that several commands share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.cli.groups import given
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from ttlsnap.engines.moving import MovingEngine
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


STATES = "Which states"
RUN = "How it runs"
PUBLISH = "Publishing"
TABLES = "Delta tables"

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
        metavar="CHECKPOINT",
        help="A checkpoint: a local path, or a URI (file, s3, gs, abfss, hdfs).",
        show_default=False,
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="text: for people. json: one JSON document.")]
TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="NAME", help="Only this table, as 0.left. Can be repeated.", rich_help_panel=STATES
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
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark master, or sc://... for Spark Connect. Default: local[*].",
        rich_help_panel=RUN,
    ),
]
JarsOption = Annotated[
    str | None,
    typer.Option(
        "--jars",
        metavar="PATHS",
        help="Delta's jars, for machines that cannot reach Maven.",
        rich_help_panel=TABLES,
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
WorkFolderOption = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="RocksDB: a local folder for the work. Default: in the checkpoint, or TMPDIR if that is remote.",
        rich_help_panel=RUN,
    ),
]
ParallelismOption = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        metavar="N",
        min=1,
        help="How many partitions to process at the same time. Default: the number of cores.",
        rich_help_panel=RUN,
    ),
]


@dataclass(frozen=True)
class StateOptions:
    """The states that a command is about, and their schemas."""

    operator: Annotated[
        list[int] | None,
        typer.Option("--operator", metavar="N", help="Only this operator. Can be repeated.", rich_help_panel=STATES),
    ] = None
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="NAME", help="Only this store. Can be repeated.", rich_help_panel=STATES),
    ] = None
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="NAME", help="Only this state. Can be repeated.", rich_help_panel=STATES),
    ] = None
    schema: Annotated[
        list[str] | None,
        typer.Option(
            "--schema",
            metavar="OP.STORE='KEY | VALUE'",
            help="The schemas of a store, for checkpoints that record none (Spark before 3.1): "
            "0.default='user STRING | count BIGINT, last TIMESTAMP'. ttlsnap compares them with the stored bytes.",
            rich_help_panel=STATES,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        from ttlsnap.schema.ddl import parse_schemas

        return {"selection": self._select(), "schemas": parse_schemas(self.schema)}

    def _select(self) -> Selection | AnyOf:
        """Return the selection of the states with one of the operators, one of the stores and one of the names."""
        from ttlsnap.operators.registry import AnyOf, Selection

        combinations = product(self.operator or (None,), self.store or (None,), self.state or (None,))
        first_selection, *other_selections = (Selection(*parts) for parts in combinations)
        return AnyOf((first_selection, *other_selections), each=True) if other_selections else first_selection


WITHOUT_PLAN = (
    "Omit the planned batch, which stops a query that is still running. Dangerous: such a query would damage the state."
)


@dataclass(frozen=True)
class ConsentOptions:
    """What a run may do without a question."""

    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before publishing. Needed without a terminal if values are dropped, or if a state or "
            "positions are replaced.",
            rich_help_panel=PUBLISH,
        ),
    ] = False
    stopped: StoppedOption = False
    no_planned_batch: Annotated[
        bool,
        typer.Option(
            "--no-planned-batch",
            help=WITHOUT_PLAN,
            rich_help_panel=PUBLISH,
        ),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        return {"stopped": self.stopped, "planned_batch": not self.no_planned_batch}

    def asks(self, *, dry_run: bool) -> bool:
        """Return whether a run asks a person before it publishes."""
        return not self.yes and not dry_run and sys.stdin.isatty()


@dataclass(frozen=True)
class PublishingOptions(ConsentOptions):
    """What a run writes, and what it may do without a question."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Write a new checkpoint to this folder or URI. The source stays as it is.",
            rich_help_panel=PUBLISH,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        return {"output": self.output, **super().arguments()}


@dataclass(frozen=True)
class EngineOptions:
    """The engine that runs the partitions."""

    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine",
            help="spark: run on Spark. local: run in this process, without a JVM. auto: use Spark if "
            "--master is given, under spark-submit, or if the state is larger than 16 GiB (4 GiB with RocksDB).",
            rich_help_panel=RUN,
        ),
    ] = EngineName.AUTO
    master: MasterOption = None
    parallelism: ParallelismOption = None

    def only_for_checkpoints(self) -> list[str]:
        """Return the given options that do not apply to Delta tables."""
        return [*(["--engine local"] if self.engine is EngineName.LOCAL else []), *given(self, "parallelism")]

    def make(self) -> MovingEngine:
        """Return the engine. Raise UsageError for one that has no master, and for Spark if PySpark is missing."""
        if self.engine is EngineName.LOCAL:
            from ttlsnap.engines.local import LocalEngine

            if self.master is not None:
                raise UsageError("--master needs --engine spark or auto")
            return LocalEngine(self.parallelism)
        if self.engine is EngineName.SPARK or self.master is not None:
            from ttlsnap.extras import require_package

            require_package("pyspark")
        if self.engine is EngineName.SPARK:
            from ttlsnap.engines.spark import SparkEngine

            return SparkEngine(master=self.master, parallelism=self.parallelism)
        from ttlsnap.engines.automatic import AutoEngine

        return AutoEngine.of(self.master, self.parallelism)


def pairs(option: str, texts: list[str] | None, example: str) -> dict[str, str]:
    """Return the words of an option that has two, such as ``0=/data/visits``. Raise UsageError for others."""
    parts = [text.partition("=") for text in texts or ()]
    wrong = next((name for name, separator, value in parts if not (name and separator and value)), None)
    if wrong is not None:
        raise UsageError(f"{option} {wrong}: write two words, such as {example}")
    names = [name for name, _, _ in parts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{option} {twice}: give it only once")
    return {name: value for name, _, value in parts}
