"""Have Spark write the stored inputs again: all of them, or those that no longer match the code.

    python -m tests.judge.renew --stale
    python -m tests.judge.renew --all      (``make samples``)

Spark never writes the same bytes twice, so every archive that is written again is a change for git.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import inputs
from .processes import JudgeError
from .reported import ALL as OPERATORS
from .spark import Judge

_AT_ONCE = 4


def main(arguments: Sequence[str]) -> int:
    """Renew the stored inputs. Return 1 if one could not be written again; its archive then stays as it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.renew", allow_abbrev=False)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="write all again")
    which.add_argument("--stale", action="store_true", help="write those again whose query or code has changed")
    archives = sorted(inputs.STORED.glob("*.tar.xz"))
    described = {archive: inputs.describe(archive) for archive in archives}
    if parser.parse_args(arguments).stale:
        described = {archive: asked for archive, asked in described.items() if not _is_current(archive, asked)}
    if not described:
        print(f"all {len(archives)} stored inputs are current")
        return 0
    print(f"{len(described)} of {len(archives)} inputs are written again", flush=True)
    with tempfile.TemporaryDirectory(prefix="ttlsnap-inputs-") as folder, Judge(Path(folder, "judge")) as judge:

        def renew(archive: Path) -> bool:
            asked = described[archive]
            try:
                if asked.query.operator not in OPERATORS:
                    raise JudgeError(f"there is no operator {asked.query.operator}: remove this archive")
                made = judge.write_with_spark(asked)
                if not judge.store(asked, made):
                    raise JudgeError("Spark now writes so much that the input cannot be stored: make it smaller")
            except JudgeError as failure:
                print(f"{archive.name}: {str(failure)[-500:]}", file=sys.stderr)
                return False
            if archive != asked.archive:
                archive.unlink()
            print(f"{asked.archive.name} replaces {archive.name}", flush=True)
            return True

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return 0 if all(list(pool.map(renew, described))) else 1


def _is_current(archive: Path, asked: inputs.Input) -> bool:
    return asked.query.operator in OPERATORS and asked.archive == archive


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
