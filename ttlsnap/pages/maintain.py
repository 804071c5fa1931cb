"""The page of ``maintain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttlsnap.pages.model import Page
from ttlsnap.pages.targets import targets_page
from ttlsnap.pages.words import PLAN


def maintain_page(document: Mapping[str, Any], show_keys: bool) -> Page:
    """Return the page of a policy's run, with every target."""
    is_plan = any(target.get("dry_run") for target in document["targets"])
    return targets_page(document["targets"], document["policy"], show_keys, PLAN if is_plan else "")
