"""Checks of a checkpoint for the effect of a changed setting, after the query has restarted with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Effect = Callable[[Path], bool]


def pinned(setting: str, value: str) -> Effect:
    """Return a check that the last batch in the offset log ran with this setting."""

    def shown(checkpoint: Path) -> bool:
        return _conf(checkpoint).get(setting) == value

    return shown


def written(ending: str) -> Effect:
    """Return a check that the state of the last batch is in a file with this ending."""

    def shown(checkpoint: Path) -> bool:
        version = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")) + 1
        files = (checkpoint / "state/0").glob(f"[0-9]*/**/{version}*")
        return any(path.name.endswith(ending) for path in files)

    return shown


def _conf(checkpoint: Path) -> dict[str, str]:
    log = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    conf: dict[str, str] = json.loads(log.read_text().splitlines()[1])["conf"]
    return conf
