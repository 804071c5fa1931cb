"""How good the checker is: its verdict on every pair, against what real Spark was seen to do.

    python -m tests.check.quality [--only SUBSTRING] [--contracts DIR]

``DIR`` keeps the contracts of both queries of every pair, so that a second run needs no Spark.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from ttlsnap.check import CheckReport, Verdict, check
from ttlsnap.contract import Contract, parse_contract
from ttlsnap.errors import TtlsnapError

from .pair import NEWEST, Pair
from .pairs import PAIRS
from .queries import EVENTS

OBSERVED = Path(__file__).parent / "observed.json"


def observed() -> dict[str, dict[str, Any]]:
    """What Spark did with each pair."""
    found: dict[str, dict[str, Any]] = json.loads(OBSERVED.read_text())
    return found


def contracts(pair: Pair, spark: Any, folder: Path) -> tuple[Contract | str, Contract | str]:
    """Those of both queries; instead of one that Spark refuses to plan, what it says."""
    return contract(pair, 0, spark, folder), contract(pair, 1, spark, folder)


def contract(pair: Pair, side: int, spark: Any, folder: Path) -> Contract | str:
    kept = folder / f"{pair.name}.{('old', 'new')[side]}.json"
    if not kept.exists():
        from ttlsnap.contract.of_query import contract_of_query

        query = (pair.old, pair.new)[side]
        settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC", **pair.settings[side]}
        mode = pair.modes[side] or query.mode
        try:
            made = contract_of_query(query.build, EVENTS, conf=settings, output_mode=mode, session=spark().newSession())
            kept.write_text(made.dumps())
        except TtlsnapError as error:
            kept.write_text(json.dumps({"error": str(error)}))
    text = kept.read_text()
    if text.startswith('{"error"'):
        return str(json.loads(text)["error"])
    return parse_contract(text, str(kept))


def verdict_on(pair: Pair, spark: Any, folder: Path) -> tuple[Verdict, CheckReport | str]:
    """The checker's verdict on a pair, and why."""
    old, new = contracts(pair, spark, folder)
    for made in (old, new):
        if isinstance(made, str):
            return Verdict.INCOMPATIBLE, made
    assert isinstance(old, Contract)
    assert isinstance(new, Contract)
    report = check(old, new)
    return report.verdict, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--contracts", type=Path, required=True)
    options = parser.parse_args()
    options.contracts.mkdir(parents=True, exist_ok=True)
    session: list[Any] = []

    def spark() -> Any:
        if not session:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            session.append(builder.getOrCreate())
            session[0].sparkContext.setLogLevel("OFF")
        return session[0]

    counts: Counter[tuple[str, str]] = Counter()
    for name, seen in observed().items():
        pair = PAIRS.get(name)
        if pair is None or not re.search(options.only, name) or (seen["old"], seen["new"]) != (NEWEST, NEWEST):
            continue
        verdict, why = verdict_on(pair, spark, options.contracts)
        counts[seen["outcome"], verdict.value] += 1
        works, fine = seen["outcome"] in ("right", "ignored"), verdict is Verdict.AS_IS
        mark = "  " if works == fine or (seen["outcome"] == "ignored" and not fine) else "!!" if fine else "? "
        codes = why if isinstance(why, str) else "; ".join(f"{f.code}({f.verdict})" for f in why.findings)
        print(f"{mark} {seen['outcome']:8} {verdict.value:16} {name:44} {codes[:150]}")
        sys.stdout.flush()
    print(dict(counts))


if __name__ == "__main__":
    main()
