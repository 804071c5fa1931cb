"""The tests' handle of the servers: it finds their interpreters, starts them, sends requests, and ends them.

Spark 4.2 runs under this interpreter. Another version runs under ``spark-<version>/bin/python`` in the folder that
``TTLSNAP_VENVS`` names, by default ``.venvs`` at the repository's root (``make venvs``). A version that is not
installed is an error and never a skipped test.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OWN = "4.2"
"""The version that runs under this interpreter."""
NEWEST = os.environ.get("TTLSNAP_NEWEST", _OWN)
"""The version that judges where a test asks for none."""
WITH_DELTA = _OWN
"""The newest version that Delta supports."""
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")
UPGRADE = ("4.2", "4.3")
"""The last upgrade: the wide matrix restarts with the second version whatever the first one wrote."""
OLD_VERSIONS = ("3.1", "3.2", "3.3", "3.4")
"""Versions that only the full matrix starts (``make old-venvs``)."""

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 180.0


class JudgeError(Exception):
    """A failure of the judge itself, which says nothing about the code under test."""


class SparkFailed(JudgeError):
    """An error that Spark raised. The message is the whole trace, with Spark's own message in it."""


def venvs() -> Path:
    """Return the folder of the other environments and servers."""
    return Path(os.environ.get("TTLSNAP_VENVS", _ROOT / ".venvs"))


def interpreter(version: str) -> Path:
    """Return the Python that has this version of Spark. Raise ``JudgeError`` if there is none."""
    if version == _OWN:
        return Path(sys.executable)
    python = venvs() / f"spark-{version}" / "bin" / "python"
    if not python.exists():
        goal = "old-venvs" if version in OLD_VERSIONS else "more-venvs" if "-" in version else "venvs"
        raise JudgeError(f"Spark {version} is to judge this, but there is no {python}: run `make {goal}`")
    return python


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
    """One server process. Several threads may send requests at the same time.

    ``classes`` is a folder on Spark's class path, which servers of one version may share. With ``delta``, the session
    supports Delta (``WITH_DELTA`` only). The process runs as the current user, or as ``user``.
    """

    def __init__(
        self,
        version: str,
        number: int,
        scratch: Path,
        classes: Path,
        delta: bool = False,
        user: User | None = None,
    ) -> None:
        self.version = version
        self.number = number
        scratch.mkdir(parents=True)
        classes.mkdir(parents=True, exist_ok=True)  # Java ignores folders that are created later
        self._log = scratch / "log"
        # Remove this process's settings, and its paths if the server has packages of its own.
        unwanted = ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"]
        unwanted += [] if version == _OWN else ["PYTHONPATH"]
        python, packages = (str(interpreter(version)), "") if user is None else user.python(version)
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
            environment |= {"PYTHONPATH": packages, "HOME": str(scratch), "PYSPARK_SUBMIT_ARGS": mask}
            user.own(scratch)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).with_name("server.py")), str(scratch), str(classes)] + ["delta"] * delta,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=scratch,
                env=environment,
                **({} if user is None else user.options),
            )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._asked = 0
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def ask(self, verb: str, **args: Any) -> Any:
        """Send one request. Return its answer, or raise its error."""
        assert self._process.stdin is not None
        with self._lock:
            if self._ended:
                raise JudgeError(self._last_words("has ended"))
            self._asked += 1
            number = self._asked
            answer = self._waiting[number] = Future[Any]()
            try:
                self._process.stdin.write(json.dumps({"id": number, "verb": verb, "args": args}) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise JudgeError(self._last_words("has ended")) from None
        try:
            return answer.result(timeout=_PATIENCE_S)
        except TimeoutError:
            raise JudgeError(self._last_words(f"gave no answer to {verb} in {_PATIENCE_S:g} s")) from None

    def close(self) -> None:
        """End the process and its JVM."""
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
