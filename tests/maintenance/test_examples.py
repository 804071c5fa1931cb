"""The examples for schedulers are valid for their tools, and the commands in them exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def manifest(name: str) -> Any:
    """Return a manifest, which fits the schema of its kind."""
    document = yaml.safe_load((KUBERNETES / f"{name}.yaml").read_text())
    if "monitoring" not in document["apiVersion"]:  # a custom resource
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    return document


def container_of(pod: Any) -> Any:
    """Return the only container of a pod, which mounts every volume."""
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    return container


def test_the_kubernetes_manifests_run_maintain_and_serve_its_metrics() -> None:
    cron_job, exporter, monitor = map(manifest, ("cronjob", "exporter", "podmonitor"))
    job = container_of(cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    require_known(job["args"])
    (file,) = (Path(word.partition("=")[2]) for word in job["args"] if word.startswith("--metrics="))
    pod = exporter["spec"]["template"]
    server = container_of(pod["spec"])
    assert f"--collector.textfile.directory={file.parent}" in server["args"] and file.suffix == ".prom"
    assert [mount["name"] for mount in job["volumeMounts"] if mount["mountPath"] == str(file.parent)] == ["checkpoints"]
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "streaming-checkpoints"
    (port,) = server["ports"]
    assert f"--web.listen-address=:{port['containerPort']}" in server["args"]
    annotations = pod["metadata"]["annotations"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port["containerPort"]),
        "prometheus.io/path": "/metrics",
    }
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    labels = exporter["spec"]["selector"]["matchLabels"]
    assert labels == monitor["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]


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
