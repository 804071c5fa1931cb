"""Random damage to random files of random samples, for as long as there is time.

``TTLSNAP_FUZZ_SECONDS`` says how long (10), ``TTLSNAP_FUZZ_SEED`` repeats the case that a failure names.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from ..samples import COMPACTABLE, bytes_of, sample
from . import wreck
from .conftest import Ttlsnap

SECONDS = float(os.environ.get("TTLSNAP_FUZZ_SECONDS", "10"))
SEED = os.environ.get("TTLSNAP_FUZZ_SEED")
NAMES = (*COMPACTABLE, "join-4.2", "no-schema-3.0")
MEMORY = 512 << 20
CPU_SECONDS = 10.0


def _files(target: Path) -> list[Path]:
    return sorted(path for path in target.rglob("*") if path.is_file() and "sources" not in path.parts)


def _replace(path: Path, start: int, size: int, data: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + data + whole[start + size :])


def _place(rng: random.Random, path: Path) -> int:
    return rng.randrange(path.stat().st_size + 1)


def flip(rng: random.Random, target: Path) -> None:
    path = rng.choice(_files(target))
    data = path.read_bytes()
    for _ in range(rng.choice((1, 1, 1, 8))):
        data = wreck.flipped(data, rng.randrange(8 * len(data))) if data else data
    path.write_bytes(data)


def insert(rng: random.Random, target: Path) -> None:
    path = rng.choice(_files(target))
    _replace(path, _place(rng, path), 0, rng.choice((b"\0", b"\xff" * 4, b"9" * 30, b"{", rng.randbytes(9))))


def cut_out(rng: random.Random, target: Path) -> None:
    path = rng.choice(_files(target))
    _replace(path, _place(rng, path), rng.choice((1, 4, 8, 100, 1 << 20)), b"")


def overwrite(rng: random.Random, target: Path) -> None:
    path = rng.choice(_files(target))
    _replace(path, _place(rng, path), 8, rng.choice((rng.randbytes(8), b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\0" * 8)))


def swap_blocks(rng: random.Random, target: Path) -> None:
    path = rng.choice(_files(target))
    data = path.read_bytes()
    one, two = sorted((_place(rng, path), _place(rng, path)))
    path.write_bytes(data[two:] + data[one:two] + data[:one])


def copy_over(rng: random.Random, target: Path) -> None:
    source, place = rng.choice(_files(target)), rng.choice(_files(target))
    if source != place:
        shutil.copy(source, place)


def copy_beside(rng: random.Random, target: Path) -> None:
    source, place = rng.choice(_files(target)), rng.choice(_files(target))
    name = rng.choice((source.name, f"{rng.randrange(12)}", f"{rng.randrange(12)}.{rng.choice(('delta', 'snapshot'))}"))
    if source != place.with_name(name) and not place.with_name(name).is_dir():
        shutil.copy(source, place.with_name(name))


def splice(rng: random.Random, target: Path) -> None:
    one, two = rng.choice(_files(target)), rng.choice(_files(target))
    one.write_bytes(one.read_bytes()[: _place(rng, one)] + two.read_bytes()[_place(rng, two) :])


def delete(rng: random.Random, target: Path) -> None:
    rng.choice(_files(target)).unlink()


def delete_folder(rng: random.Random, target: Path) -> None:
    folders = [path for path in target.rglob("*") if path.is_dir()]
    shutil.rmtree(rng.choice(folders))


def folder_for_file(rng: random.Random, target: Path) -> None:
    path = rng.choice(_files(target))
    path.unlink()
    path.mkdir()


def change_a_number(rng: random.Random, target: Path) -> None:
    texts = [path for path in _files(target) if path.parent.name in ("offsets", "commits", "_metadata", target.name)]
    path = rng.choice(texts or _files(target))
    data = path.read_bytes()
    digits = [i for i in range(len(data)) if data[i : i + 1].isdigit()]
    if digits:
        _replace(path, rng.choice(digits), 1, rng.choice((b"0", b"-1", b"9" * 18, b"1e400", b"null", b'"2"', b"[]")))


MUTATIONS: list[Callable[[random.Random, Path], None]] = [
    flip, flip, insert, cut_out, overwrite, swap_blocks, copy_over, copy_beside, splice, delete, delete_folder,
    folder_for_file, change_a_number, change_a_number,
]  # fmt: skip


def _command(rng: random.Random, name: str, target: Path, copy: Path) -> list[str]:
    compacting = wreck.compacting(name) if name in COMPACTABLE else wreck.QUICK
    scanning = wreck.scanning(name) if name in COMPACTABLE else ("--entries", "3", "--age")
    commands = [
        ["compact", target, *compacting],
        ["compact", target, *compacting],
        ["compact", target, *compacting, "--dry-run"],
        ["compact", target, *compacting, "--output", copy],
        ["inspect", target],
        ["inspect", target, *scanning],
        ["inspect", target, *scanning, "--batch", rng.randrange(7)],
    ]
    return [*map(str, rng.choice(commands)), "--format", rng.choice(("text", "json"))]


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _one_case(ttlsnap: Ttlsnap, seed: str, folder: Path) -> bool:
    """One case from ``seed``; whether the command took it for damage."""
    rng = random.Random(seed)
    name = rng.choice(NAMES)
    target, copy = sample(name, folder), folder / "copy"
    if rng.random() < 0.6:
        wreck.forget_checksums(target)
    done = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        mutation = rng.choice(MUTATIONS)
        done.append(mutation.__name__)
        if _files(target):
            mutation(rng, target)
    command = _command(rng, name, target, copy)
    before, started, peak = bytes_of(target), time.process_time(), _peak()
    label = f"TTLSNAP_FUZZ_SEED={seed}: {done}, {' '.join(command)}"
    outcome = ttlsnap(*command, label=label)
    assert time.process_time() - started < CPU_SECONDS, label
    assert _peak() - peak < MEMORY, label
    if outcome.code or "--dry-run" in command or "--output" in command or command[0] == "inspect":
        assert bytes_of(target) == before, label
    if outcome.code:
        assert outcome.out == "", label
        assert not copy.exists(), label
    shutil.rmtree(folder)
    return outcome.code != 0


def test_random_damage_ends_in_a_clear_error_or_in_success(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    if SEED is not None:
        _one_case(ttlsnap, SEED, tmp_path / "case")
        return
    start, run, cases, refused = time.monotonic(), token_hex(4), 0, 0
    while time.monotonic() - start < SECONDS:
        refused += _one_case(ttlsnap, f"{run}-{cases}", tmp_path / "case")
        cases += 1
    assert cases > 10
    assert 0 < refused < cases
