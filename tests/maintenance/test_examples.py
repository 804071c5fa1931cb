"""The examples for schedulers are valid for their tools, and the commands in them exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import typer.main
import yaml

from ttlsnap.cli.app import app
from ttlsnap.maintenance.policy import read_policy

from ..environments import find

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# Airflow loads the file, and prints the ttlsnap command lines that it would run.
PARSED = """
import json, shlex, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
(dag,) = bag.dags.values()
assert dag.schedule and not dag.catchup
print(json.dumps([
    shlex.split(task.bash_command)[1:] if hasattr(task, "bash_command") else task.application_args
    for task in dag.tasks
]))
"""
CRON, KUBERNETES, SYSTEMD = (EXAMPLES / name for name in ("cron/ttlsnap", "kubernetes", "systemd"))


def require_known(words: list[str]) -> None:
    """Parse a command line of ttlsnap without running it."""
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], list(words[1:]))


def test_the_example_policy_is_valid() -> None:
    assert len(read_policy(str(EXAMPLES / "policy.toml")).targets) == 2


def test_the_cron_entry_runs_a_known_command() -> None:
    (line,) = [line for line in CRON.read_text().splitlines() if re.match(r"[0-9*]", line)]
    found = re.fullmatch(r"((?:[0-9*/,-]+\s+){5})([a-z]+)\s+(ttlsnap [^>%]+)(?:> \S+)?", line)
    assert found is not None
    require_known(shlex.split(found[3])[1:])


def test_the_systemd_units_are_valid(tmp_path: Path) -> None:
    service = (SYSTEMD / "ttlsnap.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)", service, re.MULTILINE)
    require_known(shlex.split(command)[1:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not on this machine")
    # systemd-analyze needs a program and a user that exist on this machine.
    service = service.replace("/opt/ttlsnap/bin/ttlsnap", sys.executable).replace("User=spark", "User=root")
    (tmp_path / "ttlsnap.service").write_text(service)
    shutil.copy(SYSTEMD / "ttlsnap.timer", tmp_path)
    units = [str(tmp_path / f"ttlsnap.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_kubernetes_cron_job_is_valid() -> None:
    text = (KUBERNETES / "cronjob.yaml").read_text()
    document = yaml.safe_load(text)
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    (container,) = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    require_known(container["args"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
    }


def test_the_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, KUBERNETES / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_github_workflow_runs_a_known_command() -> None:
    steps = yaml.safe_load((EXAMPLES / "github-action/maintain.yml").read_text())["jobs"]["maintain"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("run", "").startswith("ttlsnap")]
    require_known(shlex.split(command.partition(">")[0])[1:])


@pytest.mark.wide
@pytest.mark.parametrize("name", ["ttlsnap_dag", "ttlsnap_spark_dag"])
def test_airflow_loads_the_dags(name: str, tmp_path: Path) -> None:
    python = find("airflow") / "bin/python"
    source = EXAMPLES / f"airflow/{name}.py"
    environment = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(python), "-c", PARSED, str(source)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (words,) = json.loads(done.stdout.splitlines()[-1])
    require_known(words)
