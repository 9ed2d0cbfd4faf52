"""A receiver in virtual time: its instances' own `Throttle`, between modelled senders, a topic, and the runs of a pipeline.

A record waits at its sender until an instance takes it in, in the instance's buffer until Kafka has it, and in the topic until
a run of the pipeline is committed. Nothing is dropped: what is not taken in waits at the sender.

An instance takes in records as `tidegate.ingest.intake` does for a source whose sender cannot be told: it waits for the
pipeline and the rate, stores what fits, and sends a block at each interval. It looks at the pipeline as the supervisor does.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tidegate.core.counts import check_count
from tidegate.core.errors import RequestError
from tidegate.core.rates.checks import check_number
from tidegate.core.rates.control import RateControl
from tidegate.core.receivers.backpressure import Backpressure, Heard, Taken, Throttle, loadable_rate, records_behind
from tidegate.core.simulation.plant import Plant, PlantBatch, Runs
from tidegate.core.simulation.steps import Steps
from tidegate.core.state.cursor import Cursor

LISTEN_S = 0.5
"""The pause between two looks of an instance, as of the supervisor."""
ANSWER_S = 0.05
"""What a look takes: half of it to one and a half."""
LOOK_S = 2.0
"""So often a look reads the cursor anew, and what instances have told, as the port of the platform does."""
TELL_S = 2.0
"""So often an instance tells how full its buffer is."""
NEAR_S = 1.0
"""A turn of the rate is reserved when it is at most so far away, as the intake does."""
SAMPLES = 600
"""Of one simulation, at equal distances."""
MOST_BLOCKS = 10_000_000
"""Of all instances, sent or not."""


@dataclass(frozen=True)
class Inlet:
    """A receiver, its senders, and the pipeline that loads its topic.

    Args:
        plant: the pipeline; its arrivals are what the senders send, in equal parts to each instance.
        control: the pipeline's rate policy; None: nothing bounds its batches but the plant's limits.
        instances: of the receiver.
        max_rate: records/s that an instance never exceeds; None: no maximum.
        buffer: records that an instance's buffer has room for.
        block_s: seconds after which a block goes to Kafka, and by which it is acknowledged.

    Raises:
        ConfigError, RequestError: an argument is out of its bounds.
    """

    plant: Plant
    control: RateControl | None = None
    instances: int = 1
    max_rate: float | None = None
    buffer: int = 20_000
    block_s: float = 0.2

    def __post_init__(self) -> None:
        check_count("instances", self.instances, least=1)
        check_count("buffer", self.buffer, least=1)
        check_number("block_s", self.block_s)
        Throttle(Backpressure(), self.max_rate)

    @property
    def sent(self) -> Steps:
        """Records/s that the senders send."""
        return Steps.of(self.plant.arrivals)

    def run(self, backpressure: Backpressure, seconds: float, *, seed: int = 0) -> Flow:
        """What flows under a policy of back-pressure, with noise and looks of that seed.

        Raises:
            RequestError: the instances would send more than `MOST_BLOCKS` blocks.
        """
        check_number("seconds", seconds)
        if seconds / self.block_s * self.instances > MOST_BLOCKS:
            raise RequestError(
                f"{seconds:g} s have more than {MOST_BLOCKS:,} blocks of {self.block_s:g} s, of all instances",
                fix="Simulate a shorter time, or fewer instances",
            )
        return _Simulation(self, backpressure, seconds, seed).run()


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the records are at a second: sent so far, waiting at senders, in buffers, in the topic (`lag`), loaded so far."""

    second: float
    sent: int
    waiting: int
    buffered: int
    lag: int
    loaded: int

    @property
    def unloaded(self) -> int:
        """Records that were sent and are not loaded."""
        return self.sent - self.loaded


@dataclass
class Flow:
    """What flowed.

    Args:
        samples: at equal distances, from 0 to the end.
        batches: of the pipeline.
        most_lag: records in the topic at most, at any time.
        most_buffered: records in one instance's buffer at most, at any time.
        held_s: seconds in which an instance with records at its sender waited for the rate, the pipeline or its buffer; their
            mean.
    """

    samples: list[Sample] = field(default_factory=list)
    batches: list[PlantBatch] = field(default_factory=list)
    most_lag: int = 0
    most_buffered: int = 0
    held_s: float = 0.0


