"""The tests' side of the judge: verbs that make real Spark write, restart, refuse and show.

``Judge`` keeps a few servers (see ``server``) per Spark version: the newest runs under this interpreter, an
older one under ``spark-<version>/bin/python`` in the folder that ``TTLSNAP_VENVS`` names, else in ``.venvs``
at the repository's root (``make venvs``). A version that is not there is an error, never a skip.

"Fresh" means a process that has never seen the checkpoint nor the one it is a copy of. Everything lies below
the folder that the judge is given; a checkpoint's events are files in folders that are never moved nor
changed, because a restarted query asks its source for the last batch again.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from .layouts import layout_of
from .model import MODELLED, Batch, Entry, Model, canonical, entry
from .queries import Event, Query

NEWEST = "4.2"
VERSIONS = ("3.5", "4.0", "4.1", "4.2")
Events = Sequence[Event]
T = TypeVar("T")

_ROOT = Path(__file__).parents[2]
_FIRST_MTIME = 1_700_000_000
_PATIENCE_S = 180.0


class JudgeError(Exception):
    """The judge itself failed: no verdict on what was to be judged."""


class SparkFailed(JudgeError):
    """Spark raised; the message is the whole trace, with Spark's own words in it."""


@dataclass
class Checkpoint:
    """A checkpoint that Spark wrote, and what it takes to go on with it."""

    query: Query
    path: Path
    out: Path
    version: str
    model: Model | None
    sources: list[str] = field(default_factory=list)
    files: int = 0
    ran_on: set[int] = field(default_factory=set)

    @property
    def expected(self) -> Model:
        """The model that has followed this checkpoint, for operators that have one."""
        if self.model is None:
            raise JudgeError(f"no model of {self.query.operator}")
        return self.model


