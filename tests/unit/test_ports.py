"""The ports in memory do what the adapters do."""

from __future__ import annotations

import pytest

from tidegate.core.errors import StateUnavailable
from tidegate.testing.fakes import MemoryStore


def test_a_key_that_is_missing_cannot_be_read() -> None:
    """Missing is an error: a store that answers with a default would start a schedule anew."""
    with pytest.raises(StateUnavailable):
        MemoryStore().get("tidegate:shop:cursor")
