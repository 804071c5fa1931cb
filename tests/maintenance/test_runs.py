"""A policy for targets in all conditions: each target gets its own result, and none stops the others."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ttlsnap import compact, migrate
from ttlsnap.cli.app import run
from ttlsnap.engines import local
from ttlsnap.errors import BusyError
from ttlsnap.maintenance import runs
from ttlsnap.maintenance.targets import place_of
from ttlsnap.publishing.runs import new_run_id
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..cli.running import Ttlsnap
from ..samples import bytes_of, without_locks
from .targets import damaged, fenced, fresh, unknown

RULES = '[defaults]\nstopped = true\nttl = "7d"\ntimestamp = "value.max"\n'
Maintain = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def maintain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Maintain:
    """Return a function that carries out a policy. It returns the exit code, and the results by target name."""

    def invoke(text: str, *options: str) -> tuple[int, dict[str, Any]]:
        policy = tmp_path / "policy.toml"
        policy.write_text(RULES + text)
        code = run(["maintain", str(policy), "--engine", "local", "--format", "json", *options])
        out = capsys.readouterr().out
        document = json.loads(out)
        assert document["policy"] == str(policy)
        return code, {Path(target["target"]).name: target for target in document["targets"]}

    return invoke


def compacted_alone(folder: Path) -> dict[str, str]:
    """Return the state of a checkpoint that ``compact`` processed on its own."""
    target = fresh(folder, "alone")
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
    compact(str(target), [factory], stopped=True, max_drop=1.0)
    return bytes_of(target / "state")


def test_no_target_stops_the_others(maintain: Maintain, tmp_path: Path) -> None:
    folder = tmp_path / "ck"
    good, cut_off = fresh(folder, "good"), fenced(folder, "fenced")
    others = [damaged(folder, "damaged"), unknown(folder, "unknown"), folder / "stray"]
    others[-1].mkdir()
    (folder / "a file").touch()
    with open_directory(str(fresh(folder, "busy"))).lock():
        others.append(folder / "busy")
        before = [bytes_of(other) for other in others]
        code, found = maintain('[[target]]\npath = "ck/*"\n')
        assert [bytes_of(other) for other in others] == before
    status = {name: target["status"] for name, target in found.items()}
    assert status == {
        "good": "done", "fenced": "nothing", "damaged": "failed", "unknown": "undecided", "stray": "failed",
        "busy": "skipped",
    }  # fmt: skip
    assert {name: target["exit_code"] for name, target in found.items() if target["exit_code"]} == {
        "damaged": 5, "unknown": 3, "stray": 2,
    }  # fmt: skip
    assert code == 5
    assert found["fenced"]["recovered"] and not found["good"]["recovered"]
    alone = compacted_alone(tmp_path / "own")
    assert bytes_of(good / "state") == bytes_of(cut_off / "state") == alone
    assert "another ttlsnap is working" in found["busy"]["error"]
    assert found["good"]["totals"]["dropped"] > 0


def test_a_policy_decides_what_happens_in_each_condition(maintain: Maintain, tmp_path: Path) -> None:
    folder = tmp_path / "ck"
    for make in (fenced, damaged, unknown):
        make(folder, make.__name__)
    before = without_locks(bytes_of(folder))
    skipping = 'on_fenced = "skip"\non_damaged = "skip"\non_unknown = "skip"\n'
    code, found = maintain(f'[[target]]\npath = "ck/*"\n{skipping}')
    assert (code, {target["status"] for target in found.values()}) == (0, {"skipped"})
    failing = 'on_fenced = "fail"\n[[target]]\npath = "ck/damaged"\non_damaged = "skip"\n'
    code, found = maintain(f'[[target]]\npath = "ck/fenced"\n{failing}')
    assert (code, found["fenced"]["status"], found["damaged"]["status"]) == (4, "refused", "skipped")
    assert without_locks(bytes_of(folder)) == before


def test_maintain_waits_for_a_busy_target(maintain: Maintain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = fresh(tmp_path, "ck")
    text = '[[target]]\npath = "ck"\non_busy = "wait"\nwait = "{}"\n'
    attempts: list[str] = []
    with contextlib.ExitStack() as other:
        other.enter_context(open_directory(str(target)).lock())
        code, found = maintain(text.format("100ms"))
        assert (code, found["ck"]["status"]) == (4, "refused")

        def attempt(*given: Any) -> Any:
            try:
                report = compact_target(*given)
            except BusyError:
                attempts.append("busy")
                other.close()
                raise
            attempts.append("free")
            return report

        compact_target = vars(runs)["compact"]
        monkeypatch.setattr(runs, "compact", attempt)
        monkeypatch.setattr(runs, "LOOK_AGAIN_S", 0.01)
        code, found = maintain(text.format("1h"))
    assert (code, found["ck"]["status"], attempts) == (0, "done", ["busy", "free"])


def test_a_plan_writes_nothing_and_predicts_the_run(maintain: Maintain, tmp_path: Path) -> None:
    folder = tmp_path / "ck"
    fresh(folder, "good")
    fenced(folder, "fenced")
    before = bytes_of(folder)
    text = '[[target]]\npath = "ck/*"\n'
    code, planned = maintain(text, "--plan")
    assert (code, planned["fenced"]["status"], bytes_of(folder)) == (4, "refused", before)
    _, done = maintain(text)
    assert planned["good"]["dry_run"]
    assert (planned["good"]["status"], done["good"]["status"]) == ("planned", "done")
    assert planned["good"]["totals"] == done["good"]["totals"]
    _, again = maintain(text)
    assert {target["status"] for target in again.values()} == {"nothing"}


def test_a_target_is_visited_once_by_the_first_path_that_matches_it(maintain: Maintain, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        fresh(tmp_path / "ck", name)
    _, found = maintain("""
