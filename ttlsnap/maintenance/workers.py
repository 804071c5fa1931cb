"""The workers for all targets: one engine, and one Spark session that is started when it is first needed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ttlsnap.compaction.engine import Done, reason_of
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.delta.session import delta_session
from ttlsnap.engines.automatic import AutoEngine
from ttlsnap.engines.local import SharedLocalEngine
from ttlsnap.engines.moving import Move, Moved, MovingEngine
from ttlsnap.engines.spark import SparkEngine, cancel_jobs, start_engine
from ttlsnap.errors import StoppedError, TtlsnapError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Workers:
    """The workers of an ``engine`` (``auto``, ``spark`` or ``local``) for several threads, until the block ends.

    ``master`` and ``parallelism`` are as for ``compact``. With ``tables`` the session has Delta, whose ``jars`` come
    from Maven if none are given. If they are not available, only the tables fail.
    """

    def __init__(
        self,
        *,
        engine: str = "auto",
        master: str | None = None,
        parallelism: int | None = None,
        tables: bool = False,
        jars: str | None = None,
    ) -> None:
        self._master, self.parallelism, self._tables, self._jars = master, parallelism, tables, jars
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._session: SparkSession | None = None
        self._without_delta: TtlsnapError | None = None
        self._stopped_by: int | None = None
        self._name = engine
        self._local_engine = self._stack.enter_context(SharedLocalEngine(parallelism))
        self._spark = SparkEngine(self.session)

    @property
    def engine(self) -> MovingEngine:
        """An engine for one target."""
        choices: dict[str, MovingEngine] = {"local": self._local_engine, "spark": self._spark}
        chosen_engine = choices.get(self._name) or AutoEngine(self._local_engine, self._spark, master=self._master)
        return _Stoppable(chosen_engine, self)

    def stop(self, signum: int) -> None:
        """Make the engine abandon its work, and accept no more. It can be called again."""
        self._stopped_by = signum
        self._local_engine.stop()
        if self._session is not None:
            with contextlib.suppress(Exception):  # the session may be stopping already
                cancel_jobs(self._session)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the workers."""
        return self._stopped_by is not None

    def refuse_if_stopped(self, target: str, addition: str = " before anything was published") -> None:
        """Raise StoppedError, about the ``target``, if a signal has stopped the workers."""
        if self._stopped_by is not None:
            name = signal.Signals(self._stopped_by).name
            raise StoppedError(f"{target}: {name} stopped this run{addition}", self._stopped_by)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def session(self) -> SparkSession:
        """Return the session. Raise TtlsnapError if it does not start."""
        with self._lock:
            if self._session is None and self._tables:
                try:
                    with_delta = delta_session(jars=self._jars, master=self._master, parallelism=self.parallelism)
                    self._session = self._stack.enter_context(with_delta)
                except TtlsnapError as error:
                    self._tables, self._without_delta = False, error
            if self._session is None:
                self._session = self._stack.enter_context(start_engine(self._master, self.parallelism))
            return self._session

    def delta_session(self) -> SparkSession:
        """Return the session with Delta. Raise TtlsnapError if that is not available."""
        session = self.session()
        if self._without_delta is not None:
            raise self._without_delta
        return session


class _Stoppable:
    """An engine whose runs raise StoppedError after the workers are stopped, whatever their result."""

    def __init__(self, engine: MovingEngine, workers: Workers) -> None:
        self._engine, self._workers, self.name = engine, workers, engine.name
        self.reason: str | None = None

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        with self._watched(tasks[0].root if tasks else "no target"):
            return self._engine.run(tasks, done, progress)

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """See ``MovingEngine.move``."""
        with self._watched(move.root):
            return self._engine.move(move, done, progress)

    @contextlib.contextmanager
    def _watched(self, target: str) -> Iterator[None]:
        """Raise StoppedError before or after the work in this block if the workers are stopped."""
        try:
            self._workers.refuse_if_stopped(target)
            yield
            self.name, self.reason = self._engine.name, reason_of(self._engine)
        except (Exception, KeyboardInterrupt):
            self._workers.refuse_if_stopped(target)
            raise
        self._workers.refuse_if_stopped(target)
