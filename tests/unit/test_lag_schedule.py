"""Laws of the setting `schedule`, where it is a mapping."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tidegate.core.config.lag_schedule import LagSchedule
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import ConfigError

MINIMAL = {"source": {"topics": ["orders"]}, "transform": "transforms.orders:rows", "sink": {"table": "lake.shop.orders"}}


def parse(settings: object) -> Pipeline:
    return parse_pipeline("orders", settings, file="pipelines/orders.yaml")


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"lag": 50000, "max_delay": "15m"}, LagSchedule(50000, 900)),
        ({"max_delay": 90.5, "poll": "1.5s"}, LagSchedule(None, 90.5, 1.5)),
        ({"lag": 1, "max_delay": None, "poll": 3600}, LagSchedule(1, None, 3600)),
    ],
)
def test_a_schedule_by_lag_has_its_durations_in_seconds(schedule: dict[str, Any], expected: LagSchedule) -> None:
    """Whether they are written with a unit or as a number."""
    assert parse({**MINIMAL, "schedule": schedule}).schedule == expected


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ({}, "schedule.lag: expected at least one of lag and max_delay"),
        ({"poll": "5s"}, "schedule.lag: expected at least one of lag and max_delay"),
        ({"lag": 0}, "schedule.lag: expected a positive integer, got 0"),
        ({"lag": 1.5}, "schedule.lag: expected a positive integer"),
        ({"lag": 1, "max_delay": "15 minutes"}, "schedule.max_delay: expected a duration"),
        ({"max_delay": "0s"}, "schedule.max_delay: expected a duration from 1s"),
        ({"max_delay": float("nan")}, "schedule.max_delay: expected a duration"),
        ({"max_delay": True}, "schedule.max_delay: expected a duration"),
        ({"lag": 1, "poll": "2d"}, "schedule.poll: expected a duration from 1s to 1h"),
        ({"lag": 1, "delay": 1}, "schedule.delay: not a setting, expected one of lag, max_delay, poll"),
        ([50000], "schedule: expected five cron fields"),
        (50000, "schedule: expected five cron fields"),
    ],
)
def test_a_schedule_by_lag_names_the_entry_at_fault(schedule: object, fault: str) -> None:
    """By its path."""
    with pytest.raises(ConfigError, match=re.escape(fault)):
        parse({**MINIMAL, "schedule": schedule})


def test_runs_that_start_by_lag_are_not_skipped_for_a_least_number() -> None:
    """Each would start, skip, and leave the records unread."""
    with pytest.raises(ConfigError, match=r"limits\.min_records: would skip runs that schedule starts"):
        parse({**MINIMAL, "schedule": {"lag": 5}, "limits": {"min_records": 10}})
