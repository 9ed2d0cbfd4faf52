"""Laws of the sources' settings, of who may send, and of the producer's configuration."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any
from unittest import mock

import confluent_kafka as ck
import pytest

from tests.receivers import until
from tidegate.core.model.errors import ConfigError, SourceUnavailable
from tidegate_receivers.runtime import listening
from tidegate_receivers.runtime.listening import Listener, Tls, client_context, server_context
from tidegate_receivers.runtime.producer import KafkaSender, producer_settings
from tidegate_receivers.runtime.sources import FileSource, HttpSource, SocketSource, TcpServerSource

TLS, CLIENTS = Tls(Path("c"), Path("k")), Tls(Path("c"), Path("k"), Path("ca"))
PUBLIC = "0.0.0.0"  # noqa: S104 - that is what is refused


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        (HttpSource, {"host": PUBLIC, "token": "t"}, "there is no TLS"),
        (HttpSource, {"host": "example.org", "tls": TLS}, "senders need no login"),
        (HttpSource, {"host": PUBLIC, "tls": TLS, "token": ""}, "senders need no login"),
        (TcpServerSource, {"host": PUBLIC}, "there is no TLS"),
        (TcpServerSource, {"host": PUBLIC, "tls": TLS}, "senders need no login"),
        (TcpServerSource, {"tls": Tls(ca=Path("ca"))}, "needs a certificate"),
        (TcpServerSource, {"port": 65_536}, "expected a number up to 65535"),
        (SocketSource, {"host": "example.org", "port": 1}, "there is no TLS"),
        (SocketSource, {"host": "127.0.0.1", "port": 0}, "expected a number up to 65535"),
        (FileSource, {"path": Path("a"), "state_path": Path("./a")}, "the same file"),
    ],
)
def test_what_others_could_use_is_refused(kind: Any, settings: dict[str, Any], why: str) -> None:
    """Before anything is opened."""
    with pytest.raises(ConfigError, match=why):
        kind(**settings)


def test_the_loopback_and_what_is_secured_are_accepted() -> None:
    """By address or name."""
    for host in ("127.0.0.1", "::1", "localhost"):
        HttpSource(host=host)
        SocketSource(host, 1)
    HttpSource(host=PUBLIC, tls=TLS, token="t")  # noqa: S106
    HttpSource(host=PUBLIC, tls=CLIENTS)
    TcpServerSource(host=PUBLIC, tls=CLIENTS)
    SocketSource("example.org", 1, Tls())


def test_no_representation_shows_the_token() -> None:
    """It ends up in logs."""
    assert "geheim" not in repr(HttpSource(token="geheim"))  # noqa: S106


def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Not what is in them."""
    (tmp_path / "c").write_text("no PEM")
    for tls in (TLS, Tls(tmp_path / "c", tmp_path / "c"), Tls(ca=tmp_path / "c")):
        with pytest.raises(ConfigError, match=r"tls: .*c"):
            client_context(tls)
    assert server_context(None) is client_context(None) is None


def test_leases_and_instances_of_one_receiver_share_a_port_and_no_other_receiver_does() -> None:
    """Until the last of them ends."""
    first = Listener("127.0.0.1", 0, "a", 0)
    for listener in (first, Listener("127.0.0.1", first.port, "a", 0), Listener("127.0.0.1", first.port, "a", 1)):
        with pytest.raises(SourceUnavailable, match="the receiver a listens on it"):
            Listener("127.0.0.1", first.port, "b")
        listener.close()
    Listener("127.0.0.1", first.port, "b").close()


def test_the_next_lease_takes_all_connections_only_from_its_own_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several instances share the port, connections are spread over them."""
    taken: list[object] = []
    monkeypatch.setattr(listening, "_take_over", taken.append)
    alone = [Listener("127.0.0.1", 0, "a", 0)]
    alone.append(Listener("127.0.0.1", alone[0].port, "a", 0))
    assert len(taken) == 1
    several = [Listener("127.0.0.1", 0, "b", 0)]
    several += [Listener("127.0.0.1", several[0].port, "b", instance) for instance in (1, 0, 1)]
    assert len(taken) == 1
    for listener in (*alone, *several):
        listener.close()


@pytest.mark.parametrize("context", [None, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)], ids=["plain", "tls"])
async def test_a_connection_too_many_is_closed_at_once_also_while_the_others_make_their_handshake(
    context: ssl.SSLContext | None,
) -> None:
    """A handshake that never ends costs as much as a connection that sends nothing. One that has ended makes room."""
    told: list[str] = []
    listener = Listener("127.0.0.1", 0, "a")
    await listener.start(asyncio.Protocol, context, 2, told.append)
    opened = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(5)]
    for reader, _ in opened[2:]:
        with contextlib.suppress(ConnectionError):
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


def test_an_address_that_is_not_here_is_named() -> None:
    """With the fix."""
    with pytest.raises(SourceUnavailable, match=r"cannot listen on 203\.0\.113\.1:0: .*Free the port"):
        Listener("203.0.113.1", 0, "a")
    with pytest.raises(SourceUnavailable, match="cannot listen on no such host:0"):
        Listener("no such host", 0, "a")


def test_no_connection_can_let_the_producer_lose_or_overtake_records() -> None:
    """Other settings are the connection's."""
    given = {
        "bootstrap.servers": "h:1",
        "acks": "1",
        "enable.idempotence": "false",
        "message.timeout.ms": "5",
        "transactional.id": "x",
        "compression.type": "zstd",
        "message.max.bytes": "2000000",
    }
    settings = producer_settings(given, 100)
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] == settings["enable.gapless.guarantee"] == "true"
    assert settings["message.timeout.ms"] == "0"
    assert "transactional.id" not in settings
    assert (settings["compression.type"], settings["partitioner"]) == ("zstd", "murmur2_random")
    assert settings["message.max.bytes"] == "2000000"
    assert producer_settings({}, 5_000_000)["message.max.bytes"] == "5065536"


def test_a_client_that_cannot_be_closed_is_let_go_all_the_same() -> None:
    """A fatal error is raised again by `close`; the records have their answers, so the sender goes on with a new client."""
    sender = KafkaSender({"bootstrap.servers": "127.0.0.1:1"}, "orders", max_record_bytes=1000)
    fatal = ck.KafkaException(ck.KafkaError(ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    sender._client = mock.Mock(close=mock.Mock(side_effect=fatal))
    sender._end_client()
    assert sender._client is None
