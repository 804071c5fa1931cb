"""What stops Spark when a query starts: doctor has a problem for it, and nothing is published upon it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..compaction.stories import BATCHES, digest
from ..judge.processes import NEWEST
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL, rotating
from .asked import doctor
from .starts import BOTH, DAMAGES, LAST, PAGE, QUERIES, VERSIONS, Damage, observe, observed, page, settle, stops, table

pytestmark = pytest.mark.slow

LOGS = ("offsets", "commits", "both logs", "metadata", "sources")
RULE = ["--ttl", "1s", "--timestamp", "value.max", "--stopped", "--yes", "--max-drop", "100%"]


@pytest.fixture(scope="module", params=BOTH)
def written(request: pytest.FixtureRequest, inputs: Judge) -> tuple[str, Checkpoint]:
    return request.param, settle(inputs.write(QUERIES[request.param], BATCHES))


def _damaged(written: Checkpoint, damage: Damage, place: Path) -> Path:
    target = place / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(written.path, target)
    damage.do(target)
    return target


def test_doctor_finds_what_stops_spark(written: tuple[str, Checkpoint], tmp_path: Path) -> None:
    store, checkpoint = written
    for damage in DAMAGES:
        if store not in damage.stores:
            continue
        found = doctor(_damaged(checkpoint, damage, tmp_path))
        if isinstance(damage.codes, str):
            assert (found.code, damage.codes in found.error) == (2, True), (damage.name, found.error)
        else:
            assert set(found.codes) == set(damage.codes), (damage.name, found.document["problems"])
        assert damage.why or (found.code != 0) is stops(damage), damage.name


def test_nothing_is_published_upon_what_stops_spark(
    inputs: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = settle(inputs.write(QUERIES["hdfs"], BATCHES))
    for damage in DAMAGES:
        if damage.area not in LOGS:
            continue
        target = _damaged(checkpoint, damage, tmp_path)
        before = digest(target)
        code = run(["compact", str(target), *RULE])
        # Of the logs of sources, only the names are looked at.
        is_seen = damage.area != "sources" or damage.what.endswith(("missing", "follows `sources/0/N`"))
        # The state of the batch is there, so the sink may have it.
        is_uncommitted = damage.what in ("`commits/N` is missing", "batch `N` was removed from both")
        is_refused = (stops(damage) and is_seen and not damage.why) or is_uncommitted
        assert (code != 0) is is_refused or damage.why, (damage.name, code, capsys.readouterr().err)
        assert (digest(target) == before) is (code != 0), damage.name


def test_every_command_refuses_or_warns(inputs: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = settle(inputs.write(QUERIES["hdfs"], BATCHES))
    target, state = str(tmp_path / "damaged"), str(tmp_path / "state")
    shutil.copytree(checkpoint.path, target)
    assert run(["export", target, "--to", state]) == 0
    assert run(["compact", target, *RULE]) == 0
    torn = Path(target, f"offsets/{LAST + 1}")
    torn.write_bytes(torn.read_bytes()[:60])
    torn.with_name(f".{torn.name}.crc").unlink(missing_ok=True)
    before = digest(Path(target))
    for words in (
        ["compact", target, *RULE],
        ["migrate", target, "--partitions", "3", "--stopped"],
        ["import", target, "--from", state, "--mode", "replace", "--stopped", "--yes"],
    ):
        capsys.readouterr()
        assert run(words) == 5
        told = " ".join(capsys.readouterr().err.split())
        assert f"Batch {LAST + 1} was started but not committed" in told and f"ttlsnap doctor {target}" in told, told
        assert digest(Path(target)) == before
    assert run(["inspect", target]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "it runs again" not in told and f"Run: ttlsnap doctor {target}" in told
    assert run(["rollback", target, "--stopped"]) == 0
    assert f"Run: ttlsnap doctor {target}" in " ".join(capsys.readouterr().err.split())
    assert run(["doctor", target, "--fix", "torn-offset", "--stopped"]) == 0
    assert run(["doctor", target]) == 0


def test_spark_does_what_was_observed(judge: Judge) -> None:
    for version in VERSIONS if FULL else [NEWEST]:
        checkpoint = settle(judge.write(QUERIES["hdfs"], BATCHES, version=version))
        mine = [one for one in DAMAGES if "hdfs" in one.stores and one.since <= version]
        for damage in rotating(mine, 2, f"starts {version}", pinned=lambda one: one.area == "nothing"):
            assert observe(judge, checkpoint, damage) == observed()[damage.name][f"{version} hdfs"], damage.name


def test_the_page_has_the_current_table() -> None:
    assert PAGE.read_text() == page(), "python -m tests.diagnosis.starts document writes it"
    assert len(table().splitlines()) == len(DAMAGES) + 2
