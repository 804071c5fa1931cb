"""One case of the fuzzer: damage a sample checkpoint, run every command on it, and check them against the promises.

As a program it is a worker: it reads a seed from each line of its input and answers with one JSON line. It prints the
name of each command before it runs, so that the reader can name a command that does not end.

**The promises.** Commands have only documented exit codes, and each error has a clear message. No command takes more
than ``SECONDS`` of a core or more memory than ``MEMORY``, and no message has more than ``MESSAGE`` characters. A
refusal changes no byte of the checkpoint, and leaves nothing in the temporary folder. It may remove the rests of a
killed run that had changed nothing. An undone run leaves only its journal. An accepted state is one that the checkpoint
had before the damage, or nothing in the checkpoint contradicts it. In the latter case it belongs to one of ``CLASSES``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import typer.main

from ttlsnap.checkpoint import open_checkpoint
from ttlsnap.checkpoint.layout import RUNS
from ttlsnap.cli.app import run
from ttlsnap.errors import TtlsnapError
from ttlsnap.storage.directory import OWN, SCRATCH
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.open import lineage_of, open_state_store

from ..judge.inputs import take_home
from ..samples import COMPACTABLE, SAMPLES, sample
from . import model, mutations, wreck

SECONDS = 20.0
MEMORY = 256 << 20
MESSAGE = 4000
ROOM = 3 << 30
"""Bytes of address space for a worker, so that a case cannot use up the machine's memory."""