class Judge:
    """Real Spark in several versions; use as a context manager, or ``close`` it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events = folder / "events"
        self._servers: list[_Server] = []
        self._count = 0
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every server."""
        for server in self._servers:
            server.close()
        self._servers = []

    # Verbs.

    def write(
        self,
        query: Query,
        batches: Sequence[Events],
        layout: str = "deltas",
        version: str = NEWEST,
        uncommitted: Events | None = None,
        path: Path | None = None,
    ) -> Checkpoint:
        """A new checkpoint after these batches, laid out as asked; ``uncommitted`` begins one more batch.

        Each batch's output is compared with the model's, and the layout with the disk, so that a test starts
        from what it asked for or not at all.
        """
        name = self._name()
        made = Checkpoint(
            query,
            path or self._folder / "checkpoints" / name,
            self._folder / "out" / name,
            version,
            Model(query) if query.operator in MODELLED else None,
        )
        half = max(1, len(batches) // 2)
        parts: dict[str, list[tuple[Sequence[Events], bool]]] = {
            "deltas": [(batches, False)],
            "snapshot": [(batches, True)],
            "both": [(batches[:half], True), (batches[half:], False)],
        }
        for part, snapshot in parts[layout]:
            self._follow(made, part, snapshot=snapshot)
        if uncommitted is not None:
            self._follow(made, [uncommitted], crash=True)
        if query.provider == "hdfs" and layout_of(made.path) != layout:
            raise JudgeError(f"{made.path} came out as {layout_of(made.path)}, not as {layout}")
        return made

    def restart(
        self,
        checkpoint: Checkpoint,
        batches: Sequence[Events],
        version: str | None = None,
        fresh: bool = False,
    ) -> list[Batch]:
        """Goes on with a checkpoint: what the sink got, batch by batch.

        In the process that ran it last if that has the right version, or in a ``fresh`` one.
        """
        return self._run(checkpoint, batches, version=version, fresh=fresh)

    def refusal(
        self, checkpoint: Checkpoint, batches: Sequence[Events] = (), version: str | None = None
    ) -> str:
        """What Spark says when it will not go on; an error if it does go on."""
        try:
            done = self._run(checkpoint, batches, version=version)
        except SparkFailed as failure:
            return str(failure)
        raise JudgeError(f"Spark went on with {checkpoint.path}: {done}")

    def state(self, checkpoint: Checkpoint, version: str = NEWEST, batch: int | None = None) -> list[Entry]:
        """The state's entries after the last committed batch (or an older one), by Spark's reader; sorted."""
        server = self._server(version)
        found = server.ask("state", checkpoint=str(checkpoint.path), batch=batch)
        return sorted(
            entry(each["operator"], each["store"], each["key"], each["value"], each["partition"])
            for each in found
        )

    def copy(self, checkpoint: Checkpoint, path: Path | None = None) -> Checkpoint:
        """The same checkpoint once more, sink and model too: both can go on, each its own way."""
        name = self._name()
        made = self.at(checkpoint, path or self._folder / "checkpoints" / name)
        shutil.copytree(checkpoint.path, made.path)
        if checkpoint.out.exists():
            made.out = self._folder / "out" / name
            shutil.copytree(checkpoint.out, made.out)
        return made

    def at(self, checkpoint: Checkpoint, path: Path) -> Checkpoint:
        """The same query on a checkpoint that something else has put (or will put) at ``path``."""
        made = copy.deepcopy(checkpoint)
        made.path = path
        return made

    def together(self, *stories: Callable[[], T]) -> list[T]:
        """Runs stories at the same time (a query mostly waits); their results in order."""
        with ThreadPoolExecutor(max_workers=max(1, len(stories))) as pool:
            return [told.result() for told in [pool.submit(story) for story in stories]]

    # How.

    def _follow(
        self, made: Checkpoint, batches: Sequence[Events], snapshot: bool = False, crash: bool = False
    ) -> None:
        got = self._run(made, batches, snapshot=snapshot, crash=crash)
        if made.model is not None:
            wanted = made.model.run(batches, crash=crash)
            if got != wanted:
                raise JudgeError(f"Spark and the model differ on {made.query}:\n{got}\n{wanted}")

    def _run(
        self,
        checkpoint: Checkpoint,
        batches: Sequence[Events],
        version: str | None = None,
        fresh: bool = False,
        snapshot: bool = False,
        crash: bool = False,
    ) -> list[Batch]:
        server = self._server(version or checkpoint.version, checkpoint.ran_on, fresh)
        checkpoint.ran_on.add(server.number)
        self._put_events(checkpoint, batches)
        done = server.ask(
            "run",
            query=asdict(checkpoint.query),
            checkpoint=str(checkpoint.path),
            sources=f"{self._events}/{{{','.join(checkpoint.sources)}}}",
            out=str(checkpoint.out),
            snapshot=snapshot,
            crash=len(batches) - 1 if crash else None,
        )
        return [Batch(each["batch"], canonical(each["rows"])) for each in done]

    def _put_events(self, checkpoint: Checkpoint, batches: Sequence[Events]) -> None:
        # A folder for each run: copies of a checkpoint share the files of the past, not those of the future.
        name = self._name()
        folder = self._events / name
        folder.mkdir(parents=True)
        for events in batches:
            path = folder / f"{checkpoint.files:05d}.json"
            path.write_text("".join(json.dumps(asdict(event)) + "\n" for event in events))
            # The source takes files by their modification times.
            os.utime(path, (_FIRST_MTIME + checkpoint.files,) * 2)
            checkpoint.files += 1
        checkpoint.sources.append(name)

    def _name(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self._count:04d}"

    def _server(self, version: str, ran_on: set[int] | None = None, fresh: bool = False) -> _Server:
        with self._lock:
            able = [server for server in self._servers if server.version == version]
            if fresh:
                able = [server for server in able if server.number not in (ran_on or ())]
            else:
                able.sort(key=lambda server: server.number not in (ran_on or ()))
            if not able:
                number = len(self._servers)
                able = [_Server(version, number, self._folder / "servers" / str(number))]
                self._servers += able
            return able[0]


def interpreter(version: str) -> Path:
    """The Python that has this version of Spark."""
    if version == NEWEST:
        return Path(sys.executable)
    venvs = Path(os.environ.get("TTLSNAP_VENVS", _ROOT / ".venvs"))
    python = venvs / f"spark-{version}" / "bin" / "python"
    if not python.exists():
        raise JudgeError(f"Spark {version} is to judge this, but there is no {python}: run `make venvs`")
    return python


class _Server:
    """One server process; requests from several threads may be under way at once."""

    def __init__(self, version: str, number: int, scratch: Path) -> None:
        self.version = version
        self.number = number
        scratch.mkdir(parents=True)
        self._log = scratch / "log"
        # None of this process's paths and settings: the judge imports what its version has installed.
        unwanted = ("PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
        python = str(interpreter(version))
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        environment |= {
            "PYTHONSAFEPATH": "1",
            "TZ": "UTC",
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).with_name("server.py")), str(scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=scratch,
                env=environment,
            )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._asked = 0
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def ask(self, verb: str, **args: Any) -> Any:
        """The answer to one request, or what went wrong."""
        assert self._process.stdin is not None
        with self._lock:
            if self._ended:
                raise JudgeError(self._last_words("has ended"))
            self._asked += 1
            number = self._asked
            answer = self._waiting[number] = Future[Any]()
            self._process.stdin.write(json.dumps({"id": number, "verb": verb, "args": args}) + "\n")
            self._process.stdin.flush()
        try:
            return answer.result(timeout=_PATIENCE_S)
        except TimeoutError:
            raise JudgeError(self._last_words(f"gave no answer to {verb} in {_PATIENCE_S:g} s")) from None

    def close(self) -> None:
        """Ends the process, and its JVM with it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                waiting = self._waiting.pop(answer["id"])
            if "error" in answer:
                waiting.set_exception(SparkFailed(answer["error"]))
            else:
                waiting.set_result(answer["result"])
        with self._lock:
            self._ended = True
            orphans, self._waiting = list(self._waiting.values()), {}
        for waiting in orphans:
            waiting.set_exception(JudgeError(self._last_words("ended in the middle of a request")))

    def _last_words(self, fate: str) -> str:
        tail = self._log.read_text(errors="replace")[-3000:]
        return f"the server of Spark {self.version} {fate}; its last words:\n{tail}"
