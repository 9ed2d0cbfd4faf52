"""The Kafka adapter against real brokers: watermarks, topic ids, the log, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidegate.errors import BrokerUnavailable, KafkaAuthFailed, KafkaError, TopicNotFound
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.kafka.settings import for_planning
from tidegate.local import Platform, broker, jars, sockets
from tidegate.ranges import TopicPartition


@pytest.fixture
def kafka(platform: Platform) -> dict[str, str]:
    """The planning client's settings."""
    return for_planning({"bootstrap.servers": platform.bootstrap_servers}, connection="c", client_id="test")


def make_topic(kafka: dict[str, str], name: str, partitions: int, **config: str) -> None:
    """A new topic."""
    admin = AdminClient(dict(kafka))
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()


def write(kafka: dict[str, str], topic: str, partition: int, count: int) -> None:
    """Records without meaning."""
    producer = ck.Producer(dict(kafka))
    for n in range(count):
        producer.produce(topic, str(n).encode(), partition=partition)
    assert producer.flush(30) == 0


def test_watermarks_are_the_logs_bounds_and_the_topics_ids(kafka: dict[str, str]) -> None:
    """Of every partition of every topic asked for; a deleted beginning shows."""
    make_topic(kafka, "marks-a", 2)
    make_topic(kafka, "marks-b", 1)
    write(kafka, "marks-a", 1, 30)
    admin = AdminClient(dict(kafka))
    for future in admin.delete_records([ck.TopicPartition("marks-a", 1, 12)]).values():
        future.result()
    marks = AdminBrokers(kafka).watermarks(["marks-a", "marks-b"])
    a0, a1, b0 = TopicPartition("marks-a", 0), TopicPartition("marks-a", 1), TopicPartition("marks-b", 0)
    assert marks.earliest == {a0: 0, a1: 12, b0: 0}
    assert marks.latest == {a0: 0, a1: 30, b0: 0}
    assert len(set(marks.topic_ids.values())) == 2


def test_a_topic_created_again_has_another_id(kafka: dict[str, str]) -> None:
    """Its offsets look valid, its id tells."""
    make_topic(kafka, "again", 1)
    before = AdminBrokers(kafka).watermarks(["again"]).topic_ids
    admin = AdminClient(dict(kafka))
    admin.delete_topics(["again"])["again"].result()
    make_topic(kafka, "again", 1)
    assert AdminBrokers(kafka).watermarks(["again"]).topic_ids != before


def test_a_missing_topic_is_named(kafka: dict[str, str]) -> None:
    """And the file to correct."""
    with pytest.raises(TopicNotFound, match=r"nowhere .*source\.topics"):
        AdminBrokers(kafka).watermarks(["nowhere"])


def test_a_broker_that_is_away_is_named_within_the_timeout() -> None:
    """A free port has no broker."""
    settings = {"bootstrap.servers": f"127.0.0.1:{sockets.choose_port([])}", "client.id": "test"}
    with pytest.raises(BrokerUnavailable, match="no Kafka broker answers"):
        AdminBrokers(settings, timeout_s=1).watermarks(["t"])


def test_settings_that_librdkafka_refuses_are_named() -> None:
    """A mistyped name is not a broker that is away."""
    with pytest.raises(KafkaError, match=r"no\.such\.setting"):
        AdminBrokers({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"})


def test_the_log_holds_committed_records_only_and_shows_its_gaps(kafka: dict[str, str]) -> None:
    """An aborted transaction and every marker leave a gap in the offsets."""
    make_topic(kafka, "gaps", 2)
    producer = ck.Producer({**kafka, "transactional.id": "gaps"})
    producer.init_transactions(30)
    for count, commit in ((3, True), (2, False), (4, True)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce("gaps", b"x", partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    marks = AdminBrokers(kafka).watermarks(["gaps"])
    counted: list[int] = []
    found = read_offsets(kafka, marks, progress=counted.append)
    # 0-2, marker 3; 4-5 aborted, marker 6; 7-10, marker 11
    assert list(found[TopicPartition("gaps", 0)]) == [0, 1, 2, 7, 8, 9, 10]
    assert list(found[TopicPartition("gaps", 1)]) == []
    assert counted[-1] == 7


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[str]:
    """A broker of its own with a SASL listener; its address."""
    port, controller, sasl = (sockets.choose_port([]) for _ in range(3))
    found, java, env = jars.ensure_jars(lambda *_: None), jars.find_java(), {}
    folder = tmp_path / "kafka"
    broker.prepare(folder, port, controller, java, found.kafka, env)
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="b" user_alice="right";'
    with (folder / "server.properties").open("a") as properties:
        properties.write(
            f"listeners={listeners}\nadvertised.listeners={listeners}\nsasl.enabled.mechanisms=PLAIN\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={login}\n"
        )
    server = broker.broker(
        folder=folder, port=port, java=java, jars=found.kafka, env=env, log=tmp_path / "log", pid_file=tmp_path / "pid"
    )
    try:
        server.start()
        yield f"127.0.0.1:{sasl}"
    finally:
        server.stop()


def test_wrong_credentials_are_told_apart_from_a_broker_that_is_away(locked: str) -> None:
    """The right ones are taken, the wrong ones named; the password is not told."""

    def login(password: str) -> dict[str, str]:
        extra = {
            "bootstrap.servers": locked,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
        }
        return for_planning(extra, connection="c", client_id="test")

    make_topic(login("right"), "mine", 1)
    assert AdminBrokers(login("right")).watermarks(["mine"]).latest == {TopicPartition("mine", 0): 0}
    with pytest.raises(KafkaAuthFailed, match="refuses the connection's credentials") as caught:
        AdminBrokers(login("hunter2"), timeout_s=5).watermarks(["mine"])
    assert "hunter2" not in str(caught.value)
