"""The commands of the tutorial run as printed, one after another, and do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .transcripts import ROOT

PAGE = (ROOT / "docs" / "getting-started.md").read_text()


@pytest.mark.wide
def test_a_new_user_can_follow_the_tutorial(tmp_path: Path) -> None:
    for name, text in re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL):
        (tmp_path / name).write_text(text)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    told = [_run(script, tmp_path) for script in blocks]
    made, inspected, tried, explained, dropped, restarted, planned, checked, _, read, rewound = told
    assert "-------------------------------------------\nBatch: 0" in made
    assert "883 of 1,000 (88 %)" in inspected
    assert "would drop 500 of 1,000 entries (50 %)" in tried
    assert 'key: {"user": "u1"}' in explained
    assert "dropped 500 of 1,000 entries (50 %)" in dropped
    rows = re.findall(r"\|\s*(u\d+)\|[^|]*\|\s*(\d+)\|", restarted)
    assert sorted(rows) == [("u1", "1"), ("u999", "2")]
    assert re.search(r"^checkpoint +nothing +501 ", planned, re.MULTILINE)
    assert "verdict: as_is" in checked
    assert re.search(r" 2  \S*/visits/again\.json$", read, re.MULTILINE)
    assert re.findall(r"\|\s*(u\d+)\|[^|]*\|\s*(\d+)\|", rewound) == [("u1", "1")]
    assert (tmp_path / "visits.state.json").read_text() == (tmp_path / "new.json").read_text()
    code = tmp_path / "visits.py"
    code.write_text(code.read_text().replace("F.max", "F.min"))
    assert "min replaced max and would reuse its buffer" in _run(blocks[7], tmp_path, 3)


def _run(script: str, folder: Path, code: int = 0) -> str:
    """Run the lines of a block, as somebody who answers each question with yes. Return what they print."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT)}
    script = re.sub(r"(ttlsnap (?:compact|rewind .*--batch) (?!.*--dry-run).*)", r"\1 --yes", script)
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