NAMES = tuple(sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
CUT_OFF = ("agg-deltas-lz4-4.2", "rocksdb-4.2", "rocksdb-ids-4.2", "uncommitted-batch-4.2")
RESULTS = {"doctor": {0, 1, 3}, "check": {0, 1, 3}}
"""Exit codes with a result, for commands where 0 is not the only one."""
CLASSES = {
    "records": "records in a stream without checksums, or whose checksums are right, say something else",
    "files": "a whole file, valid in itself, stands in the place of another, or is gone with all that names it",
    "settings": "a number or a text in a log, in metadata or in a schema became another one that is possible",
    "tables": "a valid table or zip names other content, and its own checksums are right",
}
"""The damage that nothing in a checkpoint reveals. See ``docs/damage.md``."""

Digest = frozenset[tuple[Any, ...]]


def snapshot(folder: Path) -> dict[str, str]:
    """Return every name below a folder with its kind or the hash of its content. Open nothing that could block."""
    found = {}
    for above, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(above, name)
            mode = path.lstat().st_mode
            kind = stat.filemode(mode)[0]
            if stat.S_ISREG(mode):
                kind = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(mode):
                kind = f"-> {path.readlink()}"
            found[str(path.relative_to(folder))] = kind
    return found


def contents(target: Path, batch: int | None = None) -> Digest:
    """Return the logical state: every entry of every store and partition."""
    checkpoint = open_checkpoint(open_directory(str(target)), batch, tolerate_damage=True)
    state_store = open_state_store(checkpoint)
    found = set()
    for operator in checkpoint.operators:
        for store in operator.stores:
            for partition in store.partitions:
                lineage = lineage_of(checkpoint, state_store, store, partition)
                with state_store.open(checkpoint.files, lineage, None) as stored:
                    for entries in stored.batches({}):
                        rows = zip(
                            entries.keys.to_arrow().to_pylist(), entries.values.to_arrow().to_pylist(), strict=True
                        )
                        place = operator.id, store.name, partition, entries.state
                        found |= {(*place, key, value) for key, value in rows}
    return frozenset(found)


@dataclass
class Patient:
    """A checkpoint to damage: a sample, or a sample after a run of ttlsnap. ``states`` are the states it may have."""

    name: str
    folder: Path
    states: list[Digest] = field(default_factory=list)
    now: str = wreck.NOW

    @property
    def compacting(self) -> tuple[str, ...]:
        """Return the options with which compact accepts the checkpoint. Half of the entries expire."""
        if self.name not in COMPACTABLE:
            return ("--transformer", "keep", *wreck.QUICK)
        return ("--ttl", "1s", "--timestamp", COMPACTABLE[self.name], "--now", self.now, *wreck.QUICK)


_CUT = """
import os, sys
from ttlsnap.cli.app import run

moves = int(sys.argv[1])

def count(event, arguments):
    global moves
    moves -= event in ("os.rename", "os.link")
    if moves < 0:
        os._exit(9)

sys.addaudithook(count)
run(sys.argv[2:])
"""


class Ward:
    """The patients, each made on its first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._patients: dict[tuple[str, str], Patient] = {}

    def choose(self, rng: random.Random) -> Patient:
        """Return a sample: plain, after a run, after a rollback, or in the middle of an interrupted run."""
        kind = rng.choice(("sample",) * 5 + ("done", "done", "undone", "cut off"))
        name = rng.choice(NAMES if kind == "sample" else CUT_OFF)
        if kind == "cut off":
            kind += f" {rng.choice((3, 5, 7, 8, 9, 10))}"
        return self.patient(kind, name)

    def patient(self, kind: str, name: str) -> Patient:
        """Return the sample ``name`` after what ``kind`` says."""
        if (kind, name) not in self._patients:
            self._patients[kind, name] = self._make(kind, name)
        return self._patients[kind, name]

    def _make(self, kind: str, name: str) -> Patient:
        folder = self._folder / kind.replace(" ", "-") / name
        sample(name, folder.parent)
        patient = Patient(name, folder, _states(folder))
        if name in COMPACTABLE:
            patient.now = _middle(folder, name)
        if kind == "sample":
            return patient
        command = ["compact", str(folder), *patient.compacting]
        if kind.startswith("cut off"):
            subprocess.run([sys.executable, "-c", _CUT, kind.split()[2], *command], capture_output=True, check=False)
            done = sample(name, folder.parent / "done")
            assert _quietly(["compact", str(done), *patient.compacting])[0] == 0
            patient.states += _states(done)
            return patient
        assert _quietly(command)[0] == 0
        patient.states += _states(folder)
        if kind == "undone":
            assert _quietly(["rollback", str(folder), "--stopped"])[0] == 0
        return patient


def _states(folder: Path) -> list[Digest]:
    """Return the states of all batches whose files exist."""
    found = []
    for path in sorted(folder.glob("commits/[0-9]*")):
        with contextlib.suppress(TtlsnapError):
            found.append(contents(folder, int(path.name)))
    return found


def _middle(folder: Path, name: str) -> str:
    """Return the time at which half of the entries have expired."""
    options = ("--ttl", "1s", "--timestamp", COMPACTABLE[name], "--now", wreck.NOW, *wreck.QUICK)
    code, out, _ = _quietly(["compact", str(folder), *options, "--dry-run", "--format", "json"])
    assert code == 0
    (store,) = [store for store in json.loads(out)["stores"] if store["oldest"]][:1]
    oldest, newest = (_moment(store[key]) for key in ("oldest", "newest"))
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((oldest + newest) / 2))


def _moment(text: str) -> float:
    import datetime

    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _quietly(command: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command)
    return code, out.getvalue(), err.getvalue()


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


class Case:
    """One damaged checkpoint, and the promises that ttlsnap broke on it."""

    def __init__(self, seed: str, ward: Ward, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.patient = ward.choose(self.rng)
        self.target = folder / "target"
        shutil.copytree(self.patient.folder, self.target, symlinks=True)
        take_home(self.target)
        self.copy = folder / "copy"
        self.undamaged = snapshot(self.target)
        if self.rng.random() < 0.3:
            wreck.forget_checksums(self.target)
        self.done = mutations.damage(self.rng, self.target)
        self.damaged = snapshot(self.target)
        self.wrong: list[str] = []
        self.codes: dict[str, int] = {}
        self.hidden: str | None = None
        self.slowest, self.largest = 0.0, 0

    def run(self) -> None:
        """Run every command: those that only read first, then those that write, in random order."""
        scanning: tuple[str, ...] = ("--entries", "3", "--age", "--sizes")
        if self.patient.name in COMPACTABLE:
            scanning = wreck.scanning(self.patient.name)
        for command in (
            ("inspect",), ("inspect", *scanning), ("inspect", *scanning, "--batch", str(self.rng.randrange(7))),
            ("history",), ("contract",), ("check", str(SAMPLES / self.patient.name)),
        ):  # fmt: skip
            self.command(*command, reads=True)
        _, told = self.command("doctor", "--format", "json", "--parallelism", "1", reads=True)
        code, _ = self.command("compact", "--transformer", "keep", *wreck.QUICK, "--dry-run", reads=True)
        doctored = self.codes["doctor"] != 0
        if code == 0:
            self._judge_what_is_there(doctored)
        writing = ["compact", "fix", "recover", "rollback"]
        self.rng.shuffle(writing)
        for name in writing:
            if name == "compact":
                self._compact()
            elif name == "fix":
                self._fix(told)
            else:
                self.command(name, *(("--stopped",) if name == "rollback" else ()))

    def _judge_what_is_there(self, doctored: bool) -> None:
        """Check after a dry run that it accepted no other state, and that doctor finds unreadable files."""
        try:
            self.judge(contents(self.target), "the dry run")
        except TtlsnapError as error:
            if not doctored:
                self.wrong.append(f"doctor and the dry run find nothing, but {error}")

    def _fix(self, told: str) -> None:
        try:
            problems = json.loads(told)["problems"]
        except ValueError:
            return
        if codes := sorted({problem["code"] for problem in problems if problem["fixable"]}):
            self.command("doctor", "--fix", self.rng.choice(codes), "--yes", "--stopped", "--parallelism", "1")

    def _compact(self) -> None:
        in_place = self.patient.name in COMPACTABLE and self.rng.random() < 0.7
        output = () if in_place else ("--output", str(self.copy))
        before = None
        with contextlib.suppress(TtlsnapError):
            before = contents(self.target)
        code, out = self.command("compact", *self.patient.compacting, *output, "--format", "json")
        if code != 0:
            if self.copy.exists():
                self.wrong.append("a copy was left after a refusal")
            return
        totals = json.loads(out)["totals"]
        try:
            after = contents(self.target if in_place else self.copy)
        except TtlsnapError as error:
            if before is not None:
                self.wrong.append(f"the new state cannot be read: {error}")
            return
        if before is None or (self.patient.name in COMPACTABLE and not after <= before):
            self.wrong.append("the new state has entries that the old one had not")
        elif self.patient.name in COMPACTABLE and len(before) - len(after) != totals["dropped"]:
            self.wrong.append(f"{len(before)} entries became {len(after)}, and {totals['dropped']} were dropped")
        elif self.patient.name not in COMPACTABLE and before != after:
            self.wrong.append("a copy with all entries differs")

    def command(self, *command: str, reads: bool = False) -> tuple[int, str]:
        """Run one command. Return its exit code and output."""
        before = snapshot(self.target)
        print(command[0], flush=True, file=sys.__stdout__)
        Path("/proc/self/clear_refs").write_text("5")  # this resets the peak
        resident, started = _status("VmRSS"), time.process_time()
        code, out, err = _quietly([command[0], str(self.target), *command[1:]])
        seconds, memory = time.process_time() - started, _status("VmHWM") - resident
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, memory)
        label = f"{' '.join(command)} -> {code}"
        after = snapshot(self.target)
        changed = after != before if reads else is_changed(before, after, self._undone(before, after))
        self.codes[" ".join(command[:1])] = code
        results = RESULTS.get(command[0], {0})
        told = [
            (code not in {*results, 2, 3, 4, 5}, "an undocumented exit code"),
            ("Traceback" in err or "This is unexpected" in err, "an unexpected exception"),
            (code not in results and not err.strip(), "no message"),
            (code not in results and out.strip() != "", "a result beside an error"),
            (seconds > SECONDS, f"{seconds:.1f} s"),
            (memory > MEMORY, f"{memory >> 20} MiB"),
            (len(err) > MESSAGE, f"a message of {len(err)} characters"),
            ((reads or code not in results) and changed, f"changed {_differing(before, after)}"),
            (any(Path(tempfile.gettempdir()).iterdir()), "something was left in the temporary folder"),
        ]
        self.wrong += [f"{label}: {what}: {err[:300]}" for bad, what in told if bad]
        for left in Path(tempfile.gettempdir()).iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        return code, out

    def _undone(self, before: dict[str, str], after: dict[str, str]) -> set[str]:
        """Return the folders of newly undone runs. ``history`` keeps them, with a journal and no other file."""
        new = {name for name in after.keys() - before.keys() if name.startswith(RUNS)}
        journals = [name for name in new if name.endswith("/journal.json")]
        runs = {
            name.rpartition("/")[0]
            for name in journals
            if json.loads((self.target / name).read_bytes())["status"] == "undone"
        }
        files = {name for name in new if "/backup/" in name and not (self.target / name).is_dir()}
        return {run for run in runs if not any(name.startswith(run) for name in files)}

    def judge(self, state: Digest, what: str) -> None:
        """Compare an accepted state with the states that the checkpoint had."""
        if state in self.patient.states:
            return
        changed = _differing(self.undamaged, self.damaged)
        contradicted = {name: why for name in changed if (why := contradiction(self.target, name))}
        plain = [name for name in changed if not name.endswith(".crc")]
        if contradicted and all(name in contradicted for name in plain):
            self.wrong.append(f"{what} accepted another state, although {contradicted}")
        self.hidden = _class_of(plain)


def _differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def is_changed(before: dict[str, str], after: dict[str, str], undone: Collection[str]) -> bool:
    """Return whether a name that lasts is gone or differs, or any name is new, apart from newly ``undone`` runs."""
    new = {name for name in after.keys() - before.keys() if not any(_is_on_path(name, run) for run in undone)}
    return bool(new or _lasting(before).items() - after.items())


def _is_on_path(name: str, run: str) -> bool:
    return f"{name}/".startswith(f"{run}/") or run.startswith(f"{name}/")


def _lasting(found: dict[str, str]) -> dict[str, str]:
    """Return the names that no run removes: not locks, scratch files, and rests of runs that changed nothing."""
    ran = {name.rpartition("/")[0] for name in found if name.startswith(RUNS) and name.endswith("/journal.json")}
    scratch = {name for name in found if name.endswith(SCRATCH) and name.rpartition("/")[0] in {OWN, *ran}}
    return {
        name: kind
        for name, kind in found.items()
        if not (name == OWN or name.startswith((RUNS, f"{OWN}/lock.", *(f"{path}/" for path in scratch))))
        or any(name == run or name.startswith(f"{run}/") for run in ran)
        if name not in scratch
    }


def _class_of(changed: list[str]) -> str:
    kinds = {"records": (".delta", ".snapshot", ".changelog"), "tables": (".zip", ".sst")}
    for name, suffixes in kinds.items():
        if any(path.endswith(suffixes) for path in changed):
            return name
    return "settings" if any("/_" in path or path.startswith(("offsets", "commits")) for path in changed) else "files"


def contradiction(target: Path, name: str) -> str | None:
    """Return the part of a checkpoint that contradicts an existing file by plain rules, or None."""
    path = target / name
    if path.is_symlink() or not path.is_file() or name.endswith(".crc"):
        return None
    data = path.read_bytes()
    hadoop, spark = path.with_name(f".{path.name}.crc"), path.with_name(f"{path.name}.crc")
    if hadoop.is_file():
        sums = hadoop.read_bytes()
        wreck.seal(path)
        right = hadoop.read_bytes()
        hadoop.write_bytes(sums)
        if sums[:4] + sums[8:] != right[:4] + right[8:]:
            return "Hadoop's checksum"
    if spark.is_file() and path.suffix != ".crc":
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if int(json.loads(spark.read_bytes())["value"]) & 0xFFFFFFFF != google_crc32c.value(data):
                return "Spark's checksum"
    if path.suffix in (".delta", ".snapshot", ".changelog"):
        try:
            raw = model.decompress(data, mutations.codec_of(target))
            if path.suffix != ".changelog":
                list(model.read_records(raw))
        except (model.Broken, KeyError) as error:
            return f"its format ({error})"
    if path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                return "a zip's checksum" if archive.testzip() else None
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
            return "a zip's format"
    return None


def cases(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the result of the case of each seed."""
    warnings.simplefilter("ignore")
    # Typer rebuilds its parser for each command line, which takes longer than most commands.
    typer.main.get_command = functools.cache(typer.main.get_command)
    with tempfile.TemporaryDirectory(prefix="ttlsnap-fuzz-") as base:
        ward = Ward(Path(base, "ward"))
        scratch = Path(base, "tmp")
        scratch.mkdir()
        tempfile.tempdir = str(scratch)
        resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
        for line in lines:
            folder = Path(base, "case")
            folder.mkdir()
            case = Case(line.strip(), ward, folder)
            try:
                case.run()
            except Exception as error:
                case.wrong.append(f"the case itself failed: {error!r}")
            shutil.rmtree(folder)
            yield {
                "seed": line.strip(), "of": case.patient.name, "done": case.done, "codes": case.codes,
                "wrong": case.wrong, "hidden": case.hidden, "seconds": case.slowest, "memory": case.largest,
            }  # fmt: skip


if __name__ == "__main__":
    for answer in cases(iter(sys.stdin.readline, "")):
        print(json.dumps(answer), flush=True, file=sys.__stdout__)
