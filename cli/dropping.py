"""Options about what is dropped, which ``compact``, ``explain`` and ``migrate`` share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.places import parse_archive
from ttlsnap.errors import UsageError
from ttlsnap.user_code import search_in_current_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory
    from ttlsnap.transformers import TtlTransformerFactory

DROPPED = "What is dropped"
OPERATORS = "RocksDB, joins, timers, variables"


class FollowPolicyName(StrEnum):
    """The policies for what belongs to a key whose other entries are dropped."""

    KEEP = "keep"
    FOLLOW = "follow"


class TimeName(StrEnum):
    """The clocks that a timestamp can be compared with."""

    EVENT = "event"
    PROCESSING = "processing"


ClockOption = Annotated[
    TimeName | None,
    typer.Option(
        "--time", help="The clock of that time. Default: the one that Spark stores the time on, or processing."
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
    FollowPolicyName,
    typer.Option(
        "--timers",
        help="transformWithState: keep leaves all timers. follow drops the timers of a key when all of its state "
        "is dropped.",
        rich_help_panel=OPERATORS,
    ),
]
VariablesOption = Annotated[
    FollowPolicyName,
    typer.Option(
        "--variables",
        help="transformWithState: what becomes of the variables that no rule sees. keep: they stay. follow: if a rule "
        "drops everything that it sees of a key, the rest of the key is dropped, too.",
        rich_help_panel=OPERATORS,
    ),
]


@dataclass(frozen=True)
class RuleOptions:
    """The rules that decide about entries."""

    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="How long an entry lives: 90s, 36h, 7d, P7D. It expires when timestamp + ttl <= now. The units are "
            "ms, s, m (minutes), h, d and w; there are no months.",
            rich_help_panel=DROPPED,
        ),
    ] = None
    timestamp: Annotated[
        list[str] | None,
        typer.Option(
            "--timestamp",
            metavar="FIELD",
            help="The field with the time of an entry, as inspect shows it: value.last_seen, key.window.end, or "
            "value.seen:ms (a number needs its unit: s, ms, us, ns). Default: what Spark stores for the operator. "
            "@written: when the entry was last written. Can be repeated: each field is for the states that have it "
            "(all have @written). Each side of a join can have its own: left:value.at and right:value.then.",
            rich_help_panel=DROPPED,
        ),
    ] = None
    old_ttl: Annotated[
        str | None,
        typer.Option(
            "--old-ttl",
            metavar="DURATION",
            help="The TTL that the query had. Spark stores only when an entry expires; this shows when it was written, "
            "and --ttl counts from then.",
            rich_help_panel=DROPPED,
        ),
    ] = None
    time: Annotated[
        TimeName | None,
        typer.Option(
            "--time", help="The clock of the timestamp. Default: that of the operator.", rich_help_panel=DROPPED
        ),
    ] = None
    transformer: Annotated[
        list[str] | None,
        typer.Option(
            "--transformer",
            metavar="NAME",
            help="Apply a transformer, by name or as module:attribute (this runs its code). Repeat the option to apply "
            "several, in order.",
            rich_help_panel=DROPPED,
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="K=V",
            help="An option of the --transformer before it. Can be repeated.",
            rich_help_panel=DROPPED,
        ),
    ] = None

    @property
    def has_ttl(self) -> bool:
        """Whether one of the options asks for a TTL."""
        return self.ttl is not None or bool(self.timestamp) or self.old_ttl is not None

    def make_factories(self) -> list[StateSnapshotTransformerFactory]:
        """Return the factories of the TTL, if it is wanted or nothing else is, and of the named transformers."""
        from ttlsnap.transformers.registry import load_factory

        early_settings, *settings = self.group_settings()
        if early_settings:
            raise UsageError(
                f"--set {next(iter(early_settings))} comes before any --transformer; put it after the transformer that "
                "it configures"
            )
        names = self.names()
        self.require_ttl_for_time(names)
        ttl = [self.make_ttl()] if self.has_ttl or not names else []
        return [*ttl, *map(load_factory, names, settings)]

    def require_ttl_for_time(self, names: Sequence[str]) -> None:
        """Raise UsageError if ``--time`` is given, and only transformers that have their own time decide."""
        if names and not self.has_ttl and self.time is not None:
            raise UsageError("--time needs --ttl or --timestamp; a transformer has its own time")

    def make_ttl(self) -> TtlTransformerFactory:
        """Return the factory of the TTL."""
        from ttlsnap.clock import TimeCharacteristic
        from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

        config = StateTtlConfig(parse_duration(self.ttl)) if self.ttl is not None else None
        clock = TimeCharacteristic(self.time.value) if self.time is not None else None
        old_ttl = 0 if self.old_ttl is None else parse_duration(self.old_ttl)
        return TtlTransformerFactory(config, tuple(self.timestamp or ()) or None, clock, old_ttl)

    def names(self) -> list[str]:
        """Return the names of the transformers. After that, they can be modules in the current folder."""
        names = self.transformer or []
        if any(":" in name for name in names):
            search_in_current_folder()
        return names

    def group_settings(self) -> list[dict[str, str]]:
        """Return the ``--set`` options by name: first those before any transformer, then those of each one."""
        grouped: list[dict[str, str]] = [{} for _ in range(len(self.transformer or ()) + 1)]
        for setting in self.settings or ():
            place, _, pair = setting.partition(":")
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise UsageError(f"--set {pair!r} has no name or no value; write --set option=value")
            if key in grouped[int(place)]:
                raise UsageError(f"--set {key} is given twice")
            grouped[int(place)][key] = value
        return grouped


@dataclass(frozen=True)
class DroppedOptions(RuleOptions):
    """What is dropped, how much that may be, and the archive that receives it."""

    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max-drop",
            metavar="SHARE",
            help="Refuse to drop more than this share of a state's entries (30% or 0.3) when nobody can be asked: "
            "without a terminal, or with --yes. Default: 99%. 100% allows everything.",
            rich_help_panel=DROPPED,
        ),
    ] = None
    expired_to: Annotated[
        str | None,
        typer.Option(
            "--expired-to",
            metavar="PLACE",
            help="Archive dropped entries: FOLDER writes Parquet, delta:PATH appends to a Delta table, and "
            "MODULE:FUNCTION is called with each key and value.",
            rich_help_panel=DROPPED,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library, without the rules."""
        from ttlsnap.schema.units import parse_share

        max_drop = None if self.max_drop is None else parse_share(self.max_drop)
        return {"max_drop": max_drop, "expired_to": parse_archive(self.expired_to)}


@dataclass(frozen=True)
class OperatorOptions:
    """What is dropped from joins, timers and other variables."""

    drop_unmatched: DropUnmatchedOption = False
    timers: TimersOption = FollowPolicyName.KEEP
    variables: VariablesOption = FollowPolicyName.KEEP

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        return {
            "drop_unmatched": self.drop_unmatched,
            "timers": self.timers.value,
            "variables": self.variables.value,
        }


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
