"""Recognition of checkpoints, with hints about folders that are not checkpoints."""

from __future__ import annotations

from pathlib import Path

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import fenced, is_copy_fence, read_logs
from ttlsnap.checkpoint.starting import describe_missing_commits, newest_version
from ttlsnap.errors import NotACheckpointError
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.open import open_directory
from ttlsnap.suggestions import did_you_mean

_DELTA_LOG = "_delta_log"
_MOST_LOOKED_AT = 10_000
_MOST_NAMED = 3
_MOST_LEVELS = 5
"""The levels of folders in a checkpoint: ``state/0/1/left-keyToNumValues/1.delta``."""


def require_checkpoint(files: Directory, *folders: str) -> None:
    """Raise NotACheckpointError if the directory lacks one of ``folders``, by default those of a stateful query.

    Raise it also for a folder in which ttlsnap keeps backups or unfinished copies, and FencedError for the place of a
    copy that is not complete.
    """
    folders = folders or (layout.OFFSETS, layout.STATE)
    own_folder = layout.folder_of_ttlsnap(files.root)
    if own_folder is not None:
        parent, _, name = own_folder.rpartition("/")
        raise NotACheckpointError(
            f"{files.root} is not the checkpoint of a query, but "
            + (f"a backup of {parent}. Name that checkpoint" if name == OWN else f"an unfinished copy in {own_folder}")
        )
    if files.stat("") is None:
        raise NotACheckpointError(f"{files.root} does not exist{_hint_beside(files)}")
    missing_folders = [name for name in folders if files.stat(name) is None]
    if missing_folders and is_copy_fence(fence := read_logs(files).fence):
        raise fenced(files, fence)
    if missing_folders == [layout.OFFSETS] and newest_version(files):
        raise NotACheckpointError(describe_missing_commits(files, ()))
    if missing_folders:
        raise NotACheckpointError(
            f"{files.root} is not the checkpoint of a stateful query: it has no {' and no '.join(missing_folders)} "
            f"folder{_hint(files)}"
        )


def find_checkpoints(files: Directory) -> list[str]:
    """Return the names of the folders in a directory that are checkpoints of stateful queries."""
    names = [info.name for info in files.list("")[:_MOST_LOOKED_AT] if info.is_dir]

    def is_checkpoint(name: str) -> bool:
        return all(files.stat(f"{name}/{folder}") is not None for folder in (layout.OFFSETS, layout.STATE))

    return [name for name, has_folders in zip(names, each(files, is_checkpoint, names), strict=True) if has_folders]


def find_owner(path: Path) -> Path | None:
    """Return the checkpoint or Delta table inside which a local path is, even if nothing is there yet."""
    for folder in path.resolve().parents:
        exist_beside = [(folder / name).exists() for name in (layout.COMMITS, layout.STATE, layout.METADATA)]
        if (folder / _DELTA_LOG).is_dir() or ((folder / layout.OFFSETS).is_dir() and any(exist_beside)):
            return folder
    return None


def _hint_beside(files: Directory) -> str:
    """Return a hint about a directory that does not exist: the checkpoint around it, or names that are like its own."""
    hint = _hint_around(files)
    if hint or "://" in files.root:  # a listing of a remote directory may be long
        return hint
    path = Path(files.root)
    names = [folder.name for folder in path.parent.iterdir() if folder.is_dir()] if path.parent.is_dir() else []
    return did_you_mean(path.name, sorted(names)[:_MOST_LOOKED_AT])


def _hint_around(files: Directory) -> str:
    """Return a hint about a path within a checkpoint, such as ``ck/state/0``: the checkpoint."""
    folder = files.root.rstrip("/")
    for _ in range(_MOST_LEVELS):
        folder = folder.rpartition("/")[0]
        if not folder.rpartition("/")[2]:
            return ""
        around = open_directory(folder)
        if all(around.stat(name) is not None for name in (layout.OFFSETS, layout.STATE)):
            return f". Name the checkpoint that it belongs to: {folder}"
    return ""


def _hint(files: Directory) -> str:
    """Return a hint: what the directory may be, and which path to name instead."""
    if files.stat(_DELTA_LOG) is not None:
        return ". It is a Delta table; inspect, compact, maintain, history, rollback and check work on tables"
    if hint := _hint_around(files):
        return hint
    checkpoints = find_checkpoints(files)
    if checkpoints:
        more_text = f" and {len(checkpoints) - _MOST_NAMED} more" if len(checkpoints) > _MOST_NAMED else ""
        return f". It contains checkpoints: {', '.join(checkpoints[:_MOST_NAMED])}{more_text}. Name one of them"
    return ". A checkpoint is the folder that the query has as its checkpointLocation"
