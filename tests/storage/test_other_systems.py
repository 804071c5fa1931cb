"""On a system without what only Linux has, ttlsnap reads checkpoints, and refuses what would change or copy one.

A process without ``/proc`` and the functions that Python has only on Linux takes the place of such a system.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ..mounts import may_mount
from ..samples import bytes_of, sample

WITHOUT_LINUX = """\
import os, time
for names in ("sched_getaffinity", "posix_fadvise", "POSIX_FADV_DONTNEED", "O_TMPFILE", "copy_file_range", "O_PATH"):
    delattr(os, names)
del time.CLOCK_BOOTTIME
"""
"""A ``sitecustomize``, which Python runs before anything else. https://docs.python.org/3.11/library/os.html"""

TTL = "--ttl 7d --timestamp value.max"


class OtherSystem:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "python").mkdir()
        (folder / "python" / "sitecustomize.py").write_text(WITHOUT_LINUX)

    def run(self, *commands: str) -> list[tuple[int, str, str]]:
        """Return exit code, stdout and stderr of each command, one after another, in the folder."""
        program = f"{sys.executable} -m ttlsnap"
        lines = "".join(f"{program} {command} >{i}.out 2>{i}.err\necho $?\n" for i, command in enumerate(commands))
        prelude = f"mount -t tmpfs none /proc && export PYTHONPATH={shlex.quote(str(self.folder / 'python'))}\n"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", prelude + lines], cwd=self.folder, capture_output=True, text=True, check=True
        )
        outputs = [(self._read(f"{i}.out"), self._read(f"{i}.err")) for i in range(len(commands))]
        return [(int(code), *output) for code, output in zip(done.stdout.split(), outputs, strict=True)]

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def elsewhere(tmp_path: Path) -> OtherSystem:
    return OtherSystem(tmp_path)


@may_mount
@pytest.mark.slow
@pytest.mark.parametrize("name", ["agg-deltas-lz4-4.2", "rocksdb-changelog-3.5"])
def test_checkpoints_are_read(elsewhere: OtherSystem, name: str) -> None:
    checkpoint = sample(name, elsewhere.folder)
    before = bytes_of(checkpoint)
    reading = (
        f"inspect {name} --age --timestamp value.max --format json",
        f"contract {name} --output contract.json",
        f"check contract.json {name}",
        f"doctor {name}",
        f"export {name} --to exported",
        f"history {name}",
        f"compact {name} {TTL} --dry-run --format json",
    )
    inspected, *others, planned = elsewhere.run(*reading)
    assert [code for code, *_ in (inspected, *others, planned)] == [0] * len(reading), (inspected, others, planned)
    report = json.loads(planned[1])
    assert report["totals"]["entries"] > 0 and report["refused"]
    assert any("only on Linux" in warning for warning in report["warnings"])
    assert (elsewhere.folder / "exported").is_dir() and bytes_of(checkpoint) == before


@may_mount
@pytest.mark.slow
def test_nothing_is_changed_or_copied(elsewhere: OtherSystem) -> None:
    name = "agg-deltas-lz4-4.2"
    checkpoint = sample(name, elsewhere.folder)
    before = bytes_of(checkpoint)
    (elsewhere.folder / "policy.toml").write_text(f'[[target]]\npath = "{name}"\nttl = "7d"\ntimestamp = "value.max"\n')
    changing = (
        f"compact {name} {TTL} --stopped --yes",
        f"compact {name} {TTL} --stopped --yes --output new",
        f"migrate {name} --partitions 3 --stopped --yes",
        f"rewind {name} --batch 5 --stopped --yes",
        f"copy {name} new",
        f"rollback {name} --stopped",
        "maintain policy.toml",
    )
    for command, (code, _, error) in zip(changing, elsewhere.run(*changing), strict=True):
        assert code == 4 and "only on Linux" in error, (command, error)
    assert bytes_of(checkpoint) == before and not (elsewhere.folder / "new").exists()
