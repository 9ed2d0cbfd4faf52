"""The ports in memory obey the laws of the ports."""

from __future__ import annotations

import pytest

from tidegate.testing.contracts.state_store import StateStoreContract
from tidegate.testing.fakes import MemoryStore


class TestMemoryStore(StateStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def another(self, store: MemoryStore) -> MemoryStore:
        return MemoryStore(store.values)

    @pytest.fixture
    def unreachable(self) -> MemoryStore:
        return MemoryStore(failing=True)
