"""Laws of the sources that listen or follow a file, on a topic in memory."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.receivers import a_lease, served, until
from tidegate.ingest import listening
from tidegate.ingest.sources import FileSource, TcpServerSource
from tidegate.testing.fakes import MemorySender


def run(test: Awaitable[None]) -> None:
    """In an event loop of its own."""

    async def inside() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(inside())


# ---- tcp


def test_a_connection_whose_handshake_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it hold up the end of the lease."""
    fail: list[Callable[[], object]] = []

    class Failing(listening.Listener):
        async def start(self, factory: Callable[[], asyncio.BaseProtocol], context: object) -> None:
            fail.append(factory)
            await super().start(factory, None)

    monkeypatch.setattr("tidegate.ingest.sources.tcp_server.Listener", Failing)

    async def test() -> None:
        source = TcpServerSource()
        async with served(source, sender=MemorySender()):
            protocol = fail[0]()  # as the event loop does before a handshake
            assert len(source._accepted) == 1
            del protocol
            gc.collect()
            assert not source._accepted

    run(test())


# ---- file


def rotate(path: Path, name: str, text: str) -> None:
    """Another file gets the name, a second later."""
    about = path.stat()
    path.rename(path.with_name(name))
    path.write_text(text)
    later = about.st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_what_follows_a_file_that_is_gone_is_read_and_nothing_before_it(tmp_path: Path) -> None:
    """Rotated twice and deleted while nobody read, its first successor is still there."""
    path, state = tmp_path / "log", tmp_path / "state"
    path.write_text("1\n")

    async def lease(expected: list[bytes]) -> None:
        sender = MemorySender()
        async with served(FileSource(path, state, poll_s=0.01, linger_s=0.02), sender=sender) as running:
            await until(lambda: len(sender.log) == len(expected))
            await running.ended()
        assert [record.value for record in sender.log] == expected

    async def test() -> None:
        await lease([b"1"])
        rotate(path, "log.2", "2\n")
        await lease([b"2"])
        rotate(path, "log.1", "3\n")
        (tmp_path / "log.1").rename(tmp_path / "log.3")
        rotate(path, "log.0", "4\n")
        (tmp_path / "log.3").unlink()
        await lease([b"3", b"4"])

    run(test())


def test_what_is_no_file_is_named_and_holds_nothing_up(tmp_path: Path) -> None:
    """A FIFO, which nobody writes to, and a folder."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def test() -> None:
        for path in (fifo, tmp_path):
            source = FileSource(path, tmp_path.parent / "state")
            async with served(source, sender=MemorySender(), lease=a_lease()) as running:
                await running.until_told("is no regular file")
                assert "is no regular file. Name a file" in str((await running.ended()).last_error)

    run(test())
