"""Delta state tables: their log read without a JVM, their contracts, and observed pairs of streams."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.check import check
from ttlsnap.check.targets import load_contract
from ttlsnap.cli.app import run
from ttlsnap.contract import TableContract, contract_of_table, parse_contract
from ttlsnap.delta import read_table
from ttlsnap.delta.log import LOG
from ttlsnap.errors import CorruptionError, NotACheckpointError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.storage.open import open_directory

from ..judge.processes import Server
from ..matrix import FULL
from .contracts import contract
from .observe_tables import TableObserver, read_observed
from .tables import TABLE_PAIRS

_V2 = {"delta.checkpointPolicy": "v2"}
_FORMAT = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
# For each kind: properties, settings, and the number and ending of a checkpoint's files.
KINDS: dict[str, tuple[dict[str, str], dict[str, str], tuple[int, str]]] = {
    "classic": ({}, {}, (1, ".parquet")),
    "parts": ({}, {"spark.databricks.delta.checkpoint.partSize": "2"}, (2, ".parquet")),
    "v2": (_V2, {_FORMAT: "parquet"}, (1, ".parquet")),
    "v2-json": (_V2, {_FORMAT: "json"}, (1, ".json")),
}


@pytest.fixture(scope="module")
def observer(delta_server: Server, tmp_path_factory: pytest.TempPathFactory) -> TableObserver:
    """Return an observer of real Spark with Delta."""
    return TableObserver(tmp_path_factory.mktemp("tables"), delta_server)


@pytest.fixture(scope="module")
def tables(observer: TableObserver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make tables with a checkpoint in the middle of the log, before the newest schema and property."""
    folder = tmp_path_factory.mktemp("delta")
    for name, (properties, settings, _) in KINDS.items():
        path = f"delta.`{folder / name}`"
        words = ", ".join(
            f"'{key}' = '{value}'" for key, value in {"delta.checkpointInterval": "4", **properties}.items()
        )
        observer.sql(
            *(f"SET {key} = {value}" for key, value in settings.items()),
            f"CREATE TABLE {path} (id BIGINT, seen TIMESTAMP, who STRUCT<name: STRING>) USING delta "
            f"TBLPROPERTIES ({words})",
            *(f"INSERT INTO {path} VALUES ({n}, current_timestamp(), struct('a'))" for n in range(4)),
            f"ALTER TABLE {path} SET TBLPROPERTIES ('ttlsnap.key' = 'id')",
            f"ALTER TABLE {path} ADD COLUMNS (note STRING)",
            *(f"RESET {key}" for key in settings),
        )
    return {name: folder / name for name in KINDS}


if FULL:  # each costs a while

    @pytest.mark.parametrize("name", TABLE_PAIRS)
    def test_delta_does_what_was_observed(observer: TableObserver, name: str) -> None:
        seen, words = observer.observe(TABLE_PAIRS[name])
        assert _without_ids(seen) == _without_ids(read_observed()[name]), words


def _without_ids(seen: object) -> object:
    """Return an observation without the ids that Delta makes up for each table, as in the names of hidden columns."""
    return json.loads(re.sub("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", json.dumps(seen)))


def test_every_pair_was_observed() -> None:
    assert set(read_observed()) == set(TABLE_PAIRS)


def test_settings_that_findings_recommend_work() -> None:
    observed = read_observed()
    for name in ("table-column-added-evolving", "table-column-removed-evolving", "table-int-to-bigint-widening"):
        assert observed[name]["outcome"] == "right"
    # Spark starts, but the old values are missing under the new name. So a rename must be declared.
    assert observed["table-column-renamed-evolving"]["outcome"] == "wrong"


@pytest.mark.parametrize("name", KINDS)
def test_the_newest_metadata_is_read(tables: dict[str, Path], name: str) -> None:
    log = tables[name] / LOG
    count, ending = KINDS[name][2]
    checkpoints = [path.name for path in log.iterdir() if ".checkpoint." in path.name and not path.name.startswith(".")]
    assert (len(checkpoints), {path.endswith(ending) for path in checkpoints}) == (count, {True})
    found = read_table(open_directory(str(tables[name])))
    assert (found.version, found.metadata.key) == (6, ("id",))
    assert found.metadata.schema.names == ("id", "seen", "who", "note")


