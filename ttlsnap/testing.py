"""Test helpers for repositories with streaming queries.

    from ttlsnap.testing import assert_restorable

    def test_production_restores(state_contract):
        new = state_contract("jobs.sessions:build", "user string, at timestamp", output_mode="append")
        assert_restorable("contracts/sessions.json", new)

pytest loads this module as a plugin.
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
    """Provide a function that creates contracts of queries: ``state_contract(build, schemas, conf=..., ...)``.

    It takes the arguments of ``ttlsnap.contract.of_query.contract_of_query``. All contracts are created in one Spark
    session, which is the active one if there is one.
    """
    from ttlsnap.contract.of_query import contract_of_query, start_session
    from ttlsnap.engines.launch import find_session

    active = find_session()
    if active is not None:
        yield lambda build, schemas, **options: contract_of_query(build, schemas, **{"session": active, **options})
        return
    with start_session({}) as session:
        yield lambda build, schemas, **options: contract_of_query(build, schemas, **{"session": session, **options})


def assert_restorable(
    old: Contract | TableContract | Path | str,
    new: Contract | TableContract | Path | str,
    *,
    direction: str = "backward",
    renamed: Mapping[str, str] | None = None,
    ignore: tuple[str, ...] | str = (),
    ignore_file: Path | str | None = None,
    strict: bool = False,
) -> None:
    """Raise AssertionError with the report unless the query of ``new`` can restore from the state of ``old`` as it is.

    With ``strict``, raise it also if something could not be compared, as ``check --strict`` does: a checkpoint, for
    example, does not record windows, aggregates and functions.

    ``old`` and ``new`` are each a contract, or the path of a contract, a checkpoint or a Delta table. ``ignore`` has
    ``code`` or ``code:where`` of findings that do not count, as in ``check --ignore``. Those of ``ignore_file`` do not
    count, either. By default it is ``.ttlsnap-ignore.toml`` in the current folder, if that exists.
    """
    __tracebackhide__ = True  # for pytest, so that the report is not below the source of this function
    from ttlsnap.check import StateFindings, Verdict, check
    from ttlsnap.check.ignores import find_default_file, gather_ignores
    from ttlsnap.check.reports import REPORTS
    from ttlsnap.check.state import examine_state
    from ttlsnap.check.targets import load_contract

    contracts = [load_contract(str(side)) if isinstance(side, str | Path) else side for side in (old, new)]
    names = [str(side) if isinstance(side, str | Path) else name for side, name in ((old, "old"), (new, "new"))]
    ignore = (ignore,) if isinstance(ignore, str) else ignore
    state = examine_state(str(old)) if isinstance(old, str | Path) else StateFindings()
    report: Any = check(
        *contracts,
        direction=direction,
        renamed=renamed or {},
        names=(names[0], names[1]),
        state=state,
        ignores=gather_ignores(ignore, find_default_file() if ignore_file is None else Path(ignore_file)),
    )
    if report.verdict is not Verdict.AS_IS or (strict and report.unseen):
        words = "something could not be compared" if report.verdict is Verdict.AS_IS else report.verdict
        raise AssertionError(f"{names[0]} to {names[1]}, {direction}: {words}\n" + REPORTS["text"](report))
