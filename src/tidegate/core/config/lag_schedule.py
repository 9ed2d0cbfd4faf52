"""A schedule by lag: runs start when there is something to read, and not by the clock.

Pure: pydantic and the core only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.config import values
from tidegate.core.config.declared import Settings


@dataclass(frozen=True)
class LagSchedule(Settings):
    """When a run starts: as soon as one of the two holds. Durations are in seconds here, whatever the file writes."""

    lag: values.Positive | None = None
    """A run starts when at least this many records are unread."""
    max_delay: values.MaxDelay | None = None
    """A run starts when a record has been unread for this long."""
    poll: values.Poll = 5
    """How often the brokers are asked for the ends of the log."""

    SCHEMA: ClassVar = {"anyOf": [{"required": ["lag"]}, {"required": ["max_delay"]}]}

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        if self.lag is None and self.max_delay is None:
            yield "lag", "expected at least one of lag and max_delay, got none"
