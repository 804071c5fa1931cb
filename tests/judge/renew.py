"""Have Spark write all stored inputs again (``make samples``), or with ``--stale`` those that no longer match the code.

python -m tests.judge.renew --stale
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import inputs
from .processes import JudgeError
from .spark import Judge

_AT_ONCE = 4


def main(words: list[str]) -> int:
    """Renew the stored inputs. Return 1 if Spark could not write one of them, which then stays as it is."""
    archives = sorted(inputs.STORED.glob("*.tar.xz"))
    if words == ["--stale"]:
        archives = [archive for archive in archives if inputs.describe(archive).archive != archive]
    with tempfile.TemporaryDirectory(prefix="ttlsnap-inputs-") as folder, Judge(Path(folder, "judge")) as judge:

        def renew(archive: Path) -> bool:
            asked = inputs.describe(archive)
            try:
                made = judge.write_with_spark(asked)
            except JudgeError as failure:
                print(f"{archive.name}: {str(failure)[-500:]}", file=sys.stderr)
                return False
            archive.unlink()
            judge.store(asked, made)
            print(f"{archive.name} -> {asked.archive.name}", flush=True)
            return True

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return 0 if all(list(pool.map(renew, archives))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
