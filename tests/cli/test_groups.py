"""Groups of options: Typer sees each option, and the command gets the groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ttlsnap.cli.groups import given, separate, values_of


@dataclass(frozen=True)
class Place:
    city: Annotated[str | None, typer.Option("--city", "-c")] = None
    streets: Annotated[list[str] | None, typer.Option("--street")] = None


@dataclass(frozen=True)
class Address(Place):
    city: Annotated[str | None, typer.Option("--town")] = None
    number: Annotated[int, typer.Option("--number")] = 1


def run(*arguments: str) -> tuple[str, Address, bool]:
    """Return what a command gets whose group has the name of an option."""
    got: list[tuple[str, Address, bool]] = []

    def send(
        what: Annotated[str, typer.Argument()], *, number: Address, fast: Annotated[bool, typer.Option()] = False
    ) -> None:
        got.append((what, number, fast))

    app = typer.Typer()
    app.command()(separate(send))
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    (found,) = got
    return found


def test_a_command_gets_its_groups() -> None:
    address = Address("Rome", ["a", "b"], 7)
    options = ("--town", "Rome", "--street", "a", "--street", "b", "--number", "7")
    assert run("letter", *options, "--fast") == ("letter", address, True)


def test_options_that_are_left_out_have_the_defaults_of_the_group() -> None:
    assert run("letter") == ("letter", Address(), False)


def test_two_groups_with_the_same_option_are_an_error() -> None:
    def send(*, one: Place, two: Address) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'city'"):
        separate(send)


def test_values_have_the_names_of_the_options() -> None:
    assert values_of(Address("Rome")) == {"--town": "Rome", "--street": None, "--number": 1}
    assert values_of(Address("Rome"), "city") == {"--town": "Rome"}


def test_an_option_is_given_if_its_value_is_not_the_default() -> None:
    assert given(Address()) == []
    assert given(Address("Rome", number=2)) == ["--town", "--number"]
    assert given(Address("Rome", number=2), "streets", "number") == ["--number"]
