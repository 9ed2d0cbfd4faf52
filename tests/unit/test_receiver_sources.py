"""Laws of sources that listen, connect or follow a file: their settings, who may send, and what is landed of it, in memory."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import re
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import confluent_kafka as ck
import pytest

from tests.receivers import MemorySender, a_lease, served, until
from tidegate.core.model.errors import ConfigError, SourceUnavailable
from tidegate_receivers.config.receiver import Http, Tls
from tidegate_receivers.runtime import listening
from tidegate_receivers.runtime.listening import Listener, client_context, server_context
from tidegate_receivers.runtime.producer import KafkaSender, producer_settings
from tidegate_receivers.runtime.sources import FileSource, HttpSource, SocketSource, TcpServerSource

TLS, CLIENTS = Tls("c", "k"), Tls("c", "k", "ca")
PUBLIC = "0.0.0.0"  # noqa: S104 - that is what is refused


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        (HttpSource, {"host": PUBLIC, "token": "t"}, "there is no TLS"),
        (HttpSource, {"host": "example.org", "tls": TLS}, "senders need no login"),
        (HttpSource, {"host": PUBLIC, "tls": TLS, "token": ""}, "senders need no login"),
        (TcpServerSource, {"host": PUBLIC}, "there is no TLS"),
        (TcpServerSource, {"host": PUBLIC, "tls": TLS}, "senders need no login"),
        (TcpServerSource, {"tls": Tls(ca="ca")}, "needs a certificate"),
        (TcpServerSource, {"port": 65_536}, "expected a number up to 65535"),
        (SocketSource, {"host": "example.org", "port": 1}, "there is no TLS"),
        (SocketSource, {"host": "127.0.0.1", "port": 0}, "expected a number up to 65535"),
        (FileSource, {"path": Path("a"), "state_path": Path("./a")}, "the same file"),
    ],
)
def test_what_others_could_use_is_refused(kind: Any, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        kind(**settings)


def test_the_loopback_and_what_is_secured_are_accepted() -> None:
    """By address or name. No representation, which ends up in logs, shows a token."""
    for host in ("127.0.0.1", "::1", "localhost"):
        HttpSource(host=host)
        SocketSource(host, 1)
    assert "geheim" not in repr(HttpSource(host=PUBLIC, tls=TLS, token="geheim"))  # noqa: S106
    HttpSource(host=PUBLIC, tls=CLIENTS)
    TcpServerSource(host=PUBLIC, tls=CLIENTS)
    SocketSource("example.org", 1, Tls())


def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("no PEM")
    file = str(tmp_path / "c")
    for tls in (TLS, Tls(file, file), Tls(ca=file)):
        with pytest.raises(ConfigError, match=r"tls: .*c"):
            client_context(tls)
    assert server_context(None) is client_context(None) is None


def test_leases_and_instances_of_one_receiver_share_a_port_and_no_other_receiver_does() -> None:
    """Until the last of them ends. An address that is not here is named, too."""
    first = Listener("127.0.0.1", 0, "a", 0)
    for listener in (first, Listener("127.0.0.1", first.port, "a", 0), Listener("127.0.0.1", first.port, "a", 1)):
        with pytest.raises(SourceUnavailable, match="the receiver a listens on it"):
            Listener("127.0.0.1", first.port, "b")
        listener.close()
    Listener("127.0.0.1", first.port, "b").close()
    for host, why in (("203.0.113.1", r"203\.0\.113\.1:0: .*Free the port"), ("no such host", "no such host:0")):
        with pytest.raises(SourceUnavailable, match=f"cannot listen on {why}"):
            Listener(host, 0, "a")


def test_the_next_lease_takes_all_connections_only_from_its_own_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several instances share the port, connections are spread over them."""
    taken: list[object] = []
    monkeypatch.setattr(listening, "_take_over", taken.append)
    for name, instances in (("a", (0,)), ("b", (1, 0, 1))):
        listeners = [Listener("127.0.0.1", 0, name, 0)]
        listeners += [Listener("127.0.0.1", listeners[0].port, name, instance) for instance in instances]
        assert len(taken) == 1
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize("context", [None, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)], ids=["plain", "tls"])
async def test_a_connection_too_many_is_closed_at_once_also_during_handshakes(
    context: ssl.SSLContext | None,
) -> None:
    """A handshake that never ends costs as much as a connection that sends nothing. One that has ended makes room."""
    told: list[str] = []
    listener = Listener("127.0.0.1", 0, "a")
    await listener.start(asyncio.Protocol, context, 2, told.append)
    opened = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(5)]
    for reader, _ in opened[2:]:
        with suppress(ConnectionError):
            assert await reader.read() == b""
    assert told == ["there are 2 connections, and another one is closed"] * 3
    opened[0][1].close()
    assert not opened[1][0].at_eof()
    await until(lambda: listener._socket._open[0].fileno() < 0)
    _, again = await asyncio.open_connection("127.0.0.1", listener.port)
    await until(lambda: listener._socket._open[1].getpeername() == again.get_extra_info("sockname"))
    assert len(told) == 3
    for _, writer in (*opened, (None, again)):
        writer.close()
    listener.close()


