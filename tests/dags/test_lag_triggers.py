"""Laws of the trigger of pipelines that are scheduled by lag, with Airflow's messages and the brokers' answers in memory."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import comms, task_runner
from airflow.serialization.decoders import smart_decode_trigger_kwargs
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from tests.records import cursor_of
from tidegate.airflow import triggers
from tidegate.airflow.triggers import LagTrigger, _kafka_settings, lag_asset
from tidegate.core.config.pipeline import LagSchedule, Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, ConfigError, KafkaAuthFailed, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.times import utc
from tidegate.core.planning.lag_trigger import ABSENT_S, AGAIN_S, FAULT_S
from tidegate.core.state.codec import encode

POLL_S = 5.0
AWAY = BrokerUnavailable("no Kafka broker answers at k:9092")


def ends(*offsets: int) -> SimpleNamespace:
    """A reading, as of the poller; Kafka's client is not imported here."""
    return SimpleNamespace(ends={TopicPartition("t", n): offset for n, offset in enumerate(offsets)}, error=None)


def failed(error: Exception) -> SimpleNamespace:
    return SimpleNamespace(ends={}, error=error)


class World:
    """Airflow and the brokers: their answers, what was asked, and a clock that each poll moves."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.wall_s: float | None = None
        self.asked: Counter[str] = Counter()
        self.metrics: dict[str, float] = {}
        self.cursor: Any = cursor_of("p", 1, {TopicPartition("t", 0): 0}, fired_at_ms=1_000_000_000)
        self.active = 0
        self.readings: list[SimpleNamespace | Exception] = []
        self.played = asyncio.Event()

    async def asend(self, message: Any) -> Any:
        self.asked[type(message).__name__] += 1
        if isinstance(message, comms.GetDRCount):
            assert (message.dag_id, message.states) == ("p", ["queued", "running"])
            return comms.DRCount(count=self.active)
        if isinstance(message, comms.GetConnection):
            extra = json.dumps({"bootstrap.servers": "k:9092", "sasl.password": "hunter-2"})
            return comms.ConnectionResult.model_construct(conn_id=message.conn_id, conn_type="kafka", extra=extra)
        if not isinstance(message, comms.GetVariable):
            return None
        if isinstance(self.cursor, Exception):
            raise self.cursor
        if self.cursor is None:
            return comms.ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
        text = self.cursor if isinstance(self.cursor, str) else encode("cursor", self.cursor.to_json())
        return comms.VariableResult(key=message.key, value=text)

    async def next(self) -> SimpleNamespace:
        if not self.readings:
            self.played.set()
            await asyncio.Event().wait()
        self.now_s += POLL_S
        reading = self.readings.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    async def subscribe(_self: LagTrigger) -> World:
        return made

    async def sleep(_seconds: float) -> None:
        await real(0)

    def gauge(name: str, value: float, tags: Mapping[str, str]) -> None:
        assert tags == {"pipeline": "p"}
        made.metrics[name] = value

    def incr(name: str, count: int, tags: Mapping[str, str]) -> None:
        gauge(name, made.metrics.get(name, 0) + count, tags)

    real = asyncio.sleep
    clock = SimpleNamespace(monotonic=lambda: made.now_s, time=lambda: made.wall_s or made.now_s)
    monkeypatch.setattr(triggers, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    monkeypatch.setattr(triggers, "time", clock)
    monkeypatch.setattr(triggers, "stats", SimpleNamespace(gauge=gauge, incr=incr))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    monkeypatch.setattr(LagTrigger, "_subscribe", subscribe)
    return made


def trigger(**schedule: Any) -> LagTrigger:
    return LagTrigger("p", {"topics": ["t"]}, {"lag": 100, **schedule})


def played(
    world: World, readings: Iterable[SimpleNamespace | Exception], watched: LagTrigger | None = None
) -> list[dict[str, Any]]:
    """The payloads of the events that the brokers' answers lead to; the trigger goes on waiting after the last of them."""
    world.readings, world.played = list(readings), asyncio.Event()
    events: list[dict[str, Any]] = []

    async def follow() -> None:
        async for event in (watched or trigger()).run():
            assert isinstance(event, TriggerEvent)
            events.append(event.payload)

    async def whole() -> None:
        task, over = asyncio.create_task(follow()), asyncio.create_task(world.played.wait())
        await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(whole())
    return events


