"""Build the files of a release, check them, and install the wheel of this machine into an empty environment.

    python release/wheels.py FOLDER

The C library is compiled with Zig, which compiles for other systems and for an old glibc. Each wheel is built from the
unpacked sdist, so the sdist is complete, and no wheel gets the library of another system.
"""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = "ttlsnap/native/kernels.so.1"
SAMPLE = ROOT / "sample_checkpoints" / "agg-deltas-lz4-4.2"

TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "macosx_12_0_x86_64": "x86_64-macos.12.0",
    "macosx_12_0_arm64": "aarch64-macos.12.0",
}
"""Zig's name of the system for each platform tag."""

GLIBC = 17
"""The oldest release of glibc 2 for which there are wheels. It is part of the tags."""

MACHINES = {62: "x86_64", 183: "aarch64"}
"""The processors by their numbers in a file of the format ELF (``e_machine``)."""

MACH_O, MACH_O_MACHINES = 0xFEEDFACF, {0x0100_0007: "x86_64", 0x0100_000C: "arm64"}
"""The first number in a file of the format Mach-O with 64 bits, and the processors by their numbers (``cputype``)."""

SIGNATURE, VERSION = 0x1D, 0x32
"""Load commands of Mach-O (``mach-o/loader.h``): the signature, which arm64 needs, and the oldest system."""


def main() -> None:
    (argument,) = sys.argv[1:]
    folder = Path(argument).absolute()
    for old in folder.glob("ttlsnap-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as place:
        run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
        (sdist,) = folder.glob("*.tar.gz")
        for tag, target in TARGETS.items():
            wheel = build_wheel(sdist, tag, target, folder, Path(place, tag))
            print(f"{wheel.name}: {check_wheel(wheel, tag)}")
        (own,) = folder.glob(f"*manylinux*_{platform.machine()}.whl")
        python = make_environment(Path(place, "environment"))
        print(f"{own.name}: {try_out(python, own, with_library=True)}")
        print(f"{sdist.name}: {try_out(python, sdist, with_library=False)}")


def build_wheel(sdist: Path, tag: str, target: str, folder: Path, place: Path) -> Path:
    """Return the wheel for a platform, which is built in the folder ``place``."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (source,) = place.iterdir()
    compiler = f"{sys.executable} -m ziglang cc -target {target}"
    option = f"--config-setting=--build-option=--plat-name={tag}"
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", option, "--outdir", folder, source),
        CC=compiler,
        LDSHARED=f"{compiler} -shared -s",
    )
    (wheel,) = folder.glob(f"*-{tag}.whl")
    return wheel


def check_wheel(wheel: Path, tag: str) -> str:
    """Return what the library of a wheel is for. Stop if that is another processor, or a newer system."""
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(LIBRARY)
    size = f"{wheel.stat().st_size >> 10} KiB"
    if tag.startswith("macosx"):
        return f"{size}, for {check_mach_o(library, tag)}"
    (number,) = struct.unpack_from("<H", library, 18)
    require(library[:4] == b"\x7fELF" and tag.endswith(MACHINES.get(number, "?")), f"{wheel} has another library")
    words = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'consistent with the following platform tag: "manylinux_2_([0-9]+)_', words)
    require(found is not None and int(found[1]) <= GLIBC, words)
    return f"{size}, for {MACHINES[number]} and glibc 2.{GLIBC} or newer"


def check_mach_o(library: bytes, tag: str) -> str:
    """Return the system of a library for macOS. Stop if its tag is another one, or if it is not signed."""
    magic, number, _, _, count = struct.unpack_from("<5I", library)
    commands, place = {}, 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", library, place)
        commands[command] = place
        place += size
    needed = {VERSION, SIGNATURE} if tag.endswith("arm64") else {VERSION}
    require(magic == MACH_O and needed <= commands.keys(), f"{tag}: the library has the commands {sorted(commands)}")
    (oldest,) = struct.unpack_from("<I", library, commands[VERSION] + 12)
    version = f"{oldest >> 16}_{oldest >> 8 & 255}"
    require(tag == f"macosx_{version}_{MACH_O_MACHINES.get(number)}", f"{tag} has a library for {number}, {version}")
    return f"{MACH_O_MACHINES[number]} and macOS {version.replace('_', '.')} or newer"


def make_environment(folder: Path) -> Path:
    """Return the interpreter of an empty environment."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


def try_out(python: Path, package: Path, *, with_library: bool) -> str:
    """Install a package and try it. Without the library, it is installed as on a machine that has no C compiler."""
    options = ("--quiet", "--force-reinstall", *(() if with_library else ("--no-deps",)))
    run(python, "-m", "pip", "install", *options, package, CC="false")
    run(python, "-m", "pip", "check")
    has_library = run(python, "-P", "-c", "from ttlsnap import native; print(native.is_available())").strip()
    require(has_library == str(with_library), f"{package}: the library is there: {has_library}")
    ttlsnap = python.with_name("ttlsnap")
    run(ttlsnap, "compact", SAMPLE, "--ttl", "7d", "--timestamp", "value.max", "--dry-run")
    return f"{run(ttlsnap, '--version').strip()} is installed and works"


def run(*words: str | Path, **variables: str) -> str:
    """Return the output of a command. Stop with all that it printed if it fails."""
    done = subprocess.run(
        list(map(str, words)), env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    require(done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


def require(is_right: bool, message: str) -> None:
    if not is_right:
        sys.exit(message)


if __name__ == "__main__":
    main()
