"""The targets of a policy: the places that its paths and globs match, and the folders of their backups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob, has_magic

from ttlsnap.archives.receivers import refuse_within
from ttlsnap.checkpoint.layout import folder_of_ttlsnap
from ttlsnap.delta import is_table
from ttlsnap.errors import TtlsnapError, UsageError
from ttlsnap.maintenance.policy import Policy, TargetPolicy, from_folder
from ttlsnap.quoting import quotes_nothing
from ttlsnap.storage.open import open_directory
from ttlsnap.storage.uris import OBJECT_STORES, is_local


@dataclass(frozen=True)
class MatchedTarget:
    """A place that a policy's target matches; ``trouble`` says why a glob matches nothing."""

    path: str
    policy: TargetPolicy
    trouble: TtlsnapError | None = None


_BATCHES = (*range(10), 10, 42, 99, 100, 999, 1000, 12_345, 123_456, 1_234_567)
"""Batches whose backups no glob of a policy may match, as examples of all."""


def targets_of(policy: Policy) -> list[MatchedTarget]:
    """Return the places of a policy, each once: if several targets match a place, the first one applies.

    Raise UsageError if the archive of dropped entries is within one of them.
    """
    return list(_targets_by_place(policy).values())


def _targets_by_place(policy: Policy) -> dict[str, MatchedTarget]:
    target_of_place: dict[str, MatchedTarget] = {}
    for target_policy in policy.targets:
        for target in _targets(policy.folder, target_policy):
            target_of_place.setdefault(place_of(target.path), target)
    archives = {
        archive for target in target_of_place.values() if (archive := target.policy.options.expired_to) is not None
    }
    for archive in archives:
        refuse_within(archive, *(target.path for target in target_of_place.values()))
    _refuse_backups_as_targets(policy, target_of_place)
    return target_of_place


def _refuse_backups_as_targets(policy: Policy, target_of_place: Mapping[str, MatchedTarget]) -> None:
    """Raise UsageError if two targets have their backups in one folder, or if a target is, or finds, a backup."""
    target_of_folder: dict[str, MatchedTarget] = {}
    places_of_backups: dict[str, list[str]] = {}
    for target in target_of_place.values():
        if target.policy.backup is None or target.trouble is not None:
            continue
        folder = target.policy.backup.folder_of(target.path)
        if (other := target_of_folder.setdefault(place_of(folder), target)) is not target:
            raise UsageError(
                f"{policy.path}: the backups of {other.path} and {target.path} would be in the same folder, {folder}. "
                "Name a folder for each, for example with {name} in backup, to"
            )
        # The folder may be a link, or have another scheme. The names in it are only those of batches.
        first, *others = (target.policy.backup.place_of(target.path, batch) for batch in _BATCHES)
        real_folder = place_of(first).rpartition("/")[0]
        names = [place.rpartition("/")[2] for place in others]
        places_of_backups[target.path] = [*_with_parents(place_of(first)), *(f"{real_folder}/{name}" for name in names)]
    pairs = [(place, folder) for place in target_of_place for folder in _with_parents(place)]
    pairs += [(place, folder) for folder in target_of_folder for place in _with_parents(folder)]
    for place, folder in pairs:
        if place in target_of_place and folder in target_of_folder:
            raise UsageError(
                f"{policy.path}: {place} is a target, so {folder} cannot have the backups of "
                f"{target_of_folder[folder].path}. Name another folder in backup, to"
            )
    for path, names in places_of_backups.items():
        for other_policy in policy.targets:
            found = next((name for name in names if _would_find(policy.folder, other_policy, name)), None)
            if found is not None:
                raise UsageError(
                    f"{policy.path}: {other_policy.path} of {other_policy.name} also matches {found}, in which the "
                    f"backups of {path} are. Name another folder in backup, to, or exclude this one"
                )


def _with_parents(place: str) -> list[str]:
    """Return a place, and the folders above it."""
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]


def _would_find(folder: str, policy: TargetPolicy, name: str) -> bool:
    """Return whether the glob of a target matches a folder, once this exists."""

    def matches(pattern: str) -> bool:
        return _matches(name.split("/"), _absolute(folder, pattern).rstrip("/").split("/"))

    return has_magic(policy.path) and matches(policy.path) and not any(map(matches, policy.exclude))


