"""Progress from worker processes to the one that shows it: small datagrams on the loopback interface.

Counting is all they do: a datagram that is lost or forged makes the display wrong for a moment and nothing else.
Results do not come this way.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from ttlsnap.partition import Progress

_DATAGRAM = struct.Struct("<QQ")


def sender(port: int | None) -> Progress:
    """A ``Progress`` for a worker, sending to ``port``; does nothing without a port."""
    if port is None:
        return lambda entries, dropped: None
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(entries: int, dropped: int) -> None:
        with contextlib.suppress(OSError):
            out.sendto(_DATAGRAM.pack(entries, dropped), ("127.0.0.1", port))

    return send


@contextlib.contextmanager
def listener(progress: Progress) -> Iterator[int | None]:
    """Listen while the block runs; gives the port to send to, None where none can be had."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)
    except OSError:
        receiver.close()
        yield None
        return
    stop = threading.Event()

    def listen() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, struct.error):
                progress(*_DATAGRAM.unpack(receiver.recv(_DATAGRAM.size + 1)))

    thread = threading.Thread(target=listen, name="ttlsnap-progress", daemon=True)
    thread.start()
    try:
        yield receiver.getsockname()[1]
    finally:
        stop.set()
        thread.join()
        receiver.close()
