"""What the parts of a comparison share: the two contracts, the renames, and where findings go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ttlsnap.check.findings import Finding, Place, Verdict
from ttlsnap.check.rules import RULES
from ttlsnap.contract import Contract
from ttlsnap.contract.model import SCHEMA_CHECK


def finding(
    code: str, verdict: Verdict, place: Place, old: object, new: object, message: str, spark: str, fix: str
) -> Finding:
    """A finding by the rule ``code``, with what was and what is as text."""
    was, now = (None if value is None else str(value) for value in (old, new))
    return Finding(RULES[code].code, verdict, place, was, now, message, spark, fix)


@dataclass
class Comparison:
    """An old contract and a new one. ``renamed`` tells new names of columns that are the same, by the user's word."""

    old: Contract
    new: Contract
    renamed: Mapping[str, str]
    findings: list[Finding] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def add(
        self,
        code: str,
        verdict: Verdict,
        place: Place,
        old: object,
        new: object,
        message: str,
        spark: str,
        fix: str = "",
    ) -> None:
        """A finding by the rule ``code``."""
        self.findings.append(finding(code, verdict, place, old, new, message, spark, fix))

    def not_seen(self, line: str) -> None:
        """Something that could not be compared."""
        if line not in self.unseen:
            self.unseen.append(line)

    def in_new_names(self, text: str) -> str:
        """A text of the old contract with the columns that were renamed called by their new names."""
        if not self.renamed:
            return text
        either = "|".join(re.escape(name) for name in sorted(self.renamed, key=len, reverse=True))
        # What is followed by a parenthesis is a function, what follows a number a unit, and neither is a column.
        return re.sub(rf"(?<!\w)(?<!\d )(?:{either})(?!\w|\()", lambda match: self.renamed[match[0]], text)

    @property
    def unchecked(self) -> bool:
        """Whether the new query's session switches Spark's own comparison of schemas off."""
        return self.new.conf.get(SCHEMA_CHECK, "true").lower() == "false"


def version(text: str) -> tuple[int, int]:
    """The version, or of a range the least that it can be; 3.5 of what is only known to be before 4.0."""
    if text.startswith("<"):
        return 3, 5
    found = re.search(r"(\d+)\.(\d+)", text)
    assert found is not None, text  # as the contract's JSON Schema has it
    return int(found[1]), int(found[2])
