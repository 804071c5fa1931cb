"""The part of the matrix that is tested: a slice, or all of it with TTLSNAP_MATRIX=full (``make test-matrix``)."""

from __future__ import annotations

import os

FULL = os.environ.get("TTLSNAP_MATRIX") == "full"
