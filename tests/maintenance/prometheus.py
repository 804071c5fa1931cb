"""A real Prometheus, and metrics that ttlsnap wrote on 14 nights."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from ttlsnap.cli.app import run

from ..samples import sample

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "examples/grafana/dashboard.json"
ALERTS = ROOT / "examples/prometheus/alerts.yaml"
NIGHTS, DAY, HOUR = 14, 86_400, 3600
SAMPLE = "agg-deltas-lz4-4.2"
_WRITTEN = datetime(2026, 11, 21, 9, tzinfo=UTC)  # when the newest entries of the samples were written
_MOVED = ("ttlsnap_run_finished_timestamp_seconds", "ttlsnap_measured_timestamp_seconds")
POLICY = """
[defaults]
stopped = true
on_unknown = "skip"
ttl = "14d"
timestamp = "value.max"
now = "{now}"
[[target]]
path = "checkpoints/*"
exclude = "checkpoints/clicks"
[target.backup]
to = "backups/{{name}}/{{batch}}"
"""


def program(name: str) -> str:
    """Return the path of a program of Prometheus."""
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed; make prometheus installs it"
    return found


def free_port() -> int:
    """Return a port that nothing uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def nights(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the metric files that ttlsnap writes on each night, by name.

    ``clicks`` grows: it has the state of a later batch every second night, and nobody compacts it. ``sessions`` is
    compacted every night. ``orders`` is damaged on the 12th night. ``carts`` has no checkpoint yet, and is skipped.
    """
    checkpoints, policy = folder / "checkpoints", folder / "policy.toml"
    checkpoints.mkdir(parents=True)
    for name, source in {"clicks": SAMPLE, "sessions": SAMPLE, "orders": "lzf-both-4.2"}.items():
        sample(source, checkpoints).rename(checkpoints / name)
    (checkpoints / "carts").mkdir()
    for night in range(NIGHTS):
        now = (_WRITTEN - timedelta(days=NIGHTS - 1 - night)).isoformat()
        if night == 11:
            state = sorted((checkpoints / "orders/state/0/0").glob("*.delta"))[-1]
            state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])
        policy.write_text(POLICY.format(now=now))
        files = {name: folder / f"{name}.prom" for name in ("ttlsnap", "clicks")}
        code = run(["--quiet", "maintain", str(policy), "--engine", "local", "--metrics", str(files["ttlsnap"])])
        assert code == (5 if night >= 11 else 0)
        rule = ("--ttl", "14d", "--timestamp", "value.max", "--now", now)
        look = (str(checkpoints / "clicks"), "--sizes", "--batch", str(min(night // 2, 6)), *rule)
        assert run(["--quiet", "inspect", *look, "--metrics", str(files["clicks"])]) == 0
        yield {name: file.read_text() for name, file in files.items()}


def write_history(file: Path, metrics: Sequence[Mapping[str, str]], end: int, folder: Path) -> None:
    """Write the metrics of nights as OpenMetrics, with a sample each hour. The last night is 3 hours before ``end``.

    Targets in ``folder`` are at the root. Times of runs are moved to their nights.
    """
    samples: dict[str, list[str]] = defaultdict(list)
    for number, files in enumerate(metrics):
        night = end - (len(metrics) - 1 - number) * DAY - 3 * HOUR
        moments = range(night, min(night + DAY, end + 1), HOUR)
        lines_of_night = [line for text in files.values() for line in text.splitlines() if not line.startswith("#")]
        for line in lines_of_night:
            series, _, value = line.replace(f'target="{folder}', 'target="').rpartition(" ")
            name = series.partition("{")[0]
            shown = night if name in _MOVED else value
            samples[name] += [f"{series} {shown} {moment}" for moment in moments]
    lines = [line for name, own in samples.items() for line in (f"# TYPE {name} gauge", *own)]
    file.write_text("\n".join([*lines, "# EOF"]) + "\n")


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    address: str

    def ask(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer of its API."""
        with urlopen(f"{self.address}/api/v1/{path}?{urlencode(parameters, doseq=True)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str, moment: float) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series at a moment."""
        found = self.ask("query", query=expression, time=moment)
        return [(series["metric"], float(series["value"][1])) for series in found["result"]]

    def query_range(self, expression: str, start: int, end: int, step: int = HOUR) -> list[tuple[dict[str, str], Any]]:
        """Return the labels and the points of each series in a range of time."""
        found = self.ask("query_range", query=expression, start=start, end=end, step=step)
        return [
            (series["metric"], [(moment, float(value)) for moment, value in series["values"]])
            for series in found["result"]
        ]


@contextmanager
def prometheus(folder: Path, history: Path, scraped: str | None = None) -> Iterator[Prometheus]:
    """Start Prometheus with a history and the example's alerts. It scrapes the address ``scraped``."""
    data, log = folder / "data", folder / "prometheus.log"
    subprocess.run(
        [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(history), str(data)],
        check=True,
        capture_output=True,
    )
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "ttlsnap", "static_configs": [{"targets": [scraped]}]}] if scraped else [],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    words = [
        f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={data}", f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=100y", "--query.lookback-delta=1h",
    ]  # fmt: skip
    with running([program("prometheus"), *words], f"http://{address}/-/ready", log):
        yield Prometheus(f"http://{address}")


@contextmanager
def running(words: Sequence[str], address: str, log: Path) -> Iterator[None]:
    """Run a server, and wait until it answers at an address."""
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            while not answers(address):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def answers(address: str) -> bool:
    """Return whether a server answers with success."""
    try:
        with urlopen(address, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard: the expression of its query, for all targets."""

    title: str
    kind: str
    unit: str
    place: Mapping[str, int]
    expression: str
    instant: bool
    limits: tuple[tuple[float, str], ...]


def panels() -> list[Panel]:
    """Return the panels of the dashboard."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        (target,) = panel["targets"]
        defaults = panel["fieldConfig"]["defaults"]
        steps = defaults.get("thresholds", {}).get("steps", ())
        expression = target["expr"].replace("$target", ".*")
        assert "$" not in expression
        found.append(
            Panel(
                panel["title"],
                panel["type"],
                defaults["unit"],
                panel["gridPos"],
                expression,
                target.get("instant", False),
                tuple((step["value"], step["color"]) for step in steps if step["value"] is not None),
            )
        )
    return found
