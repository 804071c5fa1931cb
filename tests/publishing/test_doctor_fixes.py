"""Repairs of ``doctor`` that are killed or fail at any call leave the checkpoint unchanged or repaired."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from ..compaction.stories import BATCHES, drop_expired, rocksdb, settled
from ..diagnosis.repartitions import abandon, cut_off
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL, rotating
from ..samples import moved_sample, sample
from .faults import KILL, Faults, Point, Step, Workshop, errors, faults, kills, publishing_calls, told_well
from .interventions import put_zips_back, set_back
from .trees import Tree, differences, is_fenced, tree


@dataclass(frozen=True)
class Repair:
    """The name of a repair, and a function that makes a checkpoint that needs it."""

    name: str
    make: Callable[[Judge, Path], Path]

    def argv(self, path: Path) -> list[str]:
        return [*("doctor", str(path), "--fix", self.name, "--stopped", "--yes", "--parallelism", "1"), *JSON]


JSON = ("--format", "json")


def of_sample(
    name: str, damage: Callable[[Path], object] = lambda path: None, *, moved: bool = False
) -> Callable[[Judge, Path], Path]:
    def make(judge: Judge, folder: Path) -> Path:
        path = (moved_sample if moved else sample)(name, folder)
        damage(path)
        return path

    return make


def empty_file(name: str) -> Callable[[Path], None]:
    """Return a function that empties a file, like a power cut after its name was synced, but not its bytes."""

    def damage(path: Path) -> None:
        (path / name).write_bytes(b"")
        folder, _, last = name.rpartition("/")
        (path / folder / f".{last}.crc").unlink(missing_ok=True)

    return damage


def run_again(judge: Judge, folder: Path) -> Path:
    """Return a checkpoint whose last batch was set back after a compaction, and then run again by Spark."""
    written = judge.write(Query("agg_update"), BATCHES)
    settled(written.path)
    drop_expired(written.path, written.query)
    set_back(judge, written)
    judge.restart(written, [])
    settled(written.path)
    return written.path


def without_tables(judge: Judge, folder: Path) -> Path:
    written = judge.write(Query(provider="rocksdb"), BATCHES, layout="snapshot")
    put_zips_back(written.path, drop_expired(written.path, written.query, rewrite="full").run)
    return written.path


def unfinished_repartition(judge: Judge, folder: Path) -> Path:
    written = judge.write(rocksdb("agg_update", True), BATCHES, layout="deltas")
    settled(written.path)
    cut_off(judge, written, 4)
    settled(written.path)
    return written.path


def abandoned_repartition(judge: Judge, folder: Path) -> Path:
    path = unfinished_repartition(judge, folder)
    abandon(path)
    return path


REPAIRS = {
    "torn offset": Repair("torn-offset", of_sample("uncommitted-batch-4.2", empty_file("offsets/4"))),
    "last batch lost": Repair("last-batch-lost", of_sample("agg-deltas-lz4-4.2", empty_file("state/0/1/6.delta"))),
    "moved schema paths": Repair("moved-schema-paths", of_sample("visits-4.2", moved=True)),
    "batch that ran again": Repair("hidden-batch", run_again),
    "stale snapshot": Repair("stale-snapshot", of_sample("agg-deltas-lz4-4.2", empty_file("state/0/0/9.snapshot"))),
    "last batch lost, RocksDB": Repair("last-batch-lost", of_sample("rocksdb-4.2", empty_file("state/0/0/2.zip"))),
    "table in a backup": Repair("table-in-backup", without_tables),
    "unfinished repartition": Repair("unfinished-repartition", unfinished_repartition),
    "abandoned repartition": Repair("abandoned-repartition", abandoned_repartition),
}
SLICE = rotating(list(REPAIRS), 1, "repairs")


@pytest.fixture(scope="module", params=REPAIRS if FULL else SLICE)
def repair(request: pytest.FixtureRequest) -> Repair:
    return REPAIRS[request.param]


@pytest.fixture(scope="module")
def step(repair: Repair, workshop: Workshop, judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Step:
    start = repair.make(judge, tmp_path_factory.mktemp("damaged"))
    assert repair.name in problems(workshop, start)
    step = workshop.step(f"fix {repair.name}", start, repair.argv)
    assert step.old != step.new
    return step


def problems(workshop: Workshop, path: Path) -> set[str]:
    found = workshop.commands.run("doctor", str(path), "--parallelism", "1", *JSON)
    return {problem["code"] for problem in found.json["problems"]}


def content(path: Path, start: Path) -> Tree:
    """Return the tree of a checkpoint with its own path replaced, so that copies are equal.

    The files of RocksDB that are not those of ``start`` have random ids, in their names and in themselves.
    """
    found, known = tree(path), set(tree(start).values())
    for file in path.glob("state/*/_metadata/**/*"):
        name = str(file.relative_to(path))
        if file.is_file() and not file.name.endswith(".crc"):
            found[name] = hashlib.sha256(file.read_bytes().replace(str(path).encode(), b"HERE")).hexdigest()
    for name, digest in list(found.items()):
        if name.endswith((".zip", ".sst")) and digest not in known:
            del found[name]
            found[re.sub("-[0-9a-f-]{36}", "", name)] = "new"
    return found


@pytest.mark.parametrize("fault", [kills, errors] if FULL else [faults])
def test_an_interrupted_repair_leaves_the_old_or_the_new_state(
    workshop: Workshop, repair: Repair, step: Step, fault: Faults
) -> None:
    repaired = workshop.after(step.start, step.argv)
    view = partial(content, start=step.start)
    old, new = view(step.start), view(repaired)
    assert repair.name not in problems(workshop, repaired)

    def judge(step: Step, point: Point) -> None:
        path, traced = workshop.cut(step, point)
        found, fenced = view(path), is_fenced(path)
        assert fenced or found in (old, new), f"neither old nor new, and no fence: {differences(found, old)}"
        recover = ["recover", str(path), *JSON]
        first, second = workshop.commands.run_all([recover, recover])
        assert first.code == 0, f"recover: {first.err}"
        assert (second.code, second.json["outcome"]) == (0, "nothing")
        recovered = view(path)
        assert recovered in (old, new), f"recover left neither: {differences(recovered, old)}"
        assert fenced or recovered == found, "recover changed what was whole"
        if point.fault != KILL:
            needs_recover = first.json["outcome"] != "nothing"
            told_well(traced.ended, step.argv(path)[0], point, needs_recover=needs_recover, is_done=found == new)
        if recovered == new:
            back = workshop.commands.run("rollback", str(path), "--stopped")
            assert back.code == 0, back.err
            assert view(path) == old
        again = workshop.commands.run(*repair.argv(path))
        assert json.loads(again.out)["fixed"] == [repair.name], again.err
        assert view(path) == new
        shutil.rmtree(path.parent)

    workshop.check(step, fault(publishing_calls(step)), judge)
