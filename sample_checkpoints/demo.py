"""The demo of ``make demo``: it drops the expired entries of a checkpoint, and real Spark restarts the query.

The demo works on a copy of ``agg-deltas-lz4-4.2`` in a temporary folder. Every line after a ``$`` is a command as a
user would type it. The output of the command follows.
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
# Append the path, so that it does not hide an installed package.
sys.path.append(str(HERE.parent))

from tests.judge.queries import Event, Query  # noqa: E402  (needs the path above)
from tests.judge.spark import Judge  # noqa: E402

NAME = "sessions"
WEEK = ("--ttl", "7d", "--timestamp", "value.max")


def main() -> None:
    """Inspect the sample, compact it, and restart its query."""
    with tempfile.TemporaryDirectory(prefix="ttlsnap-demo-") as folder:
        shutil.copytree(HERE / "agg-deltas-lz4-4.2", Path(folder, NAME))
        say("This is the state of a query that counts the visits of each user. Most users have not come back for days.")
        ttlsnap(folder, "inspect", NAME, "--age", "--timestamp", "value.max")
        say("What would be dropped if users expire after seven days? (Workers on this machine answer, without a JVM.)")
        ttlsnap(folder, "compact", NAME, *WEEK, "--dry-run")
        gone, kept = one_of_each(folder)
        say("Drop them. (This time Spark runs the partitions.)")
        ttlsnap(folder, "compact", NAME, *WEEK, "--engine", "spark")
        ttlsnap(folder, "history", NAME)
        say(
            f"Now real Spark restarts the query, and the users {kept['key']['key']} and {gone['key']['key']} come back:"
        )
        restart(Path(folder), gone, kept)


def one_of_each(folder: str) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Return the user who was not seen for the longest time, and the user who was seen last."""
    command = [*script(), "inspect", NAME, "--entries", "1000", "--format", "json"]
    shown = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    entries = sorted(json.loads(shown)["entries"], key=lambda entry: str(entry["value"]["max"]))
    return entries[0], entries[-1]


def restart(folder: Path, gone: dict[str, dict[str, str]], kept: dict[str, dict[str, str]]) -> None:
    """Restart the query with real Spark for the planned batch and one more, and print what it counts."""
    with Judge(folder) as spark:
        query = spark.adopt(folder / NAME, Query("agg_update_watermark"))
        visits = [Event(str(user["key"]["key"]), 1_800_000_000, 1) for user in (gone, kept)]
        rows = [json.loads(row) for batch in spark.restart(query, [visits]) for row in batch.rows]
    for user, what in ((kept, "was kept, and continues"), (gone, "was dropped, and starts afresh")):
        (row,) = (row for row in rows if row["key"] == user["key"]["key"])
        print(f"  {row['key']} {what}: {user['value']['count']} visits before, {row['n']} now")


def say(text: str) -> None:
    """Print a line for the reader."""
    print(f"\n{text}\n", flush=True)


def script() -> list[str]:
    """Return the path of the installed command."""
    return [str(Path(sys.executable).with_name("ttlsnap"))]


def ttlsnap(folder: str, *arguments: str) -> None:
    """Show a command, and run it."""
    print(f"$ ttlsnap {' '.join(arguments)}", flush=True)
    # No query is running on the fresh copy, although its file times suggest one.
    stopped = ("--stopped",) if arguments[0] == "compact" else ()
    subprocess.run([*script(), *arguments, *stopped], cwd=folder, check=True, stdin=subprocess.DEVNULL, env=os.environ)


if __name__ == "__main__":
    main()
