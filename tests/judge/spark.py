"""The tests' interface to the judge: methods that make real Spark write, restart, refuse and show checkpoints.

A *fresh* process has never seen the checkpoint, nor the checkpoint from which it was copied. All files are below the
judge's folder. The events of a checkpoint are files that are never moved or changed, because a restarted query reads
its last batch again.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from .. import restarts, support
from . import inputs, processes
from .inputs import Input, take_home
from .layouts import await_rest, has_begun, has_uncommitted_state, layout_of, snapshots_in, store_folders
from .model import MODELLED, Model
from .outcomes import Batch, Entry, canonical, entry
from .processes import NEWEST, OWN, PYTHON, WITH_DELTA, JudgeError, Server, SparkFailed, User
from .queries import BATCH_A_RUN, ENDLESS, OTHER_PROVIDERS, SCALA, Event, Query
from .sources import put_events

Events = Sequence[Event]
T = TypeVar("T")


@dataclass
class Checkpoint:
    """A checkpoint that Spark wrote, and the facts that a restart needs."""

    query: Query
    path: Path
    out: Path
    version: str
    model: Model | None
    sources: list[str] = field(default_factory=list)
    files: int = 0
    ran_on: set[str] = field(default_factory=set)
    layout: str = ""

    @property
    def expected(self) -> Model:
        """Return the model of this checkpoint. Raise ``JudgeError`` if the operator has none."""
        if self.model is None:
            raise JudgeError(f"no model of {self.query.operator}")
        # The model has no pending batch, so the uncommitted batch is the one that ttlsnap planned, without data.
        if not self.model.is_pending and has_begun(self.path):
            self.model.plan_empty()
        return self.model


def told(query: Query, batches: list[Batch]) -> list[Batch]:
    """Return the batches that a query's sink shows. The memory sink shows only the last one."""
    return batches[-1:] if query.sink == "memory" else batches


_OF_SPARK = ("org.apache.spark", "pyspark.errors", "StreamingQueryException")


