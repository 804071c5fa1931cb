"""A program that runs pairs of streams on Delta tables: ``python -m tests.check.observe_tables`` stores the outcomes.

The outcomes are those of ``observe``. Here ``ignored`` means that the table lacks a new column, or still has the old
type of a column.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ttlsnap.contract import contract_of_table

from ..judge.processes import JudgeError, Server
from ..judge.spark import Judge
from .observe import normal, put
from .tables import TABLE_PAIRS, TablePair

OBSERVED = Path(__file__).with_name("observed_tables.json")


class TableObserver:
    """Real Spark with Delta, which runs pairs of streams in ``folder``."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder, self._server = folder, server

    def observe(self, pair: TablePair) -> tuple[dict[str, Any], str]:
        """Return the outcome of a pair with the contracts of both streams' tables, and a text on what was wrong."""
        contracts = []
        for side in (1, 0):
            folder = self._folder / f"{pair.name}.{side}"
            done = self.run(pair, side, folder, pair.before)
            if "error" in done and side == 0:
                raise JudgeError(f"the old stream of {pair.name} does not run: {done['text']}")
            made = contract_of_table(str(folder / "path"), (pair.old, pair.new)[side].key)
            contracts.append({key: value for key, value in made.to_json().items() if key != "ttlsnap"})
        done = self.run(pair, 1, folder, [pair.after])
        observed: dict[str, Any] = {"change": pair.change, "contracts": contracts[::-1]}
        if "error" in done:
            return observed | {"outcome": "refused", "error": done["error"]}, str(done["text"])
        got, wanted = normal(done["rows"]), normal(pair.right())
        if got == wanted:
            return observed | {"outcome": "right"}, ""
        places = [place for place, name in enumerate(pair.new.columns) if name in done["columns"]]
        texts = [
            [[str(row[place]) for place in chosen] for row in rows]
            for rows, chosen in ((done["rows"], range(len(places))), (pair.right(), places))
        ]
        if normal(texts[0]) == normal(texts[1]):
            return observed | {"outcome": "ignored"}, ""
        return observed | {"outcome": "wrong"}, f"got    {got}\nwanted {wanted}"

    def observe_all(self, pairs: Iterable[TablePair]) -> Iterator[tuple[TablePair, dict[str, Any], str]]:
        """Observe many pairs."""
        for pair in pairs:
            yield pair, *self.observe(pair)
            for side in (0, 1):
                shutil.rmtree(self._folder / f"{pair.name}.{side}")

    def sql(self, *statements: str) -> None:
        """Run SQL statements."""
        package = str(Path(__file__).parent)
        self._server.ask("call", package=package, function="tables.sql", order={"statements": statements})

    def run(self, pair: TablePair, side: int, folder: Path, batches: Iterable[Any]) -> dict[str, Any]:
        (folder / "source").mkdir(parents=True, exist_ok=True)
        put(folder / "source", batches)
        places = {name: str(folder / name) for name in ("source", "path", "checkpoint")}
        done: dict[str, Any] = self._server.ask(
            "call",
            package=str(Path(__file__).parent),
            function="tables.merge",
            order={"pair": pair.name, "side": side, **places},
        )
        return done


def read_observed() -> dict[str, Any]:
    """Return the stored observations by the names of the pairs."""
    observed: dict[str, Any] = json.loads(OBSERVED.read_text())
    return observed


def main() -> None:
    """Observe all pairs, or those with a text in their name, and store the outcomes."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    observed = read_observed() if OBSERVED.exists() else {}
    with tempfile.TemporaryDirectory() as folder, Judge(Path(folder, "judge")) as judge:
        observer = TableObserver(Path(folder), judge.with_delta())
        for pair, seen, words in observer.observe_all(p for name, p in TABLE_PAIRS.items() if only in name):
            observed[pair.name] = seen
            print(pair.name, seen["outcome"], seen.get("error", ""), words[:600], flush=True)
    lines = [f"  {json.dumps(name)}: {json.dumps(observed[name])}" for name in sorted(observed) if name in TABLE_PAIRS]
    OBSERVED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
