"""A fixture for the tests of documents."""

from __future__ import annotations

from typing import Any

import pytest

from .documents import make_documents


@pytest.fixture(scope="session")
def made_documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the JSON documents of all commands, by name."""
    return make_documents(tmp_path_factory.mktemp("documents"))
