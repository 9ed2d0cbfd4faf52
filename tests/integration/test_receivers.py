"""Receivers between real senders and a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.private_broker import PrivateBroker
from tests.receivers import a_lease, connect, landed, push, send, served, until, values
from tests.sender_contract import SenderContract
from tests.topics import make_topic
from tidegate_receivers.config.receiver import Block, Http, Rate, Tls
from tidegate_receivers.rules.records import Headers, Outgoing
from tidegate_receivers.runtime.listening import client_context
from tidegate_receivers.runtime.producer import KafkaSender
from tidegate_receivers.runtime.sources import FileSource, HttpSource, SocketSource, TcpServerSource

KB = 1024


@pytest.fixture
def kafka(own: PrivateBroker) -> dict[str, str]:
    return {"bootstrap.servers": own.address()}


async def curl(port: int | None, *words: str, body: bytes | None = None, path: str = "/") -> tuple[int, dict[str, Any]]:
    """The status and the body of curl's request."""
    argv = ["curl", "-sS", "--noproxy", "*", "-m", "60", "-w", "\n%{http_code}", *words, f"http://127.0.0.1:{port}{path}"]
    if body is not None:
        argv += ["--data-binary", "@-", "-H", "Content-Type: application/json"]
    process = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output, _ = await process.communicate(body)
    text, _, status = output.decode().rpartition("\n")
    return int(status), json.loads(text)


# ---- http


async def test_what_curl_posts_is_in_the_topic_when_it_has_its_answer(kafka: dict[str, str]) -> None:
    """A value, an array and lines, with key and name of the request."""
    topic = make_topic(kafka, "http-answers", 3)
    async with served(source := HttpSource(), kafka=kafka, lease=a_lease(topic)):
        port = source.listening_on
        assert await curl(port, "--json", '{"id":1}') == (202, {"records": 1})
        assert values(kafka, topic) == [b'{"id":1}']
        answer = await curl(port, "-H", "Tidegate-Key: k", "-H", "Idempotency-Key: abc", body=b'[{"id":2}, 3]')
        assert answer == (202, {"records": 2})
        nd = ("-H", "Content-Type: application/x-ndjson", "--data-binary", '{"id":4}\n{"id":5}\n')
        assert await curl(port, *nd) == (202, {"records": 2})
        assert await curl(port, body=b"[]") == (202, {"records": 0})
    by_value = {message.value(): message for message in landed(kafka, topic)}
    assert by_value.keys() == {b'{"id":1}', b'{"id":2}', b"3", b'{"id":4}', b'{"id":5}'}
    named = [by_value[b'{"id":2}'], by_value[b"3"]]
    headers = [dict(cast("list[tuple[str, bytes]]", message.headers())) for message in named]
    assert [message.key() for message in named] == [b"k", b"k"]
    assert [h["tidegate.idempotency_key"] for h in headers] == [b"abc/0", b"abc/1"]
    assert {h["tidegate.receiver"] for h in headers} == {b"r"}


async def test_each_bad_request_has_its_status_and_lands_nothing(kafka: dict[str, str]) -> None:
    """And the receiver goes on."""
    topic = make_topic(kafka, "http-refusals")
    good = ("-H", "Authorization: Bearer geheim")

    source = HttpSource(http=Http("/in", 100 * KB), token="geheim")  # noqa: S106
    lease = a_lease(topic, max_record_bytes=50 * KB, buffer_bytes=200 * KB)
    async with served(source, kafka=kafka, lease=lease) as one:
        port = source.listening_on
        wanted: dict[int, list[tuple[str, ...]]] = {
            401: [("--json", "1"), ("--json", "1", "-H", "Authorization: Bearer geheimer")],
            400: [(*good, "--json", "{"), (*good, "--json", '{"a": NaN}')],
            405: [good, (*good, "-X", "PUT", "--json", "1")],
            415: [(*good, "-d", "a=1")],
        }
        for status, requests in wanted.items():
            for words in requests:
                assert (await curl(port, *words, path="/in"))[0] == status, words
        assert (await curl(port, *good, "--json", "1"))[0] == 404
        for body in (b'"%s"' % (b"x" * 101 * KB), b'"%s"' % (b"x" * 60 * KB), b"[%s1]" % (b"1," * 500)):
            assert (await curl(port, *good, body=body, path="/in"))[0] == 413
        chunked = (*good, "-H", "Transfer-Encoding: chunked")
        assert (await curl(port, *chunked, body=b'"%s"' % (b"x" * 300 * KB), path="/in"))[0] == 413
        assert (await curl(port, *good, "--json", "7", path="/in"))[0] == 202
        assert not any("geheim" in text for text in one.told)
    assert values(kafka, topic) == [b"7"]


