"""Who does the work of all targets: one engine, and one Spark session that is started when it is first needed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ttlsnap.delta.session import delta_session
from ttlsnap.engines import Engine
from ttlsnap.engines.local import SharedLocalEngine
from ttlsnap.engines.spark import SparkEngine, started
from ttlsnap.errors import TtlsnapError

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
        self.engine: Engine = (
            self._stack.enter_context(SharedLocalEngine(parallelism)) if name == "local" else SparkEngine(self.session)
        )

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
