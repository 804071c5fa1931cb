"""The tests' handle of the servers: it finds their interpreters, connects to them or starts them, and sends requests.

Spark 4.2 runs under this interpreter. Another version runs in an environment of its own (``environments``). A version
that is not installed is an error and never a skipped test.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import environments

PYTHON = os.path.relpath(sys.executable)
"""This interpreter, in the commands that messages print."""
OWN = "4.2"
"""The version that runs under this interpreter."""
NEWEST = os.environ.get("TTLSNAP_NEWEST", OWN)
"""The version that judges where a test asks for none."""
WITH_DELTA = OWN
"""The newest version that Delta supports."""
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")
UPGRADE = ("4.2", "4.3")
"""The last upgrade: the wide matrix restarts with the second version whatever the first one wrote."""
OLD_VERSIONS = ("3.1", "3.2", "3.3", "3.4")
"""Versions that only the full matrix starts."""

_PATIENCE_S = 600.0

reserved = ""
"""The reason why no other version may be started now. Tests of ``make test`` have only one."""


class JudgeError(Exception):
    """A failure of the judge itself, which says nothing about the code under test."""


class SparkFailed(JudgeError):
    """An error that Spark raised. The message is the whole trace, with Spark's own message in it."""


def interpreter(version: str) -> Path:
    """Return the Python that has this version of Spark. Raise ``JudgeError`` if there is none, or if it is reserved."""
    if version == OWN:
        return Path(sys.executable)
    if reserved and version != NEWEST:
        raise JudgeError(f"{reserved} asks for Spark {version}: mark it with @pytest.mark.wide")
    try:
        return environments.find(f"spark-{version}") / "bin" / "python"
    except environments.MissingEnvironment as missing:
        raise JudgeError(str(missing)) from None


@dataclass(frozen=True)
class User:
    """A user of this machine who runs a process, and the umask of that process."""

    number: int
    umask: int

    def python(self, version: str) -> tuple[str, str]:
        """Return a Python that this user may run, and the folder with the packages of this version of Spark."""
        own = interpreter(version)
        words = [str(own), "-c", "import pyspark, sys; print(pyspark.__path__[0], *sys.version_info[:2])"]
        package, *numbers = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
        packages = str(Path(package).parent)
        for python in (str(own), f"/usr/bin/python{'.'.join(numbers)}"):
            with contextlib.suppress(OSError):
                told = subprocess.run(
                    [python, "-c", "import pyspark"], env={"PYTHONPATH": packages}, capture_output=True, **self.options
                )
                if told.returncode == 0:
                    return python, packages
        raise JudgeError(f"user {self.number} may not run {own}: install a Python of that version for all users")

    @property
    def options(self) -> dict[str, Any]:
        """Return the options for ``subprocess``."""
        return {"user": self.number, "group": self.number, "extra_groups": [], "umask": self.umask}

    def own(self, folder: Path) -> None:
        """Give a new folder to this user, and make it reachable."""
        os.chown(folder, self.number, self.number)
        for above in folder.parents:
            mode = above.stat().st_mode
            if not mode & stat.S_IXOTH:
                above.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)


class Server:
    """A connection to a server process, which may serve other test processes, too. Several threads may send requests.

    ``folder`` is the folder of the process, and identifies it: the process that works there, or a new one. ``classes``
    is a folder on Spark's class path, which servers of one version may share. With ``delta``, the session supports
    Delta (``WITH_DELTA`` only). The process runs as the current user, or as ``user``.
    """

    def __init__(
        self, version: str, folder: Path, classes: Path | None = None, *, delta: bool = False, user: User | None = None
    ) -> None:
        self.version, self.name = version, folder.name
        self._log = folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        classes = classes or folder / "classes"
        classes.mkdir(parents=True, exist_ok=True)  # Java ignores folders that are created later
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._connect(folder):
                self._start(folder, classes, delta, user)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._asked = 0
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, or the connection to it."""
        return self._ended

    def ask(self, verb: str, **args: Any) -> Any:
        """Send one request. Return its answer, or raise its error."""
        with self._lock:
            if self._ended:
                raise JudgeError(self._last_words("has ended"))
            self._asked += 1
            number = self._asked
            answer = self._waiting[number] = Future[Any]()
            try:
                self._socket.sendall(json.dumps({"id": number, "verb": verb, "args": args}).encode() + b"\n")
            except OSError:
                raise JudgeError(self._last_words("has ended")) from None
        try:
            return answer.result(timeout=_PATIENCE_S)
        except TimeoutError:
            raise JudgeError(self._last_words(f"gave no answer to {verb} in {_PATIENCE_S:g} s")) from None

    def close(self) -> None:
        """Disconnect. The process and its JVM end when nobody else is connected."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._lines.close()
        self._socket.close()

    def _connect(self, folder: Path) -> bool:
        """Connect to the process that works in the folder. Return False if there is none."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._lines = self._socket.makefile("rb")
        with contextlib.suppress(OSError):
            self._socket.connect((folder / "address").read_text())
            if told := self._lines.readline().decode().strip():  # nothing comes from a process that is just ending
                if not f"{told}.".startswith(f"{self.version.partition('-')[0]}."):
                    raise JudgeError(f"the server of Spark {self.version} has Spark {told}")
                return True
        self._lines.close()
        self._socket.close()
        return False

    def _start(self, folder: Path, classes: Path, delta: bool, user: User | None) -> None:
        """Start a process in the folder, and connect to it."""
        (folder / "address").unlink(missing_ok=True)
        # Remove this process's settings, and its paths if the server has packages of its own.
        unwanted = ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"]
        unwanted += [] if self.version == OWN else ["PYTHONPATH"]
        python, packages = (str(interpreter(self.version)), "") if user is None else user.python(self.version)
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        environment |= {
            "PYTHONSAFEPATH": "1",
            "TZ": "UTC",
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        }
        if user is not None:
            # Hadoop's file systems have their own umask.
            mask = f"--conf spark.hadoop.fs.permissions.umask-mode={user.umask:03o} pyspark-shell"
            environment |= {"PYTHONPATH": packages, "HOME": str(folder), "PYSPARK_SUBMIT_ARGS": mask}
            user.own(folder)
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [python, str(Path(__file__).with_name("server.py")), str(folder), str(classes)] + ["delta"] * delta,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
                **({} if user is None else user.options),
            )
        threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie
        deadline = time.monotonic() + _PATIENCE_S
        while not self._connect(folder):
            if process.returncode is not None:
                raise JudgeError(self._last_words("did not start"))
            if time.monotonic() > deadline:
                process.kill()
                raise JudgeError(self._last_words(f"did not start in {_PATIENCE_S:g} s"))
            time.sleep(0.05)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._lines:
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
