"""The interface of listeners, which follow the work on partitions."""

from __future__ import annotations

from typing import Protocol


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
