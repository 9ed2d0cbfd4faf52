"""Runs one instance of a receiver until its lease ends.

It moves by the table of `tidegate_receivers.rules.lifecycle`. A source that fails is opened again after a delay; what it has
stored is delivered meanwhile. At the end of the lease the source stops accepting, the last block is delivered, and the client
is closed. What the broker has not acknowledged by the end of the drain is counted, and told.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from tidegate.core.model.errors import NotDelivered, TidegateError
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.lifecycle import Event, Restarts, State, after
from tidegate_receivers.rules.records import Sender
from tidegate_receivers.runtime.backpressure import Heard
from tidegate_receivers.runtime.intake import Intake, LeaseReport
from tidegate_receivers.runtime.producer import KafkaSender
from tidegate_receivers.runtime.receiver import GOES_ON, RecordSource, as_error

__all__ = ["Lease", "LeaseReport", "Status", "serve"]

STATUS_S = 2.0
"""How often a watcher hears how the instance does."""
LISTEN_S = 0.5
"""The pause between two looks at the pipeline behind an instance."""
FIRST_LOOK_S = 2.0
"""So long the source is opened later while the first look takes, so that an instance need not begin at its safe rate."""
TELL_AGAIN_S = 10.0
"""The same error is told once in this time."""


@dataclass(frozen=True)
class Lease:
    """What one instance is told for one run.

    Args:
        receiver: what its file holds.
        instance: which instance of it, from 0.
        host: the host that runs it, for the headers of its records.
        until_s: epoch s at which it stops accepting. A clock that is set while it runs does not change its length.
    """

    receiver: Receiver
    instance: int
    host: str
    _: KW_ONLY
    until_s: float


@dataclass(frozen=True, kw_only=True)
class Status:
    """How an instance does.

    Args:
        state: where it is in the table of states.
        buffer: used share of its buffer, from 0 to 1.
        report: what it has done so far.
        rate: the records/s that it may take in; None: there is no limit.
        room: how many records it may take in until it hears more; None: any number.
        lag: records of the topic that the pipeline has not loaded, as far as that was asked.
        deaf: whether it has heard nothing of the pipeline for too long, and goes on at its safe rate.
    """

    state: State
    buffer: float
    report: LeaseReport
    rate: float | None = None
    room: int | None = None
    lag: int | None = None
    deaf: bool = False


async def serve(
    source: RecordSource,
    lease: Lease,
    *,
    producer: Mapping[str, str],
    stop: asyncio.Event,
    tell: Callable[[str], None],
    sender: Sender | None = None,
    downstream: Callable[[], Heard] | None = None,
    watch: Callable[[Status], object] = lambda _: None,
) -> LeaseReport:
    """Run the source until the lease ends or `stop` is set, and deliver what it has stored.

    Args:
        source: what takes in records.
        lease: which instance, and until when.
        producer: the Kafka connection in librdkafka's names.
        stop: ends the lease early.
        tell: takes a sentence for the log; it contains no secret of the connection.
        sender: delivers the blocks; None: a Kafka producer.
        downstream: tells what the receiver's back-pressure goes by; it may take long, and raise anything.
        watch: hears every `STATUS_S` seconds how the instance does.
    """
    delivers = sender or KafkaSender(producer, lease.receiver.topic, max_record_bytes=lease.receiver.max_record_bytes)
    supervisor = _Supervisor(source, lease, sender=delivers, stop=stop, tell=tell)
    try:
        return await supervisor.run(watch, downstream)
    finally:
        await delivers.close()


@dataclass(eq=False)
class _Supervisor:
    """One run of one instance."""

    source: RecordSource
    lease: Lease
    _: KW_ONLY
    sender: Sender
    stop: asyncio.Event
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        lease, loop = self.lease, asyncio.get_running_loop()
        self._restarts = Restarts()
        self._state = State.INITIALIZED
        self._told: dict[str, float] = {}
        self._closing: asyncio.Future[None] | None = None
        self._looked: asyncio.Future[None] = loop.create_future()
        self._failure: asyncio.Future[TidegateError] = loop.create_future()
        self._intake = Intake(
            lease.receiver,
            lease.instance,
            lease.host,
            sender=self.sender,
            report=self._report,
            resumes=self.source.resumes,
        )
        self.source.attach(self._intake, self._failed)

    async def run(self, watch: Callable[[Status], object], downstream: Callable[[], Heard] | None) -> LeaseReport:
        """As `serve`."""
        shown = asyncio.create_task(self._show(watch))
        listening = asyncio.create_task(self._listen(downstream))
        delivery = asyncio.create_task(self._intake.deliver())
        end = asyncio.create_task(self._wait_for_end())
        delivery.add_done_callback(lambda _: end.cancel())  # it ends before the lease only by a fault, which `_drain` raises
        try:
            await self._live(end)
            await self._drain(delivery)
        finally:
            for task in (shown, listening, end, delivery):
                task.cancel()
            await asyncio.gather(shown, listening, end, delivery, return_exceptions=True)
            await self.source.end_tasks()
        return replace(self._intake.counts)

    async def _show(self, watch: Callable[[Status], object]) -> None:
        while True:
            watch(self._status())
            await asyncio.sleep(STATUS_S)

    def _status(self) -> Status:
        throttle, now_s = self._intake.throttle, time.monotonic()
        rate, room, heard = throttle.limit(now_s), throttle.room(now_s), throttle.heard
        return Status(
            state=self._state,
            buffer=self._intake.fill,
            report=replace(self._intake.counts),
            rate=None if rate == math.inf else rate,
            room=None if room == math.inf else max(0, int(room)),
            lag=None if heard is None else heard.lag,
            deaf=throttle.is_deaf(now_s),
        )

    async def _listen(self, downstream: Callable[[], Heard] | None) -> None:
        """Hear again and again how the pipeline does. What it says of a look is what the instance had taken in before it."""
        if downstream is None:
            self._looked.set_result(None)
            return
        # a thread of its own, which nobody waits for: a look that hangs delays no end of a lease
        looks = ThreadPoolExecutor(1, "tidegate-downstream")
        try:
            while True:
                taken = self._intake.throttle.taken
                try:
                    self._intake.hear(await asyncio.get_running_loop().run_in_executor(looks, downstream), taken)
                except Exception as error:  # noqa: BLE001 - whatever a client raises, the instance goes on
                    self._report(as_error("it is not known how the pipeline does", error, fix=GOES_ON))
                if not self._looked.done():
                    self._looked.set_result(None)
                await asyncio.sleep(LISTEN_S)
        finally:
            looks.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_end(self) -> None:
        left_s = self.lease.until_s - time.time()
        if left_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), left_s)

    async def _live(self, end: asyncio.Task[None]) -> None:
        """Open the source again and again, until the lease ends."""
        failures = 0
        await asyncio.sleep(0)  # a lease that is over already ends before anything is opened
        await asyncio.wait({self._looked, end}, timeout=FIRST_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        while not end.done():
            started_s = time.monotonic()
            if not await self._open(end):
                return
            if not await _first(self._failure, end):
                return
            failures = self._restarts.failures(failures, time.monotonic() - started_s)
            was_open = self._state is State.STARTED
            self._move(Event.FAIL)
            if was_open:
                self._closing = asyncio.ensure_future(self._close())
                if not await _first(self._closing, end):
                    return
            delay_s = self._restarts.delay_s(failures, random.random())  # noqa: S311 - jitter
            self.tell(f"{self._intake.name} starts again in {delay_s:.1f} s")
            await asyncio.wait({end}, timeout=delay_s)
            self._intake.counts.restarts += not end.done()

    async def _open(self, end: asyncio.Task[None]) -> bool:
        """Open the source; False: the lease ended meanwhile. An error is put where failures are."""
        self._failure = asyncio.get_running_loop().create_future()
        opening = asyncio.ensure_future(self.source.on_start())
        if not await _first(opening, end):
            await _cancelled(opening)
            return False
        error = asyncio.CancelledError() if opening.cancelled() else opening.exception()
        if error is not None:
            self._failed(as_error("the source cannot be opened", error))
            await self.source.end_tasks()
        else:
            self._move(Event.START)
        return True

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self.lease.receiver.drain):
                await self.source.on_stop()
        except Exception as error:  # noqa: BLE001 - whatever a receiver raises, its records are delivered
            self._report(as_error("the source cannot be closed", error))
        finally:  # also where it raises what it has cancelled itself
            await self.source.end_tasks()

    async def _drain(self, delivery: asyncio.Task[None]) -> None:
        """Close the source, and deliver what it has stored, for as long as the drain may take."""
        until_s = time.monotonic() + self.lease.receiver.drain
        if self._state is State.STARTED:
            self._closing = asyncio.ensure_future(self._close())
        self._move(Event.STOP)
        self._intake.hurry()
        if self._closing is not None:
            await asyncio.wait({self._closing}, timeout=self.lease.receiver.drain)
            await _cancelled(self._closing)
        await self.source.end_tasks()
        self._intake.close()
        await asyncio.wait({delivery}, timeout=max(0.0, until_s - time.monotonic()))
        if not delivery.done():
            self._intake.give_up()
        await delivery
        if lost := self._intake.counts.undelivered:
            self._report(
                NotDelivered(
                    f"{lost} records were not acknowledged within the drain of {self.lease.receiver.drain:g} s",
                    fix="See the broker's log; lengthen the drain, or let the sender send them again",
                    records=lost,
                )
            )
        self._move(Event.DRAINED)

    def _failed(self, error: TidegateError) -> None:
        """The source has failed."""
        self._report(error)
        if not self._failure.done():
            self._failure.set_result(error)

    def _report(self, error: TidegateError) -> None:
        self._intake.counts.last_error = str(error)
        now_s = time.monotonic()
        if now_s - self._told.get(error.message, -TELL_AGAIN_S) >= TELL_AGAIN_S:
            self._told = {text: at_s for text, at_s in self._told.items() if now_s - at_s < TELL_AGAIN_S}
            self._told[error.message] = now_s
            self.tell(f"{self._intake.name}: {error}")

    def _move(self, event: Event) -> None:
        self._state = after(self._state, event)
        self.tell(f"{self._intake.name} is {self._state}")


async def _first(wanted: asyncio.Future[Any], end: asyncio.Future[None]) -> bool:
    """Wait for either; whether the lease goes on."""
    waiting: set[asyncio.Future[Any]] = {wanted, end}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    return not end.done()


async def _cancelled(work: asyncio.Future[Any]) -> None:
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
