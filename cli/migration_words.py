"""What a migration changes, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_PREFIX = "spark.sql."


def describe_changes(plan: Sequence[object], settings: Mapping[str, str], session: Mapping[str, str]) -> str:
    """Return the number of the steps in ``plan``, and the settings; ``session`` has those that no file records."""
    steps = f"{len(plan)} change{'' if len(plan) == 1 else 's'} of the schema" if plan else ""
    return ", ".join(part for part in (steps, describe_settings(settings, session)) if part)


def describe_settings(settings: Mapping[str, str], session: Mapping[str, str]) -> str:
    """Return the settings, with what the user must do about those of the ``session``."""
    parts = [f"{name.removeprefix(_PREFIX)} = {value}" for name, value in settings.items()]
    parts += [
        f"{name} = {value} (not recorded; set it in the query's session)" for name, value in sorted(session.items())
    ]
    return ", ".join(parts)
