"""The laws of `Events`: what happened is written whole, as JSON that others read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.core.events import Committed, Replayed
from tidegate.core.ports import Events

TABLE, TOPICS = "iceberg://lake/a/b", ("kafka://kafka_default/t",)
COMMITTED = Committed("p", 7, "tidegate.p.range.0000000007.r", 200, 190, "m:f@1", 2**62, TABLE, TOPICS)
EMPTY = Committed("p", 8, "tidegate.p.range.0000000008.r", 0, 0, None, None, TABLE, ())
REPLAYED = Replayed("p", "manual__1", "again", 3, 600, 590, "m:f@2", TABLE, TOPICS)

HOURS = ("2026-01-01T10:00:00", "2026-01-01T11:00:00")

Written = Callable[[], list[dict[str, Any]]]
Announced = Callable[[], dict[str, dict[str, Any]]]


class EventsContract:
    """Laws of `Events`.

    Fixtures of the subclass:
        events: the port under test; nothing has happened yet.
        written: returns what whoever listens reads, as JSON-ready mappings; where only the last event is kept, that one.
        announced: returns what whoever listens for hours reads, by the hour.
    """

    def test_nothing_is_written_before_something_happened(self, events: Events, written: Written) -> None:
        """Whoever listens is not woken for nothing."""
        del events
        assert written() == []

    def test_a_commit_says_which_batch_and_what_its_load_made(self, events: Events, written: Written) -> None:
        """Names and values are read by the DAGs of others: they do not change."""
        events.committed(COMMITTED)
        assert json.loads(json.dumps(written())) == [
            {
                "pipeline": "p",
                "seq": 7,
                "key": "tidegate.p.range.0000000007.r",
                "offsets": 200,
                "rows": 190,
                "transform": "m:f@1",
                "snapshot": 2**62,
                "table": TABLE,
                "topics": [*TOPICS],
                "page": "dags/p/plugin/ranges?batch=7",
            }
        ]

    def test_a_commit_of_nothing_names_no_load(self, events: Events, written: Written) -> None:
        """A batch without offsets makes no rows, by no version of the transform."""
        events.committed(EMPTY)
        (event,) = written()
        assert (event["offsets"], event["rows"], event["transform"], event["snapshot"]) == (0, 0, None, None)

    def test_a_replay_says_which_one_and_what_its_loads_made(self, events: Events, written: Written) -> None:
        """Names and values as above."""
        events.replayed(REPLAYED)
        assert json.loads(json.dumps(written())) == [
            {
                "pipeline": "p",
                "run_id": "manual__1",
                "replay": "again",
                "chunks": 3,
                "offsets": 600,
                "rows": 590,
                "transform": "m:f@2",
                "table": TABLE,
                "topics": [*TOPICS],
                "page": "dags/p/plugin/ranges",
            }
        ]

    @pytest.mark.parametrize("event", [COMMITTED, REPLAYED], ids=["batch", "replay"])
    def test_each_hour_comes_with_what_happened(
        self, events: Events, written: Written, announced: Announced, event: Committed | Replayed
    ) -> None:
        """As the event of the table, which comes as well."""
        events.committed(event, HOURS) if isinstance(event, Committed) else events.replayed(event, HOURS)
        assert written() == [event.to_json()]
        assert announced() == dict.fromkeys(HOURS, event.to_json())

    def test_without_hours_nobody_who_listens_for_them_is_told(
        self, events: Events, written: Written, announced: Announced
    ) -> None:
        """Most batches complete none."""
        events.committed(COMMITTED)
        events.replayed(REPLAYED)
        assert written()
        assert announced() == {}

    def test_the_last_event_of_a_task_is_there(self, events: Events, written: Written) -> None:
        """A task that is run again writes its event again."""
        events.committed(EMPTY)
        events.committed(COMMITTED)
        assert written()[-1] == COMMITTED.to_json()
