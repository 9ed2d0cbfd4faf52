"""Laws of the intake and the supervisor of receivers, on a topic in memory."""

from __future__ import annotations

import asyncio
import re
import textwrap
from typing import Any
from unittest import mock

import pytest

import tidegate_receivers.runtime.receiver
from tests.receivers import MemorySender, Scripted, a_lease, served, texts, until
from tidegate.core.model.errors import BrokerUnavailable, NotDelivered, Overloaded, RecordRefused, RequestError
from tidegate_receivers.config.receiver import Block, Rate
from tidegate_receivers.rules.lifecycle import Restarts
from tidegate_receivers.rules.limits import MEMORY_BYTES
from tidegate_receivers.rules.records import Failures
from tidegate_receivers.runtime import intake, supervisor
from tidegate_receivers.runtime.receiver import RecordSource

AWAY = BrokerUnavailable("away")
SMALL = Block(0.01, 1000)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Restarts(first_s=0.001, longest_s=0.002)
    monkeypatch.setattr(intake, "AGAIN", short)
    monkeypatch.setattr(supervisor, "Restarts", lambda: short)


async def test_the_example_in_the_docs_of_receivers_runs() -> None:
    text = tidegate_receivers.runtime.receiver.__doc__ or ""
    example = textwrap.dedent(re.search(r"(?m)^    class .*?(?=^\S)", text, re.DOTALL)[0])  # type: ignore[index]
    names: dict[str, Any] = {"RecordSource": RecordSource, "asyncio": asyncio}
    exec(example, names)  # noqa: S102 - of this repository
    sender = MemorySender()
    async with served(names["Heartbeat"](), sender=sender):
        await until(lambda: texts(sender) == [b"alive"])
    assert len(example.strip().splitlines()) <= 11


async def test_what_is_stored_is_landed_in_order_with_its_headers() -> None:
    async with served(source := Scripted(), sender=(sender := MemorySender())) as running:
        await (await source.store([b"1", b"2"], key=b"k"))
        await (await source.store([b"3"], stream=7))
        report = await running.ended()
    assert (report.records, report.bytes, report.blocks, report.undelivered, report.last_error) == (3, 3, 2, 0, None)
    assert [(r.value, r.key, r.stream) for r in sender.log] == [(b"1", b"k", 0), (b"2", b"k", 0), (b"3", None, 7)]
    headers: list[dict[str, Any]] = [dict(record.headers) for record in sender.log]
    assert [[h[f"tidegate.{name}"] for name in ("receiver", "instance", "host")] for h in headers] == [[b"r", b"0", b"h1"]] * 3
    assert all(h["tidegate.received_at"].isdigit() for h in headers)
    assert headers[0]["tidegate.block"] == headers[1]["tidegate.block"] != headers[2]["tidegate.block"]
    assert sender.closed


async def test_failed_records_are_sent_again_in_order_before_any_later_one() -> None:
    sender = MemorySender(answers=[{1: AWAY, 2: AWAY}, AWAY, {1: AWAY}])
    async with served(source := Scripted(), sender=sender) as running:
        first = await source.store([b"1", b"2", b"3"])
        await until(lambda: sender.attempts)
        last = await source.store([b"4"])
        await asyncio.gather(first, last)
        report = await running.ended()
    assert (report.records, report.last_error) == (4, "away")
    assert [text for text in running.told if "away" in text] == ["r[0]: away"]  # told once
    assert sender.attempts == [[b"1", b"2", b"3"], [b"2", b"3"], [b"2", b"3"], [b"3"], [b"4"]]
    assert texts(sender) == [b"1", b"2", b"3", b"4"]


async def test_a_record_that_the_broker_refuses_is_told_and_the_others_are_landed() -> None:
    sender = MemorySender(longest=3)
    async with served(source := Scripted(), sender=sender) as running:
        tickets = await asyncio.gather(source.store([b"1", b"2222"]), source.store([b"3"]))
        with pytest.raises(RecordRefused, match="too large"):
            await tickets[0]
        await tickets[1]
        report = await running.ended()
    assert (report.records, report.refused, report.last_error, texts(sender)) == (2, 1, "too large", [b"1", b"3"])


