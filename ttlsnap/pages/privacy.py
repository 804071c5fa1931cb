"""Which texts of a document may quote the key or the value of an entry, and what a page says in their place.

A text is shown only if it is known not to quote entries. So a new kind of problem or error is left out until it is
listed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

HINT = "The full text may quote entries; --show-keys adds it."

SAFE_PROBLEMS = frozenset(
    {
        "fence", "cut-off-run", "unfinished-repartition", "abandoned-repartition", "resumed-repartition",
        "hidden-batch", "published-file-missing", "table-in-backup", "stale-snapshot", "moved-schema-paths",
        "stale-checksum", "two-key-orders", "maybe-two-key-orders", "last-batch-lost", "nothing-restorable",
        "missing-commit", "extra-partition", "broken-link", "link-outside", "planned-batch", "uncommitted-batch",
        "blocked-batch", "stray-state", "missing-schema", "no-schema", "query-at-work",
    }
)  # fmt: skip
"""Problems of ``doctor`` whose messages quote no entry."""
PROBLEMS = {
    "misplaced-keys": "Keys are not in the partition where Spark looks for them.",
    "maybe-misplaced-keys": "Keys are not in the partition that Spark's hash gives; the query may have its own.",
    "damaged-snapshot": "A snapshot is damaged. An older one and the files after it still have the whole state.",
    "damaged-file": "A state file, or a checksum of it, is wrong.",
    "damaged-log": "Offsets, a commit, or the log of a source is damaged.",
    "damaged-metadata": "The metadata of the query, of an operator or of a schema is damaged or missing.",
    "torn-offset": "The offsets of a batch that never committed cannot be read.",
    "row-does-not-fit-schema": "A row does not fit its schema.",
    "wrong-count": "A store has another number of entries than its metadata says.",
    "broken-links": "Entries that refer to each other do not agree.",
    "published-file-damaged": "A file that the last run of ttlsnap published has changed.",
    "missing-delta": "A file that a version consists of is missing or too short.",
    "unsupported": "ttlsnap does not know this format, version, codec, provider or setting.",
}
"""The meanings of the other problems, whose messages may quote entries."""
_SAFE_ERRORS = frozenset({"NotACheckpointError", "RefusedError", "BusyError", "FencedError"})
_SAFE_USAGE = re.compile(
    r"has no (field|state) |matches (no folder|none of) |stores no timestamp |the package .* is not installed"
)
_ERRORS = {
    "UsageError": "The request has a mistake.",
    "NothingToMigrateError": "The migration cannot change what it was asked to change.",
    "TransformerError": "A transformer or a function of yours raised an error.",
    "UnsupportedError": "ttlsnap does not know a format, a version or a feature of this target.",
    "CorruptionError": "The target is damaged.",
    "ChecksumError": "A file and its checksum do not match.",
    "CountError": "A store has another number of entries than its files say.",
    "StorageError": "The storage refused an operation.",
    "StoppedError": "A signal stopped the run before it published.",
}
_SAFE_RULE = re.compile(r"(.* rule \d+: )?(Spark's expiry times|keep|ttl \w+( instead of \w+)? (by|after) [^'\"]*)")
_CODE_RULE = re.compile(r"(.* rule \d+: )?[\w.]+:[\w.<>]+")


def tell_problem(problem: Mapping[str, Any], show_keys: bool) -> str:
    """Return the message of a problem of ``doctor``, or what its code means."""
    code = problem["code"]
    if show_keys or code in SAFE_PROBLEMS:
        return str(problem["message"])
    return f"{PROBLEMS.get(code, 'The message of this problem is left out.')} {HINT}"


def tell_reasons(version: Mapping[str, Any], show_keys: bool) -> str:
    """Return why a version cannot be restored; without keys, only the codes of problems."""
    reasons = dict.fromkeys(version["problems"])
    return ", ".join(reason for reason in reasons if show_keys or reason in SAFE_PROBLEMS or reason in PROBLEMS)


def tell_error(document: Mapping[str, Any], show_keys: bool) -> str:
    """Return the error of a target, or what its kind means."""
    kind, text = document.get("error_type"), str(document["error"])
    if show_keys or kind in _SAFE_ERRORS or (kind == "UsageError" and _SAFE_USAGE.search(text)):
        return text
    return f"{_ERRORS.get(str(kind), 'The run failed.')} {HINT}"


def tell_warnings(warnings: Sequence[str], show_keys: bool) -> list[str]:
    """Return warnings. What a function of the user's says about an entry that it could not archive is left out."""
    return [
        text if show_keys else re.sub(r"(will archive them[^:]*: ).*", rf"\1{HINT}", text, flags=re.DOTALL)
        for text in warnings
    ]


def tell_unseen(unseen: Sequence[str], show_keys: bool) -> list[str]:
    """Return what ``check`` did not compare, without the errors of state that cannot be read."""
    return [
        text if show_keys else re.sub(r"(cannot be read; [^(]*)\(.*", r"\1", text, flags=re.DOTALL) for text in unseen
    ]


def tell_rule(rule: str, show_keys: bool) -> str:
    """Return a rule in words. Those of a transformer of the user's may name keys."""
    if show_keys or _SAFE_RULE.fullmatch(rule) or _CODE_RULE.fullmatch(rule):
        return rule
    return f"a rule that describes itself. {HINT}"


def tell_unknown(unknown: Sequence[str], show_keys: bool) -> list[str]:
    """Return what the growth of a state lacks, without the errors of batches that cannot be read."""
    return [text if show_keys else re.sub(r"(batch \d+): .*", r"\1 cannot be read", text) for text in unknown]
