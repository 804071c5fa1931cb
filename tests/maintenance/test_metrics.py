"""Prometheus' own parsers read the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from ttlsnap.cli.app import run

from ..publishing.trees import tree
from .targets import damaged, fresh


def read(file: Path) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels, after both parsers have read the same."""
    found = []
    for parse in (parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families):
        families = list(parse(file.read_text()))
        assert {family.type for family in families} == {"gauge"}
        found.append([(s.name, s.labels, s.value) for family in families for s in family.samples])
    assert found[0] == found[1]
    return {(name, *labels.values()): value for name, labels, value in found[0]}


def test_both_parsers_read_the_values_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / 'a "quoted" \\ folder\n'
    fresh(folder, "good")
    damaged(folder, "damaged")
    policy, file = tmp_path / "policy.toml", tmp_path / "ttlsnap.prom"
    path = json.dumps(f"{folder}/*")
    policy.write_text(f'[[target]]\npath = {path}\nstopped = true\nttl = "7d"\ntimestamp = "value.max"\n')
    assert run(["maintain", str(policy), "--engine", "local", "--format", "json", "--metrics", str(file)]) == 5
    targets = {target["target"]: target for target in json.loads(capsys.readouterr().out)["targets"]}
    values = read(file)
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


def test_inspect_writes_the_sizes_that_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, file = fresh(tmp_path, 'a "quoted" \\ name', "visits-4.2"), tmp_path / "state.prom"
    rule = ("--ttl", "7d", "--timestamp", "value.seen:s")
    assert run(["inspect", str(target), "--sizes", *rule, "--metrics", str(file), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    values, sizes = read(file), document["sizes"]
    assert values["ttlsnap_batch", str(target)] == document["batch"]
    assert values["ttlsnap_batch_timestamp_seconds", str(target)] * 1000 == document["batch_timestamp_ms"]
    assert values["ttlsnap_measured_share", str(target)] == sizes["share_read"]
    for store in sizes["stores"]:
        place = (str(target), str(store["operator"]), store["store"])
        assert values["ttlsnap_store_file_bytes", *place] == store["file_bytes"]
    expired = 0
    for state in sizes["states"]:
        labels, freed = (str(target), str(state["operator"]), state["store"], state["state"]), state["would_free"]
        assert values["ttlsnap_state_entries", *labels] == state["estimated_entries"]
        assert values["ttlsnap_state_bytes", *labels] == state["estimated_bytes"]
        assert values["ttlsnap_state_expired_entries", *labels] == freed["estimated_entries"]
        assert values["ttlsnap_state_expired_bytes", *labels] == freed["estimated_bytes"]
        expired += freed["estimated_entries"]
    assert len(sizes["states"]) > 1 and expired > 0


@pytest.mark.parametrize("option", ["--metrics", "--plan-out"])
def test_maintain_writes_no_file_into_a_checkpoint(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, policy = fresh(tmp_path, "good"), tmp_path / "policy.toml"
    policy.write_text('[[target]]\npath = "good"\nstopped = true\nttl = "7d"\ntimestamp = "value.max"\n')
    before = tree(target)
    assert run(["maintain", str(policy), "--engine", "local", option, f"{target}/file"]) == 2
    assert f"{option} is inside {target}" in capsys.readouterr().err
    assert tree(target) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("good", "--metrics", "state.prom"), "--metrics needs --sizes"),
        (("good", "--sizes", "--metrics", "good/state.prom"), "inside"),
        (("good", "--sizes", "--metrics", "nowhere/state.prom"), "there is no folder nowhere"),
        ((".", "--sizes", "--metrics", "state.prom"), "name one of them"),
    ],
)
def test_metrics_of_inspect_that_cannot_be_written_are_refused(
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh(tmp_path, "good")
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    assert run(["inspect", *words]) == 2
    assert told in capsys.readouterr().err
    assert tree(tmp_path) == before
