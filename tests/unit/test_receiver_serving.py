"""Laws of the sources that listen or follow a file, on a topic in memory."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.receivers import MemorySender, a_lease, served, until
from tidegate_receivers.config.receiver import Http
from tidegate_receivers.runtime import listening
from tidegate_receivers.runtime.sources import FileSource, HttpSource, TcpServerSource
from tidegate_receivers.runtime.supervisor import Limits


async def post(port: int | None, body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    """The status line and what follows it, of a request of JSON."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = len(body) if length is None else length
    lines = (b"POST / HTTP/1.1", b"Host: h", b"Content-Type: application/json", b"Content-Length: %d" % size, *headers)
    writer.write(b"\r\n".join((*lines, b"", body)))
    try:
        return (await reader.readuntil(b"}"))[9:]
    finally:
        writer.close()


# ---- http


async def test_a_name_of_a_request_is_landed_as_the_bytes_that_were_sent() -> None:
    """Also where they are not UTF-8; no header of a request ends the receiver."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender) as running:
        for name in (b"\xff", "ä".encode()):
            answer = await post(source.listening_on, b"1", b"Idempotency-Key: " + name, b"Tidegate-Key: " + name)
            assert answer.startswith(b"202")
            assert dict(sender.log[-1].headers)["tidegate.idempotency_key"] == name + b"/0"
            assert sender.log[-1].key == name
        assert (await running.ended()).last_error is None


async def test_what_is_sent_again_over_another_connection_goes_the_same_way() -> None:
    """Requests with a name have a stream of their own, the others that of their connection; an empty name is none."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender):
        for header in (b"Idempotency-Key: a", b"Idempotency-Key: a", b"Idempotency-Key: b", b"Idempotency-Key:", b"X: y"):
            assert (await post(source.listening_on, b"[1, 2]", header)).startswith(b"202")
    streams = [out.stream for out in sender.log]
    keys = [dict(out.headers).get("tidegate.idempotency_key") for out in sender.log]
    assert keys == [b"a/0", b"a/1", b"a/0", b"a/1", b"b/0", b"b/1", None, None, None, None]
    assert len(set(streams[:4])) == 1
    assert len(set(streams)) == 4


async def test_a_field_of_each_record_is_its_key_where_the_request_has_no_name() -> None:
    """Each record has a stream by its own key; one without the field goes with its connection."""
    source, sender = HttpSource(http=Http(idempotency_field="id")), MemorySender()
    async with served(source, sender=sender):
        port = source.listening_on
        for _ in range(2):
            assert (await post(port, b'[{"id": 1}, {"id": "x"}, {}]')).startswith(b"202")
        assert (await post(port, b'{"id": 1}', b"Idempotency-Key: a")).startswith(b"202")
        assert (await post(port, b'{"id": "%s"}' % (b"x" * 5000))).startswith(b"400")
    keys = [dict(out.headers).get("tidegate.idempotency_key") for out in sender.log]
    assert keys == [b"1", b'"x"', None] * 2 + [b"a/0"]
    streams = [out.stream for out in sender.log]
    assert streams[:2] == streams[3:5]
    assert streams[2] != streams[5]


async def test_a_body_that_is_compressed_is_refused_and_not_unpacked() -> None:
    """A thousandth of its size may be sent."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender):
        answer = await post(source.listening_on, gzip.compress(b"1"), b"Content-Encoding: gzip")
        assert answer.startswith(b"415")
        assert b"Accept-Encoding: identity" in answer
    assert not sender.log


async def test_a_body_that_ends_too_early_lands_nothing_and_is_no_fault_of_the_receiver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its sender has gone."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender):
        with suppress(TimeoutError):
            await asyncio.wait_for(post(source.listening_on, b"1", length=2), 0.1)
        await asyncio.sleep(0.1)
    assert not sender.log
    assert "Error handling request" not in caplog.text


async def test_headers_that_are_many_or_long_are_refused() -> None:
    """They are held before it is known who sends."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender):
        for headers in ([b"X-%d: x" % number for number in range(64)], [b"X: " + b"x" * 5000]):
            reader, writer = await asyncio.open_connection("127.0.0.1", source.listening_on)
            writer.write(b"\r\n".join((b"POST / HTTP/1.1", b"Host: h", *headers, b"", b"")))
            assert b" 400 " in await reader.readline()
            writer.close()
    assert not sender.log


