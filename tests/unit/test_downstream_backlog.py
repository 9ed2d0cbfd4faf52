"""Laws of a receiver's backlog and the pipeline behind it: neither waits for the other for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.core.config.pipeline import LagSchedule, Limits, Pipeline, Sink, Source
from tidegate_receivers.config.conflicts import downstream_faults
from tidegate_receivers.config.receiver import Backpressure, Listen, Receiver
from tidegate_receivers.runtime.backpressure import Heard, Throttle

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))
CREDIT = Backpressure("credit", "p", 1000)
WATERMARK = Backpressure("watermark", "p", 1000)


def faults(stated: Backpressure, pipeline: Pipeline, instances: int = 1) -> list[str]:
    receiver = Receiver("r", "http", "t", listen=Listen(8080), instances=instances, backpressure=stated)
    return downstream_faults([receiver], {"p": pipeline}).get("r", [])


@pytest.mark.parametrize(
    ("stated", "instances", "most"),
    [(CREDIT, 1, 1000), (CREDIT, 4, 997), (WATERMARK, 1, 401), (replace(WATERMARK, high=0.9, low=0.2), 2, 201)],
)
def test_a_backlog_below_which_no_run_starts_is_refused(stated: Backpressure, instances: int, most: int) -> None:
    """Whether the limits or the schedule say so; a longest wait, or another topic, starts runs all the same."""
    for setting, allowed, refused in (
        ("limits.min_records", {"limits": Limits(min_records=most)}, {"limits": Limits(min_records=most + 1)}),
        ("schedule.lag", {"schedule": LagSchedule(most)}, {"schedule": LagSchedule(most + 1)}),
    ):
        assert faults(stated, replace(PIPELINE, **allowed), instances) == []
        (fault,) = faults(stated, replace(PIPELINE, **refused), instances)
        stops = f"stops at {most}" if stated.policy == "credit" else f"once it has stopped, goes on at {most - 1}"
        assert f"below {most + 1} unread records ({setting}), and the receiver {stops};" in fault
    assert faults(stated, replace(PIPELINE, limits=Limits(min_records=9999, max_delay_s=60))) == []
    assert faults(stated, replace(PIPELINE, schedule=LagSchedule(9999, 60))) == []
    assert faults(stated, replace(PIPELINE, limits=Limits(min_records=9999), source=Source(("t", "u")))) == []


@pytest.mark.parametrize("low", [0.4, 0.2])
@pytest.mark.parametrize("least", [201, 202, 401, 402, 460, 900])
@pytest.mark.parametrize("planned", [460, 640, 899, 900])
def test_a_receiver_that_is_not_refused_goes_on_whatever_a_run_leaves_behind(low: float, least: int, planned: int) -> None:
    """A run is planned at some backlog, senders reach the high mark meanwhile, and runs start while enough is unread."""
    stated = replace(WATERMARK, low=low)
    if faults(stated, replace(PIPELINE, limits=Limits(min_records=least))):
        return
    throttle = Throttle(stated, None)
    lag, now_s, batch = 900, 0.0, planned
    throttle.hear(Heard(lag=lag), throttle.taken, now_s)
    while throttle.room(now_s) == 0:
        assert lag >= least, "no run starts, and no record comes"
        lag, now_s, batch = lag - min(lag, batch), now_s + 1, least
        throttle.hear(Heard(lag=lag), throttle.taken, now_s)