def lines(printed: pytest.CaptureFixture[str]) -> list[str]:
    """What the trigger has logged."""
    return re.findall(r"pipeline p: (.*?) *\[tidegate\.airflow", printed.readouterr().out)


def test_an_event_says_how_far_the_pipeline_lags(world: World) -> None:
    """For people: the run looks for itself."""
    events = played(world, [ends(0, 0), ends(60, 0), ends(60, 41)], trigger(max_delay=900))
    assert events == [
        {"pipeline": "p", "reason": "lag", "lag": 101, "oldest": "1970-01-12T13:46:50Z", "ends": {"t": {"0": 60, "1": 41}}}
    ]
    assert json.loads(json.dumps(events)) == events


def test_records_that_came_before_the_machine_was_started_have_their_time(world: World) -> None:
    """The clock that the trigger waits by begins at its start."""
    world.now_s, world.wall_s = 5.0, 2_000_000.0
    world.cursor = cursor_of("p", 1, {TopicPartition("t", 0): 0}, fired_at_ms=1_999_000_000)
    (event,) = played(world, [ends(1)], trigger(max_delay=900))
    assert (event["reason"], event["oldest"]) == ("max_delay", utc(1_999_000_000))


def test_an_event_of_thousands_of_partitions_names_those_that_lag_most(world: World) -> None:
    """Events are rows of Airflow's database. A pipeline that never ran has no cursor, which is no error."""
    world.cursor = None
    (event,) = played(world, [ends(99), ends(*range(3000))])
    assert (event["lag"], event["oldest"]) == (sum(range(3000)), None)
    assert "tidegate.trigger.errors.p" not in world.metrics
    assert sorted(event["ends"]["t"].values()) == list(range(2500, 3000))


def test_an_idle_hour_costs_one_message_to_airflow(world: World) -> None:
    """The first look at the cursor."""
    assert played(world, [ends(0)] * 720) == []
    assert world.asked == {"GetVariable": 1}


