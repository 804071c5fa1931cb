"""For the tests of a repository that has streaming queries: pytest finds this module by itself.

from ttlsnap.testing import assert_restorable

def test_production_restores(state_contract):
    new = state_contract("jobs.sessions:build", "user string, at timestamp", output_mode="append")
    assert_restorable("contracts/sessions.json", new)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ttlsnap.contract import Contract, TableContract


@pytest.fixture(scope="session")
def state_contract() -> Iterator[Callable[..., Contract]]:
    """Makes contracts of queries: ``state_contract(build, schemas, conf=..., output_mode=...)``.

    See ``ttlsnap.contract.of_query.contract_of_query``. All are made in one Spark session, the active one if any.
    """
    from pyspark.sql import SparkSession

    from ttlsnap.contract.of_query import contract_of_query, started_session

    active = SparkSession.getActiveSession()

    if active is not None:
        yield lambda build, schemas, **options: contract_of_query(build, schemas, **{"session": active, **options})
        return
    with started_session({}) as session:
        yield lambda build, schemas, **options: contract_of_query(build, schemas, **{"session": session, **options})


def assert_restorable(
    old: Contract | TableContract | Path | str,
    new: Contract | TableContract | Path | str,
    *,
    direction: str = "backward",
    renamed: Mapping[str, str] | None = None,
    ignore: tuple[str, ...] | str = (),
) -> None:
    """Raise AssertionError, with the report, unless the query of ``new`` goes on with the state of ``old`` as it is.

    Each is a contract, the path of one, or that of a checkpoint or a Delta table. ``ignore`` are codes whose findings
    do not count, or ``code:where``, as ``check --ignore`` takes them.
    """
    from ttlsnap.check import Verdict, check
    from ttlsnap.check.ignores import apply, parse_ignore
    from ttlsnap.check.reports import REPORTS
    from ttlsnap.check.targets import load_contract

    contracts = [load_contract(str(side)) if isinstance(side, str | Path) else side for side in (old, new)]
    names = [str(side) if isinstance(side, str | Path) else name for side, name in ((old, "old"), (new, "new"))]
    ignore = (ignore,) if isinstance(ignore, str) else ignore
    report: Any = check(*contracts, direction=direction, renamed=renamed or {}, names=(names[0], names[1]))
    report = apply(report, [parse_ignore(text) for text in ignore])
    if report.verdict is not Verdict.AS_IS:
        raise AssertionError("\n" + REPORTS["text"](report))
