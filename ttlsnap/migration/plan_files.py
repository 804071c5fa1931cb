"""Files of plans that were reviewed, of migrations and of policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.open import read_given

_MAX_BYTES = 1 << 30
_Plan = TypeVar("_Plan")


def read_plan_file(path: str, version: int, command: str, parse: Callable[[dict[str, Any]], _Plan]) -> _Plan:
    """Return what ``parse`` makes of the document in a file that ``ttlsnap COMMAND --plan-out`` wrote.

    Raise UsageError if it is not such a plan, and UnsupportedError if it is newer than ``version``.
    """
    data = read_given(path, _MAX_BYTES, "a plan")
    try:
        # Paths may have bytes that are not UTF-8.
        document = parse_json(data.decode("utf-8", "surrogateescape"), any_text=True)
        if require_type(document["version"], int) > version:
            raise UnsupportedError(f"{path} is a plan of version {document['version']}; use a newer ttlsnap")
        return parse(document)
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:200]
        raise UsageError(f"{path} is not a plan ({reason}). Make one with `ttlsnap {command} --plan-out`") from error
