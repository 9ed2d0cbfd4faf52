"""What a source stores gathers here, goes to Kafka block by block, and is answered by the broker's delivery reports.

There are two ways in. `store` is for sources whose sender cannot be told (a line of a socket, a file): it waits for rate and
room, which is what slows the sender, and its records are sent again until they are acknowledged. `offer` is for sources that
can answer (HTTP): it refuses at once where there is no rate or room, its block does not wait for the interval, and a failure is
told instead of mended, so that the sender decides.

One block is on its way at a time, and the next one gathers meanwhile. So records keep their order, also when some of them are
sent again.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeAlias

from tidegate.core.model.counts import check_count
from tidegate.core.model.errors import BrokerUnavailable, NotDelivered, Overloaded, RecordRefused, TidegateError
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.lifecycle import Restarts
from tidegate_receivers.rules.limits import MEMORY_BYTES, BlockBuffer, RecordBlock
from tidegate_receivers.rules.records import Failures, Outgoing, Sender, headers_of, idempotency_headers
from tidegate_receivers.runtime.backpressure import Heard, Taken, Throttle

Ticket: TypeAlias = "asyncio.Future[None]"
"""Ends when the broker has acknowledged all records of one call; RecordRefused or NotDelivered where that does not come."""

AGAIN = Restarts(first_s=0.1, longest_s=5.0)
"""The pauses before a block is sent again."""
STUCK_S = 5.0
"""A block that is on its way for longer than this means that the broker is away."""
GIVEN_UP = NotDelivered("the drain is over", fix="Lengthen the drain, or let the sender send the records again")
"""Of records that are not sent any more. One that was sent behind a failure would move a file's place past it."""
PATIENCE_S = 1.0
"""Seconds that an offer may wait for its rate before it is refused."""
LOOK_S = 1.0
"""What a wait depends on may change with time alone; so often it is looked at."""


@dataclass(eq=False, slots=True)
class _Entry:
    """The records of one call of `store` or `offer`."""

    values: Sequence[bytes]
    _: KW_ONLY
    key: bytes | None
    stream: int
    resend: bool
    idempotency_key: str | None = None
    record_keys: Sequence[str | None] = ()
    received_at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    ticket: Ticket = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    error: TidegateError | None = None


@dataclass(kw_only=True)
class LeaseReport:
    """What an instance has done.

    Args:
        records: acknowledged by the broker.
        bytes: of the values of these.
        blocks: how many they were sent in.
        restarts: how often the source was opened again.
        refused: records that were too long, or incomplete.
        throttled_s: seconds that the source was held back by its rate or a full buffer.
        last_error: the last error; None: there was none.
        undelivered: records that the source was not told about and the broker has not acknowledged by the end of the drain.
    """

    records: int = 0
    bytes: int = 0
    blocks: int = 0
    restarts: int = 0
    refused: int = 0
    throttled_s: float = 0.0
    last_error: str | None = None
    undelivered: int = 0


