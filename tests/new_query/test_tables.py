"""Delta tables that get the columns of a new stream, which then goes on merging into them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.contract import contract_of_table
from ttlsnap.delta import read_table
from ttlsnap.storage.open import open_directory

from ..check.observe import normal
from ..check.observe_tables import TableObserver, read_observed
from ..check.tables import TABLE_PAIRS
from ..judge.processes import Server
from ..matrix import FULL
from ..publishing.trees import tree
from .tables import CASES

pytestmark = pytest.mark.wide  # long

SLICE = ("table-column-renamed",)
CHOSEN = CASES if FULL else [case for case in CASES if case[0] in SLICE]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def observer(delta_server: Server, tmp_path_factory: pytest.TempPathFactory) -> TableObserver:
    return TableObserver(tmp_path_factory.mktemp("tables"), delta_server)


@pytest.fixture
def command(delta_server: Server) -> Command:
    """Return a function that runs a command beside Spark with Delta; see ``commands.run``."""
    package = str(Path(__file__).parent)

    def run(*words: Any, **more: Any) -> tuple[int, str, str]:
        order = {"words": [str(word) for word in words], **more}
        code, out, err = delta_server.ask("call", package=package, function="commands.run", order=order)
        return code, out, err

    return run


def begin(observer: TableObserver, folder: Path, name: str) -> tuple[Path, Path]:
    """Run the old stream of a pair. Return its table, and the contract of the new stream's table."""
    pair, new = TABLE_PAIRS[name], folder / "new.json"
    new.write_text(json.dumps(read_observed()[name]["contracts"][1]))
    assert "error" not in observer.run(pair, 0, folder, pair.before)
    return folder / "path", new


@pytest.mark.parametrize(("name", "words", "changes"), CHOSEN, ids=[case[0] for case in CHOSEN])
def test_the_new_stream_goes_on(
    observer: TableObserver, command: Command, tmp_path: Path, name: str, words: list[str], changes: list[str]
) -> None:
    table, new = begin(observer, tmp_path, name)
    before, contract = tree(table), contract_of_table(str(table))
    if words:
        # Without an answer, a new column could be the old one; a column that the stream lacks can stay.
        code, _, err = command("migrate", table, "--to", new, "--dry-run")
        assert code == (3 if words[0] == "--rename" else 0), err
    if "--drop" in words:
        code, _, err = command("migrate", table, "--to", new, *words)
        assert (code, "To agree, add --yes" in err) == (4, True)
    code, out, err = command("migrate", table, "--to", new, *words, "--dry-run", "--format", "json")
    assert code == 0, err
    assert [step["change"] for step in json.loads(out)["plan"]] == changes
    assert tree(table) == before
    code, out, err = command("migrate", table, "--to", new, *words, "--yes", "--format", "json")
    assert code == 0, err
    document = json.loads(out)
    assert document["version_after"] == document["version"] + len(document["statements"])
    code, _, err = command("rollback", table)
    assert code == 0, err
    undone = contract_of_table(str(table))
    assert (undone.columns, undone.key) == (contract.columns, contract.key)
    code, _, err = command("migrate", table, "--to", new, *words, "--yes")
    assert code == 0, err
    runs = json.loads(command("history", table, "--format", "json")[1])["runs"]
    assert [run["kind"] for run in runs] == ["migrate", "rollback", "migrate"]
    done = observer.run(TABLE_PAIRS[name], 1, tmp_path, [TABLE_PAIRS[name].after])
    assert "error" not in done, done
    assert normal(done["rows"]) == normal(TABLE_PAIRS[name].right())


def test_another_writer_is_noticed(observer: TableObserver, command: Command, tmp_path: Path) -> None:
    table, new = begin(observer, tmp_path, "table-column-added")
    version = read_table(open_directory(str(table))).version
    insert = f"INSERT INTO delta.`{table}` VALUES ('z', 'z', 1)"
    code, _, err = command("migrate", table, "--to", new, meanwhile=insert)
    assert (code, f"committed version {version + 1}" in err) == (4, True), err
    assert read_table(open_directory(str(table))).version == version + 1


def test_the_key_of_the_rows_stays_known(observer: TableObserver, command: Command, tmp_path: Path) -> None:
    table, new = begin(observer, tmp_path, "table-column-added")
    observer.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('ttlsnap.key' = 'user')")
    document = contract_of_table(str(table)).to_json()
    document["key"] = ["client"]
    document["columns"][0]["name"] = "client"
    document["columns"].append(
        {"name": "code", "type": "string", "nullable": True, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"}}
    )
    new.write_text(json.dumps(document))
    before = tree(table)
    code, _, err = command("migrate", table, "--to", new, "--drop", "user", "--yes")
    assert (code, "is a column of the rows' key" in err) == (3, True), err
    assert tree(table) == before
    code, _, err = command("migrate", table, "--to", new, "--rename", "user=client")
    assert code == 0, err
    after = contract_of_table(str(table))
    assert after.key == ("client",)
    assert after.columns.fields[-1].metadata["__CHAR_VARCHAR_TYPE_STRING"] == "varchar(10)"


WRONG = [
    (["--partitions", "3"], "--partitions is for checkpoints"),
    (["--fill", "a=1"], "only --rename, --drop and --ignore"),
    (["--drop", "nothing"], "the table has no such column"),
    (["--rename", "nothing=amount"], "the table has no column nothing"),
    (["--rename", "amount=nothing"], "the new stream has no column nothing"),
]


def test_wrong_answers_are_refused(observer: TableObserver, command: Command, tmp_path: Path) -> None:
    table, new = begin(observer, tmp_path, "table-column-added")
    before = tree(table)
    for words, message in WRONG:
        code, _, err = command("migrate", table, "--to", new, "--yes", *words)
        assert (code, message in " ".join(err.split())) == (2, True), err
    query = tmp_path / "query.json"
    query.write_text("{}")
    assert command("migrate", table, "--to", query, "--yes")[0] in (2, 3)
    assert command("migrate", table, "--yes")[0] == 2
    assert tree(table) == before
