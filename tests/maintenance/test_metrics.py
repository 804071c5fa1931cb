"""Prometheus' own parsers read the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from ttlsnap.cli.app import run

from .targets import damaged, fresh


def test_both_parsers_read_the_values_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / 'a "quoted" \\ folder\n'
    fresh(folder, "good")
    damaged(folder, "damaged")
    policy, file = tmp_path / "policy.toml", tmp_path / "ttlsnap.prom"
    path = json.dumps(f"{folder}/*")
    policy.write_text(f'[[target]]\npath = {path}\nstopped = true\nttl = "7d"\ntimestamp = "value.max"\n')
    assert run(["maintain", str(policy), "--engine", "local", "--format", "json", "--metrics", str(file)]) == 5
    targets = {target["target"]: target for target in json.loads(capsys.readouterr().out)["targets"]}
    text = file.read_text()
    found = []
    for parse in (parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families):
        families = list(parse(text))
        assert {family.type for family in families} == {"gauge"}
        found.append([(s.name, s.labels, s.value) for family in families for s in family.samples])
    assert found[0] == found[1]
    values = {(name, *labels.values()): value for name, labels, value in found[0]}
    for name, target in targets.items():
        assert values["ttlsnap_target_exit_code", name] == target["exit_code"]
        assert values["ttlsnap_target_status", name, target["status"]] == 1
        assert (
            sum(
                value
                for (kind, *labels), value in values.items()
                if kind == "ttlsnap_target_status" and labels[0] == name
            )
            == 1
        )
        assert values.get(("ttlsnap_target_dropped_entries", name)) == target.get("totals", {}).get("dropped")
    assert values["ttlsnap_run_exit_code",] == 5
    assert len(targets) == 2