async def test_a_sender_above_the_rate_is_told_when_to_come_again(kafka: dict[str, str]) -> None:
    """429, with seconds."""
    topic = make_topic(kafka, "http-rate")
    async with served(source := HttpSource(), kafka=kafka, lease=a_lease(topic, rate=Rate(1))):
        port = source.listening_on
        assert (await curl(port, "--json", json.dumps(list(range(50)))))[0] == 202
        process = await asyncio.create_subprocess_exec(
            "curl", "-sSi", "--noproxy", "*", "--json", "1", f"http://127.0.0.1:{port}/", stdout=subprocess.PIPE
        )
        answer = (await process.communicate())[0].decode()
        assert answer.startswith("HTTP/1.1 429")
        assert "\nRetry-After: 50\r\n" in answer or "\nRetry-After: 49\r\n" in answer


async def test_a_topic_that_is_missing_is_503_until_it_is_there(kafka: dict[str, str]) -> None:
    """Without a restart; also one that is deleted while the receiver runs."""
    async with served(source := HttpSource(), kafka=kafka, lease=a_lease("http-late")) as one:
        port = source.listening_on
        assert (await curl(port, "--json", "1"))[0] == 503
        make_topic(kafka, "http-late")
        assert (await curl(port, "--json", "2"))[0] == 202
        report = await one.ended()
    assert (report.records, report.restarts) == (1, 0)
    assert values(kafka, "http-late") == [b"2"]


