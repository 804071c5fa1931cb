"""The pairs that break and that no migration repairs, with the reasons, for the docs."""

from __future__ import annotations

import re

REASONS: dict[str, str] = {
    "The query has other stateful operators, or has them in another order: Spark finds the state of an operator by its "
    "number.": r"op-.*|dedup-to-within|dedup-from-within|way-firsts-swapped.*",
    "Without a grouping column, several entries would have one key.": r"agg-key-removed|tws-key-removed|window-removed",
    "A key or a stored column has another expression or source. The state does not have the input for the "
    "new one.": r"agg-key-(another|expression|now-.*|struct-swapped)|dedup-column-another.*"
    r"|dedup-now-required.*"
    r"|join-(key-.*|value-another|range-.*|sides.*)"
    r"|way-(explode|hour|union|map-in|table-join|join-sides|day).*",
    "Windows or sessions have another length. What is in a window cannot be divided.": r"window-(length|slide).*"
    r"|session-gap.*",
    "The plans of two versions of Spark cannot be compared, so it is not known which aggregate a column belongs to. "
    "Contracts of both queries from one version show it.": r"agg-min-to-max-[0-9].*",
    "Only the user's code changed, or the names of fields or variables in it. Only its author knows what the stored "
    "values mean to the new code; `--transformer` can convert them.": r"(pandas-body|tws-value|tws-map-key)-.*another"
    r"|tws-map-key-another|tws-field-names-swapped-avro|tws-variables-names-swapped",
    "The state variable is of another kind.": r"tws-(value|list|map)-to-(value|list|map)",
    "The kind of the timeout is another one. The stored timeouts are times of the old kind.": r"pandas-timeout-.*",
    "The stored times were computed with the old delay.": r"within-delay-.*-expired",
    "Groups were emitted and removed before the output mode changed.": r"window-append-to-complete-closed",
    "The older Spark does not know a format of the checkpoint. Change the format with `--set` or `--provider` before "
    "the restart.": r"downgrade-(?!dedup-many-4\.3-4\.2).*",
    "It is a setting, which has its own option of `migrate`, or which Spark ignores.": r"set-.*",
    "Spark does not run the new query at all.": r"window-watermark-removed-append",
    "The rows of the table have another key.": r"table-key-.*",
    "The table has a rule for its rows. Whether new rows satisfy it is for you to decide.": r"table-constraint-old",
}
"""The reasons, each with a pattern for the names of its pairs."""


def reason_of(name: str) -> str | None:
    """Return why no migration repairs a pair."""
    return next((reason for reason, pattern in REASONS.items() if re.fullmatch(pattern, name)), None)
