"""A schedule by lag: runs start when there is something to read, and not by the clock.

Pure: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.config import values
from tidegate.core.config.model import AtLeastOne, Relation, setting


@dataclass(frozen=True)
class LagSchedule:
    """When a run starts: as soon as one of the two holds. Durations are in seconds here, whatever the file writes."""

    lag: int | None = setting(values.POSITIVE, "A run starts when at least this many records are unread.", None)
    max_delay: float | None = setting(
        values.MAX_DELAY, "A run starts when a record has been unread for this long, however few there are.", None
    )
    poll: float = setting(values.POLL, "How often the brokers are asked for the ends of the log.", 5)

    RELATIONS: ClassVar[tuple[Relation, ...]] = (AtLeastOne(("lag", "max_delay")),)


@dataclass(frozen=True)
class NoRunThatSkips:
    """A relation between the settings of a pipeline: runs that start by lag are not skipped for `limits.min_records`."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema."""
        by_lag, with_least = {"schedule": {"type": "object"}}, {"limits": {"required": ["min_records"]}}
        return {"not": {"required": ["schedule", "limits"], "properties": by_lag | with_least}}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where they would be."""
        if not isinstance(held.schedule, LagSchedule) or held.limits.min_records is None:
            return []
        why = f"would skip runs that {path}schedule starts for what is unread"
        return [f"{path}limits.min_records: {why}; remove it, and set {path}schedule.lag"]
