"""An option that is left out has the same default on the command line as in Python."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import ttlsnap
from ttlsnap.cli import diff, explain, importing
from ttlsnap.cli.compact import PartitionOptions, TableOptions, TrialOptions
from ttlsnap.cli.dropping import DroppedOptions, OperatorOptions
from ttlsnap.cli.export import RowOptions
from ttlsnap.cli.groups import separate
from ttlsnap.cli.inspect import LookOptions
from ttlsnap.cli.options import PublishingOptions, StateOptions
from ttlsnap.delta.planning import Limits
from ttlsnap.delta.run import compact_table
from ttlsnap.operators.registry import Selection

NOTHING = {"selection": Selection(), "schemas": {}, "limits": Limits()}
"""What some commands pass where a function has None for the same."""


def defaults_of(function: Any) -> dict[str, Any]:
    """Return the default of each parameter."""
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize(
    ("arguments", "function"),
    [
        (StateOptions().arguments(), ttlsnap.compact),
        (PublishingOptions().arguments(), ttlsnap.compact),
        (PartitionOptions().arguments(), ttlsnap.compact),
        (OperatorOptions().arguments(), ttlsnap.compact),
        (DroppedOptions().arguments(), ttlsnap.compact),
        ({name: getattr(TrialOptions(), name) for name in ("dry_run", "show")}, ttlsnap.compact),
        (TableOptions().arguments(yes=False), compact_table),
        (StateOptions().arguments(), ttlsnap.inspect),
        (LookOptions().arguments(), ttlsnap.inspect),
        (RowOptions().arguments(), ttlsnap.export),
        (PublishingOptions().arguments(), ttlsnap.import_state),
    ],
)
def test_a_group_has_the_defaults_of_the_function(arguments: dict[str, Any], function: Any) -> None:
    defaults = defaults_of(function)
    found = {name: value for name, value in arguments.items() if value != defaults[name]}
    assert found == {name: NOTHING[name] for name in found}


@pytest.mark.parametrize(
    ("command", "function", "names"),
    [
        (explain.explain, ttlsnap.explain, ("now", "timers", "drop_unmatched", "show")),
        (diff.diff, ttlsnap.diff, ("old_batch", "new_batch", "examples")),
        (importing.import_, ttlsnap.import_state, ("mode", "dry_run", "scratch")),
    ],
)
def test_a_command_has_the_defaults_of_the_function(command: Any, function: Any, names: tuple[str, ...]) -> None:
    mine, defaults = defaults_of(separate(command)), defaults_of(function)
    assert {name: mine[name] for name in names} == {name: defaults[name] for name in names}
