"""Asset events obey the laws of the port, through Airflow's own accessors."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from tidegate.airflow.events import AssetEvents
from tidegate.testing.contracts.events import Announced, EventsContract, Written

TABLE = "lake.a.b"
HOURS = Asset(name="tidegate/p/hours")


@pytest.fixture
def accessors() -> OutletEventAccessors:
    return OutletEventAccessors()


def asset_events(accessors: OutletEventAccessors, outlet: Asset | AssetAlias) -> AssetEvents:
    context: Any = {"outlet_events": accessors}
    return AssetEvents(context, [outlet, HOURS], TABLE, HOURS.name)


@pytest.fixture
def announced(accessors: OutletEventAccessors) -> Announced:
    """As Airflow makes events of it: one of each key, all with the same extra."""
    return lambda: dict.fromkeys(accessors[HOURS].partition_keys, accessors[HOURS].extra)


class TestOfAnAsset(EventsContract):
    """As of a commit: Airflow keeps one event of the task."""

    @pytest.fixture
    def outlet(self) -> Asset:
        return Asset(name=TABLE)

    @pytest.fixture
    def events(self, accessors: OutletEventAccessors, outlet: Asset) -> AssetEvents:
        return asset_events(accessors, outlet)

    @pytest.fixture
    def written(self, accessors: OutletEventAccessors, outlet: Asset) -> Written:
        return lambda: [accessors[outlet].extra] if accessors[outlet].extra else []


class TestOfAnAlias(EventsContract):
    """As of a replay: there is an event only where the table's asset gets one."""

    @pytest.fixture
    def outlet(self) -> AssetAlias:
        return AssetAlias(name="p__replay")

    @pytest.fixture
    def events(self, accessors: OutletEventAccessors, outlet: AssetAlias) -> AssetEvents:
        return asset_events(accessors, outlet)

    @pytest.fixture
    def written(self, accessors: OutletEventAccessors, outlet: AssetAlias) -> Written:
        def read() -> list[dict[str, Any]]:
            added = accessors[outlet].asset_alias_events
            assert {event.dest_asset_key.name for event in added} <= {TABLE}
            return [event.extra for event in added]

        return read
