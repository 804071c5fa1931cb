"""``make demo``: drop the expired entries of a checkpoint that real Spark wrote, and see the query go on.

Works on a copy of ``agg-deltas-lz4-4.2`` in a temporary folder. Every line after a ``$`` is a command as a user
would type it, followed by what it prints.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# At the end, where it can hide nobody's package.
sys.path.append(str(HERE.parent))

from tests.judge.queries import Event, Query  # noqa: E402  (needs the path above)
from tests.judge.spark import Judge  # noqa: E402

NAME = "sessions"
WEEK = ("--ttl", "7d", "--timestamp", "value.max")


def main() -> None:
    """Look, compact, look again, restart."""
    with tempfile.TemporaryDirectory(prefix="ttlsnap-demo-") as folder:
        shutil.copytree(HERE / "agg-deltas-lz4-4.2", Path(folder, NAME))
        say("The state of a query that counts the visits of each user, for ever: most have not been seen for a while.")
        ttlsnap(folder, "inspect", NAME, "--age", "--timestamp", "value.max")
        say("What would go, if users who have not been seen for seven days were forgotten?")
        ttlsnap(folder, "compact", NAME, *WEEK, "--dry-run", "--engine", "local")
        gone, kept = one_of_each(folder)
        say("Forget them. (Spark runs this one; --engine local would need no JVM.)")
        ttlsnap(folder, "compact", NAME, *WEEK)
        ttlsnap(folder, "history", NAME)
        say(f"Now real Spark starts the query again, and {kept['key']['key']} and {gone['key']['key']} come back:")
        restart(Path(folder), gone, kept)


def one_of_each(folder: str) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """The user not seen for the longest time, and the one seen last."""
    command = [*script(), "inspect", NAME, "--entries", "1000", "--format", "json"]
    shown = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    entries = sorted(json.loads(shown)["entries"], key=lambda entry: str(entry["value"]["max"]))
    return entries[0], entries[-1]


def restart(folder: Path, gone: dict[str, dict[str, str]], kept: dict[str, dict[str, str]]) -> None:
    """The planned batch and one more on the compacted checkpoint, by real Spark."""
    with Judge(folder) as spark:
        query = spark.adopt(folder / NAME, Query("agg_update_watermark"))
        visits = [Event(str(user["key"]["key"]), 1_800_000_000, 1) for user in (gone, kept)]
        rows = [json.loads(row) for batch in spark.restart(query, [visits]) for row in batch.rows]
    for user, what in ((kept, "was kept and goes on"), (gone, "had expired and starts afresh")):
        (row,) = (row for row in rows if row["key"] == user["key"]["key"])
        print(f"  {row['key']} {what}: {user['value']['count']} visits before, {row['n']} now")


def say(text: str) -> None:
    """A line for the reader."""
    print(f"\n{text}\n", flush=True)


def script() -> list[str]:
    """The installed command."""
    return [str(Path(sys.executable).with_name("ttlsnap"))]


def ttlsnap(folder: str, *arguments: str) -> None:
    """Show a command, and run it."""
    print(f"$ ttlsnap {' '.join(arguments)}", flush=True)
    # The sample was written a moment ago as far as file times tell, and no query runs on it.
    stopped = ("--stopped",) if arguments[0] == "compact" else ()
    subprocess.run([*script(), *arguments, *stopped], cwd=folder, check=True, stdin=subprocess.DEVNULL, env=os.environ)


if __name__ == "__main__":
    main()
