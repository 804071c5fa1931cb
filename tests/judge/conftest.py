"""One judge for the whole session: starting Spark is what costs."""

from collections.abc import Iterator

import pytest

from .spark import Judge


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Real Spark, in as many versions as the tests ask for."""
    with Judge(tmp_path_factory.mktemp("judge")) as judge:
        yield judge
