"""The log of ``maintain`` on stderr: a line for each target, for people or for programs."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.output import place, print_warning, tell
from ttlsnap.printable import printable, printable_json

if TYPE_CHECKING:
    from ttlsnap.maintenance.runs import TargetResult


class LogFormat(StrEnum):
    """The formats of the log."""

    TEXT = "text"
    JSON = "json"


class Log:
    """A listener that logs each target when it ends. Without a format, only failures are logged if nobody watches."""

    def __init__(self, log_format: LogFormat | None, plan: bool = False) -> None:
        self._plan = plan
        self._format = log_format or (LogFormat.TEXT if sys.stderr.isatty() else None)
        self._targets = self._ended = 0

    def found(self, targets: int) -> None:
        self._targets = targets
        self._say("info", "begun", quantity(targets, "target"), targets=targets)

    def ended(self, result: TargetResult) -> None:
        from ttlsnap.pages.words import for_policy

        self._ended += 1
        dropped = result.report.totals.dropped if result.report else None
        verb = "to drop" if self._plan else "dropped"
        counts = f", {quantity(dropped, 'entry', 'entries')} {verb}" if dropped is not None else ""
        summary = f"{result.status}{counts}, {result.seconds:.1f} s"
        error = for_policy(result.error.text, result.target) if result.error else None
        error_text = f": {error.splitlines()[0]}" if error else ""
        self._say(
            "info" if result.exit_code == 0 else "error",
            "target",
            f"[{self._ended}/{self._targets}] {place(result.target)}: {summary}{error_text}",
            target=result.target,
            status=result.status,
            exit_code=result.exit_code,
            dry_run=result.report.dry_run if result.report else None,
            run=result.report.run if result.report else None,
            dropped=dropped,
            seconds=round(result.seconds, 3),
            error=str(result.error) if result.error else None,
            policy_backup=result.backup.to_json() if result.backup else None,
        )
        for warning in result.backup.warnings if result.backup else ():
            self.warn(f"{result.target}: {warning}")

    def done(self, exit_code: int, seconds: float) -> None:
        level = "info" if exit_code == 0 else "error"
        event = "planned" if self._plan else "done"
        self._say(level, event, f"{event} in {seconds:.1f} s", exit_code=exit_code, seconds=round(seconds, 3))

    def warn(self, text: str) -> None:
        """Print a warning, as a line of the log if that is JSON."""
        if self._format is LogFormat.JSON:
            self._say("warning", "warning", text, warning=text)
        else:
            print_warning(text)

    def _say(self, level: str, event: str, text: str, **facts: Any) -> None:
        is_failure = level == "error" and event == "target"
        if self._format is LogFormat.TEXT or (self._format is None and is_failure):
            tell(printable(text))
        elif self._format is LogFormat.JSON:
            moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = printable_json(json.dumps({"time": moment, "level": level, "event": event, **facts}))
            with suppress(OSError):  # a log that cannot be written stops no target, as in ``tell``
                typer.echo(line, err=True)