@dataclass(eq=False)
class Intake:
    """The buffer of one instance, and the task that empties it.

    Args:
        receiver: what its file holds, how much is taken in among it.
        instance: which instance of it, from 0.
        host: the host that it runs on.
        sender: what delivers the blocks.
        report: takes an error for the log.
        resumes: whether the source reads again what was not delivered.
    """

    receiver: Receiver
    instance: int
    host: str
    _: KW_ONLY
    sender: Sender
    report: Callable[[TidegateError], None]
    resumes: bool = False
    counts: LeaseReport = field(default_factory=LeaseReport)

    def __post_init__(self) -> None:
        of = self.receiver
        self._buffer: BlockBuffer[_Entry] = BlockBuffer(of.block.interval, of.block.bytes, of.buffer_bytes)
        self.throttle = Throttle(of.backpressure, of.rate.max)
        self._turn = asyncio.Lock()  # who waits for rate or room first gets it first
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._hurried = asyncio.Event()
        self._closing = False
        self._over = asyncio.Event()
        self._sent_s = math.inf
        self._error: TidegateError | None = None
        self._run = uuid.uuid4().hex[:12]

    @property
    def name(self) -> str:
        """The receiver and which instance of it."""
        return f"{self.receiver.name}[{self.instance}]"

    @property
    def fill(self) -> float:
        """Used share of the buffer, from 0 to 1."""
        return self._buffer.used / self._buffer.capacity

    async def store(self, values: Sequence[bytes], *, key: bytes | None = None, stream: int = 0) -> Ticket:
        """Store records, after waiting for rate and room.

        Args:
            values: the records, in order; at least one.
            key: their key in Kafka.
            stream: records without a key keep their order within a stream, such as a connection.

        Returns:
            What ends when the last record is acknowledged. It need not be awaited.

        Raises:
            RecordRefused: a record is longer than `max_record_bytes`; nothing is stored.
        """
        self._check(values)
        left = len(values)
        try:
            async with self._turn:
                while left:
                    part, size = _part(values, len(values) - left, len(key or b""), self._buffer.capacity // 4)
                    fits = await self._wait(len(part), size)
                    if fits < len(part):
                        part, size = part[:fits], _size(part[:fits], len(key or b""))
                    ticket = self._add(_Entry(part, key=key, stream=stream, resend=True), size)
                    left -= len(part)
        except asyncio.CancelledError:
            self.counts.undelivered += 0 if self.resumes else left
            raise
        return ticket

    def offer(
        self,
        values: Sequence[bytes],
        *,
        key: bytes | None = None,
        stream: int = 0,
        idempotency_key: str | None = None,
        record_keys: Sequence[str | None] = (),
    ) -> Ticket:
        """Store records now, or refuse them all. A ticket that is cancelled drops what is not on its way yet.

        Args:
            values: the records, in order; at least one.
            key: their key in Kafka.
            stream: records without a key of either kind keep their order within a stream.
            idempotency_key: the sender's name of this request, for the records' headers.
            record_keys: where the request has none, each record's own name; none: no record has one.

        Raises:
            RecordRefused: a record is longer than `max_record_bytes`, or all together can never fit.
            Overloaded: there is no room now, or the instance stops.
            BrokerUnavailable, or another error of Kafka: records wait for the broker.
        """
        self._check(values)
        size = _size(values, len(key or b"")) + sum(len(own or "") for own in record_keys)
        if size > self._buffer.capacity:
            raise RecordRefused(
                f"{len(values)} records need {size} bytes of a buffer of {self._buffer.capacity}", fix="Send fewer at a time"
            )
        if self.trouble is not None:
            raise self.trouble
        if self._closing or not self._buffer.has_room(size):
            raise Overloaded("the receiver's buffer is full", fix="Send the request again a moment later")
        return self._add(
            _Entry(values, key=key, stream=stream, resend=False, idempotency_key=idempotency_key, record_keys=record_keys), size
        )

    async def admit(self, patience_s: float) -> bool:
        """Wait until any record may be offered; whether that was so in time. Ask before a request is read.

        Args:
            patience_s: how long it may wait.
        """
        until_s = _now_s() + patience_s
        while not self.throttle.room(_now_s()) > 0:
            left_s = until_s - _now_s()
            if left_s <= 0 or self._hurried.is_set():
                return False
            await self._until_changed(min(LOOK_S, left_s))
        return True

    async def pace(self, records: int) -> float:
        """Wait until the rate and the pipeline allow so many offered records, if that is soon. Then offer them at once.

        A request is landed as a whole, so it may have more records than the pipeline has room for.

        Returns:
            0: they may be offered now. Otherwise the seconds after which to ask again: too many are waiting.
        """
        wait_s = self.throttle.delay_s(now_s := _now_s())
        if wait_s > PATIENCE_S:
            return wait_s
        await self._throttle(self.throttle.acquire(records, now_s))
        return 0.0 if await self.admit(PATIENCE_S) else LOOK_S

    @property
    def trouble(self) -> TidegateError | None:
        """Why records do not reach the broker now; None: they do, or none wait."""
        if self._error is not None:
            return self._error
        stuck_s = _now_s() - self._sent_s
        if stuck_s < STUCK_S:
            return None
        return self.sender.trouble or BrokerUnavailable(
            f"the broker has acknowledged nothing for {stuck_s:.0f} s", fix="See the broker's log"
        )

    async def deliver(self) -> None:
        """Send block after block, until the intake is closed and empty."""
        while (block := await self._next()) is not None:
            await self._deliver(block)
            self._buffer.release(block)
            self.throttle.ended(block.records)
            self._changed.set()

    def hear(self, heard: Heard, taken: Taken) -> None:
        """How the pipeline does, as a look has found that began when so much was taken in."""
        self.throttle.hear(heard, taken, _now_s())
        self._changed.set()

    def hurry(self) -> None:
        """The lease ends: no block waits for its interval any more, and `store` neither for its rate nor for the pipeline."""
        self._hurried.set()
        self._wake.set()
        self._changed.set()

    def close(self) -> None:
        """Nothing more comes: what waits is delivered, then `deliver` ends."""
        self._closing = True
        self._wake.set()

    def give_up(self) -> None:
        """The drain is over: what has no acknowledgement is not sent again, and `deliver` ends."""
        self.close()
        self._over.set()
        self.sender.give_up()

    # ---- in

    def _check(self, values: Sequence[bytes]) -> None:
        check_count("records", len(values), least=1)
        longest = max(map(len, values))
        if longest > self.receiver.max_record_bytes:
            self.counts.refused += sum(len(value) > self.receiver.max_record_bytes for value in values)
            raise RecordRefused(
                f"a record of {longest} bytes is longer than {self.receiver.max_record_bytes}",
                fix="Raise max_record_bytes of the receiver, or send smaller records",
                bytes=longest,
            )

    def _add(self, entry: _Entry, size: int) -> Ticket:
        self.throttle.stored(len(entry.values))
        idle = self._buffer.due_s
        self._buffer.add(entry, records=len(entry.values), size=size, now_s=_now_s(), prompt=not entry.resend)
        if self._buffer.due_s < idle or self._hurried.is_set():
            self._wake.set()
        return entry.ticket

    async def _wait(self, records: int, size: int) -> int:
        """Wait until records may be stored; how many of so many may, at least 1."""
        while not self._may_begin(now_s := _now_s()):
            await self._until_changed(LOOK_S)
        fits = self._fits(records, now_s)
        if not self._hurried.is_set():
            await self._throttle(self.throttle.acquire(fits, now_s))
        while not (self._buffer.has_room(size) and self._fits(fits, now_s := _now_s()) > 0):
            await self._until_changed(LOOK_S)
        return self._fits(fits, now_s)

    def _may_begin(self, now_s: float) -> bool:
        """Whether the pipeline has room, and the rate a turn that is so near that it may be reserved."""
        return self._hurried.is_set() or (self.throttle.room(now_s) > 0 and self.throttle.delay_s(now_s) <= LOOK_S)

    def _fits(self, records: int, now_s: float) -> int:
        """How many of so many records the pipeline has room for; not above 0: none."""
        return records if self._hurried.is_set() else int(min(records, self.throttle.room(now_s)))

    async def _until_changed(self, at_most_s: float) -> None:
        """Wait for more room, or for news of the pipeline; the time counts as held back."""
        since_s = _now_s()
        self._changed.clear()
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self.counts.throttled_s += _now_s() - since_s

    async def _throttle(self, wait_s: float) -> None:
        if wait_s > 0:
            self.counts.throttled_s += wait_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), wait_s)

    # ---- out

    async def _next(self) -> RecordBlock[_Entry] | None:
        while True:
            now_s = _now_s()
            block = self._buffer.cut(math.inf if self._hurried.is_set() or self._closing else now_s)
            if block is not None or self._closing:
                return block
            self._wake.clear()
            due_s = self._buffer.due_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if due_s == math.inf else max(0.0, due_s - now_s))

    async def _deliver(self, block: RecordBlock[_Entry]) -> None:
        """Send a block until each of its records is acknowledged, refused, or given up."""
        self.counts.blocks += 1
        records, owners = self._records(block)
        failures = 0
        while records:
            failed = dict.fromkeys(range(len(records)), GIVEN_UP) if self._over.is_set() else await self._send(records)
            for error in {error.message: error for error in failed.values()}.values():
                self.report(error)
            self.counts.records += len(records) - len(failed)
            self.counts.bytes += sum([len(out.value) for out in records])
            self.counts.bytes -= sum(len(records[at].value) for at in failed)
            left = [at for at in sorted(failed) if self._is_open(owners[at], failed[at])]
            waiting = {id(owners[at]) for at in left}
            for owner, _ in itertools.groupby(owners):  # an entry's records are beside each other
                if id(owner) not in waiting:
                    _settle(owner)
            failures = 0 if len(left) < len(records) else failures + 1
            records, owners = [records[at] for at in left], [owners[at] for at in left]
            if left:
                self._error = failed[left[0]]
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), AGAIN.delay_s(max(failures, 1), random.random()))  # noqa: S311
        self._error = None

    async def _send(self, records: Sequence[Outgoing]) -> Failures:
        self._sent_s = _now_s()
        try:
            return await self.sender.send(records)
        finally:
            self._sent_s = math.inf

    def _records(self, block: RecordBlock[_Entry]) -> tuple[list[Outgoing], list[_Entry]]:
        """The records of a block, and the entry of each; none of an entry whose sender has gone."""
        name = f"{self.receiver.name}-{self.instance}-{self._run}-{self.counts.blocks}"
        records: list[Outgoing] = []
        owners: list[_Entry] = []
        for entry in block.items:
            if entry.ticket.cancelled():
                continue
            shared = headers_of(self.receiver.name, self.instance, self.host, entry.received_at_ms, name)
            owners += [entry] * len(entry.values)
            if entry.idempotency_key is None and not entry.record_keys:
                records += [Outgoing(value, entry.key, entry.stream, shared) for value in entry.values]
            else:
                named = zip(
                    entry.values, idempotency_headers(entry.stream, entry.idempotency_key, entry.record_keys), strict=False
                )
                records += [
                    Outgoing(value, entry.key, stream, shared if own is None else [*shared, own])
                    for value, (stream, own) in named
                ]
        return records, owners

    def _is_open(self, owner: _Entry, error: TidegateError) -> bool:
        """Take note of the failure of a record; whether it is sent again."""
        if isinstance(error, RecordRefused):
            self.counts.refused += 1
        elif not owner.resend:
            pass  # its sender is told
        elif self._over.is_set():
            self.counts.undelivered += not self.resumes
        else:
            return True
        if owner.error is None or isinstance(owner.error, RecordRefused):  # not delivered is the worse of the two
            owner.error = error
        return False


def _settle(entry: _Entry) -> None:
    """Answer for an entry, of which no record is open any more."""
    if entry.ticket.done():
        return
    if entry.error is None:
        entry.ticket.set_result(None)
        return
    error = entry.error
    if not isinstance(error, RecordRefused):
        error = NotDelivered(f"not acknowledged: {error.message}", fix=error.fix or "Send the records again")
    entry.ticket.set_exception(error)
    entry.ticket.exception()  # asyncio complains of errors that nobody looks at, and nobody has to look at this one


def _size(values: Sequence[bytes], key_bytes: int) -> int:
    return sum(map(len, values)) + len(values) * (key_bytes + MEMORY_BYTES)


def _part(values: Sequence[bytes], since: int, key_bytes: int, most: int) -> tuple[Sequence[bytes], int]:
    """The values from `since` on, at most so many bytes of them or one value, and their size."""
    rest = values[since:] if since else values
    size = _size(rest, key_bytes)
    if size <= most:
        return rest, size
    size = 0
    for at, value in enumerate(rest):
        one = len(value) + key_bytes + MEMORY_BYTES
        if size and size + one > most:
            return rest[:at], size
        size += one
    return rest, size


def _now_s() -> float:
    return time.monotonic()
