"""One name for each option, in all commands. Older names still work, but no help shows them."""

from __future__ import annotations

import pytest

from ..samples import SAMPLES
from .running import Ttlsnap

TARGET = str(SAMPLES / "agg-deltas-lz4-4.2")


@pytest.mark.parametrize(
    ("command", "name"),
    [(("inspect", TARGET), "--entries"), (("diff", TARGET, "--old-batch", "3"), "--examples")],
)
def test_an_older_name_of_show_works_and_is_not_shown(ttlsnap: Ttlsnap, command: tuple[str, ...], name: str) -> None:
    key = {"inspect": "entries", "diff": "states"}[command[0]]
    none, two, also_two = (
        ttlsnap(*command, *option, "--format", "json").json.get(key)
        for option in (("--show", "0"), ("--show", "2"), (name, "2"))
    )
    assert none != two == also_two
    words = ttlsnap(command[0], "--help").out.split()
    assert "--show" in words and name not in words
