"""Keys with calendar intervals: from 4.3 on, Spark's hash has their days, so the keys belong to other partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap import migrate
from ttlsnap.check import Verdict, check, compare
from ttlsnap.cli.app import run
from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.errors import NothingToMigrateError

from ..compaction.stories import WHOLE, settled
from ..diagnosis.asked import doctor
from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge
from ..samples import sample

INTERVALS = Query("dedup_interval", partitions=3)


def written(judge: Judge, version: str) -> Checkpoint:
    made = judge.write(INTERVALS, WHOLE, version=version)
    settled(made.path)
    return made


def setting(version: str) -> dict[str, str]:
    return {"interval-keys": version}


def test_the_keys_of_each_version_are_where_it_puts_them(inputs: Judge) -> None:
    for version in ("4.2", "4.3"):
        assert doctor(written(inputs, version).path).codes == []


@pytest.mark.parametrize("versions", [("4.2", "4.3"), ("4.3", "4.2")])
def test_check_finds_the_other_hash_and_a_migration_moves_the_keys(
    inputs: Judge, tmp_path: Path, versions: tuple[str, str]
) -> None:
    old, new = (written(inputs, version) for version in versions)
    contracts = [contract_of_checkpoint(str(one.path)) for one in (old, new)]
    assert [f.verdict for f in compare(*contracts).findings if f.code == "key-intervals"] == [Verdict.INCOMPATIBLE]
    report = check(*contracts)
    (finding,) = (finding for finding in report.findings if finding.code == "key-intervals")
    assert finding.verdict is Verdict.AFTER_MIGRATION
    assert finding.migration is not None and finding.migration["change"] == "rehash"
    (tmp_path / "new.json").write_text(contracts[1].dumps())
    ignored = ["--ignore", "spark-downgraded", "--ignore", "setting-ignored"]
    assert run(["migrate", str(old.path), "--to", str(tmp_path / "new.json"), "--dry-run", *ignored]) == 0
    report_of_settings = migrate(str(old.path), settings=setting(versions[1]), stopped=True)
    assert [step["change"] for step in report_of_settings.plan] == ["rehash"]
    assert check(contracts[0], contracts[0]).findings == ()


def test_only_keys_with_intervals_move(tmp_path: Path) -> None:
    target = str(sample("dedup-watermark-4.2", tmp_path))
    with pytest.raises(NothingToMigrateError, match="no key of this query has a calendar interval"):
        migrate(target, settings=setting("4.3"), stopped=True)


@pytest.mark.wide
def test_spark_finds_the_keys_after_the_migration(judge: Judge) -> None:
    old = written(judge, "4.2")
    lost = judge.copy(old)
    assert sum(len(batch.rows) for batch in judge.restart(lost, WHOLE, version="4.3")) > 0
    migrate(str(old.path), settings=setting("4.3"), stopped=True)
    assert sum(len(batch.rows) for batch in judge.restart(old, WHOLE, version="4.3")) == 0
    settled(old.path)
    assert doctor(old.path).codes == []
    migrate(str(old.path), partitions=5, stopped=True)
    assert sum(len(batch.rows) for batch in judge.restart(old, WHOLE, version="4.3")) == 0
