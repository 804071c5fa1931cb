"""The owner, group and mode of copies, and what else their queries need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ttlsnap.checkpoint.own_paths import find_schema_logs
from ttlsnap.storage.access import PRIVATE_FILE, PRIVATE_FOLDER, Access, own_access, read_access, umask
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.new_access import access_of_new
from ttlsnap.storage.uris import is_local


def begin_copy(source: Directory, target: Directory) -> None:
    """Create the folder of the copy for this user alone; missing folders above it get the source's access."""
    missing: list[Path] = []
    if isinstance(target, LocalDirectory):
        missing = [folder for folder in Path(target.root).parents if not folder.exists()]
    target.mkdirs("")
    if missing:
        access = _access_of_root(source)
        for folder in missing:
            LocalDirectory(str(folder)).set_access("", access)
    target.set_access("", own_access(PRIVATE_FOLDER))


def share_copy(source: Directory, target: Directory) -> bool:
    """Give a complete copy on a disk the access of the source. Return False if this user may not give it away.

    The copy is never more readable than its source, whatever the folders above it allow. Its owner may write to it,
    even if the source is read-only, as backups often are. If the source has no owners, the copy is like other files of
    this user.
    """
    if not isinstance(target, LocalDirectory):
        return True
    is_shared = _share_below(source, target, "")
    return target.set_access("", _for_owner(_access_of_root(source), PRIVATE_FOLDER)) and is_shared


def _for_owner(access: Access, mode: int) -> Access:
    """Return the access with the permissions ``mode`` besides."""
    return replace(access, mode=access.mode | mode)


def _share_below(source: Directory, staging: LocalDirectory, path: str) -> bool:
    is_shared = True
    for info in staging.list(path):
        inner_path = f"{path}/{info.name}" if path else info.name
        if info.is_dir:
            access = source.access(inner_path) or source.access("")
            is_shared &= _share_below(source, staging, inner_path)
        else:
            access = access_of_new(source, inner_path)
        access = access or own_access((0o777 if info.is_dir else 0o666) & ~umask())
        is_shared &= staging.set_access(inner_path, _for_owner(access, PRIVATE_FOLDER if info.is_dir else PRIVATE_FILE))
    return is_shared


def describe_copy(source: Directory, copy: Directory, *, given: bool) -> tuple[str, ...]:
    """Return what the query of a copy needs before it starts. ``given`` is the result of ``share_copy``."""
    warnings = [] if given or not is_local(source.root) else [_describe_owner(source.root, copy.root)]
    for folder in find_schema_logs(copy):
        log_location = f"{copy.root}/{folder}".rpartition("/")[0]
        warnings.append(
            f"{copy.root}/{folder} is the schema log of a Delta source. Start the query with its new place: "
            f'.option("schemaTrackingLocation", "{log_location}")'
        )
    return tuple(warnings)


def _describe_owner(source: str, copy: str) -> str:
    """Return a warning that the copy belongs to this user, and the command that gives it to the source's owner."""
    owner, user = read_access(source).owner_name, own_access(0).owner_name
    return (
        f"{copy} belongs to {user}, who cannot give files to the owner of the source ({owner}). Before a query of "
        f"{owner} uses it, run as root: chown -R --reference={source} {copy}"
    )


def _access_of_root(source: Directory) -> Access:
    return source.effective_access("") or own_access(0o777 & ~umask())
