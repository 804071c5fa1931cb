"""The backups of a policy: when they are made, what is removed, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import copy, diff, doctor, history, rollback
from ttlsnap.backups.found import FoundBackup, find_backups, restorable
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.cli.app import run
from ttlsnap.copies.manifest import MANIFEST, CopyFacts, read_manifest, write_begun
from ttlsnap.storage.open import open_directory

from ..cli.running import Ttlsnap
from ..publishing.publishers import drop_some
from ..samples import bytes_of, sample
from ..transaction.killing import killed

AGG = "agg-deltas-lz4-4.2"
STOPPED = "after you have stopped the query (in a script, add --yes)"
Maintain = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def maintain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Maintain:
    """Return a function that carries out a policy for ``ck``. It returns the exit code, and the target's result."""

    def invoke(backup: str, *options: str, rule: str = "") -> tuple[int, dict[str, Any]]:
        policy = tmp_path / "policy.toml"
        policy.write_text(f'[[target]]\npath = "ck"\nstopped = true\n{rule}\n[target.backup]\n{backup}\n')
        code = run(["maintain", str(policy), "--engine", "local", "--format", "json", *options])
        out, err = capsys.readouterr()
        assert out, err
        return code, json.loads(out)["targets"][0]

    return invoke


class Source:
    """A checkpoint whose query commits batches: the sample as of one of its retained batches after another."""

    def __init__(self, folder: Path) -> None:
        self._sample = sample(AGG, folder / "sample")
        self.path = folder / "ck"
        last = read_logs(open_directory(str(self._sample))).commits[-1]
        self.batches = [last - 3, last - 2, last - 1, last]

    def commit(self, batch: int) -> None:
        """Let the checkpoint be as of a batch."""
        shutil.rmtree(self.path, ignore_errors=True)
        copy(str(self._sample), str(self.path), batch=batch)
        for path in self.path.rglob("*"):
            os.utime(path, (0, 0))  # a file that is in both has not changed


@pytest.fixture
def source(tmp_path: Path) -> Source:
    source = Source(tmp_path)
    source.commit(source.batches[0])
    return source


WEEK = 'ttl = "7d"\ntimestamp = "value.max"\nnow = "wall"\nmax_drop = "100%"'


def backups_in(folder: Path) -> list[FoundBackup]:
    return find_backups(open_directory(str(folder)))


def make_older(backup: Path, made_at: str = "2020-01-01T00:00:00Z") -> None:
    """Change the time at which a backup was made."""
    change_facts(backup, made_at=made_at)


def change_facts(backup: Path, **changed: str | int) -> None:
    """Change what the manifest of a backup says of it."""
    files = open_directory(str(backup))
    manifest = read_manifest(files)
    assert manifest is not None
    facts = CopyFacts.from_json({**manifest.facts.to_json(), **changed})
    (backup / MANIFEST).write_bytes(type(manifest)(facts, manifest.files).to_bytes())


