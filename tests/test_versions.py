"""Contracts and policies name the version of ttlsnap that made them, and older versions refuse them by that name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ttlsnap
from ttlsnap import versions
from ttlsnap.contract import contract_of_checkpoint, parse_contract
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.maintenance.policy import read_policy

from .samples import sample

OWN = versions.VERSION
MAJOR, MINOR = (int(number) for number in OWN.split(".")[:2])
NEWER = [f"{MAJOR}.{MINOR + 1}.0", f"{MAJOR + 1}.0", f"{MAJOR}.{MINOR + 10}"]
KNOWN = [OWN, f"{MAJOR}.{MINOR}.9", f"{MAJOR}.{MINOR}", f"{MAJOR}.{MINOR}.0.dev1", "0.1.0"]
WRONG = ["", "3", "x.y", "1.2.3.4 ", "9" * 7 + ".0", 3, None, ["0.3"]]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def of_contract(tmp_path: Path, made_by: object) -> str:
    document = contract_of_checkpoint(str(sample("agg-deltas-lz4-4.2", tmp_path))).to_json()
    assert document["ttlsnap"] == OWN
    return json.dumps({**document, "ttlsnap": made_by})


def test_contracts_of_newer_versions_are_refused_by_name(tmp_path: Path) -> None:
    for number, made_by in enumerate(NEWER):
        text = of_contract(tmp_path / str(number), made_by)
        with pytest.raises(UnsupportedError, match=rf"^c was made with ttlsnap {made_by}\. .* Use ttlsnap \d+\.\d+ or"):
            parse_contract(text, "c")
        # A newer version may have added keys. The version is what the message is about.
        with pytest.raises(UnsupportedError, match="was made with ttlsnap"):
            parse_contract(json.dumps({**json.loads(text), "later": 1}), "c")


def test_contracts_of_known_versions_are_read(tmp_path: Path) -> None:
    for number, made_by in enumerate(KNOWN):
        text = of_contract(tmp_path / str(number), made_by)
        assert parse_contract(text, "c").to_json()["ttlsnap"] == OWN
    without = {key: value for key, value in json.loads(text).items() if key != "ttlsnap"}
    assert parse_contract(json.dumps(without), "c") == parse_contract(text, "c")


@pytest.mark.parametrize("made_by", WRONG)
def test_what_is_not_a_version_is_an_error(tmp_path: Path, policy: Path, made_by: object) -> None:
    with pytest.raises(UsageError, match="c: ttlsnap is a version such as"):
        parse_contract(of_contract(tmp_path / "ck", made_by), "c")
    if isinstance(made_by, str | int | list):
        policy.write_text(f'ttlsnap = {json.dumps(made_by)}\n[[target]]\npath = "a"\n')
        with pytest.raises(UsageError, match=r"policy\.toml: ttlsnap is a version such as"):
            read_policy(str(policy))


def test_policies_for_newer_versions_are_refused_by_name(policy: Path) -> None:
    for made_by in NEWER:
        policy.write_text(f'ttlsnap = "{made_by}"\nlater = 1\n[[target]]\npath = "a"\n')
        with pytest.raises(UnsupportedError, match=rf"policy\.toml was made with ttlsnap {made_by}\."):
            read_policy(str(policy))
    for made_by in KNOWN:
        policy.write_text(f'ttlsnap = "{made_by}"\n[[target]]\npath = "a"\n')
        assert len(read_policy(str(policy)).targets) == 1


def test_every_place_names_the_same_version() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("ttlsnap"), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"ttlsnap {ttlsnap.__version__}\n" == f"ttlsnap {OWN}\n"
    changes = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()
    assert f"\n## {OWN}, 20" in changes