async def test_slow_senders_are_closed_and_the_others_are_served(kafka: dict[str, str]) -> None:
    """One sends its headers byte by byte, one its body, one nothing; and there are no more connections than allowed."""
    topic = make_topic(kafka, "http-slow")

    async def trickle(port: int | None, at_once: bytes, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(at_once)
        answer = asyncio.create_task(reader.read())
        for at in range(len(data)):
            if answer.done():
                break
            writer.write(data[at : at + 1])
            await asyncio.sleep(0.03)
        try:
            return await answer
        except ConnectionError:
            return b""
        finally:
            writer.close()

    source = HttpSource(idle_s=0.5, max_connections=3)
    async with served(source, kafka=kafka, lease=a_lease(topic)):
        port = source.listening_on
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
        sent = [(b"", head), (head + b"\r\n" + b" " * 99, b""), (b"", b"")]
        ends = await asyncio.gather(*[trickle(port, *parts) for parts in sent])
        assert [end.split(b"\r\n")[0] for end in ends] == [b"", b"HTTP/1.1 408 Request Timeout", b""]
        assert (await curl(port, "--json", "1"))[0] == 202


# ---- the producer


class TestKafkaSender(SenderContract):
    @pytest.fixture
    def longest(self) -> int:
        return 1000

    @pytest.fixture
    def topic(self, kafka: dict[str, str]) -> str:
        return make_topic(kafka, f"sender-{uuid4().hex}", 3, **{"max.message.bytes": "2000"})

    @pytest.fixture
    def sender(self, kafka: dict[str, str], topic: str) -> KafkaSender:
        return KafkaSender(kafka, topic, max_record_bytes=1 << 20)

    @pytest.fixture
    def landed(self, kafka: dict[str, str], topic: str) -> Callable[[], Sequence[Outgoing]]:
        return lambda: [
            Outgoing(message.value() or b"", message.key(), -1, cast("Headers", message.headers() or []))
            for message in landed(kafka, topic)
        ]

    @pytest.fixture
    def unreachable(self) -> KafkaSender:
        return KafkaSender({"bootstrap.servers": "127.0.0.1:1"}, "t", max_record_bytes=1 << 20)


# ---- tcp


async def test_lines_are_landed_as_they_are_and_faults_are_named(kafka: dict[str, str]) -> None:
    """Invalid UTF-8 and empty lines are records; half a line and one of 3 MB are not."""
    topic = make_topic(kafka, "tcp-lines", 4)
    async with served(source := TcpServerSource(), kafka=kafka, lease=a_lease(topic)) as one:
        await send(source.listening_on, b"a\r\n\n\xff\xfe\n" + b"x" * (3 << 20) + b"\nb\nhal")
        await one.until_told("ended in the middle of a line")
        report = await one.ended()
    assert (report.records, report.refused) == (4, 2)
    assert await one.until_told("a line of more than 1048576 bytes")
    assert values(kafka, topic) == [b"a", b"", b"\xff\xfe", b"b"]


async def test_an_occupied_port_is_named_and_the_receiver_starts_when_it_is_free(kafka: dict[str, str]) -> None:
    """By another program, or by another receiver, which would share the stream."""
    topic = make_topic(kafka, "tcp-port")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        source = TcpServerSource(port=port)
        async with served(source, kafka=kafka, lease=a_lease(topic)) as one:
            await one.until_told(f"cannot listen on 127.0.0.1:{port}: Address already in use")
            taken.close()
            await until(lambda: source.listening_on)
            async with served(TcpServerSource(port=port), kafka=kafka, lease=a_lease(topic, name="other")) as other:
                await other.until_told(f"cannot listen on 127.0.0.1:{port}: the receiver r listens on it")


async def test_a_silent_connection_is_closed_and_one_too_many_too(kafka: dict[str, str]) -> None:
    """The others are not."""
    topic = make_topic(kafka, "tcp-idle")
    source = TcpServerSource(idle_s=0.3, max_connections=1)
    async with served(source, kafka=kafka, lease=a_lease(topic)) as one:
        reader, first = await connect(source.listening_on)
        first.write(b"begun")
        await until(lambda: source._connections)
        refused, second = await connect(source.listening_on)
        for end in (refused, reader):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await end.readexactly(1)
        first.close()
        second.close()
        await one.until_told("sent nothing for 0.3 s")
        await one.until_told("there are 1 connections, and another one is closed")


async def test_the_next_lease_takes_the_port_over_and_no_connect_is_refused(kafka: dict[str, str]) -> None:
    """Senders that connect all the time lose no line, whichever lease takes it."""
    topic = make_topic(kafka, "tcp-hand-over")
    sent: list[bytes] = []

    async def sending(port: int | None, number: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            line = b"%d %d" % (number, len(sent))
            await send(port, line + b"\n")
            sent.append(line)

    def reached(enough: int) -> bool:
        return len(sent) >= enough

    stop = asyncio.Event()
    sources = [TcpServerSource()]
    async with AsyncExitStack() as leases:
        last = await leases.enter_async_context(served(sources[0], kafka=kafka, lease=a_lease(topic)))
        port = sources[0].listening_on or 0
        senders = [asyncio.create_task(sending(port, number, stop)) for number in range(8)]
        for _ in range(5):
            sources.append(TcpServerSource(port=port))
            new = await leases.enter_async_context(served(sources[-1], kafka=kafka, lease=a_lease(topic)))
            await until(lambda: sources[-1].listening_on)
            enough = len(sent) + 50
            await until(partial(reached, enough))
            assert (await last.ended()).last_error is None
            last = new
        stop.set()
        await asyncio.gather(*senders)
        assert (await last.ended()).last_error is None
    assert Counter(values(kafka, topic)) == Counter(sent)


async def test_records_wait_for_a_broker_that_is_stopped_and_a_fast_sender_stays_bounded(
    own: PrivateBroker, kafka: dict[str, str]
) -> None:
    """None that was sent is lost or repeated; TCP itself holds the sender back. HTTP answers 503 meanwhile."""
    topic = make_topic(kafka, "outage", 2)
    http_topic = make_topic(kafka, "outage-http")
    lines, acknowledged = 400_000, list[bytes]()

    async def post(port: int | None, stop: asyncio.Event) -> Counter[int]:
        statuses: Counter[int] = Counter()
        while not stop.is_set():
            value = b"%d" % statuses.total()
            status, _ = await curl(port, body=value)
            statuses[status] += 1
            acknowledged.extend([value] if status == 202 else [])
        return statuses

    tcp, http = TcpServerSource(), HttpSource(answer_s=1.0)
    async with (
        served(tcp, kafka=kafka, lease=a_lease(topic, block=Block())) as one,
        served(http, kafka=kafka, lease=a_lease(http_topic)) as two,
    ):
        stop = asyncio.Event()
        posting = asyncio.create_task(post(http.listening_on, stop))
        await until(lambda: acknowledged)
        sending = asyncio.create_task(push(tcp.listening_on, lines))
        await until(lambda: tcp.intake.counts.records)
        await asyncio.to_thread(own.server.stop)
        await until(lambda: tcp.intake.fill > 0.9)
        before = tcp.intake.counts.records
        await asyncio.sleep(10)  # so long is the broker away
        assert (tcp.intake.fill <= 1, sending.done(), tcp.intake.counts.records) == (True, False, before)
        await asyncio.to_thread(own.server.start)
        done = len(acknowledged)
        await sending
        await until(lambda: tcp.intake.counts.records == lines and len(acknowledged) > done + 3)
        stop.set()
        statuses = await posting
        first, second = await one.ended(), await two.ended()
    assert (first.undelivered, first.refused, first.restarts, second.restarts) == (0, 0, 0, 0)
    assert set(statuses) == {202, 503}
    assert [int(value) for value in values(kafka, topic)] == list(range(lines))
    assert set(acknowledged) <= set(values(kafka, http_topic))


# ---- a socket


async def test_a_server_that_ends_refuses_and_resets_is_connected_to_again(kafka: dict[str, str]) -> None:
    """Each is named; the lines of all connections are landed."""
    topic = make_topic(kafka, "socket")
    served_connections = 0

    async def serve_one(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served_connections
        served_connections += 1
        writer.write(b"%d\nhalf" % served_connections)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with served(source := SocketSource("127.0.0.1", port), kafka=kafka, lease=a_lease(topic)) as one:
        await one.until_told(f"127.0.0.1:{port} has ended the connection")
        await until(lambda: source.intake.counts.records >= 2)
        server.close()
        await one.until_told(f"cannot connect to 127.0.0.1:{port}: ")
        report = await one.ended()
    assert report.records == report.refused == served_connections
    assert values(kafka, topic) == [b"%d" % (n + 1) for n in range(served_connections)]


# ---- a file


def append(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


async def test_a_file_is_landed_over_rotation_truncation_and_leases(kafka: dict[str, str], tmp_path: Path) -> None:
    """Each line once, also those that were written while nobody read."""
    topic = make_topic(kafka, "file")
    path, state = tmp_path / "app.log", tmp_path / "place.json"
    async with served(
        source := FileSource(path=path, state_path=state, poll_s=0.01, linger_s=0.1), kafka=kafka, lease=a_lease(topic)
    ) as one:
        append(path, 1, 2)
        append(tmp_path / "app.log.audit", "another file")
        await until(lambda: source.intake.counts.records == 2)
        with path.open("a") as writer:
            path.rename(tmp_path / "app.log.1")
            writer.write("3\n4")  # the writer has not noticed yet
            append(path, 5)
            writer.flush()
            writer.write("4\n")
        await until(lambda: source.intake.counts.records == 5)
        os.truncate(path, 0)
        await one.until_told("was truncated")
        append(path, 6)
        await until(lambda: source.intake.counts.records == 6)
        await one.ended()
    append(path, 7)
    path.rename(tmp_path / "app.log.1")
    append(path, 8)
    path.rename(tmp_path / "app.log.2")
    append(path, 9)
    async with served(
        source := FileSource(path=path, state_path=state, poll_s=0.01, linger_s=0.1), kafka=kafka, lease=a_lease(topic)
    ) as one:
        await until(lambda: source.intake.counts.records == 3)
        assert (await one.ended()).last_error is None
    assert values(kafka, topic) == [b"1", b"2", b"3", b"44", b"5", b"6", b"7", b"8", b"9"]


# ---- what an operator does


async def test_a_topic_that_is_deleted_and_made_again_is_found_without_a_restart(kafka: dict[str, str]) -> None:
    """What comes meanwhile waits, and is landed in order."""
    topic = make_topic(kafka, "deleted", 4)
    sent = 0
    async with served(source := TcpServerSource(), kafka=kafka, lease=a_lease(topic)) as one:
        _, writer = await connect(source.listening_on)
        writer.write(b"0\n")
        await until(lambda: source.intake.counts.records == 1)
        admin = AdminClient(dict(kafka))
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result, 30)
        missing = asyncio.create_task(one.until_told(f"topic {topic} does not exist"))
        # a broker takes records for a while after the topic was deleted
        while not missing.done():
            sent += 1
            writer.write(b"%d\n" % sent)
            await writer.drain()
            await asyncio.wait({missing}, timeout=0.005)
        await missing
        acknowledged = source.intake.counts.records
        await asyncio.to_thread(make_topic, kafka, topic, 1)
        await until(lambda: source.intake.counts.records == sent + 1)
        writer.close()
        report = await one.ended()
    assert (report.restarts, report.undelivered) == (0, 0)
    assert [int(value) for value in values(kafka, topic)] == list(range(acknowledged, sent + 1)) != []


async def test_only_who_has_a_certificate_may_send_over_tls(kafka: dict[str, str], tmp_path: Path) -> None:
    """By HTTP and by lines; who has none is closed, and the others are served."""
    topic = make_topic(kafka, "tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", *subject]
    await asyncio.to_thread(subprocess.run, argv, cwd=tmp_path, check=True, capture_output=True)
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    tls, certificate = Tls(cert, key, cert), ["--cert", cert, "--key", key]

    http, tcp = HttpSource(tls=tls), TcpServerSource(tls=tls)
    async with served(http, kafka=kafka, lease=a_lease(topic)), served(tcp, kafka=kafka, lease=a_lease(topic)) as two:
        url = f"https://localhost:{http.listening_on}/"
        for words, ends in (([], False), (certificate, True)):
            curl = ["curl", "-sS", "--cacert", cert, *words, "--json", "1", url]
            process = await asyncio.create_subprocess_exec(*curl, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            assert (await process.wait() == 0) is ends
        _, stranger = await asyncio.open_connection(
            "localhost", tcp.listening_on, ssl=client_context(Tls(ca=cert)), server_hostname="localhost"
        )
        stranger.write(b"2\n")
        _, known = await asyncio.open_connection("localhost", tcp.listening_on, ssl=client_context(tls))
        known.write(b"3\n")
        await until(lambda: tcp.intake.counts.records == 1)
        known.close()
        stranger.close()
        assert (await two.ended()).undelivered == 0
    assert sorted(values(kafka, topic)) == [b"1", b"3"]
