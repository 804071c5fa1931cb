"""Starting a Spark session of our own, quietly."""

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
from typing import TYPE_CHECKING, TextIO, Union

from ttlsnap.errors import TtlsnapError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SessionSource = Union["SparkSession", Callable[[], "SparkSession"], None]
"""A session, or what gives one when it is needed."""

_REASON = re.compile(r"Exception|\[NOT FOUND|FAILED DOWNLOADS|unresolved dependency|[Ee]rror:|Unable to")
_TRACEBACK = "Traceback (most recent call last):"
_REASONS = 5
_MOST_OF_LOG = 1 << 20


@contextlib.contextmanager
def quiet_launch() -> Iterator[Callable[[], str]]:
    """While a JVM starts, let it have a log file as its standard streams for good; gives what tells why it did not.

    What Spark prints is for its developers: warnings at every start, stack traces of what we report in a sentence. And
    what Delta prints on standard output, as ``VACUUM`` does, is no part of a document that is read by a program.
    TTLSNAP_SPARK_LOG names the file; by default it is a temporary one, removed with the JVM's last hold on it.
    """
    named = os.environ.get("TTLSNAP_SPARK_LOG")
    with Path(named).open("a+b") if named else tempfile.TemporaryFile() as log:
        begin = log.seek(0, os.SEEK_END)

        def reasons() -> str:
            # By its own descriptor: the place in the file is shared with the JVM.
            text = os.pread(log.fileno(), _MOST_OF_LOG, begin).decode(errors="replace")
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
    """What this process itself has to say meanwhile, in other threads, goes where it would have gone."""
    try:
        if stream.fileno() != descriptor:
            return contextlib.nullcontext()
    except (AttributeError, OSError, ValueError):  # it is no file
        return contextlib.nullcontext()
    redirect = contextlib.redirect_stdout if descriptor == 1 else contextlib.redirect_stderr
    return redirect(_own(descriptor))


@functools.cache
def _own(descriptor: int) -> TextIO:
    """A standard stream by another descriptor, which is never closed: somebody may keep the stream."""
    stream = sys.stdout if descriptor == 1 else sys.stderr
    return os.fdopen(os.dup(descriptor), "w", 1, stream.encoding, stream.errors)


def own_session() -> SparkSession.Builder:
    """The beginning of a session of our own, to be configured and given to ``launched``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("ttlsnap").config("spark.ui.enabled", "false")


def given(source: SessionSource) -> SparkSession | None:
    """The session that there is to be had."""
    return source() if callable(source) else source


@contextlib.contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session that hold within."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextlib.contextmanager
def launched(builder: SparkSession.Builder, failure: Callable[[str], str]) -> Iterator[SparkSession]:
    """A session that is started, and stopped when the block ends.

    Raises TtlsnapError where it does not start; ``failure`` makes the message of what Spark says.
    """
    with quiet_launch() as reasons:
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise TtlsnapError(failure("\n".join(filter(None, [first_lines(error), reasons()])))) from error
    try:
        yield session
    finally:
        session.stop()


def first_lines(error: BaseException, lines: int = 3) -> str:
    """What an error of Spark's says, without the JVM's stack, and of one in a Python worker without that one's."""
    told = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    traces = [place for place, line in enumerate(told) if _TRACEBACK in line]
    if traces:
        first, frames = told[traces[0]].partition(_TRACEBACK)[0].strip(), told[traces[-1] + 1 :]
        behind = itertools.dropwhile(lambda line: line.startswith(" "), frames)
        said = itertools.takewhile(lambda line: not line.startswith((" ", "SQLSTATE", "Caused by:")), behind)
        told[traces[0] :] = [*filter(None, [first]), *said]
    return "\n".join(told[:lines]) or type(error).__name__
