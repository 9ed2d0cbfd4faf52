"""Laws of the moment in which what an instance has heard grows too old: it ends no source, and no wait is long."""

from __future__ import annotations

import asyncio

import pytest

from tests.receivers import MemorySender
from tidegate_receivers.config.receiver import Backpressure
from tidegate_receivers.runtime import intake
from tidegate_receivers.runtime.backpressure import Heard
from tidegate_receivers.runtime.intake import Intake, Limits

SILENCE_S = 30.0


class Clock:
    """Stands still just before the silence is over, until it was looked at so often; then it is over."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def __call__(self) -> float:
        self.looks -= 1
        return SILENCE_S - 0.001 if self.looks >= 0 else SILENCE_S + 0.001


def instance(backpressure: Backpressure, monkeypatch: pytest.MonkeyPatch) -> Intake:
    """One that has heard of the pipeline at 0 s."""
    found = Intake(
        "r", 0, "h", Limits(block_interval_s=0.001, backpressure=backpressure), MemorySender(), report=lambda _: None
    )
    monkeypatch.setattr(intake, "_now_s", lambda: 0.0)
    found.hear(Heard(lag=0), found.throttle.taken)
    return found


@pytest.mark.parametrize("looks", range(10))
async def test_records_wait_where_the_safe_rate_is_0(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whichever look at the clock the silence is over, the call waits or stores; it does not fail."""
    found = instance(Backpressure("rate", safe_rate=0, silence=SILENCE_S), monkeypatch)
    monkeypatch.setattr(intake, "_now_s", Clock(looks))
    storing = asyncio.create_task(found.store([b"a", b"b"]))
    for _ in range(5):
        await asyncio.sleep(0)
    found.hear(Heard(lag=0), found.throttle.taken)
    await storing
    assert found.throttle.taken.stored == 2


@pytest.mark.parametrize("looks", range(10))
async def test_no_turn_is_reserved_that_is_far_away(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a line nor by a request: nobody could end a sleep of minutes when the lease ends."""
    slept: list[float] = []

    async def note(_: Intake, wait_s: float) -> None:
        slept.append(wait_s)

    found = instance(Backpressure("rate", safe_rate=1, silence=SILENCE_S), monkeypatch)
    monkeypatch.setattr(Intake, "_throttle", note)
    monkeypatch.setattr(intake, "_now_s", lambda: SILENCE_S - 0.001)
    await found.store([b"x"] * 600)
    monkeypatch.setattr(intake, "_now_s", Clock(looks))
    await found.pace(1)
    monkeypatch.setattr(intake, "_now_s", Clock(looks))
    storing = asyncio.create_task(found.store([b"a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    storing.cancel()
    await asyncio.gather(storing, return_exceptions=True)
    assert max(slept) <= intake.LOOK_S
