"""Texts: retentions, names of columns, and the message about an incomplete Maven cache."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from ttlsnap.delta.erasing import read_retention
from ttlsnap.delta.log import KEY, TableMetadata, key_property
from ttlsnap.delta.session import explain_failure
from ttlsnap.errors import UsageError
from ttlsnap.schema.types import LongType, StructField, StructType


def metadata(columns: tuple[str, ...] = (), **properties: str) -> TableMetadata:
    schema = StructType(tuple(StructField(name, LongType(), True) for name in columns))
    return TableMetadata("id", schema, (), {name.replace("_", "."): value for name, value in properties.items()})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("interval 1 week", timedelta(weeks=1)),
        ("Interval 30 Days", timedelta(days=30)),
        ("12 hours", timedelta(hours=12)),
        ("interval 1 day 12 hours", timedelta(hours=36)),
        ("interval 604800000 milliseconds", timedelta(weeks=1)),
        ("interval +7 days", timedelta(days=7)),
        ("interval 1 month", None),
        ("interval one week", None),
        ("interval", None),
    ],
)
def test_retentions_are_parsed_or_unknown(text: str, found: timedelta | None) -> None:
    assert read_retention(metadata(delta_deletedFileRetentionDuration=text)) == found


def test_the_default_retention_is_a_week() -> None:
    assert read_retention(metadata()) == timedelta(weeks=1)


@pytest.mark.parametrize(
    "names", [("a",), ("a", "b"), ("a,b", "c"), (" a",), ("[a]",), ("it's", 'say "so"', "back\\slash")]
)
def test_the_key_property_preserves_column_names(names: tuple[str, ...]) -> None:
    table = TableMetadata("id", metadata(names).schema, (), {KEY: key_property(names)})
    assert table.key == names
    assert table.key_of((), "t") == names


def test_key_columns_are_found_regardless_of_case() -> None:
    table = metadata(("User_Id", "at"))
    assert table.key_of(["USER_ID", "user_id"], "t") == ("User_Id",)
    with pytest.raises(UsageError, match="t has no column who; its columns are User_Id, at"):
        table.key_of(["who"], "t")


def test_the_error_names_packages_without_jars_in_the_maven_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "name them with --jars" in explain_failure("why")
    whole, half = (tmp_path / ".m2/repository/io/delta" / name / "4.4.0" for name in ("delta-spark", "delta-storage"))
    for folder in (whole, half):
        folder.mkdir(parents=True)
        (folder / "x.pom").touch()
    (whole / "x.jar").touch()
    assert f"{half} has the .pom of a package without its .jar" in explain_failure("why")
    assert str(whole) not in explain_failure("why")
