"""The order that one step of maintenance carries out, and its answer: values that travel by file or message, as a load's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from tidegate.core.config.maintenance import Maintenance, Step
from tidegate.core.state.fields import MAPPING, Record, fields_from_json, fields_to_json, form

MAINTENANCE = form(fields_to_json, partial(fields_from_json, Maintenance))


@dataclass(frozen=True, slots=True)
class MaintenanceJob(Record):
    """One step of the maintenance of a table.

    `compact` merges small files along the columns that identify rows. `expire` keeps the commits of old snapshots, with their
    receipts, in the table of commits, and then removes the snapshots. `remove_orphans` removes files that no snapshot names.
    `now_ms` is the time (epoch ms) that ages are counted from.
    """

    UNREADABLE = ("an order of maintenance cannot be read", "Clear the task to write it anew")

    pipeline: str
    table: str
    step: Step
    _: KW_ONLY
    now_ms: int
    maintenance: Maintenance = field(default=Maintenance(), metadata=MAINTENANCE)


@dataclass(frozen=True, slots=True)
class Maintained(Record):
    """What one step did: what it counted, by name, and what has to be known beside that."""

    UNREADABLE = ("an answer of maintenance cannot be read", "Clear the task to run it again")

    step: Step
    counts: Mapping[str, int] = field(default_factory=dict, metadata=MAPPING)
    warning: str | None = None

    def __str__(self) -> str:
        """One line."""
        counted = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in self.counts.items())
        return f"{self.step}: {counted}" + (f". {self.warning}" if self.warning else "")
