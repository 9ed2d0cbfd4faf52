"""Laws of a receiver's backlog and the pipeline behind it: neither waits for the other for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.core.config.downstream_conflicts import downstream_faults
from tidegate.core.config.lag_schedule import LagSchedule
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.config.receiver import Backpressure, Listen, Receiver

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))
CREDIT = Backpressure("credit", "p", 1000)
WATERMARK = Backpressure("watermark", "p", 1000)


def faults(stated: Backpressure, pipeline: Pipeline, instances: int = 1) -> list[str]:
    receiver = Receiver("r", "http", "t", listen=Listen(8080), instances=instances, backpressure=stated)
    return downstream_faults([receiver], {"p": pipeline}).get("r", [])


@pytest.mark.parametrize(
    ("stated", "instances", "most"),
    [(CREDIT, 1, 1000), (CREDIT, 4, 997), (WATERMARK, 1, 900), (replace(WATERMARK, high=0.5), 2, 500)],
)
def test_a_backlog_below_which_no_run_starts_is_refused(stated: Backpressure, instances: int, most: int) -> None:
    """Whether the limits or the schedule say so; a longest wait, or another topic, starts runs all the same."""
    for setting, allowed, refused in (
        ("limits.min_records", {"limits": Limits(min_records=most)}, {"limits": Limits(min_records=most + 1)}),
        ("schedule.lag", {"schedule": LagSchedule(most)}, {"schedule": LagSchedule(most + 1)}),
    ):
        assert faults(stated, replace(PIPELINE, **allowed), instances) == []
        (fault,) = faults(stated, replace(PIPELINE, **refused), instances)
        assert f"below {most + 1} unread records ({setting}), and the receiver stops at {most};" in fault
    assert faults(stated, replace(PIPELINE, limits=Limits(min_records=9999, max_delay_s=60))) == []
    assert faults(stated, replace(PIPELINE, schedule=LagSchedule(9999, 60))) == []
    assert faults(stated, replace(PIPELINE, limits=Limits(min_records=9999), source=Source(("t", "u")))) == []