async def test_records_that_are_too_long_are_refused_before_they_are_stored() -> None:
    """All of their call, so that its order has no gap. So is an offer that never has room."""
    lease = a_lease(block=SMALL, buffer_bytes=4 * MEMORY_BYTES, max_record_bytes=3)
    async with served(source := Scripted(), sender=(sender := MemorySender()), lease=lease) as running:
        with pytest.raises(RecordRefused, match="4 bytes is longer than 3"):
            await source.store([b"1", b"4444"])
        with pytest.raises(RecordRefused, match="Send fewer at a time"):
            source.intake.offer([b"1"] * 5)
        await (await source.store([b"%d" % n for n in range(50)]))  # in parts, whose order and ticket are those of one
        report = await running.ended()
    assert (report.refused, texts(sender)) == (1, [b"%d" % n for n in range(50)])


async def test_a_full_buffer_holds_the_source_back_and_is_never_exceeded() -> None:
    lease = a_lease(block=SMALL, buffer_bytes=10_000, max_record_bytes=100)
    sender = MemorySender(away=True)
    async with served(source := Scripted(), sender=sender, lease=lease) as running:
        stores = [asyncio.create_task(source.store([b"%d" % n] * 3)) for n in range(20)]
        await until(lambda: source.intake.fill > 0.8)
        await asyncio.sleep(0.005)
        assert sum(task.done() for task in stores) == 6  # of 3 * 513 bytes each
        with pytest.raises(Overloaded, match="full"):
            source.intake.offer([b"x"] * 3)
        sender.away = False
        await asyncio.gather(*[await task for task in stores])
        report = await running.ended()
    assert texts(sender) == [b"%d" % n for n in range(20) for _ in range(3)]
    assert report.throttled_s > 0


async def test_an_offer_that_fails_is_told_and_not_sent_again() -> None:
    sender = MemorySender(answers=[AWAY, {0: AWAY}], longest=3)
    async with served(source := Scripted(), sender=sender) as running:
        with pytest.raises(NotDelivered, match="not acknowledged: away"):
            await source.intake.offer([b"1"])
        lost, kept = source.intake.offer([b"2"]), source.intake.offer([b"3"], idempotency_key="k")
        with pytest.raises(NotDelivered):
            await lost
        await kept
        with pytest.raises(RecordRefused):
            await source.intake.offer([b"4444"])
        report = await running.ended()
    assert (report.records, report.undelivered, report.last_error, texts(sender)) == (1, 0, "too large", [b"3"])
    assert "r[0]: away" in running.told
    assert dict(sender.log[0].headers)["tidegate.idempotency_key"] == b"k/0"


async def test_a_sender_that_has_gone_is_not_sent_for() -> None:
    """What waits behind a block is dropped with its ticket."""
    sender = MemorySender(away=True)
    async with served(source := Scripted(), sender=sender):
        first = source.intake.offer([b"1"])
        await until(lambda: sender.attempts)
        source.intake.offer([b"2"]).cancel()
        third = source.intake.offer([b"3"])
        sender.away = False
        await asyncio.gather(first, third)
    assert texts(sender) == [b"1", b"3"]


