"""How much one instance of a receiver lands, with sender and broker on the same machine: `python -m tests.bench.receivers`.

    tcp    lines of 140 bytes, as fast as they are taken
    http   posts of ten records by so many connections, each after the answer to the one before
    slow   a sender without a brake against a receiver with a rate: memory, and how long the sender was held back

Receiver, sender and broker are processes of their own. CPU is what each has used in the time of the run, in µs a record; RSS is
the receiver's highest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import resource
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import psutil

from tests.integration.private_broker import PrivateBroker, new_broker, running
from tests.receivers import a_lease
from tests.topics import make_topic
from tidegate.ingest.receiver import Receiver
from tidegate.ingest.sources import HttpSource, TcpServerSource
from tidegate.ingest.supervisor import Limits, serve

SPAWN = multiprocessing.get_context("spawn")
Sending: TypeAlias = Callable[[int], int]
"""Sends to a port; how many records."""


def receive(pipe: Connection, kafka: dict[str, str], kind: str, rate: float | None) -> None:
    """One instance in this process, until the pipe says so."""

    async def run() -> dict[str, Any]:
        source: HttpSource | TcpServerSource = HttpSource() if kind == "http" else TcpServerSource()
        stop = asyncio.Event()
        lease, limits = a_lease(kind), Limits(max_rate=rate)
        task = asyncio.create_task(serve(source, lease, limits, producer=kafka, stop=stop, tell=lambda _: None))
        while source.listening_on is None:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        started_s, before_s = time.time(), cpu_s()
        pipe.send(source.listening_on)
        while not pipe.poll():  # noqa: ASYNC110 - the other process has no event either
            await asyncio.sleep(0.02)
        wanted = pipe.recv()
        while records_of(source) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        took_s, used_s = time.time() - started_s, cpu_s() - before_s
        stop.set()
        report = await task
        return {
            "took_s": took_s,
            "cpu_s": used_s,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
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
    """Posts of ten records, each connection's after the answer to the one before; how many records.

    Plain sockets and one request that was made before: what the sender needs is not there for the receiver.
    """
    body = json.dumps([{"id": n, "name": f"customer-{n:06}", "note": "x" * 90} for n in range(10)]).encode()
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    posts -= posts % connections
    begun = answered = 0
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(selectors.DefaultSelector())
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(connection, selectors.EVENT_READ, connection)
            connection.sendall(head + body)
            begun += 1
        while answered < posts:
            for key, _ in ready.select():
                answer = key.data.recv(65_536)
                if not (answer.startswith(b"HTTP/1.1 202 ") and answer.endswith(b'{"records": 10}')):
                    raise SystemExit(f"the receiver answers {answer!r}")
                answered += 1
                if begun < posts:
                    key.data.sendall(head + body)
                    begun += 1
    return answered * 10


def sending(pipe: Connection, send: Sending, port: int) -> None:
    """A sender in this process."""
    before_s = cpu_s()
    pipe.send((send(port), cpu_s() - before_s))


def cpu_s() -> float:
    """Of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(own: PrivateBroker, kind: str, rate: float | None, send: Sending) -> float:
    """One receiver and its sender; records a second."""
    here, there = SPAWN.Pipe()
    receiver = SPAWN.Process(target=receive, args=(there, {"bootstrap.servers": own.address()}, kind, rate))
    receiver.start()
    broker = psutil.Process(json.loads(own.server.pid_file.read_text())["pid"])
    port, before_s = here.recv(), sum(broker.cpu_times()[:2])
    mine, theirs = SPAWN.Pipe()
    sender = SPAWN.Process(target=sending, args=(theirs, send, port))
    sender.start()
    sent, sender_s = mine.recv()
    here.send(0 if rate else sent)
    found = here.recv()
    for process in (sender, receiver):
        process.join()
    took_s = found.pop("took_s")
    cpu = {"receiver": found.pop("cpu_s"), "sender": sender_s, "broker": sum(broker.cpu_times()[:2]) - before_s}
    each = {f"{name}_us_a_record": round(used_s / sent * 1e6, 1) for name, used_s in cpu.items()}
    shown = {name: round(value, 2) for name, value in found.items()}
    print(f"{kind}{' slow' if rate else ''}: {sent} records in {took_s:.2f} s, {sent / took_s:.0f} records/s; {shown} {each}")  # noqa: T201
    return float(sent / took_s)


def main() -> None:
    """Those that are named; all, where none is."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--only", choices=["tcp", "http", "slow"], action="append")
    words.add_argument("--lines", type=int, default=1_000_000)
    words.add_argument("--posts", type=int, default=20_000)
    words.add_argument("--connections", type=int, default=64)
    words.add_argument("--rounds", type=int, default=1)
    given = words.parse_args()
    runs: dict[str, Callable[[PrivateBroker], float]] = {
        "tcp": lambda own: measure(own, "tcp", None, partial(push, lines=given.lines)),
        "http": lambda own: measure(own, "http", None, partial(post, posts=given.posts, connections=given.connections)),
        "slow": lambda own: measure(own, "tcp", 5_000.0, partial(push_for, seconds=10.0)),
    }
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        own = new_broker(Path(folder) / "own")
        with running(own):
            for kind in ("tcp", "http"):
                make_topic({"bootstrap.servers": own.address()}, kind, 4)
            measure(own, "tcp", None, partial(push, lines=given.lines // 10))  # the broker's JVM gets warm
            for name in given.only or runs:
                rates = [runs[name](own) for _ in range(given.rounds)]
                print(f"{name}: median of {given.rounds}: {statistics.median(rates):.0f} records/s")  # noqa: T201


if __name__ == "__main__":
    main()