def test_no_connection_can_let_the_producer_lose_or_overtake_records() -> None:
    given = {"acks": "1", "enable.idempotence": "false", "message.timeout.ms": "5", "transactional.id": "x"}
    kept = {"bootstrap.servers": "h:1", "compression.type": "zstd", "message.max.bytes": "2000000"}
    always = {"acks": "all", "enable.idempotence": "true", "enable.gapless.guarantee": "true", "message.timeout.ms": "0"}
    settings = producer_settings({**given, **kept}, 100)
    assert settings.items() >= {**kept, **always, "partitioner": "murmur2_random"}.items()
    assert "transactional.id" not in settings
    assert producer_settings({}, 5_000_000)["message.max.bytes"] == "5065536"


def test_a_client_that_cannot_be_closed_is_let_go_all_the_same() -> None:
    """A fatal error is raised again by `close`; the records have their answers, so the sender goes on with a new client."""
    sender = KafkaSender({"bootstrap.servers": "127.0.0.1:1"}, "orders", max_record_bytes=1000)
    fatal = ck.KafkaException(ck.KafkaError(ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    sender._client = mock.Mock(close=mock.Mock(side_effect=fatal))
    sender._end_client()
    assert sender._client is None


async def post(port: int | None, body: bytes, *headers: bytes, length: int | None = None, end: bytes = b"}") -> bytes:
    """The status line and what follows it, of a request of JSON."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = len(body) if length is None else length
    lines = (b"POST / HTTP/1.1", b"Host: h", b"Content-Type: application/json", b"Content-Length: %d" % size, *headers)
    writer.write(b"\r\n".join((*lines, b"", body)))
    try:
        return (await reader.readuntil(end or b"\n"))[9:]
    finally:
        writer.close()


async def test_a_name_of_a_request_is_landed_as_the_bytes_that_were_sent() -> None:
    """Also where they are not UTF-8; no header of a request ends the receiver."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender) as running:
        for name in (b"\xff", "ä".encode()):
            answer = await post(source.listening_on, b"1", b"Idempotency-Key: " + name, b"Tidegate-Key: " + name)
            assert answer.startswith(b"202")
            assert (keys(sender)[-1], sender.log[-1].key) == (name + b"/0", name)
        assert (await running.ended()).last_error is None


async def test_what_is_sent_again_over_another_connection_goes_the_same_way() -> None:
    """Requests with a name have a stream of their own, the others that of their connection; an empty name is none."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender):
        for header in (b"Idempotency-Key: a", b"Idempotency-Key: a", b"Idempotency-Key: b", b"Idempotency-Key:", b"X: y"):
            assert (await post(source.listening_on, b"[1, 2]", header)).startswith(b"202")
    streams = [out.stream for out in sender.log]
    assert keys(sender) == [b"a/0", b"a/1", b"a/0", b"a/1", b"b/0", b"b/1", None, None, None, None]
    assert (len(set(streams[:4])), len(set(streams))) == (1, 4)


def keys(sender: MemorySender) -> list[str | bytes | None]:
    """The names of what has landed."""
    return [dict(out.headers).get("tidegate.idempotency_key") for out in sender.log]


async def test_a_field_of_each_record_is_its_key_where_the_request_has_no_name() -> None:
    """Each record has a stream by its own key; one without the field goes with its connection."""
    source, sender = HttpSource(http=Http(idempotency_field="id")), MemorySender()
    async with served(source, sender=sender):
        port = source.listening_on
        for _ in range(2):
            assert (await post(port, b'[{"id": 1}, {"id": "x"}, {}]')).startswith(b"202")
        assert (await post(port, b'{"id": 1}', b"Idempotency-Key: a")).startswith(b"202")
        assert (await post(port, b'{"id": "%s"}' % (b"x" * 5000))).startswith(b"400")
    assert keys(sender) == [b"1", b'"x"', None] * 2 + [b"a/0"]
    streams = [out.stream for out in sender.log]
    assert streams[:2] == streams[3:5]
    assert streams[2] != streams[5]


async def test_a_body_that_ends_too_early_lands_nothing_and_is_no_fault_of_the_receiver(caplog: Any) -> None:
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender):
        with suppress(TimeoutError):
            await asyncio.wait_for(post(source.listening_on, b"1", length=2), 0.1)
        await asyncio.sleep(0.1)
    assert (sender.log, "Error handling request" in caplog.text) == ([], False)


@pytest.mark.parametrize(
    ("body", "headers", "answer"),
    [
        (gzip.compress(b"1"), [b"Content-Encoding: gzip"], b"415.*Accept-Encoding: identity"),
        (b"[" + b"1," * 9, [], b"413.*at most 8 records"),
        (b"1", [b"X-%d: x" % number for number in range(64)], b"400"),
        (b"1", [b"X: " + b"x" * 5000], b"400"),
        (b'{"id": "%s"}' % (b"x" * 50), [b"Idempotency-Key: " + b"x" * 5000], b"400"),
    ],
    ids=["compressed", "many records", "many headers", "a long header", "a long name"],
)
async def test_what_would_take_memory_is_refused_before_it_is_made(body: bytes, headers: list[bytes], answer: bytes) -> None:
    """Nothing is unpacked, headers are held before it is known who sends, and records by the room of the buffer."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender, lease=a_lease(buffer_bytes=4096, max_record_bytes=100)):
        said = await post(source.listening_on, body, *headers, end=b"" if b"400" in answer else b"}")
    assert re.match(answer, said, re.DOTALL)
    assert not sender.log


async def test_bodies_that_wait_for_their_rate_count_as_held_until_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """So waiting takes no memory beyond the bound."""
    source, has_turn = HttpSource(), asyncio.Event()

    async def pace(_: int) -> float:
        await has_turn.wait()
        return 0.0

    body = b" " * 3000 + b"1"
    async with served(source, sender=MemorySender(), lease=a_lease(buffer_bytes=4096, max_record_bytes=1000)):
        monkeypatch.setattr(source.intake, "pace", pace)
        port = source.listening_on
        waits = asyncio.create_task(post(port, body))
        await until(lambda: source._held_bytes == len(body))
        assert (await post(port, body)).startswith(b"503")
        has_turn.set()
        assert (await waits).startswith(b"202")
        assert (await post(port, body)).startswith(b"202")


async def test_a_connection_whose_handshake_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening.Listener, "start", start := mock.AsyncMock())
    async with served(source := TcpServerSource(), sender=MemorySender()):
        protocol = start.call_args.args[0]()  # as the event loop does before a handshake
        assert len(source._accepted) == 1
        del protocol
        await until(lambda: gc.collect() >= 0 and not source._accepted)


async def test_what_is_no_file_is_named_and_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    for path in (fifo, tmp_path):
        source = FileSource(path=path, state_path=tmp_path.parent / "state")
        async with served(source, sender=MemorySender()) as running:
            await running.until_told("is not a regular file")
            assert "Name a file" in str((await running.ended()).last_error)
