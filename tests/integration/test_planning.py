"""The planner on a real broker, with the schedule in memory: what it decides as topics come, grow, change and go."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests import topics
from tests.records import write_of
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.config.times import StartTime
from tidegate.core.errors import OffsetsExpired, TopicNotFound, TopicRecreated
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.schedule.accept import accept_loss, accept_recreated
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.kafka.brokers import AdminBrokers
from tidegate.local import Platform
from tidegate.testing.fakes import FakeReader, MemoryStore
from tidegate.waiting import wait_until


class Kafka:
    """A broker whose topics a test changes; names are its own."""

    def __init__(self, servers: str) -> None:
        self.settings = {"bootstrap.servers": servers, "client.id": "test"}
        self.admin = AdminClient(dict(self.settings))
        self.mark = uuid.uuid4().hex[:8]

    def name(self, topic: str) -> str:
        return f"{topic}-{self.mark}"

    def create(self, topic: str, partitions: int = 1) -> None:
        new = NewTopic(self.name(topic), partitions, 1)

        def created() -> bool:
            error = self.admin.create_topics([new])[self.name(topic)].exception()
            if error is not None and error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise error
            return error is None  # a topic of that name may still be on its way out

        assert wait_until(created, 300, poll_s=0.2)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([self.name(topic)])[self.name(topic)].result()

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name(topic), partitions)])[self.name(topic)].result()

    def write(self, topic: str, count: int, partition: int = 0, time_ms: int = 0) -> None:
        times = range(time_ms, time_ms + count) if time_ms else ()
        topics.write(self.settings, self.name(topic), partition, count, times=times)

    def expire(self, topic: str, before: int, partition: int = 0) -> None:
        where = ck.TopicPartition(self.name(topic), partition, before)
        for future in self.admin.delete_records([where]).values():
            future.result()


@pytest.fixture
def kafka(platform: Platform) -> Kafka:
    return Kafka(platform.bootstrap_servers)


class Schedule:
    """One pipeline on the broker; each run is planned, taken for loaded, and committed."""

    def __init__(self, kafka: Kafka, *, limits: Limits | None = None, **source: Any) -> None:
        self.pipeline = Pipeline("p", Source(**source), "m:f", Sink("lake.a.b"), limits=limits or Limits())
        self.ports: dict[str, Any] = {"store": MemoryStore(), "brokers": AdminBrokers(kafka.settings), "sink": FakeReader()}
        self.mark = kafka.mark
        self.now_ms = 0

    def plan(self) -> Planned | Skip:
        self.now_ms += 1000
        return plan_batch(self.pipeline, f"run{self.now_ms}", Request(), **self.ports, now_ms=self.now_ms)

    def run(self) -> list[str]:
        """What a run read, without the topics' marks."""
        planned = self.plan()
        assert isinstance(planned, Planned), planned
        saved = planned.saved
        load = write_of("p", saved.load.seq, saved.load.run_id, saved.load.nonempty, "v", "a", saved.load.topic_ids)
        receipt = Receipt(load, self.now_ms, self.now_ms, 1) if saved.load.nonempty else None
        self.ports["sink"].found += [receipt] if receipt is not None else []
        commit_batch(self.pipeline, planned.key, receipt, store=self.ports["store"])
        return [str(r).replace(f"-{self.mark}", "") for r in saved.load.ranges]

    def grown(self, partitions: int, topic: str) -> Callable[[], bool]:
        return lambda: len(self.ports["brokers"].watermarks([topic]).latest) == partitions


def test_a_pattern_meets_new_topics_and_partitions_at_their_beginning(kafka: Kafka) -> None:
    """Each in the first run that sees it; excluded topics never."""
    for topic in ("pat-a", "pat-x"):
        kafka.create(topic)
        kafka.write(topic, 3)
    schedule = Schedule(kafka, pattern=f"pat-.*{kafka.mark}", exclude=("pat-x.*",), start="latest")
    assert schedule.run() == ["pat-a-0 [3, 3)"]
    kafka.create("pat-b")
    kafka.write("pat-b", 2)
    kafka.grow("pat-a", 2)
    assert wait_until(schedule.grown(2, kafka.name("pat-a")), 30, poll_s=0.2)
    kafka.write("pat-a", 4, partition=1)
    assert schedule.run() == ["pat-a-1 [0, 4)", "pat-b-0 [0, 2)"]
    assert isinstance(schedule.plan(), Skip)


def test_an_assignment_reads_its_partitions_only(kafka: Kafka) -> None:
    """However many the topic has."""
    kafka.create("ass", 3)
    for partition in range(3):
        kafka.write("ass", 5, partition)
    assert Schedule(kafka, assign={kafka.name("ass"): (0, 2)}).run() == ["ass-0 [0, 5)", "ass-2 [0, 5)"]


