"""The options of ``ttlsnap migrate`` for the schemas of a new query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.cli.groups import given
from ttlsnap.cli.renames import parse_rename
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from ttlsnap.check.ignores import Ignore
    from ttlsnap.contract import Contract
    from ttlsnap.new_query.answers import Answers
    from ttlsnap.new_query.query import NewQuery

_PANEL = "The schemas of a new query"


@dataclass(frozen=True)
class NewQueryOptions:
    """The new query, and answers to what its schemas leave open."""

    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="NEW",
            help="The new query: its contract, or a checkpoint of it. The state gets its schemas.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    old: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OLD",
            help="The contract of the old query. It says what no file of the checkpoint does, such as which "
            "aggregate a column belongs to.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            help="A column that has another name, or a key or aggregate that has another expression and the same "
            "values. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    swap: Annotated[
        list[str] | None,
        typer.Option(
            "--swap",
            metavar="FIELD,FIELD",
            help="Two fields of one type that changed places. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop",
            metavar="FIELD",
            help="An old field that is removed, and is not the new field of the same type. Also, without --to: a state "
            "variable that the query no longer has, as inspect shows it. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    fill: Annotated[
        list[str] | None,
        typer.Option(
            "--fill",
            metavar="FIELD=LITERAL",
            help="The value that existing entries get for a new field. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    birth: Annotated[
        list[str] | None,
        typer.Option(
            "--birth",
            metavar="FIELD|now",
            help="The time from which a new TTL counts for existing values: a field of them, or now. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    narrow: Annotated[
        bool,
        typer.Option(
            "--narrow",
            help="Allow types that do not have every old value. A value that does not fit is an error.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    ignored: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="CODE[:WHERE]",
            help="Accept a finding of ttlsnap check. Can be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def answers(self) -> Answers:
        """Return the answers in the options."""
        from ttlsnap.new_query.answers import Answers

        return Answers(
            renamed=dict(parse_rename("--rename", text) for text in self.rename or ()),
            swaps=tuple(_pair("--swap", "FIELD,FIELD", text, ",") for text in self.swap or ()),
            fills=dict(_pair("--fill", "FIELD=LITERAL", text, "=") for text in self.fill or ()),
            drops=frozenset(self.drop or ()),
            births=tuple(self.birth or ()),
            narrow=self.narrow,
        )

    def ignores(self) -> list[Ignore]:
        """Return the findings of ``check`` that are accepted."""
        from ttlsnap.check.ignores import COMMAND_LINE, parse_ignore

        return [parse_ignore(text, source=COMMAND_LINE) for text in self.ignored or ()]

    def load(self, *, may_drop: bool) -> NewQuery | None:
        """Return the new query with its contracts; None without one. Raise UsageError for options that need one."""
        from ttlsnap.new_query.query import NewQuery

        if self.to is None:
            for option in given(self, "old", "rename", "swap", "fill", "birth", "narrow", "ignored"):
                raise UsageError(f"{option} needs --to, which names the new query")
            return None
        answers = self.answers()
        before = None if self.old is None else _load(self.old, "--from")
        return NewQuery(_load(self.to, "--to"), before, answers, self.ignores(), may_drop)


def _pair(option: str, form: str, text: str, separator: str) -> tuple[str, str]:
    first, found_separator, second = (part.strip() for part in text.partition(separator))
    if not found_separator or not first or not second:
        raise UsageError(f"{option} is {form}, not {text!r}")
    return first, second


def _load(target: str, option: str) -> Contract:
    from ttlsnap.check.targets import load_contract
    from ttlsnap.contract import Contract

    contract = load_contract(target)
    if not isinstance(contract, Contract):
        raise UsageError(f"{option} {target} is a Delta table, not the contract of a query")
    return contract
