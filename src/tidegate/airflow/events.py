"""Events of a pipeline's table as asset events of Airflow: what is scheduled on the asset runs when its rows have changed.

Hours are partition events of an asset of their own: Airflow starts no ordinary consumer by an event that has a partition key,
and no partitioned one by an event without (ADR 24).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

from tidegate.core.model.events import Committed, Replayed


class AssetEvents:
    """The events of a task's outlets, which Airflow writes when the task succeeds; again, where it is run again.

    An outlet that is an asset gets an event from every success of its task, which this fills with what happened. An outlet that
    is an alias gets one only here.

    Args:
        context: of the task.
        outlets: of the task.
        table: whose asset an alias stands for.
        hours: the asset of hours. It has to be none of the outlets where there is no hour to announce (`outlets_with`).
    """

    def __init__(self, context: Context, outlets: Iterable[Any], table: str, *, hours: str | None = None) -> None:
        self._accessors = context["outlet_events"]
        self._outlets = tuple(outlets)
        self._table = table
        self._hours = hours

    def write(self, event: Committed | Replayed, hours: Sequence[str] = ()) -> None:
        """What happened, and the hours that are complete or have changed by it (`tidegate.core.model.hours`)."""
        extra = event.to_json()
        for outlet in self._outlets:
            if isinstance(outlet, AssetAlias):
                self._accessors[outlet].add(Asset(name=self._table), extra=extra)
            else:
                self._accessors[outlet].extra = extra
                if outlet.name == self._hours:
                    self._accessors[outlet].add_partitions([*hours])
