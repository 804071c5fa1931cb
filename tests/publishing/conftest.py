"""The fixtures of these tests, which those of the transaction use, too."""

from __future__ import annotations

from .made import checkpoint, commands, rich, workshop

__all__ = ["checkpoint", "commands", "rich", "workshop"]
