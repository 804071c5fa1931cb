"""The dashboard and the alerts get answers from a real Prometheus, which scrapes files that ttlsnap wrote."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .prometheus import (
    ALERTS,
    DASHBOARD,
    DAY,
    HOUR,
    ROOT,
    Panel,
    Prometheus,
    free_port,
    nights,
    panels,
    program,
    prometheus,
    running,
    write_history,
)

pytestmark = pytest.mark.wide  # needs Prometheus

RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
EXPORTER = ROOT / "examples/kubernetes/exporter.yaml"


@pytest.fixture(scope="module")
def now() -> int:
    return int(time.time())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prometheus")


@pytest.fixture(scope="module")
def server(folder: Path, now: int) -> Iterator[Prometheus]:
    """Prometheus with the history of two weeks, which scrapes the last files through the exporter of Kubernetes."""
    metrics = list(nights(folder))
    write_history(folder / "history", metrics, now - DAY, folder)
    served = folder / "served"
    served.mkdir()
    for name, text in metrics[-1].items():
        (served / f"{name}.prom").write_text(text.replace(str(folder), ""))
    address = f"127.0.0.1:{free_port()}"
    (container,) = yaml.safe_load(EXPORTER.read_text())["spec"]["template"]["spec"]["containers"]
    words = [word.replace("=/checkpoints", f"={served}").replace("=:9100", f"={address}") for word in container["args"]]
    exporter = [program("prometheus-node-exporter"), *words]
    with (
        running(exporter, f"http://{address}/metrics", folder / "exporter.log"),
        prometheus(folder, folder / "history", address) as started,
    ):
        while not all(
            started.ask("query", query=f"{name}{{job='ttlsnap'}}")["result"] for name in ("up", "ttlsnap_batch")
        ):
            time.sleep(0.2)
        yield started


def test_prometheus_scrapes_every_metric_without_an_error(server: Prometheus, folder: Path) -> None:
    written = {
        re.split("[ {]", line)[0]
        for file in (folder / "served").iterdir()
        for line in file.read_text().splitlines()
        if not line.startswith("#")
    }
    found = server.query('{__name__=~"ttlsnap_.*", job="ttlsnap"}', time.time())
    assert {labels["__name__"] for labels, _ in found} == written
    assert [value for _, value in server.query("node_textfile_scrape_error", time.time())] == [0]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.title)
def test_each_panel_shows_an_answer(server: Prometheus, now: int, panel: Panel) -> None:
    if panel.instant:
        values = [value for _, value in server.query(panel.expression, time.time())]
    else:
        # The points of the last day are scraped, those before it are history.
        found = server.query_range(panel.expression, now - DAY - 7 * DAY - HOUR * 9, now - DAY)
        values = [value for _, points in found for _, value in points]
        values += [value for _, value in server.query(panel.expression, time.time())]
    assert values and all(value == value for value in values)
    assert panel.title in ("Failed targets", "Exit codes") or any(values)


def test_the_panels_show_what_happened(server: Prometheus) -> None:
    shown = {panel.title: server.query(panel.expression, time.time()) for panel in panels()}
    by_target = {
        title: {labels["target"].removeprefix("/checkpoints/"): value for labels, value in found}
        for title, found in shown.items()
        if found and "target" in found[0][0]
    }
    assert shown["Failed targets"] == [({}, 1)]
    assert 0 <= shown["Age of the last run"][0][1] < HOUR
    assert by_target["Exit codes"] == {"sessions": 0, "orders": 5, "carts": 0}
    status = {labels["target"]: labels["status"] for labels, _ in shown["Status after the last run"]}
    assert status == {
        "/checkpoints/sessions": "done",
        "/checkpoints/orders": "failed",
        "/checkpoints/carts": "skipped",
    }
    assert by_target["Growth in 7 days"]["clicks"] > 0 > by_target["Growth in 7 days"]["sessions"]
    assert by_target["Share expired by target"].keys() == {"clicks"}
    assert 0 < by_target["Share dropped by the last run"]["sessions"] < 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_gets_an_answer(server: Prometheus, now: int, rule: dict[str, Any]) -> None:
    # The backups are current, so nothing is late.
    without_limits = re.sub(r" unless \w+ == 1", "", re.sub(r"> [\d.e]+( \* \d+)?", "> -2", rule["expr"]))
    moment = now - 100 * DAY if "absent" in rule["expr"] else time.time()
    assert server.query(without_limits, moment)


def test_a_backup_that_is_current_is_not_late(server: Prometheus) -> None:
    found = server.query("ttlsnap_backup_is_current", time.time())
    current = {labels["target"].rpartition("/")[2]: value for labels, value in found}
    assert current == {"sessions": 1, "orders": 0}, "the damaged checkpoint has other files than its backup"
    late = next(rule["expr"] for rule in RULES if rule["alert"] == "TtlsnapBackupIsLate")
    found = server.query(late.replace("> 36 * 3600", "> -2"), time.time())
    assert {labels["target"] for labels, _ in found} == {"/checkpoints/orders"}


def health_of_rules(server: Prometheus) -> dict[str, str]:
    """Return the health of each rule after its last evaluation."""
    return {rule["name"]: rule["health"] for rule in server.ask("rules")["groups"][0]["rules"]}


def test_a_damaged_target_raises_an_alert(server: Prometheus) -> None:
    while not (alerts := [alert for alert in server.ask("alerts")["alerts"] if alert["state"] == "firing"]):
        time.sleep(0.2)
    found = {(alert["labels"]["alertname"], alert["labels"].get("target")) for alert in alerts}
    assert found == {("TtlsnapTargetFailed", "/checkpoints/orders")}
    while "unknown" in (health := health_of_rules(server)).values():
        time.sleep(0.2)
    assert health == {rule["alert"]: "ok" for rule in RULES}


def test_the_variable_of_the_dashboard_lists_all_targets(server: Prometheus) -> None:
    variables = {one["name"]: one for one in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    found = re.fullmatch(r"label_values\((.*), target\)", variables["target"]["query"]["query"])
    assert found is not None
    values = server.ask("label/target/values", **{"match[]": found[1]})
    assert values == [f"/checkpoints/{name}" for name in ("carts", "clicks", "orders", "sessions")]


def test_the_unit_tests_of_the_alerts_pass() -> None:
    tests = ALERTS.with_name("alerts-test.yaml")
    done = subprocess.run([program("promtool"), "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    tested = {
        case["alertname"] for one in yaml.safe_load(tests.read_text())["tests"] for case in one["alert_rule_test"]
    }
    assert tested == {rule["alert"] for rule in RULES}
