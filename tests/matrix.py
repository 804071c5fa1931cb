"""How much of the matrix is told: a slice, or with TTLSNAP_MATRIX=full (``make test-matrix``) all of it."""

from __future__ import annotations

import os

FULL = os.environ.get("TTLSNAP_MATRIX") == "full"
