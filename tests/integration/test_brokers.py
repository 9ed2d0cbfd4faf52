"""The Kafka adapter against real brokers: watermarks, topic ids, the log, and what goes wrong."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka as ck
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.topics import make_topic, transact, write
from tidegate.core.model.errors import BrokerUnavailable, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import IsolationLevel
from tidegate.kafka.brokers import AdminBrokers, commit_offsets
from tidegate.kafka.log import read_offsets
from tidegate.testing.contracts.brokers import BrokersContract
from tidegate.waiting import wait_until
from tidegate_local import sockets
from tidegate_local.flights import create_topic


class CreatedTopics:
    """Topics on the real broker."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.kafka = kafka
        self.admin = AdminClient(dict(kafka))

    def make_topic(self, name: str, partitions: int = 1) -> None:
        # the broker lets go of a deleted topic's name a while after it has answered
        assert wait_until(lambda: create_topic(self.kafka, name, partitions), 300, poll_s=0.2)
        self._wait(name, partitions)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)
        self._wait(name, 0)

    def add_partitions(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)
        self._wait(name, partitions)

    def write(self, where: TopicPartition, times: Sequence[int]) -> None:
        write(self.kafka, where.topic, where.partition, len(times), times=times)

    def open_transaction(self, where: TopicPartition, times: Sequence[int]) -> Callable[[], None]:
        producer = ck.Producer({**self.kafka, "transactional.id": where.topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        for time_ms in times:
            producer.produce(where.topic, b"x", partition=where.partition, timestamp=time_ms)
        assert producer.flush(30) == 0

        def commit() -> None:
            producer.commit_transaction(30)
            # the marker is written by the coordinator, after the commit was answered
            assert wait_until(lambda: self._end(where, "read_committed") == self._end(where, "read_uncommitted"), 30)

        return commit

    def delete_records(self, where: TopicPartition, before: int) -> None:
        for future in self.admin.delete_records([ck.TopicPartition(where.topic, where.partition, before)]).values():
            future.result()

    def commit(self, group: str, at: Mapping[TopicPartition, int]) -> None:
        commit_offsets(self.kafka, group, at)

    def join(self, group: str, topic: str) -> Callable[[], None]:
        consumer = ck.Consumer({**self.kafka, "group.id": group, "enable.auto.commit": False})
        consumer.subscribe([topic])

        def is_member() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        assert wait_until(is_member, 60, poll_s=0.1)
        return consumer.close

    def _end(self, where: TopicPartition, level: IsolationLevel) -> int:
        return AdminBrokers(self.kafka).watermarks([where.topic], isolation_level=level).latest[where]

    def _wait(self, name: str, partitions: int) -> None:
        """Wait until the broker under test knows the topic."""

        def known() -> int:
            topics = self.admin.list_topics(timeout=30).topics
            return len(topics[name].partitions) if name in topics else 0

        assert wait_until(lambda: known() == partitions, 60, poll_s=0.1)


class TestAdminBrokers(BrokersContract):
    @pytest.fixture
    def brokers(self, kafka: dict[str, str]) -> AdminBrokers:
        return AdminBrokers(kafka)

    @pytest.fixture
    def cluster(self, kafka: dict[str, str]) -> CreatedTopics:
        cluster = CreatedTopics(kafka)
        if "makes-the-internal-topic" not in AdminBrokers(kafka).match_topics("makes.*"):
            cluster.make_topic("makes-the-internal-topic")
            commit_offsets(kafka, "makes-the-internal-topic", {TopicPartition("makes-the-internal-topic", 0): 0})
        return cluster

    @pytest.fixture
    def unreachable(self) -> AdminBrokers:
        settings = {"bootstrap.servers": f"127.0.0.1:{sockets.choose_port([])}", "client.id": "test"}
        return AdminBrokers(settings, timeout_s=1)


def threads() -> int:
    """Threads of this process, librdkafka's among them."""
    return len(psutil.Process().threads())


def test_the_log_holds_committed_records_only_and_shows_its_gaps(kafka: dict[str, str]) -> None:
    """An aborted transaction and every marker leave a gap in the offsets."""
    make_topic(kafka, "gaps", 2)
    for count, commit in ((3, True), (2, False), (4, True)):
        transact(kafka, "gaps", 0, count, commit=commit)
    marks = AdminBrokers(kafka).watermarks(["gaps"])
    counted: list[int] = []
    found = read_offsets(kafka, marks, progress=counted.append)
    # 0-2, marker 3; 4-5 aborted, marker 6; 7-10, marker 11
    assert list(found[TopicPartition("gaps", 0)]) == [0, 1, 2, 7, 8, 9, 10]
    assert list(found[TopicPartition("gaps", 1)]) == []
    assert counted[-1] == 7


def test_many_partitions_cost_little_of_this_process(kafka: dict[str, str]) -> None:
    """Ten thousand in a second of CPU, librdkafka's decoding included: here 300, with room for a busy machine."""
    make_topic(kafka, "wide", 300)
    brokers, deadline = AdminBrokers(kafka), time.monotonic() + 60
    while not brokers.match_topics("wide"):  # the broker makes the folders of new partitions one after the other
        assert time.monotonic() < deadline
    spent = []
    for _ in range(5):
        before = time.process_time()
        assert len(brokers.watermarks(["wide"]).latest) == 300
        spent.append(time.process_time() - before)
    assert min(spent) < 300 / 10_000 * 5


def test_threads_end_with_the_object_also_after_an_error(kafka: dict[str, str]) -> None:
    """At once: no ring of references waits for the garbage collector."""
    make_topic(kafka, "thread", 1)
    gc.collect()
    gc.disable()
    try:
        before = threads()
        for _ in range(2):
            AdminBrokers(kafka).watermarks(["thread"])
            with pytest.raises(TopicNotFound):
                AdminBrokers(kafka).watermarks(["no-thread"])
            with pytest.raises(BrokerUnavailable):
                AdminBrokers({"bootstrap.servers": f"127.0.0.1:{sockets.choose_port([])}"}, timeout_s=0.2).match_topics(".*")
        assert threads() <= before
    finally:
        gc.enable()
