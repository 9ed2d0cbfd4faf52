"""Laws of the warnings of a pipeline file: what has no effect is named, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.config.checks import ineffective
from tidegate.core.config.parse import parse_pipeline

MINIMAL = {"source": {"topics": ["orders"]}, "transform": "m:f", "sink": {"table": "lake.a.b"}}
HOURLY = {"schedule": "@hourly"}


SLOW = {"max_rate_per_partition": 5, "interval_s": 10}


def warned(settings: dict[str, Any]) -> tuple[str, ...]:
    return ineffective(parse_pipeline("p", {**MINIMAL, **settings}, file="p.yaml"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"catch_up": True}, "catch_up: has no effect without a bound"),
        ({"limits": {"min_records": 1}}, "limits.min_records: 1 skips no run"),
        ({**HOURLY, "limits": {"min_records": 9, "max_delay_s": 60}}, "max_delay_s 60 is over before the next run"),
        ({"limits": {"min_records": 9, "max_records": 5}}, "limits.min_records: 9 is above limits.max_records 5"),
        (
            {"limits": {"min_records": 9, "max_records": 8}, "backpressure": {"max_records": 5}},
            "above backpressure.max_records 5",
        ),
        ({"limits": {"min_rate_per_partition": 5}}, "min_rate_per_partition: has no effect without"),
        ({"limits": {**SLOW, "min_rate_per_partition": 500}}, "fewer than min_rate_per_partition 500"),
        ({"schedule": {"max_delay": "10s", "poll": "1m"}}, "schedule.max_delay: 10 s are shorter than schedule.poll 60 s"),
        ({"schedule": {"lag": 9}, "limits": {"max_records": 5}}, "schedule.lag: 9 is above limits.max_records 5"),
        ({"spark": {"max_executors": 4}}, "spark.max_executors: has no effect in a Spark Connect server"),
        ({"spark": {"cores": 4}, "split": {"min_partitions": 8}}, "spark.cores: has no effect in"),
        ({"retries": 0, "retry_delay_s": 5}, "retry_delay_s: has no effect with retries: 0"),
        ({"wait_s": 900, "timeout_s": 900}, "wait_s: 900 s are never waited"),
        ({"identity": "batch", "rows_per_record": "any"}, "rows_per_record: has no effect with identity: batch"),
    ],
)
def test_what_has_no_effect_is_named_with_the_fix(settings: dict[str, Any], words: str) -> None:
    """In one sentence, and one warning for each."""
    (warning,) = warned(settings)
    assert words in warning
    assert "; " in warning


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"catch_up": True, "limits": {"max_bytes": 5}},
        {"catch_up": True, "backpressure": {"policy": "target"}},
        {**HOURLY, "limits": {"min_records": 9, "max_delay_s": 3600}},
        {"limits": {"min_records": 9, "max_delay_s": 60}},
        {**HOURLY, "catch_up": True, "limits": {"min_records": 9, "max_records": 9, "max_delay_s": 60}},
        {"limits": {"min_rate_per_partition": 5}, "backpressure": {"policy": "pid"}},
        {"limits": {**SLOW, "min_rate_per_partition": 50}},
        {"schedule": {"max_delay": "1m", "poll": "1m"}},
        {"schedule": {"lag": 9}, "limits": {"max_records": 5}, "catch_up": True},
        {"schedule": {"lag": 9, "max_delay": "1h"}, "limits": {"max_records": 5}},
        {"spark": {"connection": "mine", "max_executors": 4, "cores": 2}, "split": {"min_partitions": 8}},
        {"spark": {"cores": 4}},
        {"retries": 0},
        {"timeout_s": 60},
    ],
)
def test_what_has_an_effect_is_passed_over(settings: dict[str, Any]) -> None:
    """Also where it seems odd."""
    assert warned(settings) == ()
