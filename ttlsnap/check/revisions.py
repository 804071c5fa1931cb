"""Contracts in the commits of a git repository, for ``check --base``."""

from __future__ import annotations

import os
import re
import subprocess
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ttlsnap.contract import Contract, TableContract, parse_contract
from ttlsnap.contract.model import MAX_BYTES
from ttlsnap.errors import UsageError
from ttlsnap.printable import shell_word

AUTO = "auto"
_HEAD = "HEAD"
_OF_PRE_COMMIT = "PRE_COMMIT_FROM_REF"
"""pre-commit sets it to ``--from-ref``, or before a push to the commit that the remote repository has."""
_OBJECT = re.compile(r"[0-9a-f]{40,64}")
_REPLACED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE")
"""Variables that name another repository than the one that has a file."""


def find_base(revision: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return ``revision``, or for ``auto`` the commit with which pre-commit compares, which is HEAD by default."""
    if revision == AUTO:
        revision = environment.get(_OF_PRE_COMMIT) or _HEAD
    if revision.startswith("-"):
        raise UsageError(f"--base {revision} is not a commit")
    return revision


@dataclass(frozen=True)
class OldContract:
    """The contract that a commit has for a file: None if the file is new.

    ``name`` is that of git, and ``command`` prints the contract. ``origin`` is the commit, or the repository if that
    has no commit yet.
    """

    name: str
    command: str
    origin: str
    contract: Contract | TableContract | None


def find_old(revision: str, file: str) -> OldContract:
    """Return the contract that a commit has for a file, in the repository of that file.

    Raise UsageError if the repository or the commit cannot be found or read, or if the file is outside of a repository.
    Only git's own answer that the commit does not have the path makes a file new.
    """
    path = os.path.realpath(file)
    if not Path(path).is_file():
        raise UsageError(f"{file} is not a file. With --base, each name is a file with a contract")
    git = _Git(os.path.dirname(path))  # noqa: PTH120 - as text
    place = os.path.relpath(path, git.root)
    if place.startswith(os.pardir + os.sep):
        raise UsageError(f"{file} is outside of the repository {git.root}, so no commit of it has this contract")
    if git.root == _root_of(os.curdir):
        in_git, folder = f"./{os.path.relpath(path, os.path.realpath(os.curdir))}", ""
    else:
        in_git, folder = place, f" -C {shell_word(git.root)}"
    name, commit = f"{revision}:{in_git}", git.find_commit(revision)
    # The command may be run after the branch has the new contract.
    command = f"git{folder} show {shell_word(f'{commit or revision}:{in_git}')}"
    blob = None if commit is None else git.find_file(commit, place, revision)
    contract = None if blob is None else parse_contract(git.read(blob, name), name)
    return OldContract(name, command, "the repository" if commit is None else revision, contract)


def _root_of(folder: str) -> str | None:
    """Return the top folder of the repository that has a folder; None if there is none."""
    try:
        return _Git(folder).root
    except UsageError:
        return None


class _Git:
    """The repository that has a folder, and its top folder ``root``."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        done = self._run("rev-parse", "--show-toplevel")
        if done.returncode:
            raise UsageError(
                f"git finds no repository with the folder {folder}: {_reason(done)}. --base compares a contract with a "
                "commit of the repository that has its file. Name a file in a repository, or compare two files: "
                "ttlsnap check OLD NEW"
            )
        self.root = os.path.realpath(os.fsdecode(done.stdout.removesuffix(b"\n")))

    def find_commit(self, revision: str) -> str | None:
        """Return the id of a commit; None for HEAD if its branch has no commit yet.

        Raise UsageError if git does not find the commit.
        """
        done = self._run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        found = done.stdout.decode(errors="replace").strip()
        if done.returncode == 0 and _OBJECT.fullmatch(found):
            return found
        if revision == _HEAD and self._has_no_commit():
            return None
        reason = f" ({_reason(done)})" if done.stderr.strip() else ""
        raise UsageError(
            f"git finds no commit {revision} in the repository {self.root}{reason}. Name another one with --base, or "
            "fetch it first: git fetch origin COMMIT"
        )

    def _has_no_commit(self) -> bool:
        """Return whether HEAD names a branch that does not exist. Any complaint of git is a damaged repository."""
        head = self._run("symbolic-ref", "--quiet", _HEAD)
        branch = os.fsdecode(head.stdout.removesuffix(b"\n"))
        if head.returncode or not branch:
            return False
        found = self._run("for-each-ref", "--format=%(refname)", branch)
        return not (found.returncode or found.stdout or found.stderr)

    def find_file(self, commit: str, place: str, revision: str) -> str | None:
        """Return the id of a file in a commit; None if the commit does not have it. Raise UsageError for a link."""
        path = Path(place)
        for part in [*reversed(path.parents[:-1]), path]:
            entry = self._call("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", str(part))
            if not entry:
                self._refuse_other_case(commit, part, revision)
                return None
            mode, kind, blob = entry.partition(b"\t")[0].decode().split(" ")
            if kind != ("blob" if part == path else "tree") or mode == "120000":
                raise UsageError(
                    f"{part} is a link, a submodule, or another kind of file in {revision}, so --base cannot compare "
                    f"{place} with it. Write the old contract to a file, and compare both: ttlsnap check OLD NEW"
                )
        return blob

    def _refuse_other_case(self, commit: str, path: Path, revision: str) -> None:
        """Raise UsageError if a commit has a path under another spelling, which the file system takes for the same."""
        if self._run("config", "--type=bool", "core.ignorecase").stdout.strip() != b"true":
            return
        folder = [] if path.parent == Path() else [f"{path.parent}/"]
        listing = self._call(
            "--literal-pathspecs", "ls-tree", "-z", "--name-only", "--full-tree", commit, "--", *folder
        )
        for name in map(os.fsdecode, filter(None, listing.split(b"\0"))):
            if _fold(name) == _fold(str(path)):
                raise UsageError(f"{revision} has {name}, and not {path}. Use the same upper and lower case as git")

    def read(self, blob: str, name: str) -> bytes:
        """Return the bytes of a contract, which has this name in messages. Raise UsageError if they are too many."""
        if int(self._call("cat-file", "-s", blob)) > MAX_BYTES:
            raise UsageError(f"{name} is too large for a contract")
        return self._call("cat-file", "blob", blob)

    def _call(self, *words: str) -> bytes:
        done = self._run(*words)
        if done.returncode or (done.stderr and not done.stdout):
            command = next(word for word in words if not word.startswith("-"))
            raise UsageError(
                f"git {command} failed in the repository {self.root}: {_reason(done)}. So --base cannot compare its "
                "contracts. Examine the repository with git fsck, or fetch the commit again: git fetch origin COMMIT"
            )
        return done.stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in _REPLACED}
        command = ["git", "-C", self._folder, *words]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment)
        except OSError as error:
            raise UsageError(f"--base needs git, which cannot be started: {error.strerror}") from error


def _fold(path: str) -> str:
    """Return a path without what file systems that ignore case ignore: also the way in which accents are encoded."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what git said about an error, in one line."""
    lines = done.stderr.decode(errors="replace").split("\n")
    return " ".join(line.strip() for line in lines if line.strip()) or f"exit code {done.returncode}"
