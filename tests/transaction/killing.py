"""Commands in a process that is killed when it calls a function."""

from __future__ import annotations

import subprocess
import sys


def killed(function: str, code: str) -> None:
    """Run ``code`` in a process that is killed when it calls a function, such as ``ttlsnap.publishing.swap:swap``."""
    module, _, name = function.partition(":")
    program = f"""
import os
import {module} as module
from ttlsnap import *
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.schema.units import parse_duration

module.{name} = lambda *args, **options: os._exit(9)
{code}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 9, ended.stderr
