"""Publishing a RocksDB state: killed and broken at each call that publishes, it is the old one or the new one.

The new one is not the same bytes twice (RocksDB writes ids and times into its tables), so that it is known by what is
in it, and by what ``rollback`` makes of it: the old one again, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import inspect

from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .commands import Commands
from .faults import Point, Step, Workshop, errors, kills, samples
from .stories import BATCHES, LATER, compact
from .syscalls import Call
from .trees import Tree, is_fenced, tree

_TOLD_APART = ("rename", "link", "unlink", "fsync", "mkdir")


@pytest.fixture(scope="module")
def workshop(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(commands, tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module", params=["full", "tombstones"] if FULL else ["full"])
def compaction(request: pytest.FixtureRequest, workshop: Workshop, judge: Judge) -> Step:
    """A zip is replaced, its own tables are linked into the backup, and the zip of an uncommitted batch goes there."""
    made = judge.write(Query(provider="rocksdb"), BATCHES, layout="snapshot", uncommitted=LATER[0])
    step = workshop.step("compact", made.path, lambda path: compact(path, "--rewrite", request.param))
    renamed = [call.path for call in published(step) if call.name == "rename"]
    assert {"state/0/0/3.zip", "state/0/0/4.zip"} <= set(renamed)
    assert not any("/SSTs/" in path and path.startswith("state/") for path in renamed)
    linked = [call.path for call in published(step) if call.name == "link"]
    assert any("/SSTs/" in path and path.startswith("state/") for path in linked) == (request.param == "full")
    return step


def published(step: Step) -> list[Call]:
    """The calls from the staging of the first file on; RocksDB's own, in its scratch folder, are not among them."""
    return [call for call in step.calls if call.name in _TOLD_APART and "/scratch" not in call.path]


def entries(checkpoint: Path) -> Any:
    return inspect(str(checkpoint), entries=1000).samples


@pytest.mark.parametrize("fault", [kills, errors])
def test_a_compaction_is_cut_off(
    workshop: Workshop, compaction: Step, fault: Callable[[Sequence[Call]], list[Point]]
) -> None:
    wanted = entries(workshop.after(compaction.start, compaction.argv))
    assert wanted != entries(compaction.start)

    def judge(step: Step, point: Point) -> None:
        path, _ = workshop.cut(step, point)
        found, fenced = tree(path), is_fenced(path)
        recover = ["recover", str(path), "--format", "json"]
        first, second = workshop.commands.run_all([recover, recover])
        assert first.code == 0, f"recover: {first.err}"
        assert (second.code, second.json["outcome"]) == (0, "nothing")
        assert not is_fenced(path)
        assert fenced or tree(path) == found, "recover changed what was whole"
        if tree(path) != step.old:
            assert entries(path) == wanted
            back = workshop.commands.run("rollback", str(path), "--stopped")
            assert back.code == 0, back.err
        assert without_new_folders(tree(path), step.old) == step.old
        litter = [str(left) for left in (path / "_ttlsnap").rglob("*") if left.name.endswith(".tmp")]
        litter += [str(left) for left in (path / "_ttlsnap").rglob("scratch")]
        assert not litter

    workshop.check(compaction, samples(fault(published(compaction))), judge)


def without_new_folders(found: Tree, old: Tree) -> Tree:
    return {path: content for path, content in found.items() if path in old or content != "a folder"}
