"""The shadow of the cursor as a consumer group, on the real broker."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from tests.topics import committed_offsets, make_topic
from tidegate.core.model.errors import BrokerUnavailable, KafkaError
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka.brokers import commit_offsets
from tidegate_local import sockets


@pytest.fixture
def topic(kafka: dict[str, str], request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, one for each test."""
    return make_topic(kafka, f"groups-{request.node.name[:80]}", 2)


def test_a_group_appears_with_its_first_commit_and_moves_with_the_next(kafka: dict[str, str], topic: str) -> None:
    """Forwards and, after a repair, backwards; what a commit does not name stays."""
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert committed_offsets(kafka, "moves", [p0, p1]) == {}
    commit_offsets(kafka, "moves", {p0: 5, p1: 7})
    assert committed_offsets(kafka, "moves", [p0, p1]) == {p0: 5, p1: 7}
    commit_offsets(kafka, "moves", {p1: 3})
    commit_offsets(kafka, "moves", {})
    assert committed_offsets(kafka, "moves", [p0, p1]) == {p0: 5, p1: 3}


def test_a_partition_that_is_gone_is_named_and_the_others_are_written(kafka: dict[str, str], topic: str) -> None:
    """The reason is for a warning."""
    here = TopicPartition(topic, 0)
    with pytest.raises(KafkaError, match=r"1 of 2 offsets of group part .*gone-0.*Unknown topic"):
        commit_offsets(kafka, "part", {here: 1, TopicPartition("gone", 0): 1})
    assert committed_offsets(kafka, "part", [here]) == {here: 1}


@pytest.fixture
def joined(kafka: dict[str, str], topic: str) -> Iterator[str]:
    """A group that has a member; its id."""
    assigned: list[ck.TopicPartition] = []
    consumer = ck.Consumer({**kafka, "group.id": "joined", "enable.auto.commit": False})
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    try:
        while not assigned:
            consumer.poll(0.1)
        yield "joined"
    finally:
        consumer.close()


def test_a_group_with_members_is_left_alone(kafka: dict[str, str], topic: str, joined: str) -> None:
    """Its offsets are its members'."""
    with pytest.raises(KafkaError, match=r"group joined .*has members"):
        commit_offsets(kafka, joined, {TopicPartition(topic, 0): 1})


def test_a_broker_that_is_away_is_named_within_the_timeout() -> None:
    """The caller makes a warning of it."""
    settings = {"bootstrap.servers": f"127.0.0.1:{sockets.choose_port([])}"}
    with pytest.raises(BrokerUnavailable, match="no Kafka broker answers"):
        commit_offsets(settings, "g", {TopicPartition("t", 0): 1}, timeout_s=1)
