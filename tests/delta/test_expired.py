"""Dropped rows of a table are archived exactly once, despite other writers and killed runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.delta.history import table_history

from ..judge.processes import Server
from ..matrix import FULL
from .archives import archived, users
from .tables import NOW, Table, expired, moment

pytestmark = pytest.mark.wide  # more of what test_tables.py begins

BEFORE_COMMIT, BEHIND_IT, BEFORE_DELIVERY = "TableArchive.stage", "TableArchive.deliver", "deliver"
"""Functions of the archive at which a run is killed: after the first one, and before the others."""


def went(table: Table, version: int) -> list[list[Any]]:
    """Return the users that a version removed, with their visits."""
    left = {user for user, _ in table.rows("user, visits", version)}
    return [row for row in table.rows("user, visits", version - 1) if row[0] not in left]


@pytest.mark.parametrize(
    ("place", "options"),
    [("delta:{}", {"rule": "Double"}), *([("{}", {}), ("{}", {"limits": [1, None]})] if FULL else [])],
)
def test_dropped_rows_are_archived(delta_server: Server, tmp_path: Path, place: str, options: dict[str, Any]) -> None:
    table, place = Table(delta_server, tmp_path, rich=True), place.format(tmp_path / "archive")
    files = set(table.files())
    assert table.compact(**options, expired_to=place, dry_run=True)["expired_to"] == place
    assert set(table.files()) == files
    report = table.compact(**options, expired_to=place)
    rows = archived(place)
    gone = went(table, report["versions"][-1]) if len(report["versions"]) == 1 else []
    assert len(rows) == report["totals"]["dropped"] > 0
    assert {(row["run"], row["state"], row["operator"], row["store"], row["partition"]) for row in rows} == {
        (report["run"], "rows", None, None, None)
    }
    if "limits" not in options:
        assert [[user, json.loads(row["value"])["visits"]] for user, row in zip(users(rows), rows, strict=True)] == gone
        first = json.loads(rows[0]["value"])
        assert (first["tags"], first["name"]) == ([{"key": "a", "value": {"n": gone[0][1]}}], f"{gone[0][0]}.")
    if "rule" not in options:
        assert set(users(rows)) == expired()
        assert [row["timestamp"] for row in rows] == [moment(int(user[1:])) for user in users(rows)]
    assert not (Path(table.path) / "_ttlsnap").exists()
    assert [run.expired_to for run in table_history(table.path)] == [place]
    assert table.compact(**({} if "rule" in options else options), expired_to=place)["warnings"] == []
    assert len({row["run"] for row in archived(place)}) <= 2


@pytest.mark.parametrize("options", [{}, *([{"rule": "cap"}] if FULL else [])])
def test_the_archive_has_exactly_the_rows_that_the_commit_removed(
    delta_server: Server, tmp_path: Path, options: dict[str, Any]
) -> None:
    # While the run reads, an expired user comes back, and a new user arrives whose row has already expired.
    table, place = Table(delta_server, tmp_path), str(tmp_path / "archive")
    if options:
        table.put([1, 2], at=NOW, visits=3)  # u001 then has 3 visits, and is dropped
        table.merge()
    table.put([1 if options else int(min(expired())[1:]), 500], at=NOW if options else moment(59), visits=1)
    meanwhile = table.stream()
    report = table.compact(**options, expired_to=place, meanwhile=meanwhile)
    (version,) = report["versions"]
    gone = went(table, version)
    assert users(archived(place)) == [user for user, _ in gone]
    assert len(gone) == report["totals"]["dropped"] > 0
    assert {1 if options else 500} <= {int(user[1:]) for user, _ in gone} | {1}


@pytest.mark.parametrize("at", [BEFORE_COMMIT, BEHIND_IT, BEFORE_DELIVERY] if FULL else [BEHIND_IT])
def test_rows_of_a_killed_run_are_archived_once_by_the_next_run(delta_server: Server, tmp_path: Path, at: str) -> None:
    table, place = Table(delta_server, tmp_path), str(tmp_path / "archive")
    order = table.order(expired_to=place)
    table.call("killed", path=table.path, at=f"archiving.{at}", late=at == BEFORE_COMMIT, **order)
    assert (Path(table.path) / "_ttlsnap").exists()
    assert archived(place) == []
    late = []
    if at == BEHIND_IT:  # another writer commits before the next run
        table.put([400], at=NOW)
        table.merge()
        late = ["u400"]
    before, last = table.users(), table.version()
    report = table.compact(expired_to=place)
    assert set(users(archived(place))) == expired()
    assert len(archived(place)) == len(expired())
    if at == BEFORE_COMMIT:
        assert {row["run"] for row in archived(place)} == {report["run"]}
    else:
        assert (report["published"], table.users(), table.version()) == (False, before, last)
        assert set(late) <= set(before)
    assert not (Path(table.path) / "_ttlsnap").exists()


if FULL:  # takes a while

    def test_rollback_of_a_copy_leaves_the_archive_unchanged(delta_server: Server, tmp_path: Path) -> None:
        table, place = Table(delta_server, tmp_path), str(tmp_path / "archive")
        table.compact(expired_to=place)
        before = archived(place)
        copy = shutil.copytree(table.path, tmp_path / "copy")
        table.call("rollback", path=str(copy), expired_to=place)
        assert len(table_history(str(copy))) == 2
        assert archived(place) == before != []


@pytest.mark.parametrize("at", ["history.newest_version", *([None, "history.take_back"] if FULL else [])])
def test_rows_leave_the_archive_only_after_a_rollback(delta_server: Server, tmp_path: Path, at: str | None) -> None:
    table, place = Table(delta_server, tmp_path), f"delta:{tmp_path / 'archive'}"
    table.compact(expired_to=place)
    assert len(archived(place)) == len(expired())
    if at is None:
        table.call("rollback", path=table.path, expired_to=place)
    else:
        table.call("killed", path=table.path, at=at, verb="rollback", expired_to=place)
        assert len(archived(place)) == len(expired())
        # The next run that names the archive completes the removal.
        table.compact(ttl="900d", expired_to=place)
    assert len(archived(place)) == (len(expired()) if at == "history.newest_version" else 0)
    assert not (Path(table.path) / "_ttlsnap").exists()


def test_an_archive_that_the_command_does_not_name_is_unchanged(delta_server: Server, tmp_path: Path) -> None:
    table, place = Table(delta_server, tmp_path), str(tmp_path / "archive")
    table.compact(expired_to=place)
    (warning,) = table.call("rollback_warns", path=table.path)
    assert warning.endswith(f"To remove them there, repeat compact with --expired-to {place}")
    assert len(archived(place)) == len(expired())
    report = table.compact(ttl="900d", expired_to=str(tmp_path / "another"))
    assert report["warnings"] == [warning]
    assert table.compact(ttl="900d", expired_to=place)["warnings"] == []
    assert archived(place) == []
    assert not (Path(table.path) / "_ttlsnap").exists()


def test_only_the_callback_that_the_command_names_gets_the_rows(delta_server: Server, tmp_path: Path) -> None:
    table, notes = Table(delta_server, tmp_path), tmp_path / "notes"
    at = f"archiving.{BEFORE_DELIVERY}"
    table.call("killed", path=table.path, at=at, verb="heard", notes=str(notes), **table.order())
    table.compact(expired_to=str(tmp_path / "archive"))
    assert not notes.exists()
    report = table.call("heard", path=table.path, notes=str(notes), **table.order())
    assert report["totals"]["dropped"] == 0
    assert sorted(line.split()[1] for line in notes.read_text().splitlines()) == sorted(expired())
    table.call("heard", path=table.path, notes=str(notes), **table.order())
    assert len(notes.read_text().splitlines()) == len(expired())