class _Simulation:
    """One run of an inlet: what happens next, and where the records are."""

    def __init__(self, inlet: Inlet, backpressure: Backpressure, seconds: float, seed: int) -> None:
        self.inlet = inlet
        self.seconds = seconds
        self.chance = random.Random(seed)  # noqa: S311 - looks of a model, no secret
        self.control = inlet.control or RateControl({"policy": "static"}, inlet.plant.interval_s)
        self.runs = Runs(inlet.plant, self.control.policy(), seed, produced=lambda _: self.landed)
        self.sent = inlet.sent
        self.landed = inlet.plant.backlog
        self.loaded = 0
        self.cursor = self._saved()  # as an instance can read it: a run moves it when it is committed
        self.told: dict[str, tuple[float, float]] = {}  # how full each buffer is, and when that was told
        self.flow = Flow()
        self._next: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = iter(range(1 << 62))
        self.instances = [_Instance(self, number, backpressure) for number in range(inlet.instances)]

    def run(self) -> Flow:
        """Everything that happens before the end."""
        for instance in self.instances:
            instance.start()
        self.at(self.runs.starts_s, self._run)
        for k in range(SAMPLES + 1):
            self.at(self.seconds * k / SAMPLES, self._sample)
        while self._next and self._next[0][0] <= self.seconds:
            now_s, _, happens = heapq.heappop(self._next)
            happens(now_s)
        self.flow.batches = [batch for batch in self.runs.trace.batches if batch.ended_s <= self.seconds]
        self.flow.held_s = sum(instance.held_s for instance in self.instances) / len(self.instances)
        return self.flow

    def at(self, second: float, happens: Callable[[float], None]) -> None:
        """Let something happen then."""
        heapq.heappush(self._next, (second, next(self._numbers), happens))

    def sent_to(self, number: int, now_s: float) -> int:
        """Records that were sent to an instance so far: each gets one in turn."""
        count = len(self.instances)
        return (self._sent(now_s) + count - 1 - number) // count

    def land(self, records: int) -> None:
        """The topic has so many records more."""
        self.landed += records
        self.flow.most_lag = max(self.flow.most_lag, self.landed - self.loaded)

    def heard(self, cursor: Cursor, buffers: Mapping[str, tuple[float, float]], now_s: float) -> Heard:
        """What a look finds."""
        plant = self.inlet.plant
        return Heard(
            lag=records_behind(cursor, self.runs.watermarks(now_s)),
            rate=loadable_rate(self.control, plant.limits.max_records, cursor, plant.interval_s),
            instances=len(self.instances),
            buffers=buffers,
        )

    def _run(self, _: float) -> None:
        batch = self.runs.step(self.seconds)
        if batch is not None:
            self.at(batch.ended_s, partial(self._commit, batch.records, self._saved()))
        self.at(self.runs.starts_s, self._run)

    def _commit(self, records: int, cursor: Cursor, _: float) -> None:
        self.loaded += records
        self.cursor = cursor

    def _saved(self) -> Cursor:
        """The cursor with the state of the rate policy as the platform saves it."""
        cursor = self.runs.cursor
        return replace(cursor, rate_state=self.control.saved(cursor.rate_state))

    def _sent(self, now_s: float) -> int:
        # a sum of floats may miss the whole number that it is by its last digits
        return int(self.sent.total(0.0, now_s) + 1e-6)

    def _sample(self, now_s: float) -> None:
        waiting = sum(instance.waiting(now_s) for instance in self.instances)
        buffered = sum(instance.buffered for instance in self.instances)
        backlog = self.inlet.plant.backlog  # as though it had been sent before the beginning
        self.flow.samples.append(
            Sample(now_s, backlog + self._sent(now_s), waiting, buffered, self.landed - self.loaded, self.loaded)
        )


