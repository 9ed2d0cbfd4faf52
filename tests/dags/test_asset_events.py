"""Asset events, through Airflow's own accessors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.records import COMMITTED, REPLAYED
from tidegate.airflow.events import AssetEvents
from tidegate.core.model.events import Committed, Replayed

TABLE = "lake.a.b"
HOURS_ASSET = Asset(name="tidegate/p/hours")
EMPTY = replace(
    COMMITTED, seq=8, key="tidegate.p.range.0000000008.r", offsets=0, rows=0, transform=None, snapshot=None, topics=()
)

HOURS = ("2026-01-01T10:00:00", "2026-01-01T11:00:00")

Written = Callable[[], list[dict[str, Any]]]
Announced = Callable[[], dict[str, dict[str, Any]]]


@pytest.fixture
def accessors() -> OutletEventAccessors:
    return OutletEventAccessors()


@pytest.fixture(params=[Asset(name=TABLE), AssetAlias(name="p__replay")], ids=["commit", "replay"])
def outlet(request: pytest.FixtureRequest) -> Asset | AssetAlias:
    """Of a commit, and of a replay."""
    made: Asset | AssetAlias = request.param
    return made


@pytest.fixture
def events(accessors: OutletEventAccessors, outlet: Asset | AssetAlias) -> AssetEvents:
    context: Any = {"outlet_events": accessors}
    return AssetEvents(context, [outlet, HOURS_ASSET], TABLE, HOURS_ASSET.name)


@pytest.fixture
def written(accessors: OutletEventAccessors, outlet: Asset | AssetAlias) -> Written:
    """What whoever listens reads: of a commit, Airflow keeps one event; of a replay, there are those of the table's asset."""

    def read() -> list[dict[str, Any]]:
        if isinstance(outlet, Asset):
            return [accessors[outlet].extra] if accessors[outlet].extra else []
        added = accessors[outlet].asset_alias_events
        assert {event.dest_asset_key.name for event in added} <= {TABLE}
        return [event.extra for event in added]

    return read


@pytest.fixture
def announced(accessors: OutletEventAccessors) -> Announced:
    """As Airflow makes events of it: one of each key, all with the same extra."""
    return lambda: dict.fromkeys(accessors[HOURS_ASSET].partition_keys, accessors[HOURS_ASSET].extra)


def test_nothing_is_written_before_something_happened(events: AssetEvents, written: Written) -> None:
    """Whoever listens is not woken for nothing."""
    del events
    assert written() == []


@pytest.mark.parametrize("event", [COMMITTED, REPLAYED], ids=["batch", "chunks"])
def test_each_hour_comes_with_what_happened(
    events: AssetEvents, written: Written, announced: Announced, event: Committed | Replayed
) -> None:
    """As the event of the table, which comes as well."""
    events.write(event, HOURS)
    assert written() == [event.to_json()]
    assert announced() == dict.fromkeys(HOURS, event.to_json())


def test_without_hours_nobody_who_listens_for_them_is_told(events: AssetEvents, written: Written, announced: Announced) -> None:
    """Most batches complete none."""
    events.write(COMMITTED)
    events.write(REPLAYED)
    assert written()
    assert announced() == {}


def test_the_last_event_of_a_task_is_there(events: AssetEvents, written: Written) -> None:
    """A task that is run again writes its event again."""
    events.write(EMPTY)
    events.write(COMMITTED)
    assert written()[-1] == COMMITTED.to_json()
