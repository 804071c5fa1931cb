"""The transformers that come with ttlsnap, and finding those that users bring.

A transformer's factory is found by its name in the entry-point group ``ttlsnap.transformers``, where the built-in
ones stand too, or as ``module:attribute``. Loading one runs its author's code: name only what you trust.
"""

from ttlsnap.transformers.config import (
    CleanupStrategies,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
)
from ttlsnap.transformers.ttl import TtlTransformerFactory, expired
from ttlsnap.units import parse_duration

__all__ = [
    "CleanupStrategies",
    "StateTtlConfig",
    "StateVisibility",
    "TtlTransformerFactory",
    "UpdateType",
    "expired",
    "parse_duration",
]
