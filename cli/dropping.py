"""Options about what is dropped and how it runs, which ``compact`` and ``migrate`` share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import RUN, EngineName
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from ttlsnap.engines.moving import MovingEngine
    from ttlsnap.transform.converters import ConvertsValues
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

DROPPED = "What is dropped"
OPERATORS = "RocksDB, joins, timers"


class TimerPolicyName(StrEnum):
    """The policies for the timers of a key."""

    KEEP = "keep"
    FOLLOW = "follow"


class TimeName(StrEnum):
    """The clocks that a timestamp can be compared with."""

    EVENT = "event"
    PROCESSING = "processing"


TtlOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--ttl",
        metavar="DURATION",
        help="How long an entry lives: 90s, 36h, 7d, P7D. It expires when timestamp + ttl <= now.",
        rich_help_panel=DROPPED,
    ),
]
TimestampOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--timestamp",
        metavar="FIELD",
        help="The field with the time of an entry, as inspect shows it: value.last_seen, key.window.end, or "
        "value.seen:ms (a number needs its unit: s, ms, us, ns). Default: what Spark stores for the operator. "
        "@written: when the entry was last written. Each side of a join can have its own: left:value.at and "
        "right:value.then.",
        rich_help_panel=DROPPED,
    ),
]
OldTtlOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--old-ttl",
        metavar="DURATION",
        help="The TTL that the query had. Spark stores only when an entry expires; this shows when it was written, "
        "and --ttl counts from then.",
        rich_help_panel=DROPPED,
    ),
]
TimeOption = Annotated[
    Optional[TimeName],  # noqa: UP045
    typer.Option("--time", help="The clock of the timestamp. Default: that of the operator.", rich_help_panel=DROPPED),
]
TransformerOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--transformer",
        metavar="NAME",
        help="Apply a transformer, by name or as module:attribute (this runs its code). Repeat the option to apply "
        "several, in order.",
        rich_help_panel=DROPPED,
    ),
]
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        metavar="K=V",
        help="An option of the --transformer before it. Can be repeated.",
        rich_help_panel=DROPPED,
    ),
]
MaxDropOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--max-drop",
        metavar="SHARE",
        help="Refuse to drop more than this share of a state's entries (30% or 0.3) when nobody can be asked: "
        "without a terminal, or with --yes. Default: refuse only to drop all of them; 100% allows that.",
        rich_help_panel=DROPPED,
    ),
]
ExpiredToOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--expired-to",
        metavar="PLACE",
        help="Archive dropped entries: FOLDER writes Parquet, delta:PATH appends to a Delta table, and "
        "MODULE:FUNCTION is called with each key and value.",
        rich_help_panel=DROPPED,
    ),
]
DropUnmatchedOption = Annotated[
    bool,
    typer.Option(
        "--drop-unmatched",
        help="Joins: also drop rows that have not matched yet. An outer join then never emits them.",
        rich_help_panel=OPERATORS,
    ),
]
TimersOption = Annotated[
    TimerPolicyName,
    typer.Option(
        "--timers",
        help="transformWithState: keep leaves all timers. follow drops the timers of a key when all of its state "
        "is dropped.",
        rich_help_panel=OPERATORS,
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="spark: run on Spark. local: run in this process, without a JVM. auto: use Spark if "
        "--master is given, under spark-submit, or if the state is larger than 16 GiB.",
        rich_help_panel=RUN,
    ),
]


class OrderedOptions(Command):
    """A command that puts the number of ``--transformer`` options before it into each ``--set``: ``1:name=value``.

    click's lists would lose that order.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        transformers, ordered, is_set = 0, [], False
        for arg in args:
            name, equals, value = arg.partition("=")
            transformers += name == "--transformer"
            if is_set:
                arg = f"{transformers}:{arg}"
            elif name == "--set" and equals:
                arg = f"--set={transformers}:{value}"
            is_set = arg == "--set" and not is_set
            ordered.append(arg)
        return super().parse_args(ctx, ordered)


def group_settings(settings: Sequence[str], transformers: int) -> list[dict[str, str]]:
    """Return the ``--set`` options by name: first those before any ``--transformer``, then those of each one."""
    found: list[dict[str, str]] = [{} for _ in range(transformers + 1)]
    for setting in settings:
        place, _, pair = setting.partition(":")
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {pair!r} has no name or no value; write --set option=value")
        if place == "0" and key in found[0]:
            raise UsageError(f"--set {key} is given twice")
        found[int(place)][key] = value
    return found


def settings_of_transformers(settings: Sequence[str] | None, transformers: Sequence[str]) -> list[dict[str, str]]:
    """Return the ``--set`` options of each transformer. Raise UsageError for one that comes before them."""
    early, *found = group_settings(settings or [], len(transformers))
    if early:
        raise UsageError(
            f"--set {next(iter(early))} comes before any --transformer; put it after the transformer that it configures"
        )
    return found


def make_factories(
    ttl: str | None,
    timestamps: tuple[str, ...],
    time: TimeName | None,
    old_ttl: str | None,
    names: Sequence[str],
    options: Sequence[dict[str, str]],
    converters: list[ConvertsValues] | None = None,
) -> list[StateSnapshotTransformerFactory]:
    """Return the TTL's factory, if it is wanted or nothing else is, and those of the named transformers.

    ``converters`` gets those that give values for a new query; without it, they are wrong.
    """
    from ttlsnap.clock import TimeCharacteristic
    from ttlsnap.transform.converters import ConvertsValues as Converts
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration
    from ttlsnap.transformers.registry import load_factory, load_transformer

    factories: list[StateSnapshotTransformerFactory] = []
    if ttl is not None or timestamps or old_ttl is not None or not names:
        config = StateTtlConfig(parse_duration(ttl)) if ttl is not None else None
        clock = TimeCharacteristic(time.value) if time is not None else None
        factories.append(
            TtlTransformerFactory(config, timestamps or None, clock, parse_duration(old_ttl) if old_ttl else 0)
        )
    for name, option in zip(names, options, strict=True):
        if converters is None:
            factories.append(load_factory(name, option))
            continue
        found = load_transformer(name, option)
        if isinstance(found, Converts):
            converters.append(found)
        else:
            factories.append(found)
    return factories


def make_engine(name: EngineName, master: str | None, parallelism: int | None) -> MovingEngine:
    if name is EngineName.LOCAL and master is not None:
        raise UsageError("--master needs --engine spark or auto")
    if name is EngineName.LOCAL:
        from ttlsnap.engines.local import LocalEngine

        return LocalEngine(parallelism)
    if name is EngineName.SPARK:
        from ttlsnap.engines.spark import SparkEngine

        return SparkEngine(master=master, parallelism=parallelism)
    from ttlsnap.engines.automatic import AutoEngine

    return AutoEngine.of(master, parallelism)
