"""One start of all services for all tests, which go on where the one before has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compose.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything built, started and healthy; and removed whatever happens, with the image."""
    stack = Stack.made(tmp_path_factory.mktemp("compose"))
    stack.untagged_before = stack.untagged()
    try:
        stack.up("--build")
        yield stack
    finally:
        stack.docker("compose", "logs", "--no-color", "--tail", "200", check=False)
        stack.docker("compose", "down", "--volumes", "--rmi", "local", "--timeout", "10", check=False)
