"""Laws of what an instance does with back-pressure: it holds its senders, loses nothing, and goes on when it hears nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from tests.receivers import MemoryDownstream, MemorySender, Scripted, a_lease, connect, served, texts, until
from tests.unit.test_receiver_sources import post
from tidegate_receivers.config.receiver import Block, Rate, Receiver, ReceiverBackpressure
from tidegate_receivers.rules.lifecycle import State
from tidegate_receivers.runtime import intake, supervisor
from tidegate_receivers.runtime.backpressure import Heard
from tidegate_receivers.runtime.intake import Intake
from tidegate_receivers.runtime.sources import HttpSource, SocketSource, TcpServerSource

SOON = Block(0.001)
NUMBERS = [b"%d" % n for n in range(50)]
CREDIT: dict[str, Any] = {"block": SOON, "backpressure": ReceiverBackpressure("credit", max_backlog=10, safe_rate=0)}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LISTEN_S", 0.001)


def behind(sender: MemorySender, **more: Any) -> MemoryDownstream:
    """A pipeline that loads what the sender lands."""
    return MemoryDownstream(lambda: len(sender.log), **more)


async def some_looks(pipeline: MemoryDownstream) -> None:
    """Wait until the instance has looked at it a few times more."""
    enough = pipeline.asked + 5
    await until(lambda: pipeline.asked > enough)


async def test_under_credit_a_source_lands_as_many_records_as_the_pipeline_has_room_for() -> None:
    """One call of `store` waits in the middle; order is kept, and what is loaded makes room for as many."""
    sender = MemorySender()
    pipeline, source = behind(sender), Scripted()
    async with served(source, sender=sender, lease=a_lease(**CREDIT), downstream=pipeline) as running:
        storing = asyncio.create_task(source.store(NUMBERS[:35]))
        for loaded in (0, 10, 17, 25):
            pipeline.loaded = loaded
            await until(lambda: len(sender.log) == min(35, pipeline.loaded + 10))
            await some_looks(pipeline)
            assert len(sender.log) == min(35, loaded + 10)
        await (await storing)
        report = await running.ended()
    assert texts(sender) == NUMBERS[:35]
    assert (report.records, report.undelivered, report.last_error) == (35, 0, None)
    assert report.throttled_s > 0


@pytest.mark.parametrize("kind", [TcpServerSource, SocketSource])
@pytest.mark.parametrize("settings", [CREDIT, {"rate": Rate(10)}])
async def test_what_was_sent_before_a_lease_ends_is_landed_whatever_holds_it_back(kind: type, settings: dict[str, Any]) -> None:
    """Nobody else has it, also what is in the buffers of the system; the sender stops when it is half-closed."""
    lines = [b"%0100d" % n for n in range(5000)]

    async def sending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(line + b"\n" for line in lines)
        await reader.read()
        writer.close()

    sender = MemorySender()
    server = await asyncio.start_server(sending, "127.0.0.1", 0)
    source = kind() if kind is TcpServerSource else SocketSource(*server.sockets[0].getsockname())
    async with served(source, sender=sender, lease=a_lease(**settings), downstream=behind(sender)) as running:
        if isinstance(source, TcpServerSource):
            sent = asyncio.create_task(sending(*await connect(source.listening_on)))
        await until(lambda: sender.log)
        report = await running.ended()
    if kind is TcpServerSource:
        await sent
    server.close()
    assert texts(sender) == lines
    assert (report.undelivered, report.last_error) == (0, None)


async def test_http_holds_a_request_until_there_is_room_and_answers_429_when_that_takes_too_long() -> None:
    """Its body is read no sooner, and its sender is told when to come again."""
    sender = MemorySender()
    pipeline, source = behind(sender), HttpSource(answer_s=0.2)
    async with served(source, sender=sender, lease=a_lease(**CREDIT), downstream=pipeline):
        many = b"[%s]" % b",".join(NUMBERS[:12])  # a request is landed as a whole
        assert (await post(source.listening_on, many)).startswith(b"202")
        await until(lambda: source.intake.throttle.room(time.monotonic()) <= 0)
        refused = await post(source.listening_on, b"1")
        assert refused.startswith(b"429")
        assert b"Retry-After: 1" in refused
        source.answer_s = 60
        waiting = asyncio.create_task(post(source.listening_on, b"1"))
        await some_looks(pipeline)
        assert not waiting.done()
        pipeline.loaded = 12
        assert (await waiting).startswith(b"202")
    assert len(sender.log) == 13


async def test_a_request_that_waits_for_room_when_the_lease_ends_is_sent_to_the_next_one() -> None:
    source = HttpSource(answer_s=60)
    lease = a_lease(backpressure=ReceiverBackpressure("credit", safe_rate=0))
    async with served(source, sender=MemorySender(), lease=lease) as running:
        waiting = asyncio.create_task(post(source.listening_on, b"1"))
        await until(lambda: source.intake.counts.throttled_s == 0 and source._peers)
        await running.ended()
        assert (await waiting).startswith(b"429")


async def test_an_instance_that_cannot_ask_says_so_and_goes_on_at_its_safe_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STATUS_S", 0.001)
    sender = MemorySender()
    pipeline, source = behind(sender, away=True), Scripted()
    lease = a_lease(block=SOON, backpressure=ReceiverBackpressure("credit", max_backlog=10, safe_rate=1e6))
    async with served(source, sender=sender, lease=lease, downstream=pipeline) as running:
        assert await running.until_told("away") == "r[0]: away"
        await (await source.store(NUMBERS))
        await until(lambda: running.shown[-1].report.records == 50)
        last = running.shown[-1]
        assert (last.state, last.buffer, last.rate, last.room, last.lag, last.deaf) == (State.STARTED, 0, 1e6, None, None, True)
        pipeline.loaded = 47  # first: the instance looks from another thread
        pipeline.away = False
        # a look that began before the records were landed may end after it
        await until(lambda: (None, 7, 3) in [(shown.rate, shown.room, shown.lag) for shown in running.shown])


async def test_a_source_is_opened_after_the_first_look_unless_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a lease that begins with a full backlog takes nothing first; nobody waits for brokers that are away."""
    monkeypatch.setattr(supervisor, "FIRST_LOOK_S", 0.1)
    opened: list[bool] = []
    answers = threading.Event()

    class Slow(MemoryDownstream):
        def __call__(self) -> Heard:
            answers.wait(30)
            return super().__call__()

    class Opened(Scripted):
        async def on_start(self) -> None:
            opened.append(self.intake.throttle.heard is not None)

    sender = MemorySender()
    for slow in (False, True):
        answers.clear() if slow else answers.set()
        async with served(Opened(), sender=sender, lease=a_lease(**CREDIT), downstream=Slow(lambda: len(sender.log))):
            await until(lambda: len(opened) == 1 + slow)  # noqa: B023 - awaited here
            answers.set()
    assert opened == [True, False]