async def test_a_body_of_many_small_records_is_refused_before_they_are_made() -> None:
    """By the number that the buffer has room for."""
    source, sender = HttpSource(), MemorySender()
    async with served(source, sender=sender, limits=Limits(block_interval_s=0.01, buffer_bytes=4096, max_record_bytes=100)):
        answer = await post(source.listening_on, b"[" + b"1," * 9)
        assert answer.startswith(b"413")
        assert b"at most 8 records" in answer


async def test_bodies_that_wait_for_their_rate_count_as_held_until_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """So waiting takes no memory beyond the bound."""
    source, sender, has_turn = HttpSource(), MemorySender(), asyncio.Event()

    async def pace(_: int) -> float:
        await has_turn.wait()
        return 0.0

    limits = Limits(block_interval_s=0.01, buffer_bytes=4096, max_record_bytes=1000)
    body = b" " * 3000 + b"1"
    async with served(source, sender=sender, limits=limits):
        monkeypatch.setattr(source.intake, "pace", pace)
        port = source.listening_on
        waits = asyncio.create_task(post(port, body))
        await until(lambda: source._held_bytes == len(body))
        assert (await post(port, body)).startswith(b"503")
        has_turn.set()
        assert (await waits).startswith(b"202")
        assert (await post(port, body)).startswith(b"202")


# ---- tcp


async def test_a_connection_whose_handshake_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it hold up the end of the lease."""
    fail: list[Callable[[], object]] = []

    class Failing(listening.Listener):
        async def start(self, factory: Callable[[], asyncio.BaseProtocol], *about: Any) -> None:
            fail.append(factory)
            await super().start(factory, *about)

    monkeypatch.setattr("tidegate_receivers.runtime.sources.lines.Listener", Failing)

    source = TcpServerSource()
    async with served(source, sender=MemorySender()):
        protocol = fail[0]()  # as the event loop does before a handshake
        assert len(source._accepted) == 1
        del protocol
        await until(lambda: gc.collect() >= 0 and not source._accepted)


# ---- file


def rotate(path: Path, name: str, text: str) -> None:
    """Another file gets the name, a second later."""
    about = path.stat()
    path.rename(path.with_name(name))
    path.write_text(text)
    later = about.st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


async def test_what_follows_a_file_that_is_gone_is_read_and_nothing_before_it(tmp_path: Path) -> None:
    """Rotated twice and deleted while nobody read, its first successor is still there."""
    path, state = tmp_path / "log", tmp_path / "state"
    path.write_text("1\n")

    async def lease(expected: list[bytes]) -> None:
        sender = MemorySender()
        async with served(FileSource(path=path, state_path=state, poll_s=0.01, linger_s=0.02), sender=sender) as running:
            await until(lambda: len(sender.log) == len(expected))
            await running.ended()
        assert [record.value for record in sender.log] == expected

    await lease([b"1"])
    rotate(path, "log.2", "2\n")
    await lease([b"2"])
    rotate(path, "log.1", "3\n")
    (tmp_path / "log.1").rename(tmp_path / "log.3")
    rotate(path, "log.0", "4\n")
    (tmp_path / "log.3").unlink()
    await lease([b"3", b"4"])


async def test_what_is_no_file_is_named_and_holds_nothing_up(tmp_path: Path) -> None:
    """A FIFO, which nobody writes to, and a folder."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    for path in (fifo, tmp_path):
        source = FileSource(path=path, state_path=tmp_path.parent / "state")
        async with served(source, sender=MemorySender(), lease=a_lease()) as running:
            await running.until_told("is not a regular file")
            assert "is not a regular file. Name a file" in str((await running.ended()).last_error)
