"""Receivers through what operators, brokers, clocks and hostile senders do to them: named, bounded, without a restart."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its names are imported from private modules
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tests.integration.private_broker import PASSWORD, USER, PrivateBroker, new_member, running
from tests.receivers import MemorySender, Running, a_lease, connect, push, send, served, texts, until, values
from tests.topics import make_topic
from tidegate.core.model.errors import KafkaAuthFailed
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka.brokers import AdminBrokers, commit_offsets
from tidegate.kafka.log import read_offsets
from tidegate_local.process import ProcessId
from tidegate_local.topics import produce_lines
from tidegate_receivers.config.receiver import Block
from tidegate_receivers.runtime.sources import HttpSource, TcpServerSource

MB = 1 << 20


@pytest.fixture
def kafka(own: PrivateBroker) -> dict[str, str]:
    return {"bootstrap.servers": own.address()}


# ---- what an operator does


async def test_a_permission_that_is_revoked_and_granted_again_needs_no_restart(
    own: PrivateBroker, kafka: dict[str, str]
) -> None:
    """What comes meanwhile waits, is landed in order, and none of it twice. The error names the permission's fix."""
    topic = make_topic(kafka, "revoked", 2)
    admin = AdminClient(dict(kafka))
    right = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.WRITE)
    allowed, the_same = AclBinding(*right, AclPermissionType.ALLOW), AclBindingFilter(*right, AclPermissionType.ALLOW)
    login = {
        "bootstrap.servers": own.address("LOGIN"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }

    def grant() -> None:
        admin.create_acls([allowed])[allowed].result(30)

    def revoke() -> None:
        admin.delete_acls([the_same])[the_same].result(30)

    await asyncio.to_thread(grant)
    async with served(source := TcpServerSource(), kafka=login, lease=a_lease(topic)) as one:
        _, writer = await connect(source.listening_on)
        for times in range(3):
            writer.write(b"".join(b"%d\n" % n for n in range(times * 200, times * 200 + 100)))
            await until(lambda: source.intake.counts.records == (times + 1) * 200 - 100)  # noqa: B023 - it ends here
            await asyncio.to_thread(revoke)
            one.told.clear()
            writer.write(b"".join(b"%d\n" % n for n in range(times * 200 + 100, times * 200 + 200)))
            told = await one.until_told(f"does not allow Write on topic {topic}")
            assert PASSWORD not in told
            assert source.intake.counts.records == (times + 1) * 200 - 100
            await asyncio.to_thread(grant)
            await until(lambda: source.intake.counts.records == (times + 1) * 200)  # noqa: B023
        writer.close()
        report = await one.ended()
    assert (report.records, report.restarts, report.undelivered) == (600, 0, 0)
    assert [int(value) for value in values(kafka, topic)] == list(range(600))


def test_a_right_that_is_missing_is_named_and_none_is_needed_for_a_group_that_is_not_joined(
    own: PrivateBroker, kafka: dict[str, str]
) -> None:
    """The topic's records are read with Read alone; its settings, and the group of a pipeline, need more."""
    topic = make_topic(kafka, "rights", 1)
    connect_as = {"bootstrap.servers": own.address("LOGIN"), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = {**connect_as, "sasl.username": USER, "sasl.password": PASSWORD}
    where = TopicPartition(topic, 0)
    with pytest.raises(KafkaAuthFailed, match=f"does not allow Write on topic {topic}"):
        produce_lines(login, topic, [b"x"])
    produce_lines(kafka, topic, [b"x"])
    with pytest.raises(KafkaAuthFailed, match=f"accepts the connection's credentials.*Describe on topic {topic}"):
        AdminBrokers(login).watermarks([topic])

    def allow(operation: AclOperation, kind: ResourceType = ResourceType.TOPIC, name: str = topic) -> None:
        right = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation)
        admin = AdminClient(dict(kafka))
        admin.create_acls([binding := AclBinding(*right, AclPermissionType.ALLOW)])[binding].result(30)

    allow(AclOperation.DESCRIBE)
    with pytest.raises(KafkaAuthFailed, match=f"does not allow Read on topic {topic}"):
        AdminBrokers(login, timeout_s=30).next_timestamps({where: 0})
    allow(AclOperation.READ)
    told: list[str] = []
    brokers = AdminBrokers(login, tell=told.append)
    assert brokers.retention_ms([topic]) == {}
    assert told == [f"the retention of {topic} is not known: it needs the right DescribeConfigs on the topic"]
    assert list(read_offsets(login, brokers.watermarks([topic]))[where]) == [0]
    with pytest.raises(KafkaAuthFailed, match="does not allow Read on group g"):
        commit_offsets(login, "g", {where: 1})
    allow(AclOperation.DESCRIBE, ResourceType.GROUP, "g")  # now the coordinator answers, and each partition is refused
    with pytest.raises(KafkaAuthFailed, match=r"does not allow Read on group g.*--operation Read --group g`"):
        commit_offsets(login, "g", {where: 1})


# ---- what a broker does


async def test_a_partition_without_a_leader_is_waited_for(own: PrivateBroker, kafka: dict[str, str], tmp_path: Path) -> None:
    """Its one broker is away, the cluster is not; what comes meanwhile is landed in order when it is back, without a restart.

    It is away until the receiver says so. No later time-out is left that could end a record (`message.timeout.ms` is 0).
    """
    second = new_member(own, tmp_path / "second", 2)
    with running(second):
        admin = AdminClient(dict(kafka))
        admin.create_topics([NewTopic("led", 1, replica_assignment=[[2]])])["led"].result(30)

        async with served(source := TcpServerSource(), kafka=kafka, lease=a_lease("led")) as one:
            _, writer = await connect(source.listening_on)
            writer.write(b"0\n")
            await until(lambda: source.intake.counts.records == 1)
            await asyncio.to_thread(second.server.stop)
            number = 1

            def is_told() -> bool:
                nonlocal number
                writer.write(b"%d\n" % number)
                number += 1
                return source.intake.trouble is not None

            await until(is_told)
            assert source.intake.counts.records == 1
            await asyncio.to_thread(second.server.start)
            await until(lambda: source.intake.counts.records == number)
            writer.close()
            report = await one.ended()
        assert (report.restarts, report.undelivered) == (0, 0)
        assert [int(value) for value in values(kafka, "led")] == list(range(number))


async def test_a_broker_that_is_held_loses_and_repeats_nothing_of_a_fast_sender(
    own: PrivateBroker, kafka: dict[str, str]
) -> None:
    """Requests that ran into their time-out meanwhile are sent again, and the broker knows them by their numbers."""
    topic = make_topic(kafka, "held", 2)
    lines = 200_000
    found = ProcessId.read(own.server.pid_file)
    assert found is not None
    process = psutil.Process(found.pid)

    impatient = {**kafka, "socket.timeout.ms": "2000"}
    async with served(source := TcpServerSource(), kafka=impatient, lease=a_lease(topic, block=Block())) as one:
        sending = asyncio.create_task(push(source.listening_on, lines))
        await until(lambda: source.intake.counts.records)
        before = psutil.Process().memory_info().rss
        process.send_signal(signal.SIGSTOP)
        try:
            await until(lambda: source.intake.fill > 0.9)
            await until(lambda: source.intake.trouble)  # which takes longer than two of the requests' time-outs
            assert source.intake.fill <= 1
            assert not sending.done()
            assert psutil.Process().memory_info().rss < before + 100 * MB
        finally:
            process.send_signal(signal.SIGCONT)
        await sending
        await until(lambda: source.intake.counts.records == lines)
        report = await one.ended()
    assert (report.restarts, report.undelivered, report.refused) == (0, 0, 0)
    assert [int(value) for value in values(kafka, topic)] == list(range(lines))


# ---- what senders do


HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
NO_REQUESTS = {
    "not UTF-8": (HEAD + b'Content-Length: 3\r\n\r\n"\xff"', b"400"),
    "a negative length": (HEAD + b"Content-Length: -1\r\n\r\n1", b"400"),
    "two lengths": (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n1", b"400"),
    "a chunk without a size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    "100 MB": (HEAD + b"Content-Length: %d\r\n\r\n" % (100 * MB), b"413"),
    "a client of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), b"400"),
    "zeros": (bytes(1000), b"400"),
    "a long line": (b"GET " + b"x" * 20_000, b"400"),
    "nested too deeply": (HEAD + b"Content-Length: %d\r\n\r\n" % MB + b"[" * MB, b"400"),
}


async def test_what_is_no_request_is_answered_and_others_are_served() -> None:
    """On a connection that was open before, and goes on."""
    sender = MemorySender()

    async def post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, value: bytes) -> bytes:
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(value) + value)
        return (await reader.readuntil(b"}")).split()[1]

    async with served(source := HttpSource(), sender=sender) as one:
        reader, writer = await connect(source.listening_on)
        for what, (sent, status) in NO_REQUESTS.items():
            bad_reader, bad = await connect(source.listening_on)
            bad.write(sent)
            assert (await bad_reader.readline()).split()[1] == status, what
            bad.close()
            assert await post(reader, writer, b"1") == b"202"
        writer.close()
        report = await one.ended()
    assert (report.records, report.restarts) == (len(NO_REQUESTS), 0)
    assert texts(sender) == [b"1"] * len(NO_REQUESTS)


# ---- what a clock does


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
async def test_a_clock_that_is_set_ends_no_lease_and_lengthens_none(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """By a day, either way, while the lease lasts."""
    sender, clock = MemorySender(), time.time

    async def receives(one: Running, number: int) -> None:
        source = one.source
        assert isinstance(source, TcpServerSource)
        await send(source.listening_on, b"%d\n" % number)
        await until(lambda: source.intake.counts.records == number)

    async with served(TcpServerSource(), sender=sender) as one:
        await receives(one, 1)
        monkeypatch.setattr(time, "time", lambda: clock() + step_s)
        await receives(one, 2)
        assert one.task is not None
        assert not one.task.done()
        monkeypatch.setattr(time, "time", clock)
    async with served(TcpServerSource(), sender=sender, lease=a_lease(lasts_s=2.0)) as short:
        monkeypatch.setattr(time, "time", lambda: clock() + step_s)
        assert short.task is not None
        await asyncio.wait_for(asyncio.shield(short.task), 30)  # by itself
    assert texts(sender) == [b"1", b"2"]
