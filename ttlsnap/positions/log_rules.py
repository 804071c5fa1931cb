"""What the log of a file source has recorded, and what happens to it by a ``LogEdit``.

Spark reads the files that it finds and that its log has not recorded. It leaves out files that are older by more than
the option ``maxFileAge`` than the newest one that it has recorded. To run a batch again, it reads the files that an
entry of the log has with its own number. So

* a line that is removed lets its file be read again, unless the file is too old;
* a line in an entry of another number keeps its file from being read, also if batches run again;
* a line that is older than ``maxFileAge`` has no effect any more.

Source: Spark's ``FileStreamSource`` and ``FileStreamSourceLog``.
"""

from __future__ import annotations

import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from urllib.parse import quote as quote_uri

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint.log_lines import Lines, readable, without_scheme
from ttlsnap.checkpoint.source_logs import line_of
from ttlsnap.clock import iso
from ttlsnap.errors import TtlsnapError, UsageError
from ttlsnap.positions.log_edits import Forget, LogEdit, Move, Record, Trim, require_patterns
from ttlsnap.schema.units import format_duration, micros_of
from ttlsnap.storage.open import open_for_reading
from ttlsnap.storage.uris import split_uri

# What java.net.URI leaves as it is in a path, besides letters, digits and what is not ASCII.
_LEGAL = "/_-!.~'()*,;:$&+=@"
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a log has recorded before it is changed.

    files           how many files
    newest_ms       the newest of the times, also of one that the log must not forget
    settled_ms      the newest of the times up to the entry ``needed_after``
    sample          the last path
    folder          the folder that has all these files, with a slash; of partitions, the one above them
    needed_after    the entry after which a retained batch may have to be run again
    position        the last entry that is read
    are_descending  whether the times in an entry go backwards, as with the option ``latestFirst``
    is_trimmed      whether it has lost lines by a ``Trim``
    """

    files: int
    newest_ms: int
    settled_ms: int
    sample: str
    folder: str
    needed_after: int
    position: int
    are_descending: bool
    is_trimmed: bool


Rule = Callable[[Lines], tuple[Sequence[bytes], npt.NDArray[np.bool_]]]
"""A function that returns the texts that take the place of some lines, and which of the lines it has changed."""


class LogRules(ABC):
    """What a ``LogEdit`` does to the lines of a log.

    ``is_for_earlier``: it also changes files of the log that a later ``.compact`` file has replaced. Spark does not
    read them, but ``rewind`` and ``copy`` do, to go back to an earlier batch. The change must hold there, too: the
    files that Spark reads are in part those that it read before that batch.
    """

    is_for_earlier = True
    counts_added = False
    """Whether the edit is about the files that it adds, and not about those whose lines it changes."""

    @abstractmethod
    def options(self, source: str) -> list[str]:
        """Return the options of the command that makes this change of the log of a source."""

    @abstractmethod
    def rule(self, recorded: Recorded) -> Rule:
        """Return the rule for the lines of the log. Raise UsageError if it cannot be changed so."""

    def added(self, recorded: Recorded, known: Callable[[], Iterator[Lines]]) -> list[tuple[str, int]]:
        """Return paths to record, with their times in milliseconds. ``known`` yields all lines."""
        return []

    @abstractmethod
    def describe(self, changed: int) -> str:
        """Return what it means that so many files were changed."""

    def limit_ms(self, recorded: Recorded) -> int:
        """Return the time that the log must not forget when it loses lines, because older files are not recorded."""
        return 0

    def warnings(self, recorded: Recorded, known: Callable[[], Iterator[Lines]]) -> list[str]:
        """Return what may be wrong with the files themselves, or with the arguments. ``known`` yields all lines."""
        return []

    def describe_nothing(self, recorded: Recorded) -> str | None:
        """Return why it is a mistake that nothing was changed; None if it is none."""
        if not recorded.files:
            return "the source has recorded no file"
        return f"no recorded file matches. A recorded path looks like this: {readable(recorded.sample)}"


class _Forgetting(Forget, LogRules):
    def options(self, source: str) -> list[str]:
        """See ``LogRules``."""
        return ["--forget", source, *_files(self.patterns)]

    def rule(self, recorded: Recorded) -> Rule:
        """See ``LogRules``."""
        matches = _mask_of(self.patterns)
        return lambda lines: lines.without(matches(lines))

    def describe(self, changed: int) -> str:
        """See ``LogRules``."""
        return (
            f"{quantity(changed, 'file is', 'files are')} read again, if the file still exists. Spark leaves out a "
            "file that is more than maxFileAge older than the newest recorded one. That is an option of the source, 7 "
            "days by default"
        )

    def warnings(self, recorded: Recorded, known: Callable[[], Iterator[Lines]]) -> list[str]:
        """See ``LogRules``."""
        matches, rest_ms = _mask_of(self.patterns), 0
        unmatched = {pattern: matcher(whole_patterns([pattern])) for pattern in self.patterns}
        for lines in known():
            mask = matches(lines)
            rest_ms = max(rest_ms, lines.limit_ms, int(lines.times_ms[~mask].max(initial=0)))
            names = list(compress(lines.names, mask))
            unmatched = {pattern: one for pattern, one in unmatched.items() if not any(map(one, names))}
        if unmatched.keys() == set(self.patterns):
            return []  # nothing is forgotten
        words = [f"no recorded file matches {pattern}" for pattern in unmatched]
        if 0 < rest_ms < recorded.newest_ms:
            words.append(
                f"the newest recorded file is forgotten, and the next one is of {iso(rest_ms * 1000)}. So the source "
                "also reads files that it has left out until now, because they were more than maxFileAge older than "
                "the forgotten one"
            )
        return words

    def describe_nothing(self, recorded: Recorded) -> str:
        """See ``LogRules``."""
        return f"{super().describe_nothing(recorded)}{_hint_of_folders(self.patterns)}"


class _Recording(Record, LogRules):
    counts_added = True

    def options(self, source: str) -> list[str]:
        """See ``LogRules``."""
        return ["--record", source, *_files(self.patterns)]

    def rule(self, recorded: Recorded) -> Rule:
        """See ``LogRules``."""
        matches = _mask_of(self.patterns)
        # An entry after the position is still to be read.
        return lambda lines: lines.without(matches(lines) & (lines.entries > recorded.position))

    @cached_property
    def _found(self) -> dict[str, dict[str, int]]:
        """The files that match each pattern, with their times in milliseconds."""
        return {one: _find_files(pattern) for one in self.patterns for pattern in whole_patterns([one])}

    @property
    def _times_ms(self) -> dict[str, int]:
        """The times of all these files."""
        return {name: time_ms for files in self._found.values() for name, time_ms in files.items()}

    def warnings(self, recorded: Recorded, known: Callable[[], Iterator[Lines]]) -> list[str]:
        """See ``LogRules``."""
        words = [f"no file matches {pattern}" for pattern, files in self._found.items() if not files]
        others = [name for name in self._times_ms if not name.startswith(recorded.folder)]
        if others:
            words.append(
                f"{min(others)} is not in {recorded.folder}, from which the source has read all others. Is this the "
                "right source?"
            )
        name, time_ms = max(self._times_ms.items(), key=lambda file: file[1])
        if time_ms > recorded.newest_ms:
            words.append(
                f"{name} is newer than what the source has read. So it never reads what is more than maxFileAge "
                "older than this file. That is an option of the source, 7 days by default"
            )
        return words

    def added(self, recorded: Recorded, known: Callable[[], Iterator[Lines]]) -> list[tuple[str, int]]:
        """See ``LogRules``."""
        found = self._times_ms
        if not found:
            raise UsageError(
                f"no file matches {' or '.join(self.patterns)}. The files must exist{_hint_of_folders(self.patterns)}"
            )
        for lines in known():
            for name, entry in zip(lines.names, lines.entries.tolist(), strict=True):
                if entry <= recorded.position:
                    found.pop(name, None)
        # A path in another form than Spark's would not keep the file from being read.
        known_name = readable(recorded.sample)
        prefix = recorded.sample.removesuffix(encoded(known_name))
        if not recorded.files or prefix + encoded(known_name) != recorded.sample:
            raise UsageError(
                "nothing shows in which form Spark writes the paths of this source, so no other file can be recorded"
            )
        for name in found:
            if split_uri(name)[:2] != split_uri(known_name)[:2]:
                raise UsageError(
                    f"{name}: the source has recorded paths like {known_name}. Begin the pattern as they do"
                )
        return [(prefix + encoded(name), time_ms) for name, time_ms in found.items()]

    def describe(self, changed: int) -> str:
        """See ``LogRules``."""
        return f"{quantity(changed, 'file counts', 'files count')} as read, and will never be read"

    def describe_nothing(self, recorded: Recorded) -> str | None:
        """See ``LogRules``."""
        return (
            "all files that match are recorded already: they were read, or never will be. To let the source read them "
            "again, use --forget"
        )


class _Moving(Move, LogRules):
    def options(self, source: str) -> list[str]:
        """See ``LogRules``."""
        return ["--moved", source, "--root", f"{self.old}={self.new}"]

    def rule(self, recorded: Recorded) -> Rule:
        """See ``LogRules``."""
        found = self._found or {}

        def apply(lines: Lines) -> tuple[list[bytes], npt.NDArray[np.bool_]]:
            is_moved, new_paths = self._move(lines)
            texts = list(lines.texts)
            for number, path in zip(np.flatnonzero(is_moved).tolist(), new_paths, strict=True):
                # Spark forgets old lines, and then knows a file only by its own time. A copy can have another one.
                time_ms = found.get(readable(path), int(lines.times_ms[number]))
                texts[number] = line_of(path, time_ms, int(lines.entries[number]))
            return texts, is_moved

        return apply

    def _move(self, lines: Lines) -> tuple[npt.NDArray[np.bool_], list[str]]:
        """Return which lines have files of the old folder, and the recorded paths of these in the new one."""
        old, new = (f"{_as_recorded(_folder(root))}/" for root in (self.old, self.new))
        is_moved = np.asarray(pc.starts_with(lines.paths, pattern=old), np.bool_)
        return is_moved, [new + path[len(old) :] for path in compress(lines.paths.to_pylist(), is_moved)]

    @cached_property
    def _found(self) -> dict[str, int] | None:
        """The files in the new folder with their times; None if this machine cannot list it."""
        try:
            return _find_files(f"{_folder(self.new)}/**")
        except TtlsnapError:
            return None

    def describe(self, changed: int) -> str:
        """See ``LogRules``."""
        return (
            f"{quantity(changed, 'file')} of {self.old} will count as read in {self.new}. Change the path in the "
            "query, too"
        )

    def warnings(self, recorded: Recorded, known: Callable[[], Iterator[Lines]]) -> list[str]:
        """See ``LogRules``."""
        if self._found is None:
            return [
                f"{self.new} cannot be listed from here. If the move gave the files other times, the source reads "
                "those again that were more than maxFileAge (7 days by default) older than the newest recorded file. "
                "Then repeat the command on a machine that can list the folder"
            ]
        files, missing = 0, list[str]()
        for lines in known():
            names = list(map(readable, self._move(lines)[1]))
            files += len(names)
            missing += [name for name in names if name not in self._found]
        if files and len(missing) == files:
            raise UsageError(
                f"--root {self.old}={self.new}: none of the recorded files of {self.old} is in {self.new}. Nothing was "
                "changed. Name the folder where the files are now"
            )
        words = []
        if missing:
            words.append(
                f"{quantity(len(missing), 'recorded file is', 'recorded files are')} not in {self.new}, such as "
                f"{min(missing)}"
            )
        if recorded.is_trimmed:
            words.append(
                f"the log was trimmed. If the move gave the files in {self.new} other times, the source reads those "
                "again that the log no longer has"
            )
        return words


class _Trimming(Trim, LogRules):
    is_for_earlier = False

    @cached_property
    def _older_than_us(self) -> int:
        return micros_of("older_than", self.older_than)

    @cached_property
    def _max_file_age_us(self) -> int:
        return micros_of("max_file_age", self.max_file_age)

    def options(self, source: str) -> list[str]:
        """See ``LogRules``."""
        ages = map(format_duration, (self._older_than_us, self._max_file_age_us))
        return ["--trim", source, *chain(*zip(("--older-than", "--max-file-age"), ages, strict=True))]

    def rule(self, recorded: Recorded) -> Rule:
        """See ``LogRules``."""
        if self._older_than_us < self._max_file_age_us:
            raise UsageError(
                f"--older-than {format_duration(self._older_than_us)} is less than --max-file-age "
                f"{format_duration(self._max_file_age_us)}. The source would read again the files whose age is between "
                "the two"
            )
        if recorded.are_descending:
            raise UsageError(
                "the log has newer files before older ones, as a source writes it that has the option latestFirst, and "
                f"so ignores maxFileAge, or a maxFileAge of more than {format_duration(self._max_file_age_us)}. Such a "
                "source would read the files again"
            )
        # After a rewind to the oldest retained batch, Spark compares with the newest file up to that batch.
        cutoff_ms = recorded.settled_ms - self._older_than_us // 1000
        return lambda lines: lines.without((lines.times_ms < cutoff_ms) & (lines.entries <= recorded.needed_after))

    def limit_ms(self, recorded: Recorded) -> int:
        """See ``LogRules``."""
        return recorded.settled_ms

    def describe(self, changed: int) -> str:
        """See ``LogRules``."""
        age = format_duration(self._older_than_us)
        if not changed:
            return (
                f"no file can be left out: none is more than {age} older than the newest file that was read up to the "
                "oldest retained batch"
            )
        return (
            f"{quantity(changed, 'file')} will no longer be recorded: more than {age} older than the newest file that "
            "was read up to the oldest retained batch. Spark does not read them again if the source has maxFileAge "
            f"{format_duration(self._max_file_age_us)} or less, and not latestFirst"
        )

    def describe_nothing(self, recorded: Recorded) -> None:
        """See ``LogRules``."""


def _files(patterns: Sequence[str]) -> Iterator[str]:
    return chain(*(("--files", pattern) for pattern in patterns))


def _hint_of_folders(patterns: Sequence[str]) -> str:
    """Return a hint if a pattern may be meant as a folder, or has braces."""
    if any("{" in pattern for pattern in patterns):
        return ". Braces have no meaning in a pattern: give --files for each"
    paths = [pattern for pattern in patterns if not _MAGIC.search(pattern)]
    return f". For all files in a folder: '{paths[0].rstrip('/')}/**'" if paths else ""


_RULES: Mapping[type, type[LogRules]] = {Forget: _Forgetting, Record: _Recording, Move: _Moving, Trim: _Trimming}


def rules_of(edit: LogEdit) -> LogRules:
    """Return what a change does."""
    return _RULES[type(edit)](**vars(edit))


def whole_patterns(patterns: Sequence[str]) -> list[str]:
    """Return patterns in the form in which Spark writes paths. Raise UsageError for relative ones, or for a text."""
    require_patterns(patterns)
    return [_whole(pattern) for pattern in patterns]


def _whole(path: str) -> str:
    """Return a path in the form in which Spark writes it. Raise UsageError for a relative one."""
    scheme, separator, inner = path.rpartition("://")
    if not separator and not inner.startswith(("/", "file:/")):
        raise UsageError(f"{path} is a relative path. Give the whole path, which begins with a slash, or a URI")
    if {".", ".."} & {*inner.split("/")}:
        raise UsageError(f"{path} has a folder named . or .. in it. Write the path without it")
    return scheme + separator + re.sub("/+", "/", inner)


def common_folder(paths: Iterable[str]) -> str:
    """Return the path of the folder that has all these files, with a slash; of partitions, the one above them."""
    common = os.path.commonprefix(list(paths)).rpartition("/")[0]  # noqa: RUF071 - up to a slash
    while "=" in common.rpartition("/")[2]:
        common = common.rpartition("/")[0]
    return f"{common}/"


def _folder(path: str) -> str:
    """Return the path of a folder without a slash at its end. Raise UsageError for the root of a file system."""
    folder = _whole(path)
    if not split_uri(folder)[2].strip("/"):
        raise UsageError(f"{path} is the root of a file system. Name a folder in it")
    return folder.rstrip("/")


def encoded(name: str) -> str:
    """Return a path as Java writes it in a URI."""
    return "".join(quote_uri(char, safe=_LEGAL) if char.isascii() or _is_blank(char) else char for char in name)


def _is_blank(char: str) -> bool:
    """Return whether a character is one that ``java.net.URI`` encodes although it is not ASCII."""
    return unicodedata.category(char) in ("Zs", "Zl", "Zp", "Cc")


def _as_recorded(root: str) -> str:
    """Return the beginning of the recorded paths of the files in a folder."""
    scheme, _, path = split_uri(root)
    return root if scheme and scheme != "file" else f"file://{encoded(path)}"


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a path matches one of the patterns."""
    pattern = re.compile("|".join(f"(?:{_translate(without_scheme(pattern))})" for pattern in patterns), re.DOTALL)
    return lambda name: pattern.fullmatch(name) is not None


