"""The fixtures of these tests, which are those of publishing."""

from __future__ import annotations

from ..publishing.made import checkpoint, commands, rich

__all__ = ["checkpoint", "commands", "rich"]