def test_each_run_makes_a_backup_and_keeps_only_some(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text = 'to = "backups/{name}/{batch}"\nkeep = 2'
    folder = tmp_path / "backups/ck"
    for number, batch in enumerate(source.batches):
        source.commit(batch)
        before = bytes_of(source.path)
        code, target = maintain(text)
        assert bytes_of(source.path) == before
        backup = target["policy_backup"]
        assert (code, target["status"], backup["status"]) == (0, "nothing", "done")
        assert (backup["place"], backup["batch"]) == (str(folder / str(batch)), batch)
        assert backup["removed"] == ([str(folder / str(source.batches[number - 2]))] if number >= 2 else [])
        assert number == 0 or backup["sent_bytes"] < backup["bytes"]  # the others are links
        kept = source.batches[max(number - 1, 0) : number + 1]
        assert [found.batch for found in backups_in(folder)] == kept
        assert backup["backups"] == len(kept)
    assert {path.name for path in folder.iterdir()} == set(map(str, source.batches[-2:]))
    assert not diff(str(source.path), str(folder / str(source.batches[-1]))).differs


@pytest.mark.slow
def test_as_many_backups_remain_as_the_policy_keeps_even_if_a_run_is_backed_up_as_well(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text = 'to = "backups/{batch}"\nkeep = 2\nevery = "1s"\nbefore_run = true'
    for batch in source.batches:
        source.commit(batch)
        code, target = maintain(text, rule=WEEK)
        assert (code, target["status"], target["policy_backup"]["status"]) == (0, "done", "done")
        time.sleep(1)
    assert [found.batch for found in backups_in(tmp_path / "backups")] == source.batches[-2:]


def test_a_checkpoint_that_went_back_is_backed_up_and_the_first_made_backup_is_removed(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text = 'to = "backups/{batch}"\nkeep = 2'
    for number, batch in enumerate([*source.batches[1:3], source.batches[0], source.batches[3]]):
        source.commit(batch)
        assert maintain(text)[1]["policy_backup"]["status"] == "done"
        make_older(tmp_path / "backups" / str(batch), f"2020-01-0{number + 1}T00:00:00Z")
    assert [found.batch for found in backups_in(tmp_path / "backups")] == [source.batches[0], source.batches[3]]


def test_a_backup_of_the_same_query_in_another_place_is_not_one_of_this_checkpoint(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    copy(str(source.path), str(tmp_path / "staging"))
    for name in ("a", "b"):
        copy(str(tmp_path / "staging"), str(tmp_path / "backups" / name))
    before = bytes_of(tmp_path / "backups")
    backup = maintain('to = "backups/{batch}"\nkeep = 1')[1]["policy_backup"]
    assert (backup["status"], backup["backups"], backup["removed"]) == ("done", 1, [])
    after = bytes_of(tmp_path / "backups")
    assert {path: after[path] for path in before} == before


def test_a_backup_with_a_time_in_the_future_does_not_stop_others(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text = 'to = "backups/{batch}"\nevery = "1d"'
    maintain(text)
    make_older(tmp_path / "backups" / str(source.batches[0]), "2099-01-01T00:00:00Z")
    source.commit(source.batches[1])
    assert maintain(text)[1]["policy_backup"]["status"] == "done"


def test_no_backup_is_made_without_a_new_batch_or_too_early(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text = 'to = "backups/{batch}"\nevery = "1d"'
    folder = tmp_path / "backups"
    assert maintain(text)[1]["policy_backup"]["status"] == "done"
    source.commit(source.batches[1])
    young = maintain(text)[1]["policy_backup"]
    assert (young["status"], young["batch"], young["backups"]) == ("waiting", source.batches[0], 1)
    assert young["is_current"] is False
    make_older(folder / str(source.batches[0]))
    assert maintain(text)[1]["policy_backup"]["status"] == "done"
    make_older(folder / str(source.batches[1]))
    current = maintain(text)[1]["policy_backup"]
    assert (current["status"], current["made_at"]) == ("current", "2020-01-01T00:00:00Z")
    assert len(backups_in(folder)) == 2


def test_before_a_run_only_a_change_is_backed_up(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text = 'to = "backups/{batch}"\nbefore_run = true'
    folder = tmp_path / "backups"
    old = bytes_of(source.path / "state")
    for ttl, options, status, saved in (
        ("90000d", (), "nothing", "waiting"),
        ("7d", ("--plan",), "planned", "planned"),
        ("7d", (), "done", "done"),
        ("7d", (), "nothing", "waiting"),
    ):
        code, target = maintain(
            text, *options, rule=f'ttl = "{ttl}"\ntimestamp = "value.max"\nnow = "wall"\nmax_drop = "100%"'
        )
        assert (code, target["status"], target["policy_backup"]["status"]) == (0, status, saved)
        assert folder.exists() == (
            saved == "done" or (status == "nothing" and target["policy_backup"]["batch"] is not None)
        )
    assert bytes_of(folder / str(source.batches[0]) / "state") == old != bytes_of(source.path / "state")


def test_a_plan_foresees_no_backup_before_a_run_that_would_be_refused(maintain: Maintain, source: Source) -> None:
    rule = 'ttl = "7d"\ntimestamp = "value.max"\nnow = "wall"\nmax_drop = "1%"'
    for options in (("--plan",), ()):
        code, target = maintain('to = "backups/{batch}"\nbefore_run = true', *options, rule=rule)
        assert (code, target["policy_backup"]["status"]) == (0 if options else 4, "waiting")


def test_a_run_changes_nothing_if_its_backup_fails(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    place = tmp_path / "backups" / str(source.batches[0])
    place.mkdir(parents=True)
    (place / "of somebody else").touch()
    before = bytes_of(source.path)
    for text in ('to = "backups/{batch}"\nbefore_run = true', 'to = "backups/{batch}"\nevery = "1h"'):
        code, target = maintain(text, rule='ttl = "7d"\ntimestamp = "value.max"\nnow = "wall"\nmax_drop = "100%"')
        assert (code, target["status"], target["policy_backup"]["status"]) == (4, "refused", "failed")
        assert "exists already" in target["error"]
        after = bytes_of(source.path)
        assert {path: content for path, content in after.items() if not path.startswith("_ttlsnap")} == {
            path: content for path, content in before.items() if not path.startswith("_ttlsnap")
        }
    assert [path.name for path in place.iterdir()] == ["of somebody else"]


def test_an_unfinished_backup_is_continued_and_an_old_one_removed(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text = 'to = "backups/{batch}"'
    folder = tmp_path / "backups"
    maintain(text)
    manifest = read_manifest(open_directory(str(folder / str(source.batches[0]))))
    assert manifest is not None
    make_older(folder / str(source.batches[0]), "2021-01-01T00:00:00Z")
    for name, batch in (("older", source.batches[0]), ("newer", source.batches[2])):
        made_at = f"20{20 if name == 'older' else 22}-01-01T00:00:00Z"
        facts = CopyFacts.from_json({**manifest.facts.to_json(), "batch": batch, "made_at": made_at})
        (folder / name).mkdir()
        write_begun(open_directory(str(folder / name)), facts)
    source.commit(source.batches[2])
    backup = maintain(text)[1]["policy_backup"]
    assert (backup["status"], backup["place"]) == ("done", str(folder / "newer"))
    assert backup["removed"] == [str(folder / "older")]
    assert [(found.batch, found.status) for found in backups_in(folder)] == [
        (source.batches[0], "complete"),
        (source.batches[2], "complete"),
    ]


def test_only_untouched_backups_of_this_checkpoint_are_removed(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    oldest, of_others, linked, full, used, damaged = (
        folder / name for name in ("0", "others", "linked", "full", "used", "damaged")
    )
    copy(str(sample("visits-4.2", tmp_path / "other")), str(of_others))
    for place in (oldest, tmp_path / "elsewhere", full, used, damaged):
        copy(str(source.path), str(place))
    linked.symlink_to(tmp_path / "elsewhere")
    (full / "notes").touch()
    batch = source.batches[0]
    shutil.copy(used / layout.offset_file(batch), used / layout.offset_file(batch + 1))
    (damaged / MANIFEST).write_text("{}")
    before = bytes_of(folder)
    source.commit(source.batches[3])
    backup = maintain('to = "backups/{batch}"\nkeep = 1')[1]["policy_backup"]
    assert backup["removed"] == [str(oldest)]
    assert backup["warnings"] == [
        f"{full}/notes is not a file of the backup, so this backup was not removed. Move that file, or remove the "
        "backup yourself"
    ]
    after = bytes_of(folder)
    assert {path: data for path, data in after.items() if path.split("/")[0] != str(source.batches[3])} == {
        path: data for path, data in before.items() if path.split("/")[0] != "0"
    }
    assert {Path(found.place).name: found.status for found in backups_in(folder)} == {
        "others": "complete", "full": "complete", "used": "used", "damaged": "damaged",
        str(source.batches[3]): "complete",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ('[[target]]\npath = "ck"\nbackup = {to = "backups/{name}"}\n', "must have {batch} in its last part"),
        ('[[target]]\npath = "ck"\nbackup = {to = "{batch}/{name}"}\n', "must have {batch} in its last part"),
        ('[[target]]\npath = "ck"\nbackup = {to = "backups/{date}/{batch}"}\n', "unknown part in braces"),
        ('[[target]]\npath = "ck"\nbackup = {to = "b/{batch}", every = "daily"}\n', "policy.toml:4: "),
        ('[[target]]\npath = "ck"\nbackup = {every = "1d"}\n', "backup lacks to"),
        ('[[target]]\npath = "ck"\nbackup = {to = "b/{batch}", kept = 3}\n', "did you mean keep?"),
        ('[[target]]\npath = "ck"\nbackup = {to = "ck/{batch}"}\n', "is a target, so"),
        ('[[target]]\npath = "ck"\nbackup = {to = "ck/backups/{batch}"}\n', "is a target, so"),
        (
            '[[target]]\npath = "ck"\n[[target]]\npath = "ck2"\n[defaults.backup]\nto = "backups/{batch}"\n',
            "would be in the same folder",
        ),
        ('[[target]]\npath = "c*"\nbackup = {to = "c-backups/{name}/{batch}"}\n', "also matches"),
        ('[[target]]\npath = "ck"\nbackup = {to = "b/{batch}"}\n[[target]]\npath = "*/[1-9]*"\n', "also matches"),
        ('[[target]]\npath = "ck"\nbackup = {to = "b/{batch}"}\n[[target]]\npath = "*/??"\n', "also matches"),
        ('[[target]]\npath = "**/ck*"\nbackup = {to = "b/{name}/{batch}"}\n', "also matches"),
    ],
)
def test_a_policy_with_a_wrong_backup_does_nothing(
    tmp_path: Path, source: Source, capsys: pytest.CaptureFixture[str], targets: str, message: str
) -> None:
    shutil.copytree(source.path, tmp_path / "ck2")
    before = bytes_of(tmp_path)
    (tmp_path / "policy.toml").write_text(f"# backups\n{targets}")
    assert run(["maintain", str(tmp_path / "policy.toml"), "--engine", "local"]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    (tmp_path / "policy.toml").unlink()
    assert bytes_of(tmp_path) == before


def test_a_backup_of_a_damaged_state_takes_no_other_ones_place(
    tmp_path: Path, source: Source, maintain: Maintain
) -> None:
    backup = 'to = "backups/{batch}"\nkeep = 1'
    source.commit(source.batches[0])
    assert maintain(backup)[0] == 0
    source.commit(source.batches[1])
    newest = sorted(source.path.glob("state/0/0/*.delta"))[-1]
    newest.write_bytes(newest.read_bytes()[:20])
    code, target = maintain(backup)
    assert (code, target["policy_backup"]["status"]) == (5, "failed")
    assert f"{newest.name}" in target["error"]
    assert target["error"].endswith(
        f"The unfinished backup {tmp_path}/backups/{source.batches[1]} stays. The next run continues or removes it."
    )
    found = [(one.status, one.batch) for one in backups_in(tmp_path / "backups")]
    assert found == [("complete", source.batches[0]), ("unfinished", source.batches[1])]


def test_the_text_the_metrics_and_the_history_name_the_backups(
    tmp_path: Path, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, metrics, folder = tmp_path / "policy.toml", tmp_path / "ttlsnap.prom", tmp_path / "backups"
    policy.write_text('[[target]]\npath = "ck"\nbackup = {to = "backups/{batch}", keep = 1}\n')
    command = ["maintain", str(policy), "--engine", "local"]
    place = folder / str(source.batches[0])
    assert run([*command, "--plan"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"a run backs it up as of batch {source.batches[0]} to {place}" in text
    assert "Without --plan, ttlsnap only makes the backups." in text
    assert not folder.exists()
    for batch in source.batches[:2]:
        source.commit(batch)
        assert run([*command, "--metrics", str(metrics)]) == 0
    assert f"removed the backup {place}" in capsys.readouterr().out.replace("\n", " ")
    samples = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines() if not line.startswith("#"))
    (backup,) = backups_in(folder)
    labels = f'{{target="{source.path}"}}'
    assert (float(samples[f"ttlsnap_backups{labels}"]), backup.batch) == (1, source.batches[1])
    assert float(samples[f"ttlsnap_backup_bytes{labels}"]) == backup.bytes
    assert 0 <= time.time() - float(samples[f"ttlsnap_backup_timestamp_seconds{labels}"]) < 3600
    assert float(samples[f"ttlsnap_backup_is_current{labels}"]) == 1
    shutil.copytree(tmp_path / "sample", tmp_path / "another")
    assert run(["history", str(tmp_path / "another" / AGG), "--backups", str(folder)]) == 0
    assert "complete" in capsys.readouterr().out  # it has the same query id
    for is_there in (True, False):
        if not is_there:
            last_batch = source.batches[-1] + 5
            shutil.rmtree(source.path)
        assert run(["history", str(source.path), "--backups", str(folder)]) == 0
        text = capsys.readouterr().out
        how = "--replace --stopped" if is_there else "--replace --last-batch N --stopped. N is the last batch that"
        words = (
            f"To restore the newest, as of batch {backup.batch}, {STOPPED}: ttlsnap copy "
            f"{backup.place} {source.path} {how}"
        )
        assert words in " ".join(text.split())
        assert ("does not exist" in text) != is_there
    capsys.readouterr()
    assert run(["copy", backup.place, str(source.path), "--replace", "--yes"]) == 2
    advice = "If nothing is left of a checkpoint, add --last-batch N, where N is the last batch that its sink has\n"
    assert capsys.readouterr().err.endswith(f"does not exist\n{advice}")
    restore = ["copy", backup.place, str(source.path), "--replace", "--last-batch", str(last_batch)]
    assert run([*restore, "--dry-run"]) == 0 and not source.path.exists()
    assert run([*restore, "--yes"]) == 0
    assert not diff(str(source.path), backup.place).differs
    assert json.loads((source.path / "metadata").read_text()) == json.loads(
        (Path(backup.place) / "metadata").read_text()
    )
    folders = ("offsets", "commits")
    numbers = {folder: max(int(path.name) for path in (source.path / folder).glob("[0-9]*")) for folder in folders}
    assert numbers == {"offsets": last_batch + 1, "commits": last_batch}
    shutil.rmtree(source.path)
    capsys.readouterr()
    assert run(["copy", backup.place, str(source.path)]) == 0
    assert "--replace --last-batch N, where N is the last batch" in " ".join(capsys.readouterr().err.split())
    assert not diff(str(source.path), backup.place).differs
    assert run(["history", str(source.path), "--backups", str(tmp_path / "nothing")]) == 2


def test_the_history_names_the_backup_of_the_last_batch_of_each_query(
    source: Source, tmp_path: Path, ttlsnap: Ttlsnap
) -> None:
    folder = tmp_path / "backups"
    for name, batch in zip("ab", source.batches, strict=False):
        source.commit(batch)
        copy(str(source.path), str(folder / name))
    copy(str(folder / "a"), str(folder / "copied later"))
    newest = f"To restore the newest, as of batch {source.batches[1]}, {STOPPED}: ttlsnap copy"
    assert f"{newest} {folder}/b " in ttlsnap("history", source.path, "--backups", folder).out
    change_facts(folder / "copied later", source=str(source.path), query_id="another", source_query_id="another")
    text = ttlsnap("history", source.path, "--backups", folder).out
    assert f"the newest of the query another, as of batch {source.batches[0]}," in text
    assert text.count("To restore the newest of the query") == 2


def test_the_newest_backup_is_not_that_of_a_restore_which_was_undone(
    source: Source, tmp_path: Path, ttlsnap: Ttlsnap
) -> None:
    folder, old = tmp_path / "backups", tmp_path / "old"
    source.commit(source.batches[0])
    copy(str(source.path), str(old))
    source.commit(source.batches[1])
    copy(str(old), str(source.path), replace=True, stopped=True, last_batch=source.batches[1] + 20)
    copy(str(source.path), str(folder / "undone"))
    rollback(str(source.path), stopped=True)
    copy(str(source.path), str(folder / "after"))
    text = ttlsnap("history", source.path, "--backups", folder).out
    assert (
        f"To restore the newest, as of batch {source.batches[1]}," in text and f"ttlsnap copy {folder}/after " in text
    )
    assert "To go back to before run" not in text


def test_the_backup_from_before_a_run_is_named(source: Source, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    folder = tmp_path / "backups"
    source.commit(source.batches[0])
    copy(str(source.path), str(folder / "before"))
    drop_some(source.path, stopped=True)
    copy(str(source.path), str(folder / "after"))
    text, run_id = ttlsnap("history", source.path, "--backups", folder).out, history(str(source.path))[-1].run
    assert f"ttlsnap copy {folder}/after {source.path}" in text
    batch = source.batches[0]
    assert f"To go back to before run {run_id}, as of batch {batch}: ttlsnap copy {folder}/before {source.path}" in text
    copy(str(folder / "before"), str(source.path), replace=True, stopped=True)
    copy(str(source.path), str(folder / "restored"))
    newest = f"To restore the newest, as of batch {batch}, {STOPPED}: ttlsnap copy {folder}/restored"
    assert newest in ttlsnap("history", source.path, "--backups", folder).out


RULE = 'ttl = "7d"\ntimestamp = "value.max"\nnow = "wall"\nmax_drop = "100%"'


def begin(place: Path, of: Path, **facts: object) -> None:
    """Make the folder of a copy that was interrupted early."""
    manifest = read_manifest(open_directory(str(of)))
    assert manifest is not None
    place.mkdir()
    write_begun(open_directory(str(place)), CopyFacts.from_json({**manifest.facts.to_json(), **facts}))


def test_an_interrupted_backup_of_an_older_batch_is_not_the_one_before_a_run(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text, folder = 'to = "backups/{batch}"\nbefore_run = true', tmp_path / "backups"
    copy(str(source.path), str(folder / str(source.batches[0])))
    make_older(folder / str(source.batches[0]))
    begin(folder / "begun", folder / str(source.batches[0]), batch=source.batches[1], made_at="2021-01-01T00:00:00Z")
    source.commit(source.batches[3])
    old = bytes_of(source.path / "state")
    code, target = maintain(text, rule=RULE)
    assert (code, target["status"], target["policy_backup"]["batch"]) == (0, "done", source.batches[3])
    assert bytes_of(folder / str(source.batches[3]) / "state") == old


def test_a_backup_of_another_batch_with_the_same_number_does_not_count(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text, folder = 'to = "backups/{batch}"\nbefore_run = true', tmp_path / "backups"
    source.commit(source.batches[1])
    for batch in source.batches[:2]:
        copy(str(source.path), str(folder / str(batch)), batch=batch)
    copy(str(folder / str(source.batches[0])), str(source.path), replace=True, stopped=True)
    old = bytes_of(source.path / "state")
    code, target = maintain(text, rule=RULE)
    assert (code, target["status"], target["policy_backup"]["status"]) == (0, "done", "done")
    assert target["policy_backup"]["place"] == str(folder / f"{source.batches[1]}-2")
    assert bytes_of(folder / f"{source.batches[1]}-2" / "state") == old


def test_a_link_to_a_backup_is_no_backup(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text, folder = 'to = "backups/{batch}"\nkeep = 1', tmp_path / "backups"
    place = folder / str(source.batches[0])
    assert maintain(text)[1]["policy_backup"]["place"] == str(place)
    (folder / "latest").symlink_to(place.name)
    backup = maintain(text)[1]["policy_backup"]
    assert (backup["status"], backup["place"], backup["backups"]) == ("current", str(place), 1)
    assert (backup["removed"], backup["warnings"]) == ([], [])
    assert [found.place for found in backups_in(folder)] == [str(place)]


@pytest.mark.parametrize("made_at", ["2020-01-01T00:00:00Z", "2199-01-01T00:00:00Z"])
def test_the_backup_of_the_last_batch_stays_whatever_its_time_is(
    maintain: Maintain, source: Source, tmp_path: Path, made_at: str
) -> None:
    text, folder = 'to = "backups/{batch}"\nkeep = 1', tmp_path / "backups"
    source.commit(source.batches[1])
    older, current = (folder / str(batch) for batch in source.batches[:2])
    for batch in source.batches[:2]:
        copy(str(source.path), str(folder / str(batch)), batch=batch)
    make_older(current, made_at)
    is_future = made_at.startswith("2199")
    assert [found.place for found in backups_in(folder)][:: 1 if is_future else -1] == [str(older), str(current)]
    backup = maintain(text)[1]["policy_backup"]
    assert (backup["status"], backup["place"], backup["backups"]) == ("current", str(current), 1)
    assert (backup["removed"], backup["is_current"]) == ([str(older)], True)
    assert [found.place for found in backups_in(folder)] == [str(current)]


def test_after_a_run_and_its_rollback_there_is_a_new_backup(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text, folder = 'to = "backups/{batch}"', tmp_path / "backups"
    changes: list[Callable[[], object]] = [
        lambda: maintain(text, rule=RULE),
        lambda: rollback(str(source.path), stopped=True),
    ]
    assert maintain(text)[1]["policy_backup"]["status"] == "done"
    for number, change in enumerate(changes, start=2):
        assert maintain(text)[1]["policy_backup"]["status"] == "current"
        change()
        backup = maintain(text)[1]["policy_backup"]
        assert (backup["status"], backup["place"]) == ("done", str(folder / f"{source.batches[0]}-{number}"))
        assert not diff(str(source.path), backup["place"]).differs


def forget_runs(ck: Path) -> None:
    """Compact, and remove ttlsnap's folder, as a user may."""
    drop_some(ck, stopped=True)
    shutil.rmtree(ck / "_ttlsnap")


def run_again(ck: Path) -> None:
    """Be as if a query had run the last batch again: its log has another time."""
    last = max((ck / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    os.utime(last, (1, 1))


@pytest.mark.parametrize("change", [forget_runs, run_again])
def test_a_backup_is_current_only_if_the_files_are_the_same(
    maintain: Maintain, source: Source, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    text = 'to = "backups/{batch}"\nkeep = 1'
    assert [maintain(text)[1]["policy_backup"]["status"] for _ in range(2)] == ["done", "current"]
    change(source.path)
    backup = maintain(text)[1]["policy_backup"]
    place = tmp_path / "backups" / f"{source.batches[0]}-2"
    assert (backup["status"], backup["place"]) == ("done", str(place))
    assert not diff(str(source.path), str(place)).differs
    assert [found.place for found in backups_in(tmp_path / "backups")] == [str(place)]


def test_a_run_that_was_undone_needs_no_other_backup(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text, rule = 'to = "backups/{batch}"\nbefore_run = true', WEEK
    for wanted in ("done", "current"):
        target = maintain(text, rule=rule)[1]
        assert (target["status"], target["policy_backup"]["status"]) == ("done", wanted)
        rollback(str(source.path), stopped=True)
    assert len(backups_in(tmp_path / "backups")) == 1
    source.commit(source.batches[1])
    assert maintain(text, rule=rule)[1]["policy_backup"]["status"] == "done"
    assert len(backups_in(tmp_path / "backups")) == 2


def test_a_backup_is_read_again_if_the_policy_says_so(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    text, folder = 'to = "backups/{batch}"\nverify = true', tmp_path / "backups"
    assert maintain(text)[0] == 0
    shared = next(path for path in (folder / str(source.batches[0])).glob("state/0/0/*.delta"))
    status = shared.stat()
    shared.write_bytes(bytes(status.st_size))
    source.commit(source.batches[1])
    code, target = maintain(text)
    (warning,) = target["policy_backup"]["warnings"]
    damaged = f"{folder / str(source.batches[0])}/{shared.relative_to(folder / str(source.batches[0]))} is damaged"
    assert (code, target["policy_backup"]["status"]) == (0, "done") and damaged in warning
    newest = folder / str(source.batches[1])
    assert not doctor(str(newest)).problems
    assert doctor(str(newest.with_name(str(source.batches[0])))).problems


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_backup_that_a_later_one_has_found_damaged_does_not_count(
    is_killed: bool, maintain: Maintain, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, folder = 'to = "backups/{batch}"\nverify = true\nkeep = 2', tmp_path / "backups"
    good, damaged, newest = (folder / str(batch) for batch in source.batches[:3])
    assert maintain(text)[0] == 0
    source.commit(source.batches[1])
    assert maintain(text)[0] == 0
    shared = next(path for path in damaged.glob("state/0/0/*.delta") if path.with_name(f".{path.name}.crc").exists())
    size = shared.stat().st_size
    shared.unlink()  # the older backup has the same file
    shared.write_bytes(bytes(size))
    source.commit(source.batches[2])
    command = ["maintain", str(tmp_path / "policy.toml"), "--engine", "local"]
    if is_killed:
        killed("ttlsnap.copies.run:write_manifest", f"from ttlsnap.cli.app import run; run({command!r})")
    assert run(command) == 0
    told = f"{damaged} does not count" if is_killed else f"{shared} is damaged"
    assert f"Warning: {source.path}: {told}" in capsys.readouterr().err
    assert not doctor(str(good)).problems and not doctor(str(newest)).problems
    warning = f"Warning: {source.path}: {damaged} does not count as a backup: files of this copy are damaged"
    assert run(command) == 0 and warning in capsys.readouterr().err
    statuses = {Path(found.place).name: found.status for found in backups_in(folder)}
    assert statuses == {good.name: "complete", damaged.name: "damaged", newest.name: "complete"}
    assert restorable(backups_in(folder))[-1].place == str(newest)


def test_the_newest_backup_is_not_one_that_was_made_while_the_clock_was_wrong(source: Source, tmp_path: Path) -> None:
    for number in (0, 1):
        copy(str(source.path), str(tmp_path / f"backups/{number}"))
        source.commit(source.batches[number + 1])
    change_facts(tmp_path / "backups/0", state_at="2099-01-01T00:00:00Z", made_at="2099-01-01T00:00:00Z")
    copy(str(source.path), str(tmp_path / "backups/of another"), batch=source.batches[0])
    change_facts(tmp_path / "backups/of another", source="/another", state_at="2099-01-01T00:00:00Z")
    own = [found for found in restorable(backups_in(tmp_path / "backups")) if found.source == str(source.path)]
    assert [Path(found.place).name for found in own] == ["0", "1"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_each_backup_that_shares_a_damaged_file_is_marked(
    is_killed: bool, maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    text, folder = 'to = "backups/{batch}"\nverify = true\nkeep = 1', tmp_path / "backups"
    for number in (0, 1):
        copy(str(source.path), str(folder / str(number)), onto=str(folder / "0") if number else None)
        source.commit(source.batches[number + 1])
    first, second = folder / "0", folder / "1"
    shared = next(path for path in second.glob("state/0/0/*.delta") if path.stat().st_nlink > 1)
    shared.write_bytes(bytes(shared.stat().st_size))
    command = ["maintain", str(tmp_path / "policy.toml"), "--engine", "local"]
    if is_killed:
        maintain(text, "--plan")  # it writes the policy
        killed("ttlsnap.copies.run:find_differences", f"from ttlsnap.cli.app import run; run({command!r})")
    assert maintain(text)[1]["policy_backup"]["removed"] == []
    assert {found.place: found.status for found in backups_in(folder)} == {
        str(first): "damaged",
        str(second): "damaged",
        str(folder / str(source.batches[2])): "complete",
    }


def test_the_text_says_that_a_damaged_checkpoint_was_not_backed_up(
    maintain: Maintain, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maintain('to = "backups/{batch}"')[0] == 0
    source.commit(source.batches[1])
    (source.path / "state/0/0").rename(tmp_path / "lost")
    assert run(["maintain", str(tmp_path / "policy.toml"), "--engine", "local"]) == 5
    text = " ".join(capsys.readouterr().out.split())
    assert f"not backed up; the newest backup is of batch {source.batches[0]}" in text
    place = tmp_path / f"backups/{source.batches[0]}"
    assert f"if doctor cannot repair it, restore it, with the query stopped: ttlsnap copy {place} {source.path}" in text
    source.commit(source.batches[1])
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text().replace('{batch}"', '{batch}"\nevery = "1d"', 1))
    assert run(["maintain", str(policy), "--engine", "local"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"no backup is due; the newest backup is of batch {source.batches[0]}" in text


def test_the_error_for_a_lost_checkpoint_names_its_newest_backup(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    assert maintain('to = "backups/{batch}"')[0] == 0
    source.path.rename(tmp_path / "lost")
    code, target = maintain('to = "backups/{batch}"')
    place = tmp_path / f"backups/{source.batches[0]}"
    restore = f"To restore it: ttlsnap copy {place} {source.path} --replace --last-batch N --stopped, where N is"
    assert code == 2 and restore in target["error"]


def test_a_notification_names_the_newest_backup(source: Source, tmp_path: Path) -> None:
    got = tmp_path / "got.json"
    policy = tmp_path / "policy.toml"
    code = f"import sys; open({str(got)!r}, 'w').write(sys.stdin.read())"
    hook = f"[on_failure]\ncommand = {json.dumps([sys.executable, '-c', code])}\n"
    policy.write_text(f'[[target]]\npath = "ck"\nbackup = {{to = "backups/{{batch}}"}}\n{hook}')
    assert run(["maintain", str(policy), "--engine", "local"]) == 0
    source.commit(source.batches[1])
    (source.path / "state/0/0").rename(tmp_path / "lost")
    assert run(["maintain", str(policy), "--engine", "local"]) == 5
    document = json.loads(got.read_text())
    (failed,) = document["targets"]
    newest = failed["newest_backup"]
    assert newest["restore"] == f"ttlsnap copy {newest['place']} {source.path} --replace --stopped"
    assert document["text"].endswith(f" - {failed['next']} - if that cannot repair it: {newest['restore']}")
    assert (newest["place"], newest["batch"]) == (str(tmp_path / f"backups/{source.batches[0]}"), source.batches[0])


def test_a_broken_backup_does_not_count(maintain: Maintain, source: Source, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    copy(str(source.path), str(folder / str(source.batches[0])))
    shutil.rmtree(folder / str(source.batches[0]) / "state")
    code, target = maintain('to = "backups/{batch}"\nbefore_run = true', rule=RULE)
    assert (code, target["policy_backup"]["place"]) == (0, str(folder / f"{source.batches[0]}-2"))
    (broken, _) = backups_in(folder)
    assert (broken.status, "is missing" in str(broken.error)) == ("damaged", True)


def test_other_folders_beside_the_backups_stay_and_stop_nothing(
    maintain: Maintain, source: Source, tmp_path: Path
) -> None:
    folder, older = tmp_path / "backups", {"made_at": "2020-01-01T00:00:00Z"}
    clone = folder / "clone"
    copy(str(source.path), str(clone), new_id=True)
    copy(str(source.path), str(folder / "victim"))
    make_older(folder / "victim")
    for name in ("with_notes", "used", "linked"):
        begin(folder / name, folder / "victim", **older)
    (folder / "with_notes" / "thesis.txt").write_text("mine")
    shutil.copytree(folder / "victim" / "offsets", folder / "used" / "offsets")
    shutil.copy(folder / "used" / layout.offset_file(source.batches[0]), folder / "used/offsets/99")
    (folder / "linked" / "offsets").symlink_to("../victim/offsets")
    (folder / "of_a_newer_version" / "_ttlsnap").mkdir(parents=True)
    text = (folder / "victim" / MANIFEST).read_text().replace('"made_by": "0.', '"made_by": "99.')
    (folder / "of_a_newer_version" / MANIFEST).write_text(text)
    (folder / "link" / "_ttlsnap").mkdir(parents=True)
    (folder / "link" / MANIFEST).symlink_to("/etc/hostname")
    before = bytes_of(folder)
    source.commit(source.batches[1])
    code, target = maintain('to = "backups/{batch}"\nkeep = 9')
    assert (code, target["policy_backup"]["status"], target["policy_backup"]["removed"]) == (0, "done", [])
    after = bytes_of(folder)
    others = [path for path in before if not path.startswith(("with_notes/_ttlsnap", "linked/_ttlsnap"))]
    assert {path: after[path] for path in others} == {path: before[path] for path in others}


def test_the_place_of_backups_may_be_in_a_folder_with_braces(tmp_path: Path, source: Source) -> None:
    folder = tmp_path / "a {b} folder"
    folder.mkdir()
    (folder / "policy.toml").write_text(f'[[target]]\npath = "{source.path}"\nbackup = {{to = "b/{{batch}}"}}\n')
    assert run(["maintain", str(folder / "policy.toml"), "--engine", "local"]) == 0
    assert (folder / "b" / str(source.batches[0]) / MANIFEST).exists()


def test_the_history_of_a_damaged_checkpoint_names_its_backups(
    tmp_path: Path, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(str(source.path), str(tmp_path / "backups" / "1"))
    (source.path / "metadata").write_text("{")
    shutil.rmtree(source.path / "commits")
    run(["history", str(source.path), "--backups", str(tmp_path / "backups")])
    assert f"ttlsnap copy {tmp_path}/backups/1 {source.path} --replace" in capsys.readouterr().out.replace("\n", " ")
