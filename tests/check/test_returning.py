"""Real Spark on state variables that return: ``check``, ``inspect`` and ``migrate`` say what it does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import Drop, EntryTransformerFactory, Keep, compact, doctor, inspect, migrate
from ttlsnap.check import compare
from ttlsnap.contract import contract_of_checkpoint, parse_contract

from ..judge.processes import NEWEST
from ..judge.spark import Judge
from ..matrix import rotating
from .returned import declared_as, with_variable
from .returning import Declared

STAY = (Declared("stays", "value"), Declared("expires", "value", ttl=True))
GO = tuple(
    Declared(f"{kind}{'_ttl' * ttl}", kind, ttl=ttl) for kind in ("value", "list", "map") for ttl in (False, True)
)
HELD = {"value": "1", "list": "0,1", "map": "n0:0,n1:1"}
OTHERS = [
    *(one._replace(type="string") for one in GO),
    *(one._replace(type="bigint") for one in GO),
    *(one._replace(ttl=not one.ttl) for one in GO),
    *(one._replace(kind="map") for one in GO if one.kind != "map"),
    *(one._replace(kind=kind) for one in GO if one.kind == "map" for kind in ("value", "list")),
    *(one._replace(kind="value") for one in GO if one.kind == "list"),
]
"""Variables that return as others. Not here: a list in place of a value, for which a query can hang."""


@dataclass
class Job:
    """A query on a checkpoint in ``folder``, which restarts with other variables."""

    judge: Judge
    folder: Path
    version: str
    encoding: str

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def run(self, declared: Sequence[Declared], deleted: Sequence[str] = ()) -> dict[str, Any]:
        """Run a batch with one more event, and return what ``run_once`` does."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        number = len(list(source.iterdir()))
        (source / f"{number}.json").write_text(json.dumps({"key": "a", "number": number}))
        order = {"checkpoint": str(self.checkpoint), "source": str(source), "encoding": self.encoding}
        found: dict[str, Any] = self.judge.call_in(
            Path(__file__).parent, self.version, "returning.run_once", declared=declared, deleted=deleted, **order
        )
        return found

    def keep(self, name: str) -> None:
        """Keep a copy of the job's folder, for ``restore``."""
        shutil.copytree(self.folder, self.folder.with_name(name))

    def restore(self, name: str) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.folder.with_name(name), self.folder)

    def verdict(self, one: Declared) -> tuple[str, str]:
        """Return the verdict of ``check`` on a variable that returns, and what it says of Spark."""
        document = with_variable(self.checkpoint, one.name, lambda found: declared_as(found, one))
        report = compare(contract_of_checkpoint(str(self.checkpoint)), parse_contract(json.dumps(document), "new"))
        (found,) = (found for found in report.findings if found.place.state == one.name)
        assert found.code == "variable-returned"
        return found.verdict.value, found.spark


@pytest.mark.wide
@pytest.mark.parametrize(
    ("version", "encoding"),
    rotating(
        [("4.0", "unsaferow"), ("4.1", "avro"), (NEWEST, "unsaferow"), (NEWEST, "avro"), ("4.3", "unsaferow")],
        2,
        "returning variables",
    ),
)
def test_real_spark_treats_variables_that_return_as_check_says(
    judge: Judge, tmp_path: Path, version: str, encoding: str
) -> None:
    job = Job(judge, tmp_path / "job", version, encoding)
    job.folder.mkdir()
    for _ in range(2):
        assert "held" in job.run([*STAY, *GO])
    job.keep("before")
    assert job.run(STAY) == {"held": {"stays": "1", "expires": "1"}}
    job.keep("removed")
    unused = {s.name: s.descriptor.kind for s in inspect(str(job.checkpoint)).states() if s.unused and s.descriptor}
    assert {name: kind for name, kind in unused.items() if "$" not in name} == {one.name: one.kind for one in GO}

    assert {job.verdict(one)[0] for one in GO} == {"unknown"}
    held = {"stays": "2", "expires": "2", **{one.name: HELD[one.kind] for one in GO}}
    assert job.run([*STAY, *GO]) == {"held": held}

    for one in OTHERS:
        if encoding == "avro" and one.type == "int":
            continue  # a process can crash if Avro reads other values than it expects
        job.restore("removed")
        verdict, spark = job.verdict(one)
        done = job.run([*STAY, one])
        if verdict == "unknown":
            assert done["held"][one.name] == HELD[one.kind], one
        elif "silent" in spark:
            assert done["held"][one.name] != HELD[one.kind], one
        else:
            assert (verdict, done["error"] in spark) == ("incompatible", True), (one, done)

    job.restore("removed")
    migrate(str(job.checkpoint), drops=[one.name for one in GO], partitions=2, stopped=True)
    assert not any(state.unused for state in inspect(str(job.checkpoint)).states())
    assert job.run(STAY) == {"held": {}}  # the batch that ttlsnap planned
    new = [*STAY, *(one._replace(type="string", ttl=not one.ttl) for one in GO)]
    assert job.run(new) == {"held": {"stays": "2", "expires": "2", **{one.name: "" for one in GO}}}

    job.restore("before")
    names = [one.name for one in GO]
    assert job.run(STAY, names) == {"held": {"stays": "1", "expires": "1"}}
    assert {job.verdict(one)[0] for one in GO} == {"as_is"}
    assert job.run([*STAY, *GO]) == {"held": {"stays": "2", "expires": "2", **{one.name: "" for one in GO}}}


def but_not_3(key: dict[str, Any], value: dict[str, Any]) -> Drop | Keep:
    """Drop the elements with the number 3."""
    return Drop() if 3 in (value.get("x"), (value.get("value") or {}).get("x")) else Keep()


@pytest.mark.wide
def test_spark_continues_with_what_delete_if_exists_left_and_so_does_compact(judge: Judge, tmp_path: Path) -> None:
    job = Job(judge, tmp_path / "job", NEWEST, "unsaferow")
    job.folder.mkdir()
    for declared, deleted in ((GO, ()), (GO, ()), (STAY, [one.name for one in GO]), (GO, ()), (GO, ())):
        assert "held" in job.run([*STAY, *declared] if declared is GO else declared, deleted)
    assert not [problem for problem in doctor(str(job.checkpoint)).problems if problem.severity == "error"]
    report = compact(str(job.checkpoint), [EntryTransformerFactory(but_not_3)], stopped=True)
    assert report.totals.dropped == 4  # an element of both lists and of both maps
    assert not [problem for problem in doctor(str(job.checkpoint)).problems if problem.severity == "error"]
    assert job.run([*STAY, *GO]) == {"held": {}}  # the batch that ttlsnap planned
    left = {"value": "4", "list": "4", "map": "n4:4"}
    assert job.run([*STAY, *GO]) == {"held": {"stays": "4", "expires": "4", **{one.name: left[one.kind] for one in GO}}}
