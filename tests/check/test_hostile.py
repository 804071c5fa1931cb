"""A contract comes from a repository or a checkpoint. Its texts may be long, and comparing them takes linear time."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from ttlsnap.check import check
from ttlsnap.contract import Contract, TableContract, parse_contract
from ttlsnap.errors import UsageError

from .quality import KEPT

LONG = 100_000
MOST_S = 3
"""CPU time that no comparison needs. Quadratic time would be half a minute."""


def stored(name: str, change: Callable[[str], str]) -> list[Contract | TableContract]:
    """Return the contracts of a pair of queries, with the lines of the new one's plan changed."""
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    old, new = (kept["contracts"][contract] for contract in kept["pairs"][name])
    for operator in new["operators"]:
        operator["plan"] = [change(line) for line in operator["plan"]]
    return [parse_contract(json.dumps(document), "contract") for document in (old, new)]


CHANGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "digits in a gap": ("session-gap-longer", lambda line: line.replace("minute", "1" * LONG)),
    "depth of a key": ("session-gap-longer", lambda line: line.replace("user", "(" * 9000 + "user" + ")" * 9000)),
    "depth of an open key": ("session-gap-longer", lambda line: line.replace("user", "coalesce(" * 9000)),
    "digits of a gap": ("session-gap-longer", lambda line: line.replace(" minute", "1" * 5000 + " minute")),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_long_text_of_a_plan_takes_linear_time(case: str) -> None:
    old, new = stored(*CHANGES[case])
    before = time.process_time()
    assert check(old, new).findings
    assert time.process_time() - before < MOST_S


def test_a_version_of_many_digits_is_refused() -> None:
    def edit(document: dict[str, Any]) -> str:
        return json.dumps({**document, "spark": "4." + "0" * 3 + "1" * LONG, "planned_by": "1" * LONG + ".0"})

    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    with pytest.raises(UsageError, match="is not a contract"):
        parse_contract(edit(next(iter(kept["contracts"].values()))), "contract")
