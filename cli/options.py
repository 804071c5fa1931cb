"""Options that several commands share, and turning what was typed into what the library takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from ttlsnap.checkpoint.checkpoint import Schemas


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


Target = Annotated[str, typer.Argument(help="A checkpoint: a local path or a file: URI.", show_default=False)]
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

QuietPeriodOption = Annotated[
    float,
    typer.Option(
        "--quiet-period",
        metavar="SECONDS",
        min=0,
        max=86_400,
        envvar="TTLSNAP_QUIET_PERIOD",
        help="For how long the logs must not have changed, or the query is taken to run.",
    ),
]

_SIZE = re.compile(r"([0-9]{1,15})(?:([kKmMgGtT])(i?))?[bB]?")
_SCHEMA = re.compile(r"([0-9]{1,9})\.([^=]+)=(.+)", re.DOTALL)


def parse_schemas(options: Sequence[str] | None) -> Schemas:
    """``0.default='key-ddl | value-ddl'`` for each store; raises UsageError where it does not read so."""
    from ttlsnap.schema.ddl import parse_ddl

    schemas = {}
    for option in options or ():
        match = _SCHEMA.fullmatch(option.strip())
        key, bar, value = (match[3] if match else "").partition("|")
        if match is None or not bar:
            raise UsageError(f"--schema {option!r}: write OPERATOR.STORE='key-ddl | value-ddl'")
        schemas[int(match[1]), match[2].strip()] = (parse_ddl(key.strip("' ")), parse_ddl(value.strip("' ")))
    return schemas


def parse_retention(text: str) -> int:
    """Milliseconds of a duration that may be none at all; raises UsageError."""
    from ttlsnap.clock import MICROS
    from ttlsnap.transformers import parse_duration

    return 0 if re.fullmatch(r"0(ms|s|m|h|d|w)?", text.strip()) else parse_duration(text) // MICROS


def parse_size(text: str) -> int:
    """Bytes: ``1048576``, ``512MiB``, ``2GB``; raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"{text!r} is no size: write bytes, or 512MiB, or 2GB")
    power = " kmgt".index((match[2] or " ").lower())
    unit: int = (1024 if match[3] else 1000) ** power
    return int(match[1]) * unit
