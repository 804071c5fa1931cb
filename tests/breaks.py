"""Faults put into ttlsnap on purpose. For each of them, some test must fail.

    python -m tests.breaks             all of them (with ``TTLSNAP_VENVS`` from another folder)
    python -m tests.breaks 3 17        some of them, by their numbers

Each fault is put into a copy of the repository. There the tests run that should find it, with the settings of
``make test``. A fault that no test finds is an error, and so is one whose code no longer exists.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_IGNORED = shutil.ignore_patterns(".git", ".venv*", "build", ".*_cache", "__pycache__", "site")


@dataclass(frozen=True)
class Break:
    """The code ``old`` of a file replaced by ``new``. Tests in ``found_by`` must fail."""

    what: str
    file: str
    old: str
    new: str
    found_by: str


BREAKS = (
    Break(
        "an entry lives for a microsecond too long",
        "transformers/ttl.py",
        "np.minimum(ttl, room) <= now",
        "np.minimum(ttl, room) < now",
        "transformers",
    ),
    Break(
        "a deleted key comes back from an older snapshot",
        "stores/hdfs/entries.py",
        "_take(batch, ~deltas.written.has(batch.keys)) if len(deltas.written) else batch",
        "batch",
        "stores",
    ),
    Break(
        "a deleted key is an entry",
        "stores/hdfs/entries.py",
        "is_last & (batch.records.value_size != DELETED)",
        "is_last",
        "stores",
    ),
    Break(
        "rewritten rows get the checksum of something else",
        "stores/hdfs/snapshot_writer.py",
        "row_checksums(keys, values)",
        "row_checksums(values, keys)",
        "stores",
    ),
    Break(
        "a staged snapshot is not compared with what was written",
        "stores/hdfs/partition.py",
        "count != self._writer.entries or found.hexdigest() != digest",
        "False",
        "stores",
    ),
    Break(
        "staged tables are not compared with what was written",
        "stores/rocksdb/writer.py",
        "found.count != wanted or found != self._digest",
        "found.count != wanted",
        "stores",
    ),
    Break(
        "tombstones are not looked up again",
        "stores/rocksdb/writer.py",
        "new.get(list[Any](keys)) != values",
        "False",
        "stores",
    ),
    Break(
        "an index entry of a removed map entry is damage",
        "operators/variables.py",
        "stale: Mask = wanted[at] != there",
        "stale: Mask = np.zeros(len(at), np.bool_)",
        "compaction/test_ttl_states.py",
    ),
    Break(
        "counts of a join stay as they were",
        "operators/join_rows.py",
        "changed = (of_counts > 0) & (of_counts != counts)",
        "changed = np.zeros(len(counts), np.bool_)",
        "compaction/test_joins.py",
    ),
    Break(
        "Hadoop's checksums are not compared",
        "checkpoint/file_checksums.py",
        "if wrong is not None:",
        "if False:",
        "damage/test_missing_and_stray.py",
    ),
    Break(
        "a path may lead outside the checkpoint",
        "storage/local.py",
        'if path.startswith("/") or ".." in parts or "\\0" in path:',
        "if False:",
        "storage/test_directory.py",
    ),
    Break(
        "a new file is not synced",
        "storage/local.py",
        "            yield file\n            file.flush()\n            os.fsync(file.fileno())",
        "            yield file",
        "publishing/test_durability.py",
    ),
    Break(
        "the names of moved files are not synced before new files are moved",
        "publishing/moves.py",
        "without the old one in the backup.\n        sync_names(",
        "without the old one in the backup.\n        (lambda *_: None)(",
        "publishing/test_durability.py",
    ),
    Break(
        "the fence replaces an offset file",
        "publishing/fence.py",
        "    return files.create(journal.fence, data)",
        "    files.replace(journal.fence, data)\n    return True",
        "publishing/test_moving_on.py",
    ),
    Break(
        "no planned batch takes the place of the fence",
        "publishing/swap.py",
        "        replace_fence(files, journal)\n        return close_journal",
        "        undo_fence(files, journal)\n        return close_journal",
        "publishing/protocol",
    ),
    Break(
        "the files are not compared again after the moves",
        "publishing/swap.py",
        "        recheck()\n",
        "",
        "publishing/protocol",
    ),
    Break(
        "a rollback goes back behind a newer batch",
        "publishing/rollback.py",
        "if committed > last.batch:",
        "if False:",
        "publishing/test_rollback.py",
    ),
    Break(
        "a run may drop every entry",
        "compaction/drop_limit.py",
        "return self.dropped >= self.entries and",
        "return False and",
        "compaction/test_max_drop.py",
    ),
    Break(
        "a lost conditional write to an object store overwrites",
        "storage/objects.py",
        '_ask(obstore.put, self._store, self._key(path), data, mode="create")',
        '_ask(obstore.put, self._store, self._key(path), data, mode="overwrite")',
        "storage/test_directory.py",
    ),
    Break(
        "columns that changed places are not reported",
        "check/schemas.py",
        "        _add_other_order(both, place, how, old, new)\n",
        "",
        "check",
    ),
    Break(
        "null keys of a table match nothing",
        "delta/rewriting.py",
        'equal = "<=>" if self.null_keys else "="',
        'equal = "="',
        "delta/test_rewriting.py",
    ),
    Break(
        "an entry goes to the partition of another number",
        "migration/sorting.py",
        "return partitions_of(hashes, old.partitions)",
        "return partitions_of(hashes, old.before) % old.partitions",
        "migration",
    ),
    Break(
        "a migration keeps the entries that its transformers change",
        "migration/sorting.py",
        "self._sorter.add(self._partition.change(batch, self._sorter.states[batch.state], kept, rewritten, values))",
        "self._sorter.add(batch)",
        "migration",
    ),
    Break(
        "a store in which a migration drops nothing is lost",
        "compaction/linked.py",
        "if changed or task.whole else None",
        "if changed else None",
        "migration",
    ),
    Break(
        "what a migration dropped is not archived",
        "migration/run.py",
        "report = self._delivered(files, report)",
        "pass",
        "migration",
    ),
    Break(
        "entries that are converted wrongly are not noticed",
        "stores/convert.py",
        "if not is_same:",
        "if False:",
        "migration",
    ),
    Break(
        "a query with a global limit gets a planned batch",
        "publishing/preflight.py",
        "if limit is not None and",
        "if False and",
        "migration",
    ),
    Break(
        "entries that a migration mixes up are not noticed",
        "migration/task.py",
        " or before != after",
        "",
        "migration",
    ),
    Break(
        "the folder of a partition that no longer exists remains",
        "publishing/moves.py",
        "if is_partition and files.stat(folder) is not None and",
        "if False and",
        "migration",
    ),
    Break(
        "keys that do not show how Spark places them are moved",
        "migration/run.py",
        "if keys and proven[store.operator] < PROOF:",
        "if False:",
        "migration",
    ),
    Break(
        "a changed key goes to the partition of its old hash",
        "migration/sorting.py",
        "            hashes = hash_keys(self._converter.new_states[batch.state], new_rows)",
        "            pass",
        "repairs",
    ),
    Break(
        "values that do not fit their new type are lost",
        "migration/run.py",
        "            misfits.update(part.misfits)",
        "            pass",
        "repairs",
    ),
    Break(
        "a contract has the aggregates in the order of the query",
        "contract/of_query.py",
        "    if not ids or not all(number in operator.aggregates for number in ids):",
        "    if True:",
        "check/test_quality.py",
    ),
    Break(
        "a list of another type reuses a buffer",
        "check/groups.py",
        "if now is not None and was.layout != now.layout:",
        "if False:",
        "check/test_counterexamples.py",
    ),
    Break(
        "maintain reports success when a target failed",
        "maintenance/runs.py",
        "return max((result.exit_code for result in results), default=0)",
        "return min((result.exit_code for result in results), default=0)",
        "maintenance",
    ),
)


def main(numbers: list[str]) -> int:
    """Run the given breaks, or all. Return the exit code."""
    chosen = [int(number) - 1 for number in numbers] or range(len(BREAKS))
    unseen = 0
    for number in chosen:
        wrong = BREAKS[number]
        started = time.monotonic()
        found = find(wrong)
        unseen += found is None
        told = "NO TEST FAILED" if found is None else f"found by {found}"
        print(f"{number + 1:2} {wrong.what} ({time.monotonic() - started:.0f} s): {told}", flush=True)
    return 1 if unseen else 0


def find(wrong: Break) -> str | None:
    """Return the name of a test that fails with this break; None if none does."""
    with tempfile.TemporaryDirectory(prefix="ttlsnap-break-") as folder:
        copy = Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=_IGNORED)
        file = copy / "ttlsnap" / wrong.file
        text = file.read_text()
        if text.count(wrong.old) != 1:
            raise SystemExit(f"{wrong.file} has this code {text.count(wrong.old)} times: {wrong.old}")
        file.write_text(text.replace(wrong.old, wrong.new))
        given = {"TTLSNAP_VENVS": os.environ.get("TTLSNAP_VENVS", str(ROOT / ".venvs")), "PYTHONPATH": str(copy)}
        options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
        command = [sys.executable, "-m", "pytest", *options, f"tests/{wrong.found_by}"]
        done = subprocess.run(command, cwd=copy, env=os.environ | given, capture_output=True, text=True, check=False)
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (0, 1) and not failed:
        raise SystemExit(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[0] if failed else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
