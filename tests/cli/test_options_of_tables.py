"""An option that does not apply to a kind of target is refused, and never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.main import get_command

from ttlsnap.cli.app import app

from ..samples import sample
from .running import Ttlsnap

QUERY = {"--to", "--rename", "--swap", "--drop", "--fill", "--birth", "--narrow", "--ignore"}
RULES = {"--ttl", "--timestamp", "--old-ttl", "--now", "--time", "--transformer", "--set", "--max-drop", "--expired-to"}
RUN = {"--dry-run", "--exit-code", "--yes", "--stopped", "--master", "--format"}
PAGE = {"--report", "--show-keys"}
TABLE = {"--key", "--jars", "--max-files", "--max-bytes", "--erase", "--retention"}
FOR_TABLES = {
    "compact": RULES | RUN | PAGE | TABLE,
    "inspect": {"--show", "--age", "--timestamp", "--now", "--format"} | PAGE,
    "migrate": QUERY | RUN | {"--jars"},
}
VALUES = {
    "--engine": "local",
    "--rewrite": "full",
    "--schema": "0.default=user STRING | count BIGINT",
    "--time": "event",
    "--timers": "follow",
    "--variables": "follow",
}
NAMED = {"--engine": "--engine local"}


def options_of(command: str) -> dict[str, list[str]]:
    """Return a use of each option of a command."""
    found: Any = get_command(app)
    options = [option for option in found.commands[command].params if option.param_type_name == "option"]
    return {
        option.opts[0]: [option.opts[0], *([] if option.is_flag else [VALUES.get(option.opts[0], "3")])]
        for option in options
    }


@pytest.mark.parametrize("command", FOR_TABLES)
def test_a_table_refuses_the_options_of_checkpoints(ttlsnap: Ttlsnap, command: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"user": ["a"], "at": pa.array([0], pa.timestamp("us", "UTC"))}))
    options = options_of(command)
    assert options.keys() >= FOR_TABLES[command]
    for option in options.keys() - FOR_TABLES[command]:
        code, _, err = ttlsnap(command, table, *options[option])
        told = f"{NAMED.get(option, option)} is for checkpoints, but {table} is not one"
        assert (code, told in " ".join(err.split())) == (2, True), (option, err)


@pytest.mark.parametrize("command", ["compact", "migrate"])
def test_a_checkpoint_refuses_the_options_of_tables(ttlsnap: Ttlsnap, command: str, tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    options = options_of(command)
    for option in (options.keys() & TABLE) - {"--retention"}:  # that needs --erase
        code, _, err = ttlsnap(command, target, *options[option])
        assert (code, f"{option} is for Delta tables, but" in " ".join(err.split())) == (2, True), (option, err)
