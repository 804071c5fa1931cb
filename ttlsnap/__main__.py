"""The ``ttlsnap`` script, and ``python -m ttlsnap``: the command line.

The imports of the command line take a moment. A signal in this time ends the process at once, with its own exit code.
"""

import os
import signal
from types import FrameType

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


def main() -> None:
    """Run the command line."""
    for number in _NAMES:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
    from ttlsnap.cli.app import main as run

    run()


def _end(signum: int, frame: FrameType | None) -> None:
    """End the process before a command has begun. This is a signal handler."""
    os.write(2, f"Stopped by {_NAMES[signal.Signals(signum)]}. Nothing was changed.\n".encode())
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
