"""A run's own folder in the user's scratch folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import xxhash

from ttlsnap.documents import to_json
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.storage.access import PRIVATE_FOLDER
from ttlsnap.storage.lease import Owner

_OWNER = "owner.json"


def existing_folder(scratch: str) -> str:
    """Return the absolute path of the user's scratch folder. Raise UsageError if it does not exist."""
    if not scratch or not Path(scratch).is_dir():
        raise UsageError(f"--scratch {scratch!r} is not a folder; make it first, or leave the option out")
    return os.path.realpath(scratch)


def claim_scratch(scratch: str, target: str, run: str) -> str:
    """Create the run's own folder in the user's one, with a file that names this process. Return its path."""
    folder = Path(scratch) / f"{_scratch_beginning(target)}{run}"
    try:
        folder.mkdir(PRIVATE_FOLDER)
        (folder / _OWNER).write_text(json.dumps(to_json(Owner.of_this_process())))
    except OSError as error:
        raise StorageError(f"cannot make a scratch folder in {scratch}: {error.strerror}") from error
    return str(folder)


def _scratch_beginning(target: str) -> str:
    return f"ttlsnap-{xxhash.xxh3_64_hexdigest(os.fsencode(target))}-"


def discard_old_scratch(scratch: str, target: str) -> None:
    """Remove the folders of killed runs on a target from the scratch folder.

    Another run may be working there: on another machine that shares the folder, or in a container whose checkpoint has
    the same path. So a folder is removed only if its process is known to have died.
    """
    for folder in Path(scratch).glob(f"{_scratch_beginning(target)}*"):
        try:
            owner = Owner.read((folder / _OWNER).read_bytes())
        except OSError:
            continue
        if owner is not None and owner.has_died:
            shutil.rmtree(folder, ignore_errors=True)
