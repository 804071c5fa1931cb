"""The examples of where it runs: the tools that they are for take them, and the commands in them exist."""

from __future__ import annotations

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

EXAMPLES = Path(__file__).parents[2] / "examples"
CRON, KUBERNETES, SYSTEMD = (EXAMPLES / name for name in ("cron/ttlsnap", "kubernetes", "systemd"))


def require_known(words: list[str]) -> None:
    """Parse a command line of ours, without running it."""
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], list(words[1:]))


def test_the_policy_is_one() -> None:
    assert len(read_policy(str(EXAMPLES / "policy.toml")).targets) == 2


def test_cron() -> None:
    (line,) = [line for line in CRON.read_text().splitlines() if re.match(r"[0-9*]", line)]
    found = re.fullmatch(r"((?:[0-9*/,-]+\s+){5})([a-z]+)\s+(ttlsnap [^>%]+)(?:> \S+)?", line)
    assert found is not None
    require_known(shlex.split(found[3])[1:])


def test_systemd(tmp_path: Path) -> None:
    service = (SYSTEMD / "ttlsnap.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)", service, re.MULTILINE)
    require_known(shlex.split(command)[1:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not on this machine")
    # It is verified as on a machine where ttlsnap and the user are there.
    service = service.replace("/opt/ttlsnap/bin/ttlsnap", sys.executable).replace("User=spark", "User=root")
    (tmp_path / "ttlsnap.service").write_text(service)
    shutil.copy(SYSTEMD / "ttlsnap.timer", tmp_path)
    units = [str(tmp_path / f"ttlsnap.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_kubernetes() -> None:
    text = (KUBERNETES / "cronjob.yaml").read_text()
    document = yaml.safe_load(text)
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    (container,) = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    require_known(container["args"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
    }


def test_the_dockerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, KUBERNETES / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
