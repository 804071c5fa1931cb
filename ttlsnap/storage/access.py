"""The owner, group and mode of files.

A file that ttlsnap writes gets those of the file that it replaces, or of the files beside it. So the query can resume
as the user that it runs as. A copy elsewhere is never more readable than its source.

Only root may give files to another user. For anyone else the files keep their owner, and the permissions of their group
are limited to those of all other users.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


_NOT_ALLOWED = (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Access:
    """The owner, group and mode of a file or folder.

    ``owner`` and ``group`` are numbers on a local file system, and names in HDFS. ``mode`` has the permission bits.
    """

    owner: int | str
    group: int | str
    mode: int

    @property
    def owner_name(self) -> str:
        if isinstance(self.owner, str):
            return self.owner
        try:
            return pwd.getpwuid(self.owner).pw_name
        except KeyError:
            return f"user {self.owner}"

    @property
    def group_name(self) -> str:
        if isinstance(self.group, str):
            return self.group
        try:
            return grp.getgrgid(self.group).gr_name
        except KeyError:
            return str(self.group)


def may_reach(access: Access, folder_accesses: Iterable[Access]) -> Access:
    """Return ``access`` without the permissions of users whom one of the folders above it excludes."""
    mode = access.mode
    for folder in folder_accesses:
        if not folder.mode & 0o001:
            mode &= ~0o007
        if not folder.mode & (0o010 if folder.group == access.group else 0o001):
            mode &= ~0o070
    return replace(access, mode=mode)


def without_group(mode: int) -> int:
    """Return the mode for a file that has another group than intended.

    The group's permissions are limited to those of all other users.
    """
    return mode & (~0o070 | (mode & 0o007) << 3)


def read_access(path: str | Path) -> Access:
    """Return the access of a local file or folder."""
    status = os.stat(path)  # noqa: PTH116 - as text, and fast
    kept_bits = 0o2777 if stat.S_ISDIR(status.st_mode) else 0o777
    return Access(status.st_uid, status.st_gid, status.st_mode & kept_bits)


def write_access(path: str, access: Access) -> bool:
    """Set the access of a local file or folder. Return what ``Directory.set_access`` returns."""
    current_access, mode = read_access(path), access.mode
    is_owner_given = (current_access.owner, current_access.group) == (access.owner, access.group) or _try_chown(
        path, access.owner, access.group
    )
    if not is_owner_given and current_access.group != access.group and not _try_chown(path, -1, access.group):
        mode = without_group(mode)
    if current_access.mode != mode:
        os.chmod(path, mode)  # noqa: PTH101 - as text, and fast
    return is_owner_given


def open_private(path: str, flags: int) -> int:
    """Open a file as ``opener`` of ``open``: only its owner may use a new file."""
    return os.open(path, flags, PRIVATE_FILE)


def own_access(mode: int) -> Access:
    """Return the access of a file or folder that this process makes with ``mode``."""
    return Access(os.geteuid(), os.getegid(), mode)


def umask() -> int:
    """Return this process's umask. Linux says it; elsewhere it is changed for a moment, to the strictest one."""
    status = Path("/proc/self/status")
    if not status.exists():
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
    words = status.read_text().split()
    return int(words[words.index("Umask:") + 1], 8)


def _try_chown(path: str, owner: int | str, group: int | str) -> bool:
    """Set owner and group. Return False if this user may not, or for names, which belong to another file system."""
    if isinstance(owner, str) or isinstance(group, str):
        return False
    try:
        os.chown(path, owner, group)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
        return False
    return True
