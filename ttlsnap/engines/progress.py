"""Progress from worker processes to the process that shows it: small datagrams on the loopback interface.

They only count. A lost or forged datagram makes the display wrong for a moment, and nothing else. Results are not
sent this way. A listener in that process follows the work.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from ttlsnap.compaction.task import Progress

_DATAGRAM = struct.Struct("<QQ?")


class Sender(Protocol):
    """A ``Progress`` that can also report the end of a partition."""

    def __call__(self, entries: int, dropped: int, ended: bool = False) -> None: ...


def sender(port: int | None) -> Sender:
    """Return a sender to ``port`` for a worker; without a port it does nothing."""
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if port is not None else None

    def send(entries: int, dropped: int, ended: bool = False) -> None:
        if out is not None:
            with contextlib.suppress(OSError):
                out.sendto(_DATAGRAM.pack(entries, dropped, ended), ("127.0.0.1", port))

    return send


@contextlib.contextmanager
def listener(progress: Progress, ended: Callable[[], None] = lambda: None) -> Iterator[int | None]:
    """Listen during the block. Yield the port to send to; None if there is none."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)
    except OSError:
        receiver.close()
        yield None
        return
    stop = threading.Event()

    def take() -> None:
        entries, dropped, has_ended = _DATAGRAM.unpack(receiver.recv(_DATAGRAM.size + 1))
        progress(entries, dropped)
        if has_ended:
            ended()

    def listen() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError, struct.error):
                take()
        receiver.setblocking(False)
        with contextlib.suppress(BlockingIOError, struct.error):
            while True:  # read what came before the end
                take()

    thread = threading.Thread(target=listen, name="ttlsnap-progress", daemon=True)
    thread.start()
    try:
        yield receiver.getsockname()[1]
    finally:
        stop.set()
        thread.join()
        receiver.close()


class WorkListener(Protocol):
    """A listener to the progress of work in ``steps``, such as the partitions to read."""

    def planned(self, steps: int) -> None: ...
    def progress(self, entries: int, dropped: int) -> None: ...
    def partition_done(self) -> None: ...


class SilentWorkListener:
    """A listener that prints nothing."""

    def planned(self, steps: int) -> None:
        pass

    def progress(self, entries: int, dropped: int) -> None:
        pass

    def partition_done(self) -> None:
        pass
