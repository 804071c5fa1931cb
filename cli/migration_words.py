"""What a migration changes, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_PREFIX = "spark.sql."


def describe_changes(
    plan: Sequence[Mapping[str, object]], settings: Mapping[str, str], session: Mapping[str, str]
) -> str:
    """Return the number of the steps in ``plan``, and the settings; ``session`` has those that no file records."""
    removed = [f"{step['state']}" for step in plan if step["change"] == "drop-unused"]
    left = len(plan) - len(removed)
    steps = f"{left} change{'' if left == 1 else 's'} of the schema" if left else ""
    drops = f"removal of what Spark has kept of {', '.join(removed)}" if removed else ""
    return ", ".join(part for part in (steps, drops, describe_settings(settings, session)) if part)


def describe_settings(settings: Mapping[str, str], session: Mapping[str, str]) -> str:
    """Return the settings, with what the user must do about those of the ``session``."""
    parts = [f"{name.removeprefix(_PREFIX)} = {value}" for name, value in settings.items()]
    parts += [
        f"{name} = {value} (not recorded; set it in the query's session)" for name, value in sorted(session.items())
    ]
    return ", ".join(parts)
