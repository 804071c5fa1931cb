"""A program that runs pairs on real Spark: ``python -m tests.check.observe`` writes the outcomes to ``observed.json``.

``right``    the rows after the restart are the right ones, all of them and no others
``ignored``  the changed setting had no effect
``wrong``    Spark resumed and emitted other rows: state was lost or misread
``refused``  Spark refused to resume: the error's code, and whether it came at the ``start`` or from a ``batch``

The pair defines which rows are right, never Spark. The old query has at least two batches, in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..judge.processes import JudgeError
from ..judge.spark import Judge
from .pairs import PAIRS, Pair
from .queries import Event

OBSERVED = Path(__file__).with_name("observed.json")
_AT_ONCE = 3
_TRIES = 2
_WORDS = 3000
_FIRST_MTIME = 1_700_000_000
Observation = dict[str, str]


class Observer:
    """Real Spark in several versions, which runs pairs of queries in ``folder``."""

    def __init__(self, folder: Path, judge: Judge) -> None:
        self._folder, self._judge = folder, judge

    def observe_all(self, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, Observation | None, str]]:
        """Observe many pairs, several at once. Yield them in order, with None where the old query did not run."""

        def look(pair: Pair) -> tuple[Pair, Observation | None, str]:
            words = ""
            # On a busy machine a Python worker may start too late.
            for _ in range(_TRIES):
                try:
                    return pair, *self.observe(pair)
                except JudgeError as failure:
                    words = str(failure)
            return pair, None, words

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(look, pairs)

    def observe(self, pair: Pair) -> tuple[Observation, str]:
        """Return the outcome of a pair, and a text that explains what was wrong."""
        checkpoint = self.checkpoint_of(pair, 0)
        folder = checkpoint.parent
        time.sleep(pair.pause_s)
        put(folder / "source", [pair.after])
        done = self._attempt(pair, 1, folder)
        observed = {"change": pair.change, "old": pair.versions[0], "new": pair.versions[1]}
        if "error" in done:
            observed |= {"outcome": "refused", "error": done["error"], "where": done["where"]}
            return observed, str(done["text"])
        got, wanted = normal(done["rows"]), normal(pair.right())
        if got == wanted:
            took = pair.effect is None or pair.effect(checkpoint)
            return observed | {"outcome": "right" if took else "ignored"}, ""
        if pair.unchanged is not None and got == normal(pair.unchanged):
            return observed | {"outcome": "ignored"}, ""
        return observed | {"outcome": "wrong"}, f"got    {got}\nwanted {wanted}"

    def checkpoint_of(self, pair: Pair, side: int) -> Path:
        """Return the checkpoint of a pair's old query (0), or of its new query (1) if that had run from the start."""
        folder = self._folder / pair.name
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "source"
        source.mkdir(parents=True)
        # A query that never ends by itself gets a run for each batch.
        steps = [(events,) for events in pair.before] if (pair.old, pair.new)[side].once else [pair.before]
        for step in steps:
            put(source, step)
            done = self._attempt(pair, side, folder)
            if "error" in done:
                raise JudgeError(f"the query of {pair.name} does not run: {done['text']}")
        return folder / "checkpoint"

    def _attempt(self, pair: Pair, side: int, folder: Path) -> dict[str, Any]:
        paths = {"checkpoint": str(folder / "checkpoint"), "source": str(folder / "source"), "out": str(folder / "out")}
        order = {"pair": pair.name, "side": side, **paths}
        done: dict[str, Any] = self._judge.call_in(
            Path(__file__).parent, pair.versions[side], "attempts.attempt", **order
        )
        return done


def put(source: Path, batches: Iterable[Iterable[Event]]) -> None:
    """Add a file of events to a source for each batch."""
    count = len(list(source.iterdir()))
    for number, events in enumerate(batches, start=count):
        path = source / f"{number:05d}.json"
        path.write_text("".join(json.dumps(event.row()) + "\n" for event in events))
        # The source takes files by their modification times.
        os.utime(path, (_FIRST_MTIME + number,) * 2)


def normal(rows: Any) -> list[str]:
    """Return rows as sorted texts. A tuple becomes a list, and 2.0 becomes 2."""
    return sorted(json.dumps(_numbers(row)) for row in rows)


def _numbers(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_observed() -> dict[str, Observation]:
    """Return the stored observations by the names of the pairs."""
    observed: dict[str, Observation] = json.loads(OBSERVED.read_text()) if OBSERVED.exists() else {}
    return observed


def _write(observed: dict[str, Observation]) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(observed[name])}" for name in sorted(observed) if name in PAIRS]
    OBSERVED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> int:
    """Observe all pairs, or those with a text in their name, and store the outcomes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only pairs with this in their name")
    parser.add_argument("--missing", action="store_true", help="only pairs that observed.json does not have")
    parser.add_argument("--words", action="store_true", help="say what Spark said, and which rows were wrong")
    asked = parser.parse_args()
    observed = read_observed()
    chosen = [pair for name, pair in PAIRS.items() if asked.only in name and not (asked.missing and name in observed)]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, Judge(Path(folder, "judge")) as judge:
        observer = Observer(Path(folder), judge)
        for pair, seen, words in observer.observe_all(chosen):
            if seen is None:
                failed += 1
                observed.pop(pair.name, None)
            else:
                observed[pair.name] = seen
            outcome = " ".join(list(seen.values())[3:]) if seen else "NOT OBSERVED"
            print(f"{pair.name}: {outcome}", flush=True)
            if words and (asked.words or seen is None):
                print("    " + words[:_WORDS].replace("\n", "\n    "), flush=True)
            _write(observed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
