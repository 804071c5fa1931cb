"""Mounts in a namespace of their own, which end with the process."""

from __future__ import annotations

import shutil
import subprocess

import pytest

may_mount = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="this user cannot mount",
)
