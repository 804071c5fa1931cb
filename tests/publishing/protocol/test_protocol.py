"""The protocol of publishing, explored exhaustively.

The proofs hold for every interleaving within the bounds of a scenario, under the assumptions of ``world.Assumptions``.
Each assumption and each rule of the protocol has a test that shows what happens without it.
TTLSNAP_MATRIX=full explores larger bounds. ``pytest -s`` prints the number of worlds.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

from ...matrix import FULL, rotating
from .commands import STEPS
from .explore import Explored, explore
from .invariants import ALL
from .model import Model
from .world import Assumptions, Left, Rules, Scenario, World, begin

pytestmark = pytest.mark.slow

KINDS = ("snapshot", "zip")


@cache
def run(scenario: Scenario, invariants: tuple[str, ...] = ALL) -> Explored[World]:
    """Explore a scenario."""
    model = Model(scenario, invariants)
    return explore(begin(scenario), model.successors, model.violation)


COMPACT_ONLY = ("compact", "recover", "undo")
UPLOADED = Scenario(query="idle", commands=COMPACT_ONLY, left=Left(a=2, crashes=1, uploads=1))
SCENARIOS = {
    "a stopped query": Scenario(left=Left(a=2, crashes=1, starts=1)),
    "a batch that was cut off": Scenario(uncommitted=True, left=Left(a=2, crashes=1, starts=1)),
    "an idle query": Scenario(query="idle", left=Left(a=2, crashes=1, starts=1)),
    "a query that runs a batch": Scenario(query="slow", left=Left(a=2, crashes=1, starts=1)),
    "maintenance of an idle query": UPLOADED,
    "a snapshot that is still to be uploaded": Scenario(query="idle", snapshotted=False, left=Left(a=1, uploads=2)),
    "a batch that is set back": Scenario(snapshotted=False, left=Left(a=2, starts=1, set_backs=1)),
    "versions that are cleaned up": Scenario(left=Left(a=2, starts=1, set_backs=1, cleanups=1)),
    "a fence that is removed by hand": Scenario(left=Left(a=2, crashes=1, starts=1, unfences=1)),
    "a snapshot that Spark fails to read": Scenario(left=Left(a=2, crashes=1, starts=1, misreads=1)),
    "two hosts": Scenario(left=Left(a=1, b=1, crashes=1, starts=1)),
}
WIDE = {
    "a stopped query": Left(a=4, crashes=2, starts=2),
    "a batch that was cut off": Left(a=4, crashes=2, starts=2),
    "an idle query": Left(a=3, crashes=2, starts=1),
    "a query that runs a batch": Left(a=3, crashes=2, starts=2),
    "maintenance of an idle query": Left(a=2, crashes=2, uploads=1),
    "a snapshot that is still to be uploaded": Left(a=2, crashes=1, starts=1, uploads=2),
    "a batch that is set back": Left(a=3, crashes=1, starts=2, set_backs=1),
    "versions that are cleaned up": Left(a=3, crashes=1, starts=2, set_backs=1, cleanups=1),
    "a fence that is removed by hand": Left(a=3, crashes=2, starts=1, unfences=1),
    "a snapshot that Spark fails to read": Left(a=3, crashes=1, starts=2, misreads=2),
    "two hosts": Left(a=2, b=2, crashes=1, starts=1),
}


@pytest.mark.parametrize(("name", "kind"), rotating(list(product(SCENARIOS, KINDS)), 8, "scenarios"))
def test_every_invariant_holds(name: str, kind: str) -> None:
    scenario = SCENARIOS[name]._replace(kind=kind)
    found = run(scenario._replace(left=WIDE[name]) if FULL else scenario)
    print(f"{name}, {kind}: {found}")
    assert found.violation is None, str(found)


def test_every_step_of_every_actor_occurs() -> None:
    scenarios = [scenario._replace(kind=kind) for scenario in SCENARIOS.values() for kind in KINDS]
    labels = {label for scenario in scenarios for label in run(scenario).labels}
    seen = {label.split(": ")[2].split(" state")[0] for label in labels if label.count(": ") == 2}
    # "settle" and "plan" are the first steps of commands. Their labels name the command instead.
    assert set(STEPS) - {"plan", "settle"} <= seen
    parts = [
        *("a: compact", "a: recover", "a: undo", "a: rollback", "a: repair", "is killed", "time passes"),
        *("query: finds batch 2 taken, and stops", "query: starts, to run batch 2 again", "query: commits batch 1"),
        *("maintenance: has uploaded", "maintenance: removes", "operator: sets batch 1 back", "by hand"),
        "from an older snapshot",
    ]
    assert [part for part in parts if not any(part in label for label in labels)] == []


SET_BACK = Scenario(snapshotted=False, left=Left(a=2, starts=2, set_backs=1))
UNTRUE = {
    "stopped_is_true": (Scenario(query="slow", left=Left(a=1)), "whole"),
    "batches_end": (Scenario(query="slow", left=Left(a=1)), "whole"),
    "uploads_end": (Scenario(query="idle", snapshotted=False, left=Left(a=1, uploads=1)), "whole"),
    "starts_show": (Scenario(uncommitted=True, left=Left(a=1, starts=1)), "recovered"),
    "warned": (SET_BACK, "recovered"),
    "fence_stays": (Scenario(left=Left(a=1, starts=1, unfences=1)), "whole"),
}


@pytest.mark.parametrize("assumption", UNTRUE)
def test_without_an_assumption_there_is_a_counterexample(assumption: str) -> None:
    scenario, invariant = UNTRUE[assumption]
    assert run(scenario).violation is None
    found = run(scenario._replace(assumes=Assumptions()._replace(**{assumption: False})))
    print(f"without {assumption}: {found}")
    assert found.violation is not None
    assert found.violation.startswith(invariant)


def test_removing_the_folder_of_ttlsnap_makes_a_hidden_batch_unrecognisable() -> None:
    found = run(SET_BACK._replace(left=SET_BACK.left._replace(removals=1)))
    print(found)
    assert found.violation is not None
    assert found.violation.startswith("whole")
    assert found.trace[-1] == "operator: removes the folder _ttlsnap"


LATE = Assumptions(batches_end=False, seen_by_recheck=True)


@pytest.mark.parametrize("assumption", ["stopped_is_true", "batches_end"])
def test_a_slow_batch_is_harmless_if_it_ends_before_the_recheck(assumption: str) -> None:
    late = Assumptions(seen_by_recheck=True)._replace(**{assumption: False})
    for kind in KINDS:
        scenario = Scenario(kind=kind, query="slow", commands=COMPACT_ONLY, left=Left(a=2, crashes=1), assumes=late)
        assert run(scenario).violation is None, str(run(scenario))


class Defect(NamedTuple):
    """A rule that is switched off, the scenario, and the invariant that is then violated."""

    rule: str
    scenario: Scenario
    invariant: str
    checked: tuple[str, ...] = ALL


CUT_OFF = Scenario(uncommitted=True, left=Left(a=2, crashes=1, starts=1))
RESTARTED = Scenario(uncommitted=True, left=Left(a=1, starts=1))
IDLE = Scenario(query="idle", left=Left(a=1))
# ttlsnap 0.1 planned no batch, and moved tables away.
OLD_TTLSNAP = Scenario(
    kind="zip",
    query="idle",
    commands=("compact", "prune"),
    left=Left(a=2),
    rules=Rules(planned_batch=False, tables_stay=False),
)
IDLE_ZIP = IDLE._replace(kind="zip", rules=Rules(planned_batch=False))
SLOW = Scenario(query="slow", commands=COMPACT_ONLY, left=Left(a=1), assumes=LATE)
TWO_HOSTS = Scenario(left=Left(a=1, b=1))
# A second host works without a lease.
NO_LEASE = Scenario(kind="zip", commands=("compact", "recover"), left=Left(a=1, b=1), rules=Rules(lease=False))

DEFECTS = {
    "the fence is removed, though an idle query is alive": Defect("planned_batch", IDLE, "whole"),
    "the fence is removed, and then the planned batch created": Defect("atomic_plan", IDLE, "whole"),
    "the place of the planned batch is free during rollback": Defect(
        "fence_on_plan", Scenario(query="idle", left=Left(a=2)), "named"
    ),
    "tables are moved away, and an idle query names them": Defect("tables_stay", IDLE_ZIP, "whole"),
    "the delta of a rewritten version stays": Defect(
        "deltas_to_backup", Scenario(left=Left(a=1, starts=1, misreads=1)), "whole"
    ),
    "a leftover snapshot of an uncommitted version stays": Defect("leftovers_to_backup", RESTARTED, "whole"),
    "the journal is written after the fence": Defect("journal_first", Scenario(left=Left(a=1)), "named"),
    "the journal is closed before the fence is gone": Defect("close_last", RESTARTED, "named"),
    "new files come before old ones are safe": Defect("old_first", Scenario(left=Left(a=1)), "kept"),
    "no check behind the fence": Defect("check", RESTARTED, "whole"),
    "a restart during a long run is not noticed": Defect("check_files", RESTARTED, "whole"),
    "no second look when the files are in place": Defect("recheck", SLOW, "whole"),
    "no lease on a second host": Defect("lease", TWO_HOSTS, "named"),
    "a backup is removed with the last copy": Defect("keep_backup", NO_LEASE, "copied", ("copied",)),
    "prune removes a table that a version needs": Defect("prune_asks", OLD_TTLSNAP, "copied", ("copied",)),
    "a snapshot that hides a rerun is not recognised": Defect("recognise", SET_BACK, "whole", ("whole",)),
    "rollback refuses a batch that was set back": Defect("set_back_allowed", SET_BACK, "named"),
    "rollback trusts the batch number alone": Defect(
        "rollback_compares", Scenario(kind="zip", left=Left(a=2, starts=1, set_backs=1)), "recovered"
    ),
    "rollback brings back what can no longer be loaded": Defect(
        "rollback_loads", Scenario(kind="zip", left=Left(a=2, starts=1, set_backs=1, cleanups=1)), "recovered"
    ),
    "rollback passes over a planned batch that was committed": Defect(
        "spare_committed", Scenario(left=Left(a=2, starts=1)), "whole"
    ),
    "rollback leaves the planned batch": Defect("take_plan_back", Scenario(left=Left(a=2)), "taken back"),
    "rollback removes a planned batch that the sink has": Defect(
        "begun_plan_stays", Scenario(left=Left(a=2, starts=2, crashes=1)), "delivered"
    ),
    "recover trusts the batch number alone": Defect("recover_compares", UPLOADED, "recovered"),
    "recover does not look at the files when they are in place": Defect("recover_rechecks", UPLOADED, "whole"),
    "recover does not wait for a file that is being uploaded": Defect("uploads_awaited", UPLOADED, "whole"),
    "recover finishes a run that had not passed its check": Defect("unchecked_undone", CUT_OFF, "recovered"),
    "recover finishes a run although a batch was committed since": Defect("gone_on_undone", SLOW, "recovered"),
    "recover undoes a run whose fence is gone already": Defect("finished_closed", CUT_OFF, "recovered"),
}


def test_each_rule_has_a_defect() -> None:
    assert {defect.rule for defect in DEFECTS.values()} == set(Rules._fields)


@pytest.mark.parametrize("name", rotating(list(DEFECTS), 10, "planted defects"))
def test_a_planted_defect_violates_an_invariant(name: str) -> None:
    rule, scenario, invariant, checked = DEFECTS[name]
    assert run(scenario, checked).violation is None
    found = run(scenario._replace(rules=scenario.rules._replace(**{rule: False})), checked)
    print(f"{name}: {found}")
    assert found.violation is not None
    assert found.violation.startswith(invariant)
