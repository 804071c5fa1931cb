"""The version of ttlsnap, and documents that name the version that made them."""

from __future__ import annotations

import re

from ttlsnap.errors import UnsupportedError, UsageError

VERSION = "0.3.0"

_RELEASE = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(\.[0-9a-zA-Z.+-]{1,40})?")


def refuse_newer(made_by: object, where: str) -> None:
    """Raise UnsupportedError for a document of a newer ttlsnap, and UsageError if ``made_by`` is not a version.

    The third number of a version does not count: releases that differ only there have the same formats.
    """
    release = _RELEASE.fullmatch(made_by) if isinstance(made_by, str) else None
    if release is None:
        raise UsageError(f"{where}: ttlsnap is a version such as {VERSION!r}, not {made_by!r}")
    own_release = _RELEASE.fullmatch(VERSION)
    assert own_release is not None
    if [int(number) for number in release.groups()[:2]] > [int(number) for number in own_release.groups()[:2]]:
        raise UnsupportedError(
            f"{where} was made with ttlsnap {made_by}. This is ttlsnap {VERSION}, which may not know all that is in "
            f"it. Use ttlsnap {release[1]}.{release[2]} or newer"
        )
