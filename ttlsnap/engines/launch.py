"""The quiet start of ttlsnap's own Spark session."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, Union, cast

from ttlsnap.errors import TtlsnapError
from ttlsnap.extras import require_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SessionSource = Union["SparkSession", Callable[[], "SparkSession"], None]
"""A session, or a function that returns one when it is needed."""

_SAFE_PATH = "PYTHONSAFEPATH", "1"
"""The variable with which Python does not take modules from the current folder."""

_REASON = re.compile(r"Exception|\[NOT FOUND|FAILED DOWNLOADS|unresolved dependency|[Ee]rror:|Unable to")
_LOG_VARIABLE = "TTLSNAP_SPARK_LOG"
_CRASHED = re.compile(r"crashed|exited unexpectedly|EOFException|[Ww]orker .*exited|[Cc]onnection reset")
_QUERY_DUMP = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last):"
_REASONS = 5
_MOST_OF_LOG = 1 << 20


@contextlib.contextmanager
def quiet_launch() -> Iterator[Callable[[], str]]:
    """Give a JVM that starts a log file as its standard streams, for good. Yield a function that explains a failure.

    Spark's output is for its developers: warnings at every start, and stack traces of errors that ttlsnap reports in a
    sentence. Delta's output, for example that of ``VACUUM``, must not mix with a JSON document on standard output.
    TTLSNAP_SPARK_LOG names the file; by default it is temporary, and removed when the JVM closes it.
    """
    log_path = os.environ.get(_LOG_VARIABLE)
    with Path(log_path).open("a+b") if log_path else tempfile.TemporaryFile() as log:
        log_start = log.seek(0, os.SEEK_END)

        def reasons() -> str:
            # pread does not move the position in the file, which the JVM shares.
            text = os.pread(log.fileno(), _MOST_OF_LOG, log_start).decode(errors="replace")
            lines = dict.fromkeys(line.strip() for line in text.splitlines() if _REASON.search(line))
            return "\n".join(list(lines)[:_REASONS])

        with contextlib.ExitStack() as stack:
            for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
                stream.flush()
                stack.enter_context(_to_ours(descriptor, stream))
                saved = os.dup(descriptor)
                stack.callback(os.close, saved)
                stack.callback(os.dup2, saved, descriptor)
                os.dup2(log.fileno(), descriptor)
            yield reasons


def _to_ours(descriptor: int, stream: TextIO) -> contextlib.AbstractContextManager[object]:
    """Return a context in which the output of this process, also from other threads, stays on its own streams."""
    try:
        if stream.fileno() != descriptor:
            return contextlib.nullcontext()
    except (AttributeError, OSError, ValueError):  # it is not a file
        return contextlib.nullcontext()
    redirect = contextlib.redirect_stdout if descriptor == 1 else contextlib.redirect_stderr
    return redirect(_own(descriptor))


@functools.cache
def _own(descriptor: int) -> TextIO:
    """Return a standard stream with another descriptor, which stays open because other code may keep the stream."""
    stream = sys.stdout if descriptor == 1 else sys.stderr
    return os.fdopen(os.dup(descriptor), "w", 1, stream.encoding, stream.errors)


def build_session() -> SparkSession.Builder:
    """Return the builder of a session of ttlsnap's own, for ``launch_session``.

    Raise UsageError if PySpark is not installed.
    """
    require_package("pyspark")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName("ttlsnap")
        .config("spark.ui.enabled", "false")
        .config(f"spark.executorEnv.{_SAFE_PATH[0]}", _SAFE_PATH[1])
    )


def find_session(source: SessionSource = None) -> SparkSession | None:
    """Return the session of ``source``, or else the one that this process runs; None if there is none.

    The active session depends on the thread. Without one, an application of the user must still be found: a builder
    would return its session as if it had started it, and stopping that session would stop the application.
    """
    if source is not None:
        return source() if callable(source) else source
    # Importing Spark takes half a second. If it is not imported, there is no session.
    classic = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
    if classic is None:
        return None
    if (active := classic.getActiveSession()) is not None:
        return cast("SparkSession", active)
    # Connect is imported only if something uses it. Its default session is like a classic application's session.
    connect = getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)
    if (default := getattr(connect, "_default_session", None)) is not None:
        return cast("SparkSession", default)
    context = sys.modules["pyspark"].SparkContext._active_spark_context
    # A session of a context is its default session, if it has one.
    return None if context is None else cast("SparkSession", classic(context))


@contextlib.contextmanager
def set_temporarily(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set options of a session within the block."""
    old_values = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old_value in old_values.items():
            if old_value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old_value)


