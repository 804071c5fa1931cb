"""A lease: a lock file that its owner renews, and that other processes may take over after it has expired.

A kernel releases the lock of a process that has died, but only on its own machine. If several machines share a file
system or an object store, the lock is a file with a time. Its owner renews it. Another process may take it over if it
was not renewed for ``LEASE`` seconds. The time is that of the storage, not of the machines.

An owner may fail to renew its lease in time, because it was suspended or the network failed. Then it changes nothing
any more: ``Lease.require`` raises before every change. Half of the time is left for a change that is in progress. A
client of an object store gives a change up before that time ends (``storage.objects.RETRIES``). A server can still
carry it out later, so each change must also be harmless then (see ``storage.directory``).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Generic, Protocol, TypeVar

from ttlsnap.documents import to_json
from ttlsnap.errors import BusyError, LockLostError, RefusedError, StorageError
from ttlsnap.interrupts import defer_signals

LEASE = 120.0
"""The number of seconds after which a lease expires, unless its owner renews it."""

MAX_LOCK_BYTES = 4096
_LOCK_BYTES = 512  # the size of every lock file, so that a new one fits into the space of an old one

Version = TypeVar("Version")


class Lock(Protocol[Version]):
    """A lock file in a storage. A ``Version`` identifies what its owner wrote."""

    root: str

    def take_lock(self, data: bytes) -> Version:
        """Write the lock file. Raise BusyError if another process holds the lock."""
        ...

    def renew_lock(self, data: bytes, version: Version) -> Version:
        """Renew the lock. Raise BusyError if another process has taken it over."""
        ...

    def release_lock(self, version: Version) -> None:
        """Remove the lock file."""
        ...


class Lease(Generic[Version]):
    """A lock that is held until the block ends. A thread renews it."""

    def __init__(self, lock: Lock[Version]) -> None:
        self._lock, self._lost = lock, False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="ttlsnap-lease", daemon=True)
        owner_text = json.dumps(to_json(Owner.of_this_process()) | {"token": token_hex(16)})
        self._data = owner_text.encode().ljust(_LOCK_BYTES)

    def __enter__(self) -> Lease[Version]:
        refuse_other_systems(self._lock.root)
        asked_at = _now()
        self._version = self._lock.take_lock(self._data)
        self._held_until = asked_at + LEASE
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with defer_signals():
            self._release()
            if error is not None:
                raise error  # here, so that a signal does not hide an error that says that the checkpoint stays fenced

    def _release(self) -> None:
        self._stop.set()
        self._thread.join()
        if not self._lost and _now() < self._held_until:
            with contextlib.suppress(StorageError, BusyError):  # the lease expires by itself
                self._lock.release_lock(self._version)

    def require(self) -> None:
        """Raise LockLostError if another process may hold the lock now."""
        if self._lost or _now() > self._held_until - LEASE / 2:
            raise LockLostError(
                f"{self._lock.root}: its lock expired, because this process was suspended, or could not reach the "
                "storage, for too long. Another ttlsnap may hold the lock now. This process changes nothing more"
            )

    def _renew(self) -> None:
        while not self._stop.wait(LEASE / 6):
            asked_at = _now()
            if asked_at > self._held_until:
                self._lost = True  # the process that takes it over relies on that
                return
            try:
                self._version = self._lock.renew_lock(self._data, self._version)
                self._held_until = asked_at + LEASE
            except BusyError:
                self._lost = True
                return
            except StorageError:
                continue  # try again until the lease expires


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock.

    ``boot``, ``namespace`` and ``started`` identify it among all processes that ever had its number. They are the
    machine's boot, the process's namespace (a container has its own numbers), and its start. None if not known.
    """

    host: str
    process: int
    boot: str | None = None
    namespace: str | None = None
    started: str | None = None

    @classmethod
    def of_this_process(cls) -> Owner:
        process = os.getpid()
        return cls(socket.gethostname(), process, read_boot(), _namespace(), _read_start(process))

    @classmethod
    def read(cls, data: bytes) -> Owner | None:
        """Return the owner that a lock file names; None if its content is not valid."""
        try:
            document = json.loads(data)
            names = ("boot", "namespace", "started")
            facts = {name: document[name] for name in names if isinstance(document.get(name), str)}
            return cls(str(document["host"]), int(document["process"]), **facts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def __str__(self) -> str:
        return f"process {self.process} on {self.host!r}"

    @property
    def has_died(self) -> bool:
        """Return whether this machine knows that the process has ended."""
        is_same_system = (self.boot, self.namespace) == (read_boot(), _namespace())
        return bool(is_same_system and self.boot and self.namespace and self.started) and _has_ended(
            self.process, self.started
        )


def refuse_if_alive(root: str, owner: Owner | None, age_s: float) -> None:
    """Raise BusyError unless a lease that was renewed ``age_s`` seconds ago has expired."""
    if age_s <= LEASE:
        raise BusyError(
            f"another ttlsnap is working on {root} ({owner or 'unknown process'}); wait until it ends. If it has died, "
            f"its lock expires in {LEASE - age_s:.0f} s"
        )


def refuse_other_systems(root: str) -> None:
    """Raise RefusedError on a system that has no clock for a lease. Only Linux has it, and only there all is tested."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        raise RefusedError(
            f"{root}: ttlsnap changes and copies state only on Linux, because it is not tested on this system. Nothing "
            "was changed. Here it reads checkpoints (inspect, explain, diff, export, check, contract, doctor, and dry "
            "runs). For other commands, use a container"
        )


def _now() -> float:
    """Return a number of seconds that also grows while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_boot() -> str | None:
    """Return the id of the machine's boot; None if it is not known."""
    return _read("/proc/sys/kernel/random/boot_id")


def _namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a text, not a path
    except OSError:
        return None


def _read_start(process: int) -> str | None:
    """Return when a process started, in ticks since the boot, as text; None if that is not known."""
    status_text = _read(f"/proc/{process}/stat")
    # The name, in parentheses, may contain anything. The fields after it are the state, 18 others, and the start.
    return status_text.rpartition(")")[2].split()[19] if status_text else None


def _has_ended(process: int, started: str | None) -> bool:
    """Return whether the process with this number and this start has ended. A suspended process has not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process is another user's
    status_text = _read(f"/proc/{process}/stat")
    if status_text is None:
        return False  # other users' processes may be hidden
    return status_text.rpartition(")")[2].split()[0] in ("Z", "X") or _read_start(process) != started


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
