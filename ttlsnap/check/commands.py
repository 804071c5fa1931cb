"""The commands in a report: the migrations that make a state fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ttlsnap.check.findings import CheckReport, Finding, Verdict, worst
from ttlsnap.check.targets import is_folder
from ttlsnap.contract import Contract, TableContract
from ttlsnap.printable import shell_word

_RENAMED = re.compile(r"(--renamed '?)([^\s'=]+)=([^\s'=;,]*[^\s'=;,.])")
_UNNAMED = re.compile(r"\b(ttlsnap (?:migrate|sources|contract) )CHECKPOINT\b")


def migrate_command(
    checkpoint: str | None, names: Sequence[str], commands: Sequence[str | None], renamed: Mapping[str, str]
) -> str:
    """Return the command that migrates a ``checkpoint``, which is a word for it (see ``checkpoint_of``).

    ``names`` are those of the old and the new contract. A contract that no file has is the output of its command, in
    ``commands``. If only a contract of the checkpoint is known, its name is ``CHECKPOINT``.
    """
    old_word, new_word = (
        shell_word(name) if command is None else f"<({command})" for name, command in zip(names, commands, strict=True)
    )
    words = ["CHECKPOINT", "--from", old_word] if checkpoint is None else [checkpoint]
    words += ["--to", new_word]
    words += [f"--rename {shell_word(f'{old_name}={new_name}')}" for old_name, new_name in renamed.items()]
    return " ".join(["ttlsnap migrate", *words])


def checkpoint_of(old: Contract | TableContract, name: str, command: str | None) -> str | None:
    """Return the word for the checkpoint of ``old`` in commands; None if only a contract is known."""
    # The names of contracts that a caller of Python gives as objects may be those of folders, too.
    is_checkpoint = isinstance(old, Contract) and old.made_from == "checkpoint" and command is None
    return shell_word(name) if is_checkpoint and is_folder(name) else None


def name_checkpoint(findings: Sequence[Finding], checkpoint: str) -> list[Finding]:
    """Return the findings with this checkpoint in the commands of their advice."""
    return [
        replace(finding, fix=_UNNAMED.sub(lambda found: found[1] + checkpoint, finding.fix)) for finding in findings
    ]


def turn_renames(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings about the way back whose advice has the names as ``--renamed`` takes them: the old one first."""
    return [
        replace(finding, fix=_RENAMED.sub(lambda found: f"{found[1]}{found[3]}={found[2]}", finding.fix))
        for finding in findings
    ]


def find_next(report: CheckReport, command: str, *, back: bool) -> str | None:
    """Return the command that makes the state fit, with the options of all findings; None if none does or has to.

    ``command`` is that of ``migrate_command``. ``back`` chooses the findings about the way back to the old query.
    """
    findings = [finding for finding in report.findings if finding.back is back]
    if worst(finding.verdict for finding in findings) is not Verdict.AFTER_MIGRATION:
        return None
    if any(finding.verdict is Verdict.AFTER_MIGRATION and finding.migration is None for finding in findings):
        return None
    words = [command]
    words += dict.fromkeys(options for finding in findings if (options := finding.fix.partition(command)[2].strip()))
    return " ".join([*words, *_ignore_options(report, back)])


def add_ignores(report: CheckReport, command: str, *, back: bool) -> CheckReport:
    """Return the report with findings whose commands accept what the report ignores, as ``find_next`` does."""
    options = _ignore_options(report, back)
    findings = [
        replace(finding, fix=" ".join([finding.fix, *options]))
        if finding.back is back and finding.migration is not None and finding.fix.startswith(command)
        else finding
        for finding in report.findings
    ]
    return replace(report, findings=tuple(findings))


def _ignore_options(report: CheckReport, back: bool) -> list[str]:
    return [ignore_option(ignored.finding) for ignored in report.ignored if ignored.finding.back is back]


def ignore_option(finding: Finding) -> str:
    """Return the option with which a command accepts this finding, and no other."""
    return "--ignore " + shell_word(f"{finding.code}:{finding.place}")
