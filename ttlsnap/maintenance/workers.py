"""Who does the work of all targets: one engine, and one Spark session that is started when it is first needed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ttlsnap.delta.session import delta_session
from ttlsnap.engines import Done, Engine
from ttlsnap.engines.local import SharedLocalEngine
from ttlsnap.engines.spark import SparkEngine, cancel_jobs, started
from ttlsnap.errors import StoppedError, TtlsnapError
from ttlsnap.partition import PartitionResults, PartitionTask, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Workers:
    """The engine ``name``, ``spark`` or ``local``, to be used by several threads until the block ends.

    ``master`` and ``parallelism`` are as for ``compact``. With ``tables`` the session has Delta, whose ``jars`` come
    from Maven if none are given; where they cannot be had, that is the tables' misfortune alone.
    """

    def __init__(
        self,
        name: str = "spark",
        *,
        master: str | None = None,
        parallelism: int | None = None,
        tables: bool = False,
        jars: str | None = None,
    ) -> None:
        self._master, self._parallelism, self._tables, self._jars = master, parallelism, tables, jars
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._session: SparkSession | None = None
        self._without_delta: TtlsnapError | None = None
        self._stopped_by: int | None = None
        self._local = self._stack.enter_context(SharedLocalEngine(parallelism)) if name == "local" else None
        self.engine: Engine = _Stoppable(self._local or SparkEngine(self.session), self)

    def stop(self, signum: int) -> None:
        """Have the engine give up what is under way; it takes nothing more. May be called again."""
        self._stopped_by = signum
        if self._local is not None:
            self._local.stop()
        if self._session is not None:
            with contextlib.suppress(Exception):  # it may be stopping itself
                cancel_jobs(self._session)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped them."""
        return self._stopped_by is not None

    def refuse_if_stopped(self, what: str, more: str = " before anything was published") -> None:
        """Raise StoppedError, about the target ``what``, once a signal has stopped them."""
        if self._stopped_by is not None:
            name = signal.Signals(self._stopped_by).name
            raise StoppedError(f"{what}: {name} stopped this run{more}", self._stopped_by)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def session(self) -> SparkSession:
        """The session; raises TtlsnapError where it cannot be started."""
        with self._lock:
            if self._session is None and self._tables:
                try:
                    with_delta = delta_session(jars=self._jars, master=self._master, parallelism=self._parallelism)
                    self._session = self._stack.enter_context(with_delta)
                except TtlsnapError as error:
                    self._tables, self._without_delta = False, error
            if self._session is None:
                self._session = self._stack.enter_context(started(self._master, self._parallelism))
            return self._session

    def delta_session(self) -> SparkSession:
        """The session, which has Delta; raises TtlsnapError where that cannot be had."""
        session = self.session()
        if self._without_delta is not None:
            raise self._without_delta
        return session


class _Stoppable:
    """An engine whose runs raise StoppedError once the workers are stopped, whatever became of them."""

    def __init__(self, engine: Engine, workers: Workers) -> None:
        self._engine, self._workers, self.name = engine, workers, engine.name

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        target = tasks[0].root if tasks else "no target"
        try:
            self._workers.refuse_if_stopped(target)
            results = self._engine.run(tasks, done, progress)
        except (Exception, KeyboardInterrupt):
            self._workers.refuse_if_stopped(target)
            raise
        self._workers.refuse_if_stopped(target)
        return results
