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