def test_a_start_by_time_begins_at_the_first_record_of_that_time(kafka: Kafka) -> None:
    """A partition without so late a record begins at its end."""
    kafka.create("time", 2)
    kafka.write("time", 10, 0, time_ms=1_000_000)
    kafka.write("time", 10, 1, time_ms=1)
    assert Schedule(kafka, topics=(kafka.name("time"),), start=StartTime(1_000_004)).run() == [
        "time-0 [4, 10)",
        "time-1 [10, 10)",
    ]


def test_a_deleted_topic_stops_or_is_retired(kafka: Kafka) -> None:
    """As the source says, and the rest goes on."""
    for topic in ("del-a", "del-b"):
        kafka.create(topic)
        kafka.write(topic, 2)
    topics = (kafka.name("del-a"), kafka.name("del-b"))
    stopping, retiring = (Schedule(kafka, topics=topics, on_deleted=word) for word in ("stop", "retire"))
    for schedule in (stopping, retiring):
        schedule.run()
    kafka.delete("del-b")
    kafka.write("del-a", 1)
    assert wait_until(lambda: not retiring.ports["brokers"].match_topics(topics[1]), 30, poll_s=0.2)
    with pytest.raises(TopicNotFound, match="del-b"):
        stopping.plan()
    planned = retiring.plan()
    assert isinstance(planned, Planned)
    assert planned.saved.retired == (TopicPartition(topics[1], 0),)
    assert [str(r) for r in planned.saved.load.ranges] == [f"{topics[0]}-0 [2, 3)"]


def test_expired_offsets_stop_until_their_loss_is_accepted_and_stop_again_for_a_later_one(kafka: Kafka) -> None:
    """By partition."""
    kafka.create("ret", 2)
    for partition in (0, 1):
        kafka.write("ret", 10, partition)
    schedule = Schedule(kafka, topics=(kafka.name("ret"),), limits=Limits(max_records=4))
    assert schedule.run() == ["ret-0 [0, 2)", "ret-1 [0, 2)"]
    kafka.expire("ret", 5, partition=1)
    with pytest.raises(OffsetsExpired, match=r"-1 \[2, 5\) = 3 offsets"):
        schedule.plan()
    accept_loss(schedule.pipeline, **schedule.ports)
    kafka.expire("ret", 6, partition=1)
    with pytest.raises(OffsetsExpired, match=r"-1 \[2, 6\)"):
        schedule.plan()
    accept_loss(schedule.pipeline, **schedule.ports)
    assert schedule.run() == ["ret-0 [2, 4)", "ret-1 [6, 7)"]


def test_a_recreated_topic_stops_until_it_is_accepted(kafka: Kafka) -> None:
    """Where the cursor's offset is valid in the new log."""
    kafka.create("rec")
    kafka.write("rec", 3)
    schedule = Schedule(kafka, topics=(kafka.name("rec"),))
    schedule.run()
    kafka.delete("rec")
    kafka.create("rec")
    kafka.write("rec", 9)
    with pytest.raises(TopicRecreated):
        schedule.plan()
    accept_recreated(schedule.pipeline, kafka.name("rec"), **schedule.ports)
    assert schedule.run() == ["rec-0 [0, 9)"]


def test_an_open_transaction_holds_back_a_committed_reader_only(kafka: Kafka) -> None:
    """The last stable offset, and the high watermark."""
    kafka.create("txn")
    producer = ck.Producer({**kafka.settings, "transactional.id": kafka.name("txn")})
    producer.init_transactions(30)
    kafka.write("txn", 3)
    producer.begin_transaction()
    producer.produce(kafka.name("txn"), b"open", partition=0)
    producer.flush(30)
    committed = Schedule(kafka, topics=(kafka.name("txn"),))
    assert committed.run() == ["txn-0 [0, 3)"]
    assert Schedule(kafka, topics=(kafka.name("txn"),), isolation_level="read_uncommitted").run() == ["txn-0 [0, 4)"]
    producer.abort_transaction(30)

    def ended() -> bool:
        return isinstance(committed.plan(), Planned)

    assert wait_until(ended, 300, poll_s=0.2)


def test_a_run_waits_for_its_records_or_its_delay(kafka: Kafka) -> None:
    """By the time of the last batch, which the cursor keeps."""
    kafka.create("wait")
    kafka.write("wait", 2)
    schedule = Schedule(kafka, topics=(kafka.name("wait"),), limits=Limits(min_records=5, max_delay_s=10))
    schedule.run()
    kafka.write("wait", 2)
    assert isinstance(schedule.plan(), Skip)
    schedule.now_ms += 10_000
    assert schedule.run() == ["wait-0 [2, 4)"]
    kafka.write("wait", 5)
    assert schedule.run() == ["wait-0 [4, 9)"]
    kafka.write("wait", 1)
    schedule.pipeline = replace(schedule.pipeline, limits=Limits())
    assert schedule.run() == ["wait-0 [9, 10)"]