class _Instance:
    """One instance, and its sender."""

    def __init__(self, world: _Simulation, number: int, backpressure: Backpressure) -> None:
        self.world = world
        self.number = number
        self.listens = backpressure.listens
        self.throttle = Throttle(backpressure, world.inlet.max_rate)
        self.gathered = 0
        self.on_its_way = 0
        self.held_s = 0.0
        self._asked_s = -math.inf
        self._cursor = world.cursor
        self._buffers: dict[str, tuple[float, float]] = {}

    @property
    def buffered(self) -> int:
        """Records in the buffer."""
        return self.gathered + self.on_its_way

    def waiting(self, now_s: float) -> int:
        """Records at the sender."""
        return self.world.sent_to(self.number, now_s) - self.throttle.taken.stored

    def start(self) -> None:
        """Begin, at a time of its own."""
        block_s, chance = self.world.inlet.block_s, self.world.chance
        self.world.at(chance.uniform(0, block_s), self._take)
        self.world.at(chance.uniform(0, block_s), self._deliver)
        if self.listens:
            self.world.at(chance.uniform(0, LISTEN_S), self._look)
            self.world.at(chance.uniform(0, TELL_S), self._tell)

    def _take(self, now_s: float) -> None:
        """Wait for the pipeline and the rate, as `Intake.store`."""
        throttle, waiting, block_s = self.throttle, self.waiting(now_s), self.world.inlet.block_s
        if not (waiting and throttle.room(now_s) > 0 and throttle.delay_s(now_s) <= NEAR_S):
            self._again(now_s, self._take, held=bool(waiting))
            return
        limit = throttle.limit(now_s)
        at_once = waiting if limit == math.inf else math.ceil(limit * block_s)
        fits = int(min(waiting, at_once, throttle.room(now_s)))
        wait_s = throttle.acquire(fits, now_s)
        self.held_s += wait_s
        self.world.at(now_s + wait_s, partial(self._store, fits))

    def _store(self, fits: int, now_s: float) -> None:
        """The turn has come: what the pipeline and the buffer have room for goes."""
        throttle = self.throttle
        records = int(min(fits, throttle.room(now_s), self.world.inlet.buffer - self.buffered))
        if records <= 0:
            self._again(now_s, partial(self._store, fits), held=True)
            return
        throttle.stored(records)
        self.gathered += records
        self.world.flow.most_buffered = max(self.world.flow.most_buffered, self.buffered)
        if throttle.limit(now_s) == math.inf:
            self._again(now_s, self._take, held=False)
        else:
            self._take(now_s)

    def _again(self, now_s: float, what: Callable[[float], None], *, held: bool) -> None:
        block_s = self.world.inlet.block_s
        self.held_s += block_s if held else 0.0
        self.world.at(now_s + block_s, what)

    def _deliver(self, now_s: float) -> None:
        """The block that was on its way is acknowledged, and the next one goes."""
        self.world.land(self.on_its_way)
        self.throttle.ended(self.on_its_way)
        self.on_its_way, self.gathered = self.gathered, 0
        self.world.at(now_s + self.world.inlet.block_s, self._deliver)

    def _look(self, now_s: float) -> None:
        """Ask how the pipeline does; the answer comes later."""
        world = self.world
        if now_s - self._asked_s >= LOOK_S:
            self._cursor, self._asked_s = world.cursor, now_s
            self._buffers = {name: (share, now_s - at_s) for name, (share, at_s) in world.told.items()}
        answered_s = now_s + ANSWER_S * world.chance.uniform(0.5, 1.5)
        world.at(answered_s, partial(self._hear, self.throttle.taken, self._cursor, self._buffers))

    def _hear(self, taken: Taken, cursor: Cursor, buffers: Mapping[str, tuple[float, float]], now_s: float) -> None:
        self.throttle.hear(self.world.heard(cursor, buffers, now_s), taken, now_s)
        self.world.at(now_s + LISTEN_S, self._look)

    def _tell(self, now_s: float) -> None:
        self.world.told[str(self.number)] = (self.buffered / self.world.inlet.buffer, now_s)
        self.world.at(now_s + TELL_S, self._tell)