def test_a_look_that_hangs_delays_no_end_of_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_LOOK_S", 0.1)
    asked, answers, ended = (threading.Event() for _ in range(3))

    def hangs() -> Heard:
        asked.set()
        answers.wait(30)
        ended.set()
        return Heard(lag=0)

    async def lease() -> None:
        async with served(Scripted(), sender=MemorySender(), downstream=hangs):
            await until(asked.is_set)

    asyncio.run(lease())
    assert not ended.is_set()
    answers.set()


SILENCE_S = 30.0


def clock(looks: int) -> Callable[[], float]:
    """Stands still just before the silence is over, until it was looked at so often; then it is over."""
    left = iter(range(looks))
    return lambda: SILENCE_S + (0.001 if next(left, None) is None else -0.001)


def instance(backpressure: ReceiverBackpressure, monkeypatch: pytest.MonkeyPatch) -> Intake:
    """One that has heard of the pipeline at 0 s."""
    receiver = Receiver("r", "m:Class", "t", block=SOON, backpressure=backpressure)
    found = Intake(receiver, 0, "h", sender=MemorySender(), report=lambda _: None)
    monkeypatch.setattr(intake, "_now_s", lambda: 0.0)
    found.hear(Heard(lag=0), found.throttle.taken)
    return found


@pytest.mark.parametrize("looks", range(10))
async def test_records_wait_where_the_safe_rate_is_0(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whichever look at the clock the silence is over, the call waits or stores; it does not fail."""
    found = instance(ReceiverBackpressure("rate", safe_rate=0, silence=SILENCE_S), monkeypatch)
    monkeypatch.setattr(intake, "_now_s", clock(looks))
    storing = asyncio.create_task(found.store([b"a", b"b"]))
    for _ in range(5):
        await asyncio.sleep(0)
    found.hear(Heard(lag=0), found.throttle.taken)
    await storing
    assert found.throttle.taken.stored == 2


@pytest.mark.parametrize("looks", range(10))
async def test_no_turn_is_reserved_that_is_far_away(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a line nor by a request: nobody could end a sleep of minutes when the lease ends."""
    found = instance(ReceiverBackpressure("rate", safe_rate=1, silence=SILENCE_S), monkeypatch)
    monkeypatch.setattr(Intake, "_throttle", slept := mock.AsyncMock())
    monkeypatch.setattr(intake, "_now_s", lambda: SILENCE_S - 0.001)
    await found.store([b"x"] * 600)
    monkeypatch.setattr(intake, "_now_s", clock(looks))
    await found.pace(1)
    monkeypatch.setattr(intake, "_now_s", clock(looks))
    storing = asyncio.create_task(found.store([b"a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    storing.cancel()
    await asyncio.gather(storing, return_exceptions=True)
    assert max(call.args[-1] for call in slept.call_args_list) <= intake.LOOK_S
