"""The built-in transformers, and the search for those of users.

A transformer's factory is found by its name in the entry-point group ``ttlsnap.transformers``, which also has the
built-in ones, or as ``module:attribute``. Loading one runs its author's code, so name only code that you trust.
"""

from ttlsnap.schema.units import parse_duration
from ttlsnap.transformers.config import (
    CleanupStrategies,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
)
from ttlsnap.transformers.ttl import TtlTransformerFactory, expired

__all__ = [
    "CleanupStrategies",
    "StateTtlConfig",
    "StateVisibility",
    "TtlTransformerFactory",
    "UpdateType",
    "expired",
    "parse_duration",
]