def _mask_of(patterns: Sequence[str]) -> Callable[[Lines], npt.NDArray[np.bool_]]:
    """Return a function that says which of some lines have paths that match one of the patterns."""
    matches = matcher(whole_patterns(patterns))
    return lambda lines: np.fromiter(map(matches, lines.names), np.bool_, len(lines.names))


def _translate(pattern: str) -> str:
    parts = re.split(r"(/\*\*/|/\*\*$|\*|\?|\[!?[^]]+\])", pattern)
    return "".join(_SYMBOLS.get(part) or _translate_part(part) for part in parts)


_SYMBOLS = {"/**/": "/(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}


def _translate_part(part: str) -> str:
    if not part.startswith("[") or len(part) < 3:
        return re.escape(part)
    # As in Hadoop's globs, ! and ^ at the beginning mean every other letter.
    is_negated = part[1] in "!^"
    letters = re.sub(r"([\\^\[&~|])", r"\\\1", part[1 + is_negated : -1])
    return f"[^/{letters}]" if is_negated else f"[{letters}]"


def _find_files(pattern: str) -> dict[str, int]:
    """Return the files that match a pattern, by their paths, with their times in milliseconds."""
    fixed, separator, _ = pattern.partition(match[0]) if (match := _MAGIC.search(pattern)) else (pattern, "", "")
    folder, _, name = fixed.rpartition("/")
    files = open_for_reading(folder or "/")
    if not separator:
        info = files.stat(name)
        return {} if info is None or info.is_dir else {without_scheme(pattern): info.mtime_ns // 1_000_000}
    matches = matcher([pattern])
    found = ((without_scheme(f"{folder}/{path}"), info) for path, info in files.list_tree("").items())
    return {name: info.mtime_ns // 1_000_000 for name, info in found if matches(name)}