@pytest.mark.parametrize("name", KINDS)
def test_commits_before_the_checkpoint_are_not_needed(tables: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Delta removes such commits after a month."""
    folder = tmp_path / "table"
    shutil.copytree(tables[name], folder)
    for version in range(4):
        (folder / LOG / f"{version:020d}.json").unlink()
    assert read_table(open_directory(str(folder))) == read_table(open_directory(str(tables[name])))


@pytest.mark.parametrize(
    ("wreck", "error", "words"),
    [
        (lambda log: (log / f"{5:020d}.json").unlink(), CorruptionError, f"{5:020d}.json is missing"),
        (
            lambda log: (log / f"{6:020d}.json").write_text('{"metaData":{"id":1}}'),
            CorruptionError,
            "an unknown form",
        ),
        (lambda log: (log / f"{6:020d}.json").write_text('{"protocol":'), CorruptionError, "is not an action"),
        (lambda log: next(log.glob("*.parquet")).write_bytes(b"PAR1"), CorruptionError, "is not a checkpoint"),
        (lambda log: [path.unlink() for path in log.glob("*.*")], NotACheckpointError, "has no commit"),
        (
            lambda log: (log / f"{7:020d}.json").write_text(
                '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],'
                '"writerFeatures":["catalogManaged"]}}'
            ),
            UnsupportedError,
            "a catalog, not the log",
        ),
    ],
)
def test_a_damaged_log_is_refused(
    tables: dict[str, Path], tmp_path: Path, wreck: Any, error: type[TtlsnapError], words: str
) -> None:
    folder = tmp_path / "table"
    shutil.copytree(tables["classic"], folder)
    wreck(folder / LOG)
    with pytest.raises(error, match=words):
        contract_of_table(str(folder))


def test_a_contract_is_read_back_unchanged(tables: dict[str, Path], tmp_path: Path) -> None:
    made = contract_of_table(str(tables["classic"]))
    assert made == parse_contract(made.dumps(), "it")
    file = tmp_path / "table.json"
    file.write_text(made.dumps())
    assert load_contract(str(file)) == load_contract(str(tables["classic"])) == made
    assert check(made, made).findings == ()


def test_the_commands_accept_tables(
    tables: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, file = str(tables["v2"]), tmp_path / "new.json"
    assert run(["contract", table, "--key", "id"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["made_from"], document["key"]) == ("delta table", ["id"])
    document["columns"] = [column for column in document["columns"] if column["name"] != "note"]
    file.write_text(json.dumps(document))
    assert run(["check", table, str(file), "--format", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["field"], finding["verdict"]) == (
        "table-column-removed",
        "note",
        "reconfiguration",
    )
    assert run(["contract", table, "--key", "nosuch"]) == 2
    assert "its columns are id, seen, who, note" in capsys.readouterr().err
    assert run(["contract", table, "--conf", "a=b"]) == 2
    assert "only --key and --output" in capsys.readouterr().err


def test_comparing_a_table_with_a_query_is_refused() -> None:
    (document, _) = read_observed()["table-same"]["contracts"]
    table = parse_contract(json.dumps(document), "a table")
    assert isinstance(table, TableContract)
    with pytest.raises(UsageError, match="cannot be compared"):
        check(table, contract("agg-deltas-lz4-4.2"))


def test_without_a_key_the_report_says_that_keys_were_not_compared() -> None:
    documents = [dict(document, key=[]) for document in read_observed()["table-key-removed"]["contracts"]]
    report = check(*(parse_contract(json.dumps(document), "it") for document in documents))
    assert report.findings == ()
    (line,) = report.unseen
    assert line.startswith("the keys of the rows")


def test_a_declared_rename_has_a_fix() -> None:
    documents = read_observed()["table-column-renamed"]["contracts"]
    report = check(*(parse_contract(json.dumps(d), "it") for d in documents), renamed={"amount": "sum"})
    assert [(f.code, f.verdict.value) for f in report.findings] == [("table-column-renamed", "after_migration")]
    assert "RENAME COLUMN amount TO sum" in report.findings[0].fix