async def test_offers_are_refused_at_once_while_the_broker_is_known_to_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the client reports, by a block that does not come back, or by the last failure."""
    sender = MemorySender(away=True)
    async with served(source := Scripted(), sender=sender):
        first = source.intake.offer([b"1"])
        await until(lambda: sender.attempts)
        monkeypatch.setattr(intake, "STUCK_S", 0.0)
        with pytest.raises(BrokerUnavailable, match="has acknowledged nothing for 0 s"):
            source.intake.offer([b"2"])
        sender.trouble = AWAY
        with pytest.raises(BrokerUnavailable, match="away"):
            source.intake.offer([b"2"])
        monkeypatch.setattr(intake, "STUCK_S", 5.0)
        sender.away = False
        await first
        sender.answers = [NotDelivered("denied")] * 1000
        await source.store([b"3"])
        await until(lambda: source.intake.trouble is not None)
        with pytest.raises(NotDelivered, match="denied"):
            source.intake.offer([b"4"])
        sender.answers = []
        await until(lambda: source.intake.trouble is None)
        await source.intake.offer([b"5"])


async def test_the_rate_paces_what_is_stored_and_tells_when_to_offer_again() -> None:
    async with served(source := Scripted(), sender=MemorySender(), lease=a_lease(rate=Rate(1000))) as running:
        assert await source.intake.pace(20) == 0
        await source.store([b"1"] * 20)
        assert await source.intake.pace(10_000) == 0
        assert 9 < await source.intake.pace(1) <= 10
        report = await running.ended()
    assert 0 < report.throttled_s < 1


@pytest.mark.parametrize(("error", "why"), [(None, ""), (OSError("y"), ": y"), (ValueError("y"), ": ValueError: y")])
async def test_a_receiver_that_goes_on_is_not_said_to_be_started_again(error: Exception | None, why: str) -> None:
    """One sender of many was closed, or a file was truncated: the source itself is well."""
    async with served(source := Scripted(), sender=MemorySender()) as running:
        await until(lambda: source.calls)
        source.report_error("a sender was closed", error)
        report = await running.ended()
    assert (report.restarts, report.last_error) == (0, f"a sender was closed{why}. The receiver goes on")


async def test_a_source_that_fails_is_closed_and_opened_again() -> None:
    """In `on_start`, in a spawned task, or by its own wish; what it has stored is landed."""

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("odd")

    source = Scripted(fails=[OSError(98, "Address already in use"), ValueError("bad")])
    async with served(source, sender=MemorySender()) as running:
        await until(lambda: source.calls == ["start"] * 3)
        await source.store([b"1"])
        source.restart("wanted")
        await until(lambda: source.calls[-2:] == ["stop", "start"])
        source.spawn(fails())
        await until(lambda: len(source.calls) == 7)
        report = await running.ended()
    assert source.calls == ["start"] * 3 + ["stop", "start"] * 2 + ["stop"]
    assert (report.restarts, report.records) == (4, 1)
    assert report.last_error == "the source failed: ValueError: odd. The receiver is started again"
    states = [text.removeprefix("r[0] is ") for text in running.told if " is " in text and "again" not in text]
    assert states == ["restarting"] * 2 + ["started", "restarting"] * 2 + ["started", "stopping", "stopped"]
    assert "r[0]: the source cannot be opened: Address already in use. The receiver is started again" in running.told


async def test_a_lease_ends_by_itself_and_drains_what_is_stored() -> None:
    """Without waiting for the block's interval, and also what comes while the source closes. One that is over opens nothing."""
    sender, source = MemorySender(), Scripted()
    async with served(source, sender=sender, lease=a_lease(lasts_s=-1)) as running:
        report = await running.ended()
    assert (source.calls, report.records, sender.closed) == ([], 0, True)
    source.stopping = lambda: source.store([b"2"])
    async with served(source, sender=sender, lease=a_lease(lasts_s=0.05, block=Block(60))) as running:
        await source.store([b"1"])
        assert running.task is not None
        report = await running.task
    assert (report.records, texts(sender)) == (2, [b"1", b"2"])
    with pytest.raises(Overloaded):
        source.intake.offer([b"3"])


@pytest.mark.parametrize("resumes", [False, True])
async def test_what_is_not_acknowledged_within_the_drain_is_counted_and_told(*, resumes: bool) -> None:
    lease = a_lease(drain=0.05, block=SMALL, buffer_bytes=4 * MEMORY_BYTES, max_record_bytes=10)
    source: RecordSource = type("Kind", (Scripted,), {"resumes": resumes})()
    async with served(source, sender=MemorySender(away=True), lease=lease) as running:
        ticket = await source.store([b"1", b"2"])
        source.spawn(source.store([b"3"] * 3))  # type: ignore[arg-type]  # one of them finds room, as a part of its own
        await asyncio.sleep(0.02)
        report = await running.ended()
        assert isinstance(ticket.exception(), NotDelivered)
    assert (report.records, report.undelivered) == (0, 0 if resumes else 5)
    assert ("5 records were not acknowledged" in str(report.last_error)) is not resumes


