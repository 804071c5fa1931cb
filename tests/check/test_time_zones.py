"""Two names of one time zone are not a finding, and an unknown zone is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ttlsnap.check import Verdict, check
from ttlsnap.contract import Contract

from .quality import contracts_of

ZONE = "spark.sql.session.timeZone"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("UTC", name) for name in ("Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UTC+0", "Zulu", "Etc/UCT")),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("America/Los_Angeles", "US/Pacific"),
        ("Etc/GMT+1", "-01:00"),
        ("GMT+5", "+05:00"),
    ],
)
def test_two_names_of_one_zone_are_not_a_finding(old: str, new: str) -> None:
    assert not check(*contracts(old, new)).findings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UTC", "Europe/London"),  # the same in winter
        ("UTC", "Africa/Abidjan"),  # the same since 1912
        ("Europe/Berlin", "Europe/Rome"),
        ("+01:00", "-01:00"),
        ("UTC", "Etc/Nowhere"),
        ("UTC", "../UTC"),
        ("-05:00", "EST"),  # releases of Java differ
        ("No/Such", "No/Other"),
    ],
)
def test_zones_that_differ_or_are_unknown_are_a_finding(old: str, new: str) -> None:
    (finding,) = check(*contracts(old, new)).findings
    assert (finding.code, finding.verdict) == ("time-zone", Verdict.UNKNOWN)
    assert f"{ZONE}={old}" in finding.fix


def contracts(*zones: str) -> list[Contract]:
    """Return contracts of the same query in several time zones."""
    contract, _ = contracts_of("harmless-time-zone")
    assert isinstance(contract, Contract)
    return [replace(contract, conf={**contract.conf, ZONE: zone}) for zone in zones]