@contextlib.contextmanager
def launch_session(builder: SparkSession.Builder, failure: Callable[[str], str]) -> Iterator[SparkSession]:
    """Yield a session that is started, and stopped when the block ends.

    Raise TtlsnapError if it does not start; ``failure`` turns Spark's message into the error's.
    """
    with quiet_launch() as reasons, _without_current_folder():
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise TtlsnapError(failure("\n".join(filter(None, [first_lines(error), reasons()])))) from error
    try:
        with _without_logs_of_errors():
            yield session
    finally:
        session.stop()


@contextlib.contextmanager
def _without_logs_of_errors() -> Iterator[None]:
    """Keep PySpark from logging each error that it raises, as it does from 4.0 on. ttlsnap reports the error."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # PySpark 3.5
        yield
        return
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    old_states = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, old_states, strict=True):
            logger.disabled = was_disabled


@contextlib.contextmanager
def _without_current_folder() -> Iterator[None]:
    """Start a JVM within the block: neither it nor its Python workers take code from the current folder.

    Python looks for modules in that folder first, unless PYTHONSAFEPATH is set. PySpark looks for Spark in the folder
    above it, unless SPARK_HOME is set.
    """
    import pyspark

    variables = dict([_SAFE_PATH])
    if "SPARK_HOME" not in os.environ:
        variables["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    old_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, old_value in old_values.items():
            if old_value is None:
                del os.environ[name]
            else:
                os.environ[name] = old_value


def first_lines(error: BaseException, lines: int = 3) -> str:
    """Return the message of a Spark error without the stacks of the JVM and of a Python worker.

    If only a cause of the error has the message of the worker, take that. If a worker ended without a message, name
    the variable that keeps Spark's log.
    """
    text = str(error).partition(_QUERY_DUMP)[0]
    from_worker = next((cause for cause in map(str, _find_causes(error)) if _TRACEBACK in cause), None)
    if _TRACEBACK not in text and from_worker is not None:
        text = "\n".join([*text.splitlines()[:1], from_worker])
    hint = f"\n{_describe_log()}" if _TRACEBACK not in text and _CRASHED.search(text) else ""
    message_lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    traceback_starts = [number for number, line in enumerate(message_lines) if _TRACEBACK in line]
    if traceback_starts:
        text_before, frames = (
            message_lines[traceback_starts[0]].partition(_TRACEBACK)[0].strip(),
            message_lines[traceback_starts[-1] + 1 :],
        )
        lines_after = itertools.dropwhile(lambda line: line.startswith(" "), frames)
        error_lines = itertools.takewhile(
            lambda line: not line.startswith((" ", "SQLSTATE", "Caused by:")), lines_after
        )
        message_lines[traceback_starts[0] :] = [*filter(None, [text_before]), *error_lines]
    return ("\n".join(message_lines[:lines]) or type(error).__name__) + hint


def _find_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of a Spark error, the nearest first. PySpark has them in an attribute of its own."""
    while (cause := getattr(error, "_cause", None) or error.__cause__) is not None:
        yield cause
        error = cause


def _describe_log() -> str:
    if log_path := os.environ.get(_LOG_VARIABLE):
        return f"The end of {log_path}, Spark's log, may have the reason"
    return f"Set {_LOG_VARIABLE}=FILE and repeat the command. Then FILE has Spark's log, which may have the reason"
