"""What is said of brokers that are away, and of a log that is lost while it is read; on brokers of their own."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.private_broker import PrivateBroker
from tests.topics import make_topic, write
from tidegate.core.model.errors import BrokerUnavailable, KafkaError, OffsetsOutOfRange
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate_local import sockets
from tidegate_local.process import ProcessId

TOPIC = "many-batches"
RECORDS = 60_000
LONG_S = 120.0


def at(address: str, **more: str) -> dict[str, str]:
    """The settings of a client that buffers little, so that a log is read in many steps."""
    small = {"queued.max.messages.kbytes": "64", "fetch.message.max.bytes": "65536"}
    return {"bootstrap.servers": address, "client.id": "test", **small, **more}


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    return f"{sockets.LOOPBACK}:{sockets.choose_port([])}"


@pytest.mark.parametrize(
    "ask", [lambda brokers: brokers.watermarks([TOPIC]), lambda brokers: brokers.match_topics(".*")], ids=["offsets", "names"]
)
def test_refused_connections_are_named_long_before_the_timeout_where_a_person_waits(nobody: str, ask: object) -> None:
    """With the address and the reason, not with what librdkafka waited for."""
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=rf"no Kafka broker answers at {nobody} \(connection refused\)"):
        ask(AdminBrokers(at(nobody), timeout_s=LONG_S, refused_s=1.0))  # type: ignore[operator]
    assert time.monotonic() - started < LONG_S / 2


def test_an_unknown_host_is_named() -> None:
    """As the reason."""
    with pytest.raises(BrokerUnavailable, match=r"failed to resolve 'nohost\.invalid:9092'"):
        AdminBrokers(at("nohost.invalid:9092"), timeout_s=LONG_S, refused_s=1.0).watermarks([TOPIC])


def test_who_waits_is_told_once_for_what() -> None:
    """A server that takes connections and never answers."""
    told: list[str] = []
    with socket.create_server((sockets.LOOPBACK, 0)) as silent:
        address = f"{sockets.LOOPBACK}:{silent.getsockname()[1]}"
        with pytest.raises(BrokerUnavailable, match=f"no Kafka broker answers at {address}"):
            AdminBrokers(at(address), timeout_s=4.0, refused_s=1.0, tell=told.append).watermarks([TOPIC])
    assert told == [f"asking Kafka at {address} ..."]


def test_a_task_waits_for_a_broker_that_starts(own: PrivateBroker) -> None:
    """Connections are refused until then; only a person's command gives up on that."""
    own.server.stop()
    brokers = AdminBrokers(at(own.address()), timeout_s=LONG_S)
    found: list[list[str]] = []
    asking = threading.Thread(target=lambda: found.append(brokers.match_topics("nothing")))
    asking.start()
    own.server.start()
    asking.join(LONG_S)
    assert found == [[]]


@pytest.fixture(scope="module")
def filled(breakable: PrivateBroker) -> None:
    """A log of many batches on the broker."""
    breakable.server.start()
    make_topic({"bootstrap.servers": breakable.address()}, TOPIC)
    write({"bootstrap.servers": breakable.address(), "batch.size": "4096"}, TOPIC, 0, [b"x" * 200] * RECORDS)


@pytest.fixture
def broker(own: PrivateBroker, filled: None) -> PrivateBroker:
    """The broker, with that log."""
    return own


def marks() -> Watermarks:
    tp = TopicPartition(TOPIC, 0)
    return Watermarks({tp: 0}, {tp: RECORDS}, {TOPIC: "id"})


def kill(broker: PrivateBroker) -> None:
    identity = ProcessId.read(broker.server.pid_file)
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)


def test_a_broker_that_dies_while_its_log_is_read_is_away_and_the_offsets_are_not_at_fault(broker: PrivateBroker) -> None:
    """A task may try again."""
    read: list[int] = []

    def progress(count: int) -> None:
        if not read:
            kill(broker)
        read.append(count)

    with pytest.raises(BrokerUnavailable, match=rf"no Kafka broker answers at {broker.address()} \(connection refused\)"):
        read_offsets(at(broker.address()), marks(), progress=progress, silent_s=2.0)
    assert 0 <= read[0] < RECORDS


def test_a_broker_that_comes_back_while_its_log_is_read_is_read_to_the_end(broker: PrivateBroker) -> None:
    """Each record once."""
    stopped: list[bool] = []

    def progress(count: int) -> None:
        if count and not stopped:
            stopped.append(True)
            broker.server.stop()
            broker.server.start()

    found = read_offsets(at(broker.address()), marks(), progress=progress, silent_s=LONG_S)
    assert stopped
    assert list(found[TopicPartition(TOPIC, 0)]) == list(range(RECORDS))


def test_a_log_that_loses_records_while_it_is_read_is_named_as_that(broker: PrivateBroker) -> None:
    """Its start has moved past what was asked for. The last test that reads it."""
    admin = AdminClient({"bootstrap.servers": broker.address()})
    (deleted,) = admin.delete_records([ck.TopicPartition(TOPIC, 0, RECORDS // 2)]).values()
    deleted.result(30)
    with pytest.raises(OffsetsOutOfRange, match=f"{TOPIC}-0: the log lost records while it was read"):
        read_offsets(at(broker.address()), marks())


def test_a_setting_that_librdkafka_refuses_is_named_without_a_secret(nobody: str) -> None:
    """Before anything is asked."""
    for ask in (AdminBrokers, lambda refused: read_offsets(refused, marks())):
        with pytest.raises(KafkaError, match=r"settings are refused.*no\.such\.setting"):
            ask(at(nobody, **{"no.such.setting": "1"}))
