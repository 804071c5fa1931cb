"""Contracts in the commits of a git repository, for ``check --base``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from ttlsnap.contract import Contract, TableContract, parse_contract
from ttlsnap.contract.model import MAX_BYTES
from ttlsnap.errors import UsageError

AUTO = "auto"
_HEAD = "HEAD"
_OF_PRE_COMMIT = "PRE_COMMIT_FROM_REF"
"""pre-commit sets it to ``--from-ref``, or before a push to the commit that the remote repository has."""


def find_base(revision: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return ``revision``, or for ``auto`` the commit with which pre-commit compares, which is HEAD by default.

    Return None if the repository has no commit yet. Raise UsageError if it does not have this one.
    """
    if revision == AUTO:
        revision = environment.get(_OF_PRE_COMMIT) or _HEAD
    if revision.startswith("-"):
        raise UsageError(f"--base {revision} is not a commit")
    if _find(f"{revision}^{{commit}}") is not None:
        return revision
    if revision == _HEAD and _run("rev-parse", "--git-dir").returncode == 0:
        return None
    raise UsageError(
        f"git finds no commit {revision} in the repository of the current folder. Name another one with --base, or "
        "fetch it first: git fetch origin COMMIT"
    )


def name_in(revision: str, file: str) -> str:
    """Return the name that git has for a file in a commit."""
    return f"{revision}:./{os.path.relpath(file)}"


def load_from(name: str) -> Contract | TableContract | None:
    """Return the contract with a name of ``name_in``; None if the commit does not have this file."""
    blob = _find(name)
    if blob is None:
        return None
    if int(_git("cat-file", "-s", blob)) > MAX_BYTES:
        raise UsageError(f"{name} is too large for a contract")
    return parse_contract(_git("cat-file", "blob", blob), name)


def _find(name: str) -> str | None:
    """Return the id of the object with a name; None if there is none."""
    done = _run("rev-parse", "--verify", "--quiet", name)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def _git(*words: str) -> bytes:
    done = _run(*words)
    if done.returncode:
        raise UsageError(f"git {words[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _run(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"--base needs git, which cannot be started: {error.strerror}") from error