async def test_nothing_is_sent_behind_what_was_given_up() -> None:
    """Not even where the broker is back: a file's place would move past what was not delivered."""

    class Back(MemorySender):
        def give_up(self) -> None:
            self.answers.append(AWAY)
            self.away = False

    source, sender = Scripted(), Back(away=True)
    async with served(source, sender=sender, lease=a_lease(drain=0.02)) as running:
        tickets = [await source.store([b"1"])]
        await until(lambda: sender.attempts)
        tickets.append(await source.store([b"2"]))
        report = await running.ended()
    assert [type(ticket.exception()) for ticket in tickets] == [NotDelivered] * 2
    assert (texts(sender), report.undelivered) == ([], 2)


@pytest.mark.parametrize("answer", [{0: AWAY, 1: RecordRefused("x")}, {0: RecordRefused("x"), 1: AWAY}])
async def test_records_that_are_partly_refused_and_partly_not_delivered_are_not_delivered(answer: Failures) -> None:
    """Whichever comes first: what is told decides whether they are sent again."""
    async with served(source := Scripted(), sender=MemorySender(answers=[answer])):
        with pytest.raises(NotDelivered):
            await source.intake.offer([b"1", b"2"])


@pytest.mark.parametrize(
    ("stopping", "why"),
    [(asyncio.Event().wait, "TimeoutError"), (mock.AsyncMock(side_effect=ValueError("no")), "ValueError: no")],
)
async def test_a_source_that_cannot_be_closed_is_reported_and_opened_again(stopping: Any, why: str) -> None:
    """One that never finishes after the time of the drain; it does not wait for the lease's end."""
    source = Scripted(stopping=stopping)
    async with served(source, sender=MemorySender(), lease=a_lease(drain=0.02)) as running:
        source.restart("no more")
        await until(lambda: source.calls.count("start") == 2)
        report = await running.ended()
    assert report.last_error == f"the source cannot be closed: {why}. The receiver is started again"


async def test_a_source_that_raises_what_it_has_cancelled_is_ended_and_opened_again() -> None:
    """In `on_start` and in `on_stop`, as awaiting a cancelled task does; nothing of it goes on beside the next one."""
    beats: list[asyncio.Task[None]] = []

    class Cancels(Scripted):
        async def on_start(self) -> None:
            await super().on_start()
            if len(self.calls) == 1:
                raise asyncio.CancelledError
            beats.append(self.spawn(asyncio.sleep(60)))

    source = Cancels(stopping=mock.AsyncMock(side_effect=asyncio.CancelledError))
    async with served(source, sender=MemorySender()) as running:
        await until(lambda: beats)
        source.restart("no more")
        await until(lambda: len(beats) == 2)
        assert beats[0].cancelled()
        assert (await running.ended()).restarts == 2


async def test_a_source_that_hangs_when_it_is_opened_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "on_start", lambda _: asyncio.Event().wait())
    async with served(Scripted(), sender=MemorySender(), lease=a_lease(lasts_s=0.05)) as running:
        assert (await running.ended()).last_error is None


async def test_a_fault_of_the_delivery_ends_the_lease_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemorySender, "send", mock.AsyncMock(side_effect=ZeroDivisionError))
    async with served(source := Scripted(), sender=MemorySender()) as running:
        await source.store([b"1"])
        assert running.task is not None
        with pytest.raises(ZeroDivisionError):
            await running.task


def test_a_receiver_that_nobody_serves_stores_nothing() -> None:
    with pytest.raises(RequestError, match="not running"):
        _ = RecordSource().intake
    with pytest.raises(NotImplementedError):
        asyncio.run(RecordSource().on_start())
    asyncio.run(RecordSource().on_stop())
