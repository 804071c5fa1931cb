"""Requests to object stores that are only right under a condition, which they name.

A request may arrive after another process has taken over: the client gives up, but a server may still carry it out. So
each change says when it is right, and a server that is late refuses it:

* A write names the version that it replaces (``If-Match``), or that there is none (``If-None-Match``).
* A copy names that there is no object with its new name. S3 has this condition for a copy that is made as an upload
  of several parts (``COPY``).
* ``delete_version`` names the version that it deletes (``If-Match``). The client library cannot send this condition. On
  S3 it signs the request, and this module sends it. Other stores delete without a condition.
"""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import obstore
from obstore.exceptions import NotFoundError
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ObjectStore

COPY = "multipart"
"""The way in which S3 copies only if the new name is free."""

_SIGNED_FOR = timedelta(minutes=15)
"""How far the clocks of machine and store may differ. Later, a store refuses the signed request in any case."""

# The object is gone, another conditional request is in progress, or the object has another ETag.
_REFUSED = (404, 409, 412)
_NOT_SUPPORTED = (400, 403, 405, 501)


def version_of(metadata: ObjectMeta | PutResult) -> UpdateVersion:
    """Return the version of an object, which changes when the object is overwritten with other content."""
    return cast("UpdateVersion", {name: metadata[name] for name in ("e_tag", "version") if metadata[name] is not None})


def delete_version(store: ObjectStore, key: str, version: UpdateVersion, patience_s: float) -> None:
    """Delete an object if it still has this version. Raise ConnectionError if there was no answer.

    A store that does not know the condition deletes the object without it.
    """
    e_tag = version.get("e_tag")
    if not isinstance(store, S3Store) or e_tag is None:
        delete(store, key)
        return
    url = obstore.sign(store, "DELETE", key, _SIGNED_FOR)
    request = urllib.request.Request(url, method="DELETE", headers={"If-Match": e_tag})
    try:
        with urllib.request.urlopen(request, timeout=patience_s) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _NOT_SUPPORTED:
            delete(store, key)
        elif error.code not in _REFUSED:
            raise ConnectionError(f"the store answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(str(error) or type(error).__name__) from error


def delete(store: ObjectStore, key: str) -> None:
    """Delete an object if it exists, without a condition."""
    with contextlib.suppress(NotFoundError, FileNotFoundError):
        obstore.delete(store, key)