[[target]]
path = "ck/b"
[[target.rule]]
ttl = "3650d"
[[target]]
path = "ck/*"
exclude = "ck/c"
""")
    assert {name: target["status"] for name, target in found.items()} == {"b": "nothing", "a": "done"}


@pytest.mark.parametrize("pattern", ["ck/**", "ck/*", "ck/*/*/*/*", "ck/good/_ttlsnap/runs/*/backup"])
def test_no_glob_matches_backups_and_unfinished_copies(maintain: Maintain, tmp_path: Path, pattern: str) -> None:
    target, unfinished = migrated(tmp_path / "ck")
    (backup,) = target.glob("_ttlsnap/runs/*/backup")
    assert {"offsets", "state"} <= {path.name for path in backup.iterdir()}  # like a checkpoint
    before = bytes_of(unfinished)
    code, found = maintain(f'[[target]]\npath = "{pattern}"\n')
    assert code != 5
    names = [result["target"] for result in found.values()]
    assert not [name for name in names if "_ttlsnap/" in name or ".ttlsnap" in name] or "backup" in pattern, names
    if "backup" in pattern:
        assert (code, [result["status"] for result in found.values()]) == (2, ["failed"])
    assert bytes_of(unfinished) == before


@pytest.mark.parametrize(
    "command",
    [
        "inspect {}",
        "compact {} --ttl 7d --timestamp value.max --stopped --yes",
        "compact {} --ttl 7d --timestamp value.max --dry-run",
        "migrate {} --partitions 3 --stopped --yes",
        "doctor {}",
        "export {} --to {out}",
        "rollback {} --stopped",
        "recover {}",
        "history {}",
        "maintain {policy}",
    ],
)
def test_a_backup_or_an_unfinished_copy_is_refused_by_name(ttlsnap: Ttlsnap, tmp_path: Path, command: str) -> None:
    target, unfinished = migrated(tmp_path / "ck")
    (backup,) = target.glob("_ttlsnap/runs/*/backup")
    before = bytes_of(tmp_path / "ck")
    for place, says in (
        (backup, f"{backup} is not the checkpoint of a query, but a backup of {target}. Name that checkpoint"),
        (unfinished, f"{unfinished} is not the checkpoint of a query, but an unfinished copy"),
    ):
        (tmp_path / "policy.toml").write_text(f'{RULES}[[target]]\npath = "{place}"\n')
        words = command.format(place, policy=tmp_path / "policy.toml", out=tmp_path / "out").split()
        refused = ttlsnap(*words)
        assert refused.code == 2, refused
        assert says in " ".join((refused.out + refused.err).split()), refused
    assert bytes_of(tmp_path / "ck") == before


def migrated(folder: Path) -> tuple[Path, Path]:
    """Return a checkpoint whose backup looks like a checkpoint, and the copy beside it that a killed run left."""
    target = fresh(folder, "good")
    migrate(str(target), partitions=3, stopped=True)
    return target, fresh(folder, f"copy.{new_run_id()}.ttlsnap")


def test_all_spellings_of_a_path_are_the_same_target(maintain: Maintain, tmp_path: Path) -> None:
    folder = tmp_path / "ck"
    before = bytes_of(fresh(folder, "a"))
    for link in ("y", "z"):
        (folder / link).symlink_to("a")
    later = '[[target]]\npath = "ck/*"\n'
    for path in ("ck/y", f"file://{folder}/a", "ck/../ck/a/"):
        _, found = maintain(f'[[target]]\npath = "{path}"\nttl = "3650d"\n{later}')
        assert [target["status"] for target in found.values()] == ["nothing"]
    for pattern in (f"file://{folder}/[a]", "ck/z"):
        _, found = maintain(f'[[target]]\npath = "{pattern}"\nttl = "3650d"\n{later}')
        assert [target["status"] for target in found.values()] == ["nothing"]
    code, found = maintain(f'{later}exclude = "ck/y"\n')
    assert code == 2 and found["*"]["error"].endswith("matches no folder, or excludes all that it finds")
    assert bytes_of(folder / "a") == before
    assert place_of("s3a://bucket/x/") == place_of("s3://bucket//x") != place_of("gs://bucket/x")


def test_an_archive_inside_another_target_is_refused(maintain: Maintain, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fresh(tmp_path / "ck", name)
    before = bytes_of(tmp_path / "ck")
    text = '[[target]]\npath = "ck/a"\n[[target]]\npath = "ck/b"\nexpired_to = "ck/a/expired"\n'
    (tmp_path / "policy.toml").write_text(RULES + text)
    assert run(["maintain", str(tmp_path / "policy.toml"), "--engine", "local"]) == 2
    assert bytes_of(tmp_path / "ck") == before


def test_an_unreadable_path_fails_only_its_own_target(maintain: Maintain, tmp_path: Path) -> None:
    fresh(tmp_path / "ck", "good")
    long = "x" * 300
    code, found = maintain(f'[[target]]\npath = "{long}"\n[[target]]\npath = "ck/*"\n')
    assert code != 0 and (found[long]["status"], found["good"]["status"]) == ("failed", "done")


@pytest.mark.parametrize("how", ["expired_to", "transformer"])
def test_user_code_cannot_end_the_run(
    maintain: Maintain, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(tmp_path / "ck", "good")
    (tmp_path / "ending.py").write_text("import sys\ndef end(key, value):\n    sys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"ending_{how}"
    (tmp_path / "ending.py").rename(tmp_path / f"{name}.py")
    code, found = maintain(f'[[target]]\npath = "ck/*"\n{how} = "{name}:end"\n')
    if how == "expired_to":
        assert (code, found["good"]["status"]) == (0, "done")
        assert "SystemExit" in found["good"]["warnings"][0]
    else:
        assert (code, found["good"]["status"]) == (2, "failed") and "SystemExit" in found["good"]["error"]


def test_dropped_entries_are_archived_beside_the_policy(maintain: Maintain, tmp_path: Path) -> None:
    fresh(tmp_path / "ck", "a")
    fresh(tmp_path / "ck", "b")
    _, found = maintain('[[target]]\npath = "ck/*"\nexpired_to = "expired"\n')
    rows = [row for path in (tmp_path / "expired").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert Counter(row["run"] for row in rows) == {one["run"]: one["totals"]["dropped"] for one in found.values()}
    assert {one["expired_to"] for one in found.values()} == {str(tmp_path / "expired")}


def test_a_glob_that_matches_nothing_fails(maintain: Maintain, tmp_path: Path) -> None:
    code, found = maintain('[[target]]\npath = "nowhere/*"\n')
    assert (code, found["*"]["status"]) == (2, "failed")


def test_an_unexpected_error_fails_only_its_own_target(
    maintain: Maintain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(tmp_path, "a")
    fresh(tmp_path, "b")

    def broken(target: str, *arguments: Any, **options: Any) -> Any:
        if target.endswith("a"):
            raise ZeroDivisionError("oh")
        return real(target, *arguments, **options)

    real = vars(runs)["compact"]
    monkeypatch.setattr(runs, "compact", broken)
    code, found = maintain('[[target]]\npath = "?"\n')
    assert (code, found["a"]["status"], found["b"]["status"]) == (5, "failed", "done")
    assert "ZeroDivisionError: oh" in found["a"]["error"]


def test_the_text_output_lists_every_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(tmp_path / "ck", "[good]")
    damaged(tmp_path / "ck", "damaged")
    monkeypatch.chdir(tmp_path / "ck")
    policy = tmp_path / "policy.toml"
    policy.write_text(f'{RULES}[[target]]\npath = "ck/*"\n')
    assert run(["maintain", str(policy), "--engine", "local", "--plan"]) == 5
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["target", "status", "entries", "dropped", "rewritten", "before", "after", "time"]
    assert out[1].split()[:2] == ["[good]", "planned"] and out[2].split()[:2] == ["damaged", "failed"]
    assert out[3].startswith("damaged (target 1): ")
    plan = "Plan: nothing was changed."
    assert out[-1] == f"{plan} Read the errors and warnings before you repeat it without --plan."
    policy.write_text(f'{RULES}[[target]]\npath = "ck/[[]good]"\n')
    assert run(["maintain", str(policy), "--engine", "local", "--plan"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{plan} Without --plan, ttlsnap does this."


def test_the_text_output_says_why_no_rule_changes_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh(tmp_path, "no time", "dedup-columns-rocksdb-3.2")
    policy = tmp_path / "policy.toml"
    policy.write_text('[[target]]\npath = "no time"\n')
    assert run(["maintain", str(policy), "--engine", "local", "--plan"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert " nothing        -        0 " in out[1]
    assert ": operator 0 is not changed: dropDuplicates without an event-time column stores no time" in out[2]
    assert run(["compact", str(tmp_path / "no time"), "--engine", "local", "--dry-run"]) == 0
    assert "Nothing to do: Spark stores no expiry time in any of these states. " in capsys.readouterr().out


def test_the_advice_for_a_target_is_about_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = fresh(tmp_path, "busy")
    policy = tmp_path / "policy.toml"
    policy.write_text('[[target]]\npath = "busy"\nttl = "7d"\ntimestamp = "value.max"\n')
    (target / "offsets/6").touch()
    plan = str(tmp_path / "plan.json")
    assert run(["maintain", str(policy), "--engine", "local", "--plan-out", plan]) == 0
    assert run(["maintain", str(policy), "--engine", "local", "--apply", plan]) == 0
    told, skipped = capsys.readouterr().out.splitlines()[-2:]
    assert "Stop it, and repeat the command with stopped = true in the policy" in told
    assert "--stopped" not in told and told.count(str(target)) <= 1
    assert skipped.startswith("The plan was not carried out on 1 target, which the policy skips.")


def test_the_log_and_the_results_have_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh(tmp_path, "good")
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[target]]\npath = "good"\nstopped = true\nttl = "7d"\ntimestamp = "value.max"\nmax_drop = "1%"\n'
    )
    assert run(["maintain", str(policy), "--engine", "local"]) == 4
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    _, error = line.rsplit(" s: ", 1)
    assert error.startswith("this run would drop 369 of 480 entries") and error in " ".join(out.split())
    assert run(["maintain", str(policy), "--engine", "local", "--plan"]) == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert "good refused 480 369" in plan and "A run refuses this. Correct the timestamp field" in plan
    assert "terminal" not in plan and "higher max_drop in the policy" in plan
    assert run(["maintain", str(policy), "--engine", "local", "--plan", "--format", "json"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert (target["status"], target["refused"]) == ("planned", True)


def test_the_log_reports_each_target_when_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh(tmp_path / "ck", "good")
    damaged(tmp_path / "ck", "damaged")
    policy = tmp_path / "policy.toml"
    policy.write_text(f'{RULES}[[target]]\npath = "ck/*"\n')
    for options in ([], ["--log-format", "text"], ["--log-format", "json"]):
        assert run(["maintain", str(policy), "--engine", "local", "--plan", *options]) == 5
        err = capsys.readouterr().err
        if not options:
            # stderr is not a terminal, so that only failures are logged, which cron mails
            (line,) = err.splitlines()
            assert f"{tmp_path}/ck/damaged: failed, " in line and "do not match the checksum" in line
        elif options[1] == "text":
            assert sorted(line.split("] ")[-1].split(":")[0] for line in err.splitlines()[1:3]) == [
                f"{tmp_path}/ck/damaged", f"{tmp_path}/ck/good",
            ]  # fmt: skip
        else:
            begun, *targets, done = map(json.loads, err.splitlines())
            assert (begun["targets"], done["exit_code"]) == (2, 5)
            told = {Path(target["target"]).name: (target["level"], target["status"]) for target in targets}
            assert told == {"good": ("info", "planned"), "damaged": ("error", "failed")}
            assert done["event"] == "planned"
        assert "done" not in err


@pytest.mark.wide
@pytest.mark.spark
def test_all_targets_share_one_spark_session(tmp_path: Path) -> None:
    # The first of several threads that need Spark starts it, in its own process.
    for name in ("a", "b", "c"):
        fresh(tmp_path / "ck", name)
    policy = tmp_path / "policy.toml"
    busy = fresh(tmp_path, "busy")
    waiting = '[[target]]\npath = "busy"\non_busy = "wait"\nwait = "1s"\n'
    policy.write_text(f'{RULES}[[target]]\npath = "ck/*"\n{waiting}')
    script = Path(sys.executable).with_name("ttlsnap")
    words = [str(script), "maintain", str(policy), "--engine", "spark", "--parallelism", "2", "--format", "json"]
    words += ["--log-format", "json"]
    with open_directory(str(busy)).lock():
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    *targets, last = json.loads(done.stdout)["targets"]
    assert [(target["status"], target["engine"]) for target in targets] == [("done", "spark")] * 3
    assert (done.returncode, last["status"]) == (4, "refused")
    # A target can end while the JVM starts and redirects stderr. Its line must not get lost.
    assert [line["event"] for line in map(json.loads, done.stderr.splitlines())] == ["begun", *["target"] * 4, "done"]
    alone = compacted_alone(tmp_path / "own")
    assert all(bytes_of(tmp_path / "ck" / name / "state") == alone for name in ("a", "b", "c"))


def test_all_targets_share_one_pool_of_threads(
    maintain: Maintain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    pool = vars(local)["ThreadPoolExecutor"]

    def counted(threads: int) -> Any:
        made.append(threads)
        return pool(threads)

    monkeypatch.setattr(local, "ThreadPoolExecutor", counted)
    for name in "abcd":
        fresh(tmp_path / "ck", name)
    code, found = maintain('[[target]]\npath = "ck/*"\n', "--parallelism", "2")
    assert (code, made) == (0, [2]), found
    assert [target["status"] for target in found.values()] == ["done"] * 4
    alone = compacted_alone(tmp_path / "own")
    assert all(bytes_of(tmp_path / "ck" / name / "state") == alone for name in "abcd")


@pytest.mark.parametrize(("share", "way"), [("1", "tombstones"), ("0", "full")])
def test_tombstones_are_written_up_to_the_configured_share(
    maintain: Maintain, tmp_path: Path, share: str, way: str
) -> None:
    fresh(tmp_path / "ck", "one", "rocksdb-4.2")
    rule = f'max_drop = "100%"\nnow = "2100-01-01"\nstrategy = "rocksdb"\ntombstone_share = {share}\n'
    _, found = maintain(f'[[target]]\npath = "ck/one"\n{rule}')
    (store,) = found["one"]["stores"]
    assert store["dropped"] > 0
    assert store["partitions"][way] > 0
    assert store["partitions"].get({"tombstones": "full", "full": "tombstones"}[way], 0) == 0
