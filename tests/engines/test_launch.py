"""Messages for Spark's errors have the reason, but no stack trace of the JVM or of Python."""

from __future__ import annotations

import pytest

from ttlsnap.engines.launch import first_lines

# The wording is that of Spark 4.2 and 3.5, shortened in the middle.
MISSING = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 3602, in main
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
  File "/venv/pyspark/serializers.py", line 461, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'rules'
SQLSTATE: 38000

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)"""
CHAINED = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 1, in main
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 2, in main
ValueError: no a
in two lines

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Caused by: java.lang.Exception"""


JVM = "[TABLE_NOT_FOUND] a\n\tat org.apache.spark.sql.Dataset.ofRows(Dataset.scala)\nb\nc"
ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times\nValueError: no a\nin two lines"


@pytest.mark.parametrize(
    ("text", "lines", "told"),
    [
        (MISSING, 2, "An exception was thrown from the Python worker:\nModuleNotFoundError: No module named 'rules'"),
        (CHAINED, 6, ABORTED),
        (JVM, 2, "[TABLE_NOT_FOUND] a\nb"),
        ("", 3, "RuntimeError"),
    ],
)
def test_a_message_has_no_stack_trace(text: str, lines: int, told: str) -> None:
    assert first_lines(RuntimeError(text), lines) == told


def caused(text: str, by: str) -> RuntimeError:
    """Return an error with a cause, as PySpark makes it."""
    error = RuntimeError(text)
    vars(error)["_cause"] = RuntimeError(by)
    return error


CRASH = "Python driver worker exited unexpectedly (crashed) SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: 1"


def test_a_crash_of_a_worker_has_the_message_of_its_cause() -> None:
    told = first_lines(caused(CRASH, MISSING))
    assert told.splitlines()[0] == CRASH.splitlines()[0]
    assert told.endswith("ModuleNotFoundError: No module named 'rules'")
    assert "TTLSNAP_SPARK_LOG" not in told


def test_a_crash_without_a_message_names_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTLSNAP_SPARK_LOG", raising=False)
    first, hint = first_lines(caused(CRASH, "EOF")).splitlines()
    assert first == CRASH.splitlines()[0]
    assert hint.startswith("Set TTLSNAP_SPARK_LOG=FILE and repeat the command")
    monkeypatch.setenv("TTLSNAP_SPARK_LOG", "spark.log")
    assert "The end of spark.log, Spark's log" in first_lines(RuntimeError(CRASH))
    assert "log" not in first_lines(RuntimeError(JVM))
