"""``maintain --apply`` carries out a reviewed plan exactly, or not at all."""

from __future__ import annotations

import json
import linecache
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run

from ..samples import bytes_of, without_locks
from .targets import cut_off, damaged, fenced, fresh, unknown

POLICY = """
[defaults]
stopped = true
now = "{now}"
timestamp = "value.max"
[[target]]
path = "ck/*"
ttl = "{ttl}"
"""
Maintain = Callable[..., tuple[int, Any]]


@pytest.fixture
def maintain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Maintain:
    def invoke(*options: str, ttl: str = "7d", now: str = "checkpoint") -> tuple[int, Any]:
        (tmp_path / "policy.toml").write_text(POLICY.format(ttl=ttl, now=now))
        words = ["maintain", str(tmp_path / "policy.toml"), "--engine", "local", "--format", "json", *options]
        code = run(words)
        captured = capsys.readouterr()
        return code, json.loads(captured.out)["targets"] if captured.out else captured.err

    return invoke


@pytest.fixture
def plan(tmp_path: Path) -> str:
    return str(tmp_path / "plan.json")


def test_apply_does_exactly_what_the_plan_says(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    fresh(tmp_path / "ck", "good")
    broken = damaged(tmp_path / "ck", "damaged")
    before = bytes_of(tmp_path / "ck")
    code, planned = maintain("--plan-out", plan)
    assert code == 5 and bytes_of(tmp_path / "ck") == before
    fresh(tmp_path / "ck", "new")  # this target is not in the plan
    assert {Path(one["target"]).name: one["status"] for one in planned} == {"damaged": "failed", "good": "planned"}
    code, (done, failed) = maintain("--apply", plan)
    assert (code, done["status"], done["target"]) == (5, "done", f"{tmp_path}/ck/good")
    assert done["totals"] == planned[1]["totals"]
    assert (failed["target"], failed["status"], failed["exit_code"]) == (str(broken), "failed", 5)
    assert bytes_of(broken) == {n[len("damaged/") :]: h for n, h in before.items() if n.startswith("damaged/")}
    code, (again, failed) = maintain("--apply", plan)
    assert (code, again["status"], failed["status"]) == (5, "nothing", "failed")


def test_targets_that_could_not_be_planned_fail_again(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    # The damaged target is repaired after the plan, but nobody has reviewed what a run would do.
    for make in (damaged, fenced, unknown):
        make(tmp_path / "ck", make.__name__)
    _, planned = maintain("--plan-out", plan)
    wanted = {one["target"]: (one["status"], one["exit_code"], one["error"]) for one in planned}
    assert {status for status, _, _ in wanted.values()} == {"failed", "refused", "undecided"}
    shutil.rmtree(tmp_path / "ck/damaged")
    before = bytes_of(fresh(tmp_path / "ck", "damaged"))
    metrics = tmp_path / "metrics"
    code, found = maintain("--apply", plan, "--metrics", str(metrics))
    assert code == 5
    assert {one["target"]: (one["status"], one["exit_code"]) for one in found} == {t: w[:2] for t, w in wanted.items()}
    assert all(wanted[one["target"]][2] in one["error"] for one in found)
    assert all("could not be planned, so nothing was changed there" in one["error"] for one in found)
    assert bytes_of(tmp_path / "ck/damaged") == before
    for target, (status, exit_code, _) in wanted.items():
        assert f'ttlsnap_target_exit_code{{target="{target}"}} {exit_code}\n' in metrics.read_text()
        assert f'ttlsnap_target_status{{target="{target}",status="{status}"}} 1\n' in metrics.read_text()


def test_apply_accepts_plans_of_version_1(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    fresh(tmp_path / "ck", "good")
    damaged(tmp_path / "ck", "damaged")
    maintain("--plan-out", plan)
    document = json.loads(Path(plan).read_text())
    document["version"] = 1
    for target in document["targets"]:
        del target["exit_code"]
        target["status"] = "done" if target["status"] == "planned" else target["status"]
    Path(plan).write_text(json.dumps(document))
    code, (done, failed) = maintain("--apply", plan)
    assert (code, done["status"], failed["status"], failed["exit_code"]) == (5, "done", "failed", 5)


def test_a_checkpoint_that_changed_after_the_plan_is_refused(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    target, other = fresh(tmp_path / "ck", "good"), fresh(tmp_path / "ck", "other")
    maintain("--plan-out", plan)
    newest = max((target / "state/0/0").glob("*.delta"), key=lambda path: int(path.stem))
    os.utime(newest)
    before = bytes_of(target)
    code, found = maintain("--apply", plan)
    status = {Path(one["target"]).name: one["status"] for one in found}
    assert (code, status) == (4, {"good": "refused", "other": "done"})
    assert bytes_of(target) == before and bytes_of(other) != before
    assert "its files differ from the plan" in found[0]["error"]


def test_apply_uses_the_wall_clock_time_of_the_plan(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    fresh(tmp_path / "ck", "good")
    # By the wall clock, all entries of the sample have expired.
    rules = {"now": "wall", "ttl": '7d"\nmax_drop = "100%'}
    _, (planned,) = maintain("--plan-out", plan, **rules)
    _, (done,) = maintain("--apply", plan, **rules)
    assert (done["status"], done["now"], done["totals"]) == ("done", planned["now"], planned["totals"])


def test_apply_refuses_a_changed_policy(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    target = fresh(tmp_path / "ck", "good")
    maintain("--plan-out", plan)
    before = bytes_of(target)
    code, message = maintain("--apply", plan, ttl="1d")
    assert code == 4 and "changed after the plan was made" in message
    assert bytes_of(target) == before


def test_apply_refuses_changed_code_of_a_transformer(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    target = fresh(tmp_path / "ck", "good")
    code = tmp_path / "chooses.py"
    rule = '{ttl}"\ntransformer = "chooses:f'
    body = "from ttlsnap import Drop, Keep\ndef f(key, value):\n    return {} if len(str(key)) % 2 else {}\n"
    options = {"ttl": rule.format(ttl="3650d")}
    before = bytes_of(target)
    for number, (first, second) in enumerate((("Keep()", "Drop()"), ("Drop()", "Keep()"))):
        code.write_text(body.format(first, second))
        sys.modules.pop("chooses", None)
        linecache.clearcache()
        os.utime(code, (number, number))  # otherwise Python would reuse the compiled file
        if number == 0:
            code_, told = maintain("--plan-out", plan, **options)
            assert code_ == 0, told
    refused, message = maintain("--apply", plan, **options)
    assert refused == 4 and "the code of a transformer" in message
    assert bytes_of(target) == before


def test_a_missing_target_is_refused(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    target, _ = fresh(tmp_path / "ck", "gone"), fresh(tmp_path / "ck", "good")
    maintain("--plan-out", plan)
    target.rename(tmp_path / "elsewhere")
    code, found = maintain("--apply", plan)
    assert code == 4 and {Path(one["target"]).name: one["status"] for one in found} == {
        "good": "done", "gone": "refused",
    }  # fmt: skip


def test_apply_does_not_recover_a_run_interrupted_after_the_plan(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    target = fresh(tmp_path / "ck", "good")
    maintain("--plan-out", plan)
    cut_off(target, "1d", "value.max")
    before = without_locks(bytes_of(target))
    code, (found,) = maintain("--apply", plan)
    assert (code, found["status"], found["recovered"]) == (4, "refused", None)
    assert without_locks(bytes_of(target)) == before


@pytest.mark.slow
def test_paths_that_are_not_unicode_work(tmp_path: Path, plan: str) -> None:
    fresh(tmp_path / "ck", os.fsdecode(b"b\xffd"))
    (tmp_path / "policy.toml").write_text(POLICY.format(ttl="7d", now="checkpoint"))
    metrics = str(tmp_path / "metrics")
    for options in (["--plan-out", plan], ["--apply", plan, "--metrics", metrics]):
        words = ["maintain", str(tmp_path / "policy.toml"), "--engine", "local", "--format", "json", *options]
        run = subprocess.run([sys.executable, "-m", "ttlsnap", *words], capture_output=True, check=False)
        assert run.returncode == 0, run.stderr
        (done,) = json.loads(run.stdout)["targets"]
        is_plan = options[0] == "--plan-out"
        assert (done["status"], done["dry_run"]) == ("planned" if is_plan else "done", is_plan)
    assert "b\\\\udcffd" in Path(metrics).read_text("utf-8")


def test_a_plan_with_other_counts_is_refused(maintain: Maintain, tmp_path: Path, plan: str) -> None:
    target = fresh(tmp_path / "ck", "good")
    maintain("--plan-out", plan)
    text = Path(plan).read_text()
    document = json.loads(text)
    document["targets"][0]["facts"]["stores"][0]["dropped"] -= 1
    Path(plan).write_text(json.dumps(document))
    before = bytes_of(target)
    code, (found,) = maintain("--apply", plan)
    assert (code, found["status"]) == (4, "refused") and "its dropped entries differ from the plan" in found["error"]
    assert bytes_of(target) == before


def test_the_error_for_a_binary_plan_is_short(maintain: Maintain, plan: str) -> None:
    Path(plan).write_bytes(b"\xff\x00" * 100_000)
    code, message = maintain("--apply", plan)
    assert code == 2 and len(message) < 1000


@pytest.mark.parametrize(
    ("text", "code"), [("", 2), ("{}", 2), ("[]", 2), ('{"version": true}', 2), ('{"version": 3}', 3), (None, 2)]
)
def test_invalid_and_missing_plans_are_errors(maintain: Maintain, plan: str, text: str | None, code: int) -> None:
    if text is not None:
        Path(plan).write_text(text)
    found, message = maintain("--apply", plan)
    assert found == code and plan in message


def test_apply_and_plan_exclude_each_other(maintain: Maintain, plan: str) -> None:
    assert maintain("--apply", plan, "--plan")[0] == 2
