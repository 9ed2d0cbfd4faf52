"""Events of a pipeline's table as asset events of Airflow: what is scheduled on the asset runs when its rows have changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

from tidegate.core.events import Committed, Replayed


class AssetEvents:
    """The `Events` port over the outlets of a task. Airflow writes the events when the task succeeds.

    An outlet that is an asset gets an event from every success of its task, which this fills with what happened. An outlet that
    is an alias gets one only here.

    Args:
        context: of the task.
        outlets: of the task.
        table: whose asset an alias stands for.
    """

    def __init__(self, context: Context, outlets: Iterable[Any], table: str) -> None:
        self._accessors = context["outlet_events"]
        self._outlets = tuple(outlets)
        self._table = table

    def committed(self, event: Committed) -> None:
        """As the port."""
        self._write(event.to_json())

    def replayed(self, event: Replayed) -> None:
        """As the port."""
        self._write(event.to_json())

    def _write(self, extra: dict[str, Any]) -> None:
        for outlet in self._outlets:
            if isinstance(outlet, AssetAlias):
                self._accessors[outlet].add(Asset(name=self._table), extra=extra)
            else:
                self._accessors[outlet].extra = extra