def _matches(parts: Sequence[str], pattern_parts: Sequence[str]) -> bool:
    if not parts or not pattern_parts:
        return not parts and (not pattern_parts or list(pattern_parts) == ["**"])
    if pattern_parts[0] == "**":
        return _matches(parts, pattern_parts[1:]) or _matches(parts[1:], pattern_parts)
    return fnmatchcase(parts[0], pattern_parts[0]) and _matches(parts[1:], pattern_parts[1:])


def target_at(policy: Policy, path: str) -> MatchedTarget:
    """Return the target of a policy at ``path``. Raise UsageError if there is none."""
    target = _targets_by_place(policy).get(place_of(path))
    if target is None or target.trouble is not None:
        raise UsageError(f"no target of {policy.path} matches {path}")
    return target


def have_tables(targets: Sequence[MatchedTarget]) -> bool:
    """Return whether one of the targets is a Delta table."""
    for target in targets:
        with contextlib.suppress(TtlsnapError):  # its own result will say so
            if is_table(open_directory(target.path)):
                return True
    return False


def _targets(folder: str, policy: TargetPolicy) -> Iterator[MatchedTarget]:
    path = _absolute(folder, policy.path)
    # A path with brackets may exist under exactly that name.
    if not has_magic(policy.path) or (is_local(path) and os.path.exists(path)):  # noqa: PTH110 - also too long a name
        yield MatchedTarget(path, policy)
        return
    try:
        excluded_places = {
            place_of(excluded_folder)
            for pattern in policy.exclude
            for excluded_folder in _find_folders(from_folder(folder, pattern))
        }
        names = [name for name in _find_folders(path) if place_of(name) not in excluded_places]
        if not names:  # probably a mistake in the policy
            or_excluded = ", or excludes all that it finds" if policy.exclude else ""
            raise UsageError(quotes_nothing(f"{path} matches no folder{or_excluded}"))
    except TtlsnapError as error:
        yield MatchedTarget(path, policy, error)
        return
    yield from (MatchedTarget(name, policy) for name in names)


def place_of(path: str) -> str:
    """Return the canonical form of a place, without links and alternative schemes of a store."""
    try:
        root = open_directory(path).root
    except TtlsnapError:  # its own result will say so
        return path
    scheme, separator, path_in_host = root.partition("://")
    return f"{OBJECT_STORES.get(scheme, scheme)}{separator}{path_in_host}"


def _find_folders(pattern: str) -> list[str]:
    """Return the folders that a glob matches, without ttlsnap's own, whose backups can look like checkpoints."""
    return [name for name in _match_folders(pattern) if folder_of_ttlsnap(name) is None]


def _match_folders(pattern: str) -> list[str]:
    if is_local(pattern):
        path = open_directory(pattern).root if "://" in pattern else pattern
        names = glob(path, recursive=True)  # noqa: PTH207 - text
        return sorted(os.path.abspath(name) for name in names if os.path.isdir(name))  # noqa: PTH100, PTH112 - text
    scheme, _, path_text = pattern.partition("://")
    path_parts = path_text.strip("/").split("/")
    if "**" in path_parts:
        raise UsageError(f"{pattern}: ** works on this machine's file systems only")
    fixed_count = next(
        (number for number, name_pattern in enumerate(path_parts) if has_magic(name_pattern)), len(path_parts)
    )
    fixed_folder = f"{scheme}://{'/'.join(path_parts[:fixed_count])}"
    files, matched_paths = open_directory(fixed_folder), [""]
    for name_pattern in path_parts[fixed_count:]:
        matched_paths = [
            f"{path}/{info.name}".lstrip("/")
            for path in matched_paths
            for info in files.list(path)
            # As in a shell, only a pattern with a leading dot matches a name with one.
            if info.is_dir
            and fnmatchcase(info.name, name_pattern)
            and info.name.startswith(".") <= name_pattern.startswith(".")
        ]
    return [f"{fixed_folder}/{path}".rstrip("/") for path in matched_paths]


def _absolute(folder: str, path: str) -> str:
    """Return a path of a policy as an absolute one, without following links. A URI stays as it is."""
    path = from_folder(folder, path)
    return os.path.abspath(path) if is_local(path) and "://" not in path else path  # noqa: PTH100
