"""Refuse before any work what would fail in the middle of publishing: files that cannot be moved, or given away.

Publishing renames files within the checkpoint. A renaming does not follow a symbolic link, and reaches no other
mount. What is new gets the owner, group and mode of what it replaces (see ``ttlsnap.access``), which only root, or that
owner, can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from ttlsnap.access import Access, access_of_new, own_access
from ttlsnap.checkpoint import layout
from ttlsnap.errors import RefusedError
from ttlsnap.filesystem import OWN, Directory, each, scratch_name
from ttlsnap.plan import Plan


def refuse_unmovable(plan: Plan) -> None:
    """Raise RefusedError when a file that the plan may move cannot be moved."""
    version = plan.checkpoint.version
    paths = [layout.offset_file(plan.checkpoint.logs.offsets[-1] + 1)]
    paths += [path for path in plan.listing if layout.outlives(path, version)]
    for store in plan.stores:
        for partition in store.partitions if store.touched else ():
            paths += [partition.lineage.new_snapshot, *(file.path for file in partition.lineage.shared)]
    refuse_immovable(plan.checkpoint.files, [name for path in paths for name in (path, *layout.all_checksums(path))])


def refuse_immovable(files: Directory, paths: Sequence[str]) -> None:
    """Raise RefusedError when one of these files is a symbolic link, or on another mount than ttlsnap's own folder."""
    links = each(files, files.is_link, paths)
    link = next((path for path, is_link in zip(paths, links, strict=True) if is_link), None)
    if link is not None:
        raise RefusedError(
            f"{files.root}/{link} is a symbolic link, which ttlsnap would have to move. Nothing was changed. Put the "
            "file that it leads to in its place, or write a new checkpoint with --output"
        )
    folders = sorted({path.rpartition("/")[0] for path in paths})
    here = files.mount(OWN)
    other = next(
        (f for f, mount in zip(folders, each(files, files.mount, folders), strict=True) if mount != here), None
    )
    if other is not None:
        raise RefusedError(
            f"{files.root}/{other} is on another mount than {files.root}/{OWN}, and files cannot be renamed from one "
            "to the other. Nothing was changed. Unmount it and put its files into the checkpoint, or write a new "
            "checkpoint with --output"
        )


def new_files(plan: Plan) -> list[str]:
    """Return a path for every folder where the plan may put new files."""
    stores = [store for store in plan.stores if store.touched]
    new = [partition.lineage.new_snapshot for store in stores for partition in store.partitions]
    return [*new, layout.offset_file(plan.checkpoint.logs.offsets[-1] + 1)]


def refuse_foreign(files: Directory, paths: Sequence[str]) -> None:
    """Raise RefusedError when this user cannot give new files at ``paths`` the owner and group of what they replace.

    That is tried with a file in ttlsnap's own folder: only the file system knows what a user may do.
    """
    found = zip(paths, each(files, lambda path: access_of_new(files, path), paths), strict=True)
    me = own_access(0)
    wanted = {(access.owner, access.group): (path, access) for path, access in found if access is not None}
    wanted.pop((me.owner, me.group), None)
    if not wanted:
        return
    probe = scratch_name(f"{OWN}/.access")
    files.replace(probe, b"")
    try:
        for path, access in wanted.values():
            if not files.set_access(probe, access):
                raise _refusal(files, path, access)
    finally:
        files.remove(probe)


def hand_over(files: Directory, path: str, target: str) -> None:
    """Give a new file, which will be ``target``, the access of what it replaces; raises RefusedError."""
    access = access_of_new(files, target)
    if access is not None and not files.set_access(path, access):
        raise _refusal(files, target, access)


def _refusal(files: Directory, path: str, access: Access) -> RefusedError:
    return RefusedError(
        f"the files in {files.root}/{PurePosixPath(path).parent} belong to {access.owner_name} (group "
        f"{access.group_name}), and this process may not give new files to them. The query could not use these. "
        f"Nothing was changed. Run ttlsnap as {access.owner_name}, or as root (in HDFS, as the superuser)"
    )