class Judge:
    """Real Spark in several versions, optionally as another ``user``. Use it as a context manager, or ``close`` it.

    ``servers`` is a folder of server processes that other judges use, too. By default, the judge has its own.
    """

    def __init__(self, folder: Path, user: User | None = None, servers: Path | None = None) -> None:
        self._folder, self._user = folder, user
        self._places = servers or folder / "servers"
        if user is not None:
            for made in (folder, folder / "checkpoints", folder / "out"):
                made.mkdir(exist_ok=True)
                user.own(made)
        self._events = folder / "events"
        self._servers: dict[str, Server] = {}
        self._numbers = itertools.count(1)
        self._without_spark = False
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from every server."""
        for server in self._servers.values():
            server.close()
        self._servers = {}

    def of_inputs(self) -> Judge:
        """Return this judge for tests that need no Spark as long as their inputs are stored."""
        made = copy.copy(self)
        made._without_spark = True
        return made

    def _with_spark(self) -> Judge:
        made = copy.copy(self)
        made._without_spark = False
        return made

    def write(
        self,
        query: Query,
        batches: Sequence[Events],
        layout: str = "deltas",
        version: str = NEWEST,
        uncommitted: Events | None = None,
        path: Path | None = None,
    ) -> Checkpoint:
        """Write a checkpoint with these batches in this layout. ``uncommitted`` is one more batch, without a commit.

        Raise ``JudgeError`` if the output differs from the model's, or if the files on disk have another layout.
        """
        asked = Input(
            query,
            tuple(map(tuple, batches)),
            layout,
            version,
            None if uncommitted is None else tuple(uncommitted),
        )
        if self._without_spark and not asked.can_be_stored:
            raise JudgeError(f"inputs of {query.operator} cannot be stored: use the fixture `judge`")
        if self._user is None and asked.can_be_stored:
            if asked.archive.exists():
                return self.unpack(asked, asked.archive, path)
            if processes.reserved and version not in (NEWEST, OWN):
                raise JudgeError(
                    f"Spark {version} has not written {asked.archive.name} yet. If the test is new: TTLSNAP_STORE=1 "
                    f"{PYTHON} -m pytest '{processes.reserved}'. If you have changed a query: {PYTHON} -m "
                    "tests.judge.renew --stale"
                )
            made = self._with_spark().write_with_spark(asked, path)
            if not os.environ.get("TTLSNAP_STORE") or not self.store(asked, made):
                inputs.not_stored.add(asked.archive.name)
            return made
        return self.write_with_spark(asked, path)

    def write_with_spark(self, asked: Input, path: Path | None = None) -> Checkpoint:
        """Have Spark write this checkpoint, even if it is stored."""
        for _ in range(2):
            made = self._new(asked, path)
            try:
                self._write(asked, made)
                return made
            except SparkFailed as failure:
                # Up to 3.4, maintenance sometimes ignores a query that started together with others.
                if "maintenance wrote no snapshot" not in str(failure) or asked.version >= "3.5":
                    raise
                shutil.rmtree(made.path)
        made = self._new(asked, path)
        self._write(asked, made)
        return made

    def store(self, asked: Input, made: Checkpoint) -> bool:
        """Store a checkpoint that Spark has just written, once maintenance has finished its work on it.

        Return False if it is too large.
        """
        await_rest(made.path)
        return inputs.store(asked, made.path, made.out, [self.events_of(name) for name in made.sources])

    def _new(self, asked: Input, path: Path | None) -> Checkpoint:
        name, query = self._name(), asked.query
        return Checkpoint(
            query,
            path or self._folder / "checkpoints" / name,
            self._folder / "out" / name,
            asked.version,
            Model(query, asked.version) if query.operator in MODELLED else None,
            layout=asked.layout,
        )

    def _write(self, asked: Input, made: Checkpoint) -> None:
        for batches, snapshot, crash in asked.runs:
            got = self._run(made, batches, snapshot=snapshot, crash=crash)
            if made.model is not None:
                wanted = told(made.query, made.model.run(batches, crash=crash))
                if got != wanted:
                    raise JudgeError(f"Spark and the model differ on {made.query}:\n{got}\n{wanted}")
        if asked.query.provider in ("hdfs", "rocksdb"):
            _expect_layout(made, "snapshot" if asked.layout == "snapshots" else asked.layout)

    def unpack(self, asked: Input, archive: Path, path: Path | None = None) -> Checkpoint:
        """Return a stored checkpoint as if Spark had just written it."""
        made = self._new(asked, path)
        for batches, _, crash in asked.runs:
            # A source that makes one batch for each run has a folder for each batch.
            for part in [[batch] for batch in batches] if asked.query.source in BATCH_A_RUN else [batches]:
                self._put_events(made, part)
            if made.model is not None:
                made.model.run(batches, crash=crash)
        inputs.unpack(archive, made.path, made.out, [self.events_of(name) for name in made.sources])
        return made

    def restart(
        self,
        checkpoint: Checkpoint,
        batches: Sequence[Events],
        version: str | None = None,
        fresh: bool = False,
        snapshot: bool = False,
        trigger: str = "",
    ) -> list[Batch]:
        """Restart a query on its checkpoint. Return the batches that the sink got.

        The query runs in the process that ran it last if the version fits, or in a ``fresh`` process. With
        ``snapshot``, Spark writes snapshots, and the query ends when the last batch has one. ``trigger`` is
        AvailableNow by default, or ``once``.
        """
        return self._run(checkpoint, batches, version=version, fresh=fresh, snapshot=snapshot, trigger=trigger)

    def crash(self, checkpoint: Checkpoint, batches: Sequence[Events]) -> None:
        """Restart a query on its checkpoint with more events, and let it fail before the commit of a batch.

        That is the last of these batches, or one before it if the query first runs a planned batch.
        """
        self._run(checkpoint, batches, crash=True)

    def start(self, checkpoint: Checkpoint, batches: Sequence[Events], trigger: str = "0 seconds") -> list[Batch]:
        """Restart a query that keeps running. Return the batches that the sink got, once these batches are done."""
        return self._run(checkpoint, batches, trigger=trigger, verb="start")

    def feed(self, checkpoint: Checkpoint, events: Events) -> None:
        """Give more events to the running query."""
        self._put_events(checkpoint, [events], checkpoint.sources[-1])
        if checkpoint.query.source == "delta":
            self._where_up(checkpoint).ask("append", sources=self._glob(checkpoint), table=self.table_of(checkpoint))

    def last_words(self, checkpoint: Checkpoint) -> str:
        """Return the error that ends the running query. Raise an error if the query continues."""
        return str(self._where_up(checkpoint).ask("last_words", checkpoint=str(checkpoint.path)))

    def stop(self, checkpoint: Checkpoint, *, when_done: bool = False) -> list[Batch]:
        """Stop the running query, at once or when it has read all events. Return all batches that the sink got."""
        done = self._where_up(checkpoint).ask("stop", checkpoint=str(checkpoint.path), when_done=when_done)
        return [Batch(each["batch"], canonical(each["rows"])) for each in done]

    def call(self, version: str, function: str, source: str, **order: object) -> Any:
        """Call a function of this package in a server, as ``module.function``. It needs the compiled Scala ``source``.

        The function gets the server's session and ``order``.
        """
        self._compile(source, self._server(version, Query()))
        return self.call_in(Path(__file__).parent, version, function, **order)

    def call_in(self, package: Path, version: str, function: str, **order: object) -> Any:
        """Call a function of another package in a server; see ``call``."""
        return self._server(version, Query()).ask("call", package=str(package), function=function, order=order)

    def with_delta(self) -> Server:
        """Return the server of the newest Spark that Delta supports, with Delta."""
        return self._server(WITH_DELTA, Query(source="delta"))

    def _where_up(self, checkpoint: Checkpoint) -> Server:
        return self._server(checkpoint.version, checkpoint.query, checkpoint.ran_on)

    def _glob(self, checkpoint: Checkpoint) -> str:
        return f"{self._events}/{{{','.join(checkpoint.sources)}}}"

    def table_of(self, checkpoint: Checkpoint) -> str:
        """Return the path of the Delta table that the query reads."""
        return f"{self._events}/{checkpoint.sources[0]}.delta"

    def refusal(
        self,
        checkpoint: Checkpoint,
        batches: Sequence[Events] = (),
        version: str | None = None,
        fresh: bool = False,
    ) -> str:
        """Return Spark's error when it refuses to restart a query. Raise ``JudgeError`` if it does restart."""
        try:
            done = self._run(checkpoint, batches, version=version, fresh=fresh)
        except SparkFailed as failure:
            if not any(
                word in str(failure) for word in ("org.apache.spark", "pyspark.errors", "StreamingQueryException")
            ):
                raise  # an error of the server itself
            return str(failure)
        raise JudgeError(f"Spark went on with {checkpoint.path}: {done}")

    def repartition(self, checkpoint: Checkpoint, partitions: int) -> None:
        """Repartition the state by Spark's offline repartitioning, which adds a batch to the checkpoint."""
        server = self._server(checkpoint.version, checkpoint.query, checkpoint.ran_on)
        checkpoint.ran_on.add(server.name)
        query = asdict(checkpoint.query)
        server.ask("repartition", query=query, checkpoint=str(checkpoint.path), partitions=partitions)

    def state(self, checkpoint: Checkpoint, version: str = NEWEST, batch: int | None = None) -> list[Entry]:
        """Return the entries after the last committed batch, or after ``batch``, sorted. Spark's reader reads them."""
        server = self._server(version, checkpoint.query)
        found = server.ask(
            "state",
            checkpoint=str(checkpoint.path),
            batch=batch,
            checkpoint_format=checkpoint.query.checkpoint_format,
        )
        return sorted(
            entry(each["operator"], each["store"], each["key"], each["value"], each["partition"]) for each in found
        )

    def copy(self, checkpoint: Checkpoint, path: Path | None = None, *, at_home: bool = True) -> Checkpoint:
        """Copy a checkpoint with its sink and its model. Queries can restart on both, independently.

        ``at_home`` False leaves the paths of the original in the copy, as ``cp -r`` does.
        """
        name = self._name()
        made = self.at(checkpoint, path or self._folder / "checkpoints" / name)
        shutil.copytree(checkpoint.path, made.path, copy_function=_copy_if_there)
        if at_home:
            take_home(made.path)
        if checkpoint.out.exists():
            made.out = self._folder / "out" / name
            shutil.copytree(checkpoint.out, made.out)
        return made

    def events(self, checkpoint: Checkpoint) -> Path:
        """Return the folder of the checkpoint's first events."""
        return self.events_of(checkpoint.sources[0])

    def events_of(self, source: str) -> Path:
        """Return the folder with the events of one run."""
        return self._events / source

    def lay_out(self, checkpoint: Checkpoint, layout: str) -> None:
        """Reduce the layout ``snapshots`` of a checkpoint to another one, as if maintenance had run less often."""
        for folder in store_folders(checkpoint.path):
            snapshots = sorted(snapshots_in(folder).items())
            kept = {"snapshot": len(snapshots), "both": 1, "deltas": 0}[layout]
            for file in (file for _, files in snapshots[kept:] for file in files):
                file.unlink()
        _expect_layout(checkpoint, layout)

    def at(self, checkpoint: Checkpoint, path: Path) -> Checkpoint:
        """Return the same query on another checkpoint, which the caller puts at ``path``."""
        made = copy.deepcopy(checkpoint)
        made.path = path
        return made

    def adopt(self, checkpoint: Path, query: Query, version: str = NEWEST) -> Checkpoint:
        """Copy a foreign checkpoint, such as a sample, so that a query can restart on the copy.

        The copy's source log names new, empty files. The query does not read committed batches again. An uncommitted
        batch has no rows.
        """
        name = self._name()
        made = Checkpoint(query, self._folder / "checkpoints" / name, self._folder / "out" / name, version, None)
        shutil.copytree(checkpoint, made.path)
        take_home(made.path)
        folder = self._events / name
        folder.mkdir(parents=True)
        for log in sorted((made.path / "sources").glob("*/[0-9]*")):
            head, *lines = log.read_text().splitlines()
            taken = [json.loads(line) for line in lines]
            for file in taken:
                path = folder / Path(file["path"]).name
                path.touch()
                os.utime(path, (file["timestamp"] / 1000,) * 2)
                file["path"] = path.as_uri()
            log.write_text("\n".join([head, *map(json.dumps, taken)]))
            log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
            made.files = max([made.files, *(int(Path(file["path"]).stem) + 1 for file in taken)])
        made.sources.append(name)
        return made

    def together(self, *stories: Callable[[], T]) -> list[T]:
        """Run stories at the same time, because a query mostly waits. Return their results in order."""
        with ThreadPoolExecutor(max_workers=max(1, len(stories))) as pool:
            return [told.result() for told in [pool.submit(story) for story in stories]]

    def _run(
        self,
        checkpoint: Checkpoint,
        batches: Sequence[Events],
        version: str | None = None,
        fresh: bool = False,
        snapshot: bool = False,
        crash: bool = False,
        trigger: str = "",
        verb: str = "run",
    ) -> list[Batch]:
        if checkpoint.query.source in BATCH_A_RUN and len(batches) > 1:
            runs = [self._run(checkpoint, [batch], version, fresh, snapshot, crash, trigger, verb) for batch in batches]
            return told(checkpoint.query, [batch for done in runs for batch in done])
        server = self._server(version or checkpoint.version, checkpoint.query, checkpoint.ran_on, fresh)
        checkpoint.ran_on.add(server.name)
        query = checkpoint.query
        for source in filter(None, (SCALA.get(query.operator), OTHER_PROVIDERS.get(query.provider))):
            self._compile(source, server)
        self._put_events(checkpoint, batches)
        inspected = support.inspect_compacted(checkpoint)
        order = {
            "query": asdict(checkpoint.query),
            "checkpoint": str(checkpoint.path),
            "sources": self._glob(checkpoint),
            "table": self.table_of(checkpoint),
            "out": str(checkpoint.out),
            "files": checkpoint.files,
            "snapshot": snapshot,
            "crash": len(batches) - 1 if crash else None,
            "trigger": trigger,
        }
        done = server.ask(verb, **order)
        # A query that never ends by itself can be stopped when its sink may have a batch that is not committed. ttlsnap
        # refuses much then, so such a query is started and stopped again.
        if query.operator in ENDLESS and verb == "run":
            await_rest(checkpoint.path)
            while has_uncommitted_state(checkpoint.path):
                done += server.ask(verb, **order)
                await_rest(checkpoint.path)
        if inspected:
            support.note(checkpoint, server.version)
        restarts.note(checkpoint, server.version)
        return [Batch(each["batch"], canonical(each["rows"])) for each in done]

    def _compile(self, source: str, server: Server) -> None:
        """Compile a source file once for all servers of a version."""
        done = self._classes(server.version) / f"{source}.compiled"
        with self._lock, done.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                server.ask("compile", source=source)
                done.touch()

    def _classes(self, version: str) -> Path:
        return self._places / f"classes-{version}"

    def _put_events(self, checkpoint: Checkpoint, batches: Sequence[Events], name: str | None = None) -> None:
        # Each run has its own folder, so that copies of a checkpoint share their past events but not the later ones.
        more = name is not None
        name = name or self._name()
        folder = self._events / name
        folder.mkdir(parents=True, exist_ok=more)
        put_events(folder, checkpoint.files, batches)
        checkpoint.files += len(batches)
        if not more:
            checkpoint.sources.append(name)

    def _name(self) -> str:
        return f"{next(self._numbers):04d}"

    def _server(self, version: str, query: Query, ran_on: set[str] | None = None, fresh: bool = False) -> Server:
        if self._without_spark:
            raise JudgeError("this test starts Spark: use the fixture `judge` in place of `inputs`")
        delta = "delta" in (query.source, query.sink)
        version = WITH_DELTA if delta and version == NEWEST else version
        kind = f"spark-{version}-delta" if delta else f"spark-{version}"
        if version == "4.0" and query.checkpoint_format != 1:
            # In 4.0, all queries of a process write zips in the checkpoint format of its first query.
            kind += f"-format-{query.checkpoint_format}"
        names = [f"{kind}.{number}" for number in range(9)]
        fit = [name for name in names if (name in (ran_on or ())) != fresh]
        with self._lock:
            name = (fit or names)[0]
            if name not in self._servers or self._servers[name].has_ended:
                classes = self._classes(version)
                self._servers[name] = Server(version, self._places / name, classes, delta=delta, user=self._user)
            return self._servers[name]


def _copy_if_there(source: str, target: str) -> None:
    # Spark's maintenance may be writing a snapshot. Its temporary file can disappear during the copy.
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _expect_layout(made: Checkpoint, layout: str) -> None:
    if layout_of(made.path) != layout:
        raise JudgeError(f"{made.path} came out as {layout_of(made.path)}, not as {layout}")
