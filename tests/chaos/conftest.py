"""One platform for all tests here; each module lets its own DAGs run on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.catalogs import let_pyiceberg_find
from tests.chaos.receiving.stage import ReceivingStage


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceivingStage]:
    """The platform, every DAG of it paused at first."""
    with ReceivingStage.built(tmp_path_factory.mktemp("chaos")) as made:
        yield made


@pytest.fixture(scope="module")
def stage(built: ReceivingStage) -> Iterator[ReceivingStage]:
    """The platform, and PyIceberg in this process, which knows its catalog."""
    with pytest.MonkeyPatch.context() as patch:
        let_pyiceberg_find(built.platform, patch)
        yield built
