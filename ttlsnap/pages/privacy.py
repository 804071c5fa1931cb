"""Which texts of a document may quote the key or the value of an entry, and what a page says in their place.

Errors and warnings say themselves what they quote (``ttlsnap.quoting``). Of a problem or an error that does not, a page
says what its kind means. So a new kind of problem is left out until it is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ttlsnap import errors
from ttlsnap.errors import TtlsnapError
from ttlsnap.quoting import Quoting, without_keys

HINT = "The full text may quote entries; --show-keys adds it."

SAFE_PROBLEMS = frozenset(
    {
        "altered-copy", "fence", "cut-off-run", "unfinished-repartition", "abandoned-repartition",
        "resumed-repartition",
        "hidden-batch", "published-file-missing", "table-in-backup", "stale-snapshot", "maybe-stale-snapshot",
        "moved-schema-paths", "moved-source-paths",
        "stale-checksum", "two-key-orders", "maybe-two-key-orders", "last-batch-lost", "nothing-restorable",
        "missing-commit", "extra-partition", "broken-link", "link-outside", "planned-batch", "uncommitted-batch",
        "blocked-batch", "stray-state", "missing-schema", "no-schema", "query-at-work", "future-watermark",
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
_SAFE_RULE = re.compile(r"(.* rule \d+: )?(Spark's expiry times|keep|ttl \w+( instead of \w+)? (by|after) [^'\"]*)")
_CODE_RULE = re.compile(r"(.* rule \d+: )?[\w.]+:[\w.<>]+")


def tell(text: str, show_keys: bool) -> str:
    """Return a text, or the same without the keys and values that it quotes."""
    if show_keys or without_keys(text) == text:
        return str(text)
    shortened_text = without_keys(text).rstrip()
    return f"{shortened_text}{'' if shortened_text.endswith(('.', '!', '?')) else '.'} {HINT}"


def tell_problem(problem: Mapping[str, Any], show_keys: bool) -> str:
    """Return the message of a problem of ``doctor`` if it says what it quotes; else what its code means."""
    code = problem["code"]
    if show_keys or code in SAFE_PROBLEMS:
        return tell(problem["message"], show_keys)
    if isinstance(problem["message"], Quoting):
        return tell(problem["message"], show_keys)
    return f"{PROBLEMS.get(code, 'The message of this problem is left out.')} {HINT}"


def tell_reasons(problems: Sequence[str], show_keys: bool) -> str:
    """Return why versions cannot be restored; without keys, only the codes of problems."""
    return ", ".join(
        reason for reason in dict.fromkeys(problems) if show_keys or reason in SAFE_PROBLEMS or reason in PROBLEMS
    )


def tell_error(document: Mapping[str, Any], show_keys: bool) -> str:
    """Return the error of a target if it says what it quotes; else what its kind means."""
    text = document["error"]
    if show_keys or isinstance(text, Quoting):
        return tell(text, show_keys)
    kind = getattr(errors, str(document.get("error_type")), TtlsnapError)
    return f"{kind.summary or TtlsnapError.summary} {HINT}"


def tell_rule(rule: str, show_keys: bool) -> str:
    """Return a rule in words. Those of a transformer of the user's may name keys."""
    if show_keys or _SAFE_RULE.fullmatch(rule) or _CODE_RULE.fullmatch(rule):
        return rule
    return f"a rule that describes itself. {HINT}"
