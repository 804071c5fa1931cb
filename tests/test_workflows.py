"""The workflows of GitHub Actions run the steps of ``.ci/run``, and are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .environments import find

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github/workflows"
MAINTENANCE = ROOT / "examples/github-action/maintain.yml"


def workflow(name: str) -> Any:
    # For YAML 1.1, the key `on` is true.
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())


def commands(job: dict[str, Any]) -> list[str]:
    """Return the commands of a job's steps, with each value of its matrix."""
    (values,) = job.get("strategy", {}).get("matrix", {"step": [""]}).values()
    texts = [step["run"] for step in job["steps"] if "run" in step]
    return [text.replace("${{ matrix.step }}", value) for value in values for text in texts]


def test_ci_runs_the_steps_of_ci_run() -> None:
    steps = re.findall(r"^make .*", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    (job,) = workflow("ci")["jobs"].values()
    assert [command for command in commands(job) if command.startswith("make")] == steps
    assert {"pull_request", "push"} == workflow("ci")[True].keys()


def test_each_night_all_folders_of_tests_run() -> None:
    nightly = workflow("nightly")
    (job,) = nightly["jobs"].values()
    folders = sorted({path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/*/test_*.py")})
    steps = [
        "test-matrix TESTS='tests/test_*.py'",
        *(f"test-matrix TESTS={folder}" for folder in folders),
        "test-lowest",
    ]
    assert [command for command in commands(job) if command.startswith("make")] == [f"make {step}" for step in steps]
    assert {"schedule", "workflow_dispatch"} == nightly[True].keys()


def test_a_tag_builds_the_files_of_a_release() -> None:
    release = workflow("release")
    (job,) = release["jobs"].values()
    assert "make wheels" in commands(job)
    assert release[True] == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("kind", ["workflows", "actions"])
def test_workflows_and_the_action_fit_their_schemas(kind: str) -> None:
    files = [*WORKFLOWS.iterdir(), MAINTENANCE] if kind == "workflows" else [ROOT / "action.yml"]
    words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{kind}", *map(str, files)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.wide
def test_actionlint_accepts_the_workflows() -> None:
    actionlint = find("actionlint") / "bin/actionlint"
    files = [*WORKFLOWS.iterdir(), MAINTENANCE]
    done = subprocess.run([actionlint, "-no-color", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
