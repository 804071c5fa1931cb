"""The content of a new remote file until it is sent: in memory, or on the local disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from ttlsnap.errors import StorageError

_IN_MEMORY = 64 << 20


class _Spool(tempfile.SpooledTemporaryFile[bytes]):
    def __init__(self, place: str) -> None:
        super().__init__(_IN_MEMORY)
        self._place = place

    def write(self, data: Any) -> int:
        with self._errors():
            return super().write(data)

    def flush(self) -> None:
        with self._errors():
            super().flush()

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # of what could not be written, and was reported
            super().__exit__(*error)  # type: ignore[arg-type]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"cannot write {self._place}: it is larger than {_IN_MEMORY >> 20} MiB, and such a file first goes to "
                f"{tempfile.gettempdir()}: {error.strerror}. Set the variable TMPDIR to a folder with more space"
            ) from error


@contextmanager
def open_spool(place: str) -> Iterator[BinaryIO]:
    """Provide a file for the content of the remote file ``place``.

    It raises StorageError if the local disk refuses a write. Flush it before it is sent.
    """
    with _Spool(place) as file:
        yield cast("BinaryIO", file)
