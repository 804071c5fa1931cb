"""Errors of the file system are never reported as damage."""

from __future__ import annotations

import errno
import zipfile

import pytest

from ttlsnap.errors import StorageError, require_damage


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS])
def test_an_error_of_the_file_system_is_not_damage(number: int) -> None:
    with pytest.raises(StorageError, match="the file: "):
        require_damage(OSError(number, "told"), "the file")


@pytest.mark.parametrize("error", [OSError("odd"), OSError(errno.EINVAL, "told"), ValueError(), zipfile.BadZipFile()])
def test_other_errors_may_be_damage(error: Exception) -> None:
    require_damage(error, "the file")