def test_a_broker_that_is_away_is_told_once_and_so_is_its_return(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Five minutes, one instance, two lines; each failed poll counts, and the metrics name the pipeline."""
    assert len(played(world, [ends(0), *[failed(AWAY)] * 60, ends(100)])) == 1
    assert lines(capsys) == [f"its lag is not known: BrokerUnavailable: {AWAY}", "its lag is known again, after 300 s"]
    sent = {"polled": 1_000_310, "lag": 100, "errors": 60, "events": 1}
    assert world.metrics == {f"tidegate.trigger.{name}.p": value for name, value in sent.items()}


def test_whatever_is_raised_the_trigger_goes_on(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow would start one that has ended a second later, for ever, and show nothing."""
    monkeypatch.setattr(LagTrigger, "cleanup", mock.AsyncMock(side_effect=RuntimeError("can't start new thread")))
    assert len(played(world, [*[RuntimeError("bug")] * 50, ends(100)])) == 1
    assert lines(capsys) == ["its lag is not known: RuntimeError: bug", "its lag is known again, after 250 s"]


@pytest.mark.parametrize(
    ("error", "after_s"),
    [
        (TopicNotFound("topic t does not exist"), FAULT_S),
        (KafkaAuthFailed("not allowed to describe t"), FAULT_S),
        (AWAY, ABSENT_S),
    ],
    ids=str,
)
def test_a_log_that_stays_at_fault_is_told_by_name_and_starts_a_run_that_fails_of_it(
    world: World, capsys: pytest.CaptureFixture[str], error: Exception, after_s: float
) -> None:
    """Nobody looks into the log of the triggerer, and everybody at a failed run. For brokers, a wait may mend it first."""
    polls = int(after_s / POLL_S)
    assert played(world, [ends(0), *[failed(error)] * polls]) == []
    (event,) = played(world, [ends(0), *[failed(error)] * (polls + 20)])
    assert event["reason"] == "fault"
    assert [str(error) in line for line in lines(capsys)] == [True] * 2  # of two instances


@pytest.mark.parametrize(
    ("cursor", "lag", "events", "said"),
    [
        (OSError("database is locked"), 1000, 0, "StateUnavailable: Airflow could not read the Variable tidegate.p.cursor"),
        ("tidegate 2 {} damaged", 10, 1, "StateCorrupt: tidegate.p.cursor"),
        ("tidegate 999 {}", 10, 1, "StateNewer: tidegate.p.cursor"),  # of workers that were upgraded before the triggerer
    ],
)
def test_a_cursor_that_cannot_be_read_starts_no_run_and_a_damaged_one_a_run_that_says_so(
    world: World, capsys: pytest.CaptureFixture[str], cursor: Any, lag: int, events: int, said: str
) -> None:
    """Unknown is not empty. The plan of the run fails with the repair; the log names it once, however often it is looked at."""
    world.cursor = cursor
    assert [event["reason"] for event in played(world, [ends(lag)] * 30)] == ["fault"] * events
    (line,) = lines(capsys)
    assert said in line


def test_brokers_that_are_away_start_no_run_for_what_was_unread_before(world: World) -> None:
    """It would only wait."""
    assert len(played(world, [ends(0), ends(100)], watched := trigger())) == 1
    world.cursor = cursor_of("p", 2, {TopicPartition("t", 0): 0})
    assert played(world, [failed(AWAY)] * 60, watched) == []


def test_errors_that_take_turns_are_told_once_each(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Brokers that come and go differ in what they answer."""
    played(world, [failed(AWAY), failed(TopicNotFound("topic t does not exist"))] * 20)
    assert [line.partition(": ")[2].partition(":")[0] for line in lines(capsys)] == ["BrokerUnavailable", "TopicNotFound"]


def test_an_event_is_repeated_only_while_no_run_is_active(world: World) -> None:
    """A run that takes hours makes no second event; one that failed is followed by another, as with a schedule by time."""
    polls = int(AGAIN_S / POLL_S) + 1
    world.active = 1
    assert len(played(world, [ends(100)] * polls * 3)) == 1
    assert world.asked["GetDRCount"] == 3
    world.active = 0
    assert len(played(world, [ends(100)] * polls * 3)) == 4


def test_connections_are_read_without_blocking(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one message that is awaited; a missing one is named, and what is secret is not."""
    settings = asyncio.run(_kafka_settings("kafka_default"))
    assert settings == {"client.id": "tidegate-trigger", "bootstrap.servers": "k:9092", "sasl.password": "hunter-2"}
    assert world.asked["GetConnection"] == 1
    nothing = mock.AsyncMock(return_value=comms.ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(asend=nothing))
    with pytest.raises(ConfigError, match="Airflow has no connection nowhere"):
        asyncio.run(_kafka_settings("nowhere"))


SOURCES = [
    Source(("t", "u")),
    Source(pattern="t.*", exclude=("tx", "ty"), isolation_level="read_uncommitted"),
    Source(assign={"t": (0, 3), "u": (1,)}, connection="other", on_deleted="retire"),
]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_airflow_makes_the_same_trigger_of_what_it_stores(source: Source) -> None:
    """Its hash too, by which a reading of the DAG file finds the trigger again instead of starting a new one."""
    (watcher,) = lag_asset(Pipeline("p", source, "m:f", sink=Sink("lake.a.b")), LagSchedule(10, 1.5)).watchers
    encoded = encode_trigger(watcher.trigger)
    classpath, stored = encoded["classpath"], Trigger.encrypt_kwargs(encoded["kwargs"])
    kwargs = Trigger._decrypt_kwargs(stored)
    assert BaseEventTrigger.hash(classpath, kwargs) == BaseEventTrigger.hash(classpath, encoded["kwargs"])
    assert classpath == "tidegate.airflow.triggers.LagTrigger"
    made = LagTrigger(**{name: smart_decode_trigger_kwargs(value) for name, value in kwargs.items()})
    assert made.serialize() == watcher.trigger.serialize()
    assert triggers._source_from_json(made.source) == source
    assert made._watch.rule == LagSchedule(10, 1.5)


def test_pipelines_that_differ_by_name_only_have_triggers_of_their_own() -> None:
    """Airflow would let two assets share one."""
    assets = [lag_asset(Pipeline(name, SOURCES[0], "m:f", sink=Sink("lake.a.b")), LagSchedule(1)) for name in ("a", "b")]
    assert len({BaseEventTrigger.hash(*asset.watchers[0].trigger.serialize()) for asset in assets}) == 2
    assert {asset.name for asset in assets} == {"tidegate.a", "tidegate.b"}
