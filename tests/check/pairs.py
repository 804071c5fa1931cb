"""All pairs by their names (``PAIRS``)."""

from __future__ import annotations

from . import aggregations, deduplications, harmless, joins, operators, processing, settings, versions, ways
from .pair import CHANGES, PAIRS, Pair

__all__ = ["CHANGES", "PAIRS", "Pair", "aggregations", "deduplications", "harmless", "joins"]
__all__ += ["operators", "processing", "settings", "versions", "ways"]
