"""``contract`` checks its arguments before it starts Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.contract.of_query import contract_of_query, contract_of_script
from ttlsnap.errors import UsageError
from ttlsnap.user_code import find_names, import_named, list_found, search_in

from ..cli.running import Ttlsnap

DDL = ("--schema", "user string")


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let Spark fail to start, with another exit code than that of wrong usage."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.chdir(tmp_path)
    Path("spark_jobs_of_test.py").write_text("def build(events): ...\n\n\ndef other(spark, sources): ...\n")
    Path("script.py").write_text("")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spark_jobs_of_test:build"], "build needs the schema of its source: --schema FILE"),
        (["spark_jobs_of_test:bild", *DDL], "has no bild (did you mean build?)"),
        (["spark_jobs_of_tset:build", *DDL], "No module named 'spark_jobs_of_tset'"),
        (["spark_jobs_of_test:build", *DDL, "--output-mode", "upd"], "upd (did you mean update?)"),
        (["spark_jobs_of_test:build", *DDL, "--output", "nowhere/x.json"], "there is no folder nowhere"),
        (["spark_jobs_of_test:build", *DDL, "--query", "a"], "--query needs --script"),
        (["spark_jobs_of_test:build", *DDL, "--conf", "a"], "--conf is NAME=VALUE"),
        (["--script", "nowhere.py"], "the script nowhere.py does not exist"),
        (["--script", "script.py", "--output-mode", "update"], "--output-mode needs a function"),
        (["--script", "script.py", "--schema", "nowhere.ddl"], "nowhere.ddl is neither a file nor DDL"),
        (["spark_jobs_of_test:build", *DDL, *DDL], "both have no name; write NAME= before each"),
        (["spark_jobs_of_test:build", "--schema", "a=b int", "--schema", "a=c int"], "are both for a"),
        (["spark_jobs_of_test:build", "--schema", "a=nowhere.ddl"], "--schema a=nowhere.ddl: nowhere.ddl is neither"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_an_error_before_spark_starts(ttlsnap: Ttlsnap, words: list[str], message: str) -> None:
    ended = ttlsnap("contract", *words)
    assert (ended.code, message in " ".join(ended.err.split())) == (2, True), ended.err


def test_a_function_in_python_names_a_module_in_the_current_folder() -> None:
    Path("more_jobs_of_test.py").write_text("def build(events): ...\n")
    with pytest.raises(UsageError, match="more_jobs_of_test has no bild"):
        contract_of_query("more_jobs_of_test:bild", "user string")


@pytest.mark.parametrize("schemas", ["nowhere.ddl", Path("nowhere.ddl"), {"events": "nowhere.ddl"}])
def test_a_schema_in_python_is_ddl_or_a_file(schemas: Any) -> None:
    with pytest.raises(UsageError, match=r"^schemas (events=)?nowhere.ddl: nowhere.ddl is neither a file nor DDL"):
        contract_of_query("spark_jobs_of_test:build", schemas)
    with pytest.raises(UsageError, match=r"nowhere.ddl is neither a file nor DDL"):
        contract_of_script("script.py", schemas={"events": "nowhere.ddl"})


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff", "the file is not text in UTF-8"), (b" " * 2_000_000, "is that a file with DDL?")]
)
def test_a_file_that_is_no_schema_is_refused(content: bytes, message: str) -> None:
    Path("events.ddl").write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(message)):
        contract_of_query("spark_jobs_of_test:build", "events.ddl")


def test_a_module_that_was_only_looked_for_is_not_sent_to_spark() -> None:
    search_in(str(Path.cwd()))
    Path("spark_jobs_that_fail.py").write_text("def build(events): ...\n\n\nraise OSError\n")
    for module in ("spark_jobs_of_test", "spark_jobs_that_fail"):
        assert "build" in (find_names(module) or ())
    with pytest.raises(OSError):
        import_named("spark_jobs_that_fail")
    assert (str(Path.cwd()), ()) in list_found()
