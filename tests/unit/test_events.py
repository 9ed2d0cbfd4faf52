"""The events in memory obey the laws of the port."""

from __future__ import annotations

import pytest

from tidegate.testing.contracts.events import Announced, EventsContract, Written
from tidegate.testing.fakes import MemoryEvents


class TestMemoryEvents(EventsContract):
    @pytest.fixture
    def events(self) -> MemoryEvents:
        return MemoryEvents()

    @pytest.fixture
    def written(self, events: MemoryEvents) -> Written:
        return lambda: [event.to_json() for event in events.happened]

    @pytest.fixture
    def announced(self, events: MemoryEvents) -> Announced:
        return lambda: {hour: event.to_json() for hour, event in events.hours.items()}
