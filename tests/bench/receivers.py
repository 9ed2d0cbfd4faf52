"""How much one instance of a receiver lands, with sender and broker on the same machine: `python -m tests.bench.receivers`.

    tcp    lines of 140 bytes, as fast as they are taken
    http   posts of ten records by so many connections, each after the answer to the one before
    slow   a sender without a brake against a receiver with a rate: memory, and how long the sender was held back

Each receiver is a process of its own, as in a task. CPU is the receiver's, RSS its highest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp

from tests.integration.private_broker import new_broker, running
from tests.receivers import a_lease
from tests.topics import make_topic
from tidegate.ingest.receiver import Receiver
from tidegate.ingest.sources import HttpSource, TcpServerSource
from tidegate.ingest.supervisor import Limits, serve

SPAWN = multiprocessing.get_context("spawn")


def receive(pipe: Connection, kafka: dict[str, str], kind: str, rate: float | None) -> None:
    """One instance in this process, until the pipe says so."""

    async def run() -> dict[str, Any]:
        source: HttpSource | TcpServerSource = HttpSource() if kind == "http" else TcpServerSource()
        stop = asyncio.Event()
        lease, limits = a_lease(kind), Limits(max_rate=rate)
        task = asyncio.create_task(serve(source, lease, limits, producer=kafka, stop=stop, tell=lambda _: None))
        while source.listening_on is None:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        pipe.send(source.listening_on)
        wanted = 0
        while not pipe.poll():  # noqa: ASYNC110 - the other process has no event either
            await asyncio.sleep(0.02)
        wanted = pipe.recv()
        while records_of(source) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        ended_s = time.time()
        stop.set()
        report = await task
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "ended_s": ended_s,
            "cpu_s": used.ru_utime + used.ru_stime,
            "rss_mb": used.ru_maxrss / 1024,
            "records": report.records,
            "blocks": report.blocks,
            "held_back_s": report.throttled_s,
        }

    pipe.send(asyncio.run(run()))


def records_of(source: Receiver) -> int:
    """Acknowledged so far."""
    return source.intake.counts.records


def push(port: int, lines: int) -> int:
    """Send so many lines."""
    block = b"".join(b"%0139d\n" % n for n in range(1000))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(lines // 1000):
            connection.sendall(block)
    return lines // 1000 * 1000


def push_for(port: int, seconds: float) -> int:
    """Send for so long, without a brake; how many lines went off."""
    block, sent, until_s = b"".join(b"%0139d\n" % n for n in range(100)), 0, time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(1.0)
        while time.monotonic() < until_s:
            try:
                connection.sendall(block)
            except TimeoutError:
                break
            sent += 100
    return sent


def post(port: int, posts: int, connections: int) -> int:
    """Posts of ten records; how many records."""
    body = json.dumps([{"id": n, "name": f"customer-{n:06}", "note": "x" * 90} for n in range(10)]).encode()

    async def run() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:

            async def one() -> None:
                for _ in range(posts // connections):
                    async with session.post(
                        f"http://127.0.0.1:{port}/", data=body, headers={"Content-Type": "application/json"}
                    ) as answer:
                        if answer.status != 202:
                            raise SystemExit(f"the receiver answers {answer.status}")

            await asyncio.gather(*[one() for _ in range(connections)])

    asyncio.run(run())
    return posts // connections * connections * 10


def measure(kafka: dict[str, str], kind: str, rate: float | None, send: Any) -> None:
    """One receiver and its sender."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=receive, args=(there, kafka, kind, rate))
    process.start()
    port = here.recv()
    started_s = time.time()
    sent = send(port)
    here.send(0 if rate else sent)
    found = here.recv()
    process.join()
    took_s = found.pop("ended_s") - started_s
    shown = {name: round(value, 2) for name, value in found.items()}
    print(  # noqa: T201
        f"{kind}{' slow' if rate else ''}: {sent} records in {took_s:.2f} s, {sent / took_s:.0f} records/s; {shown}"
    )


def main() -> None:
    """All three."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--lines", type=int, default=1_000_000)
    words.add_argument("--posts", type=int, default=20_000)
    words.add_argument("--connections", type=int, default=64)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        own = new_broker(Path(folder) / "own")
        with running(own):
            kafka = {"bootstrap.servers": own.address()}
            for kind in ("tcp", "http"):
                make_topic(kafka, kind, 4)
            measure(kafka, "tcp", None, lambda port: push(port, given.lines // 10))
            measure(kafka, "tcp", None, lambda port: push(port, given.lines))
            measure(kafka, "http", None, lambda port: post(port, given.posts, given.connections))
            measure(kafka, "tcp", 5_000.0, lambda port: push_for(port, 10.0))


if __name__ == "__main__":
    main()
