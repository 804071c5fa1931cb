"""Who owns a file, and who may use it.

What ttlsnap writes in the place of a file, or beside others, gets the owner, group and mode of these, so that the query
can go on as the user that it runs as. A copy elsewhere is never more readable than its source. Only root may give files
away; whoever may not keeps them, and then their group may do no more with them than everybody.
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
from typing import TYPE_CHECKING

from ttlsnap.errors import RefusedError

if TYPE_CHECKING:
    from ttlsnap.filesystem import Directory, FileInfo

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
_NOT_ALLOWED = (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a file or folder.

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


def access_of_new(files: Directory, path: str) -> Access | None:
    """Return the access that a new file gets: that of the file it replaces, or of the newest file beside it.

    Where there is none, the folder decides. None where the storage does not record it.
    """
    if files.access("") is None:
        return None
    if files.stat(path) is not None:
        return files.access(path)
    folder = path.rpartition("/")[0]
    beside = [info for info in files.list(folder) if not info.is_dir and not info.name.endswith(".tmp")]
    if (newest := _newest(files, folder, beside)) is not None:
        return files.access(newest)
    if folder and files.stat(folder) is None:
        return access_of_new(files, folder)
    found = files.access(folder)
    return None if found is None else replace(found, mode=found.mode & 0o666)


def access_of_new_folder(files: Directory, path: str) -> Access | None:
    """Return the access that a new folder gets: that of the folder it is in, or of the newest beside it at the top."""
    parent = path.rpartition("/")[0]
    beside = [info for info in files.list("") if info.is_dir] if not parent else []
    newest = _newest(files, "", beside)
    return files.access(parent if newest is None else newest)


def _newest(files: Directory, folder: str, infos: Iterable[FileInfo]) -> str | None:
    """Return the path of the newest that is not a symbolic link, whose access is that of something else."""
    paths = (_inner(folder, info) for info in sorted(infos, key=_by_time, reverse=True))
    return next((path for path in paths if not _is_link(files, path)), None)


def _is_link(files: Directory, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    try:
        return files.real_path(path) != f"{files.real_path(folder)}/{name}"
    except RefusedError:  # it leads outside
        return True


def may_reach(access: Access, above: Iterable[Access]) -> Access:
    """Return ``access`` without those whom one of the folders ``above`` keeps out."""
    mode = access.mode
    for folder in above:
        if not folder.mode & 0o001:
            mode &= ~0o007
        if not folder.mode & (0o010 if folder.group == access.group else 0o001):
            mode &= ~0o070
    return replace(access, mode=mode)


def without_group(mode: int) -> int:
    """Return a mode whose group may do no more than everybody: it is not the group that was meant."""
    return mode & (~0o070 | (mode & 0o007) << 3)


def read_access(path: str | Path) -> Access:
    """Return the access of a local file or folder."""
    found = Path(path).stat()
    kept = 0o2777 if stat.S_ISDIR(found.st_mode) else 0o777
    return Access(found.st_uid, found.st_gid, found.st_mode & kept)


def write_access(path: str, access: Access) -> bool:
    """Set the access of a local file or folder, see ``Directory.set_access``."""
    now, mode = read_access(path), access.mode
    given = (now.owner, now.group) == (access.owner, access.group) or _give(path, access.owner, access.group)
    if not given and now.group != access.group and not _give(path, -1, access.group):
        mode = without_group(mode)
    if now.mode != mode:
        Path(path).chmod(mode)
    return given


def own_access(mode: int) -> Access:
    """Return the access of what this process makes, with a mode."""
    return Access(os.geteuid(), os.getegid(), mode)


def umask() -> int:
    """Return this process's umask, without changing it."""
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("Umask:") + 1], 8)


def _give(path: str, owner: int | str, group: int | str) -> bool:
    """Return whether this user may do that; names are those of another file system."""
    if isinstance(owner, str) or isinstance(group, str):
        return False
    try:
        os.chown(path, owner, group)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
        return False
    return True


def _by_time(info: FileInfo) -> tuple[int, str]:
    return info.mtime_ns, info.name


def _inner(folder: str, info: FileInfo) -> str:
    return f"{folder}/{info.name}" if folder else info.name
