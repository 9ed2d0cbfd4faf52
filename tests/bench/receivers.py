"""How much one instance of a receiver lands, with sender and broker on the same machine: `python -m tests.bench.receivers`.

    tcp    lines of 140 bytes, as fast as they are taken
    http   posts of ten records by so many connections, each after the answer to the one before
    over   one lease after the other takes the port over, while one sender keeps its connection and one connects for each post:
           the longest time between two acknowledgements, and how many connects and requests have failed

Receiver, sender and broker are processes of their own. CPU is what each has used in the time of the run, in µs a record; RSS is
the receiver's highest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import resource
import selectors
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import psutil

from tests.integration.private_broker import PrivateBroker, new_broker, running
from tests.receivers import a_lease
from tests.topics import make_topic
from tidegate_receivers.config.receiver import Block, Rate
from tidegate_receivers.runtime.receiver import RecordSource
from tidegate_receivers.runtime.sources import HttpSource, TcpServerSource
from tidegate_receivers.runtime.supervisor import serve

SPAWN = multiprocessing.get_context("spawn")
TOPICS = ("tcp", "http", "over")
"""By what is measured; the first takes lines."""
Sending: TypeAlias = Callable[[int], int]
"""Sends to a port; how many records."""


def receive(pipe: Connection, kafka: dict[str, str], topic: str, port: int) -> None:
    """One instance in this process, until the pipe says so. The topic's name says what it takes."""

    async def run() -> dict[str, Any]:
        source: HttpSource | TcpServerSource = TcpServerSource() if topic == "tcp" else HttpSource(port=port)
        stop = asyncio.Event()
        lease = a_lease(topic, block=Block(), rate=Rate(None))
        task = asyncio.create_task(serve(source, lease, producer=kafka, stop=stop, tell=lambda _: None))
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
        }

    pipe.send(asyncio.run(run()))


def records_of(source: RecordSource) -> int:
    """Acknowledged so far."""
    return source.intake.counts.records


def push(port: int, lines: int) -> int:
    """Send so many lines."""
    block = b"".join(b"%0139d\n" % n for n in range(1000))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(lines // 1000):
            connection.sendall(block)
    return lines // 1000 * 1000


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


@contextlib.contextmanager
def receiving(own: PrivateBroker, topic: str, port: int = 0) -> Iterator[tuple[Connection, int]]:
    """A receiver in a process: the pipe that takes how many records it has to have landed, and tells what it did; its port."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=receive, args=(there, {"bootstrap.servers": own.address()}, topic, port))
    process.start()
    yield here, here.recv()
    process.join()


def measure(own: PrivateBroker, topic: str, send: Sending) -> float:
    """One receiver and its sender; records a second."""
    broker = psutil.Process(json.loads(own.server.pid_file.read_text())["pid"])
    before_s = sum(broker.cpu_times()[:2])
    with receiving(own, topic) as (receiver, port):
        mine, theirs = SPAWN.Pipe()
        sender = SPAWN.Process(target=sending, args=(theirs, send, port))
        sender.start()
        sent, sender_s = mine.recv()
        receiver.send(sent)
        found = receiver.recv()
        sender.join()
    took_s = found.pop("took_s")
    cpu = {"receiver": found.pop("cpu_s"), "sender": sender_s, "broker": sum(broker.cpu_times()[:2]) - before_s}
    each = {f"{name}_us_a_record": round(used_s / sent * 1e6, 1) for name, used_s in cpu.items()}
    shown = {name: round(value, 2) for name, value in found.items()}
    print(f"{topic}: {sent} records in {took_s:.2f} s, {sent / took_s:.0f} records/s; {shown} {each}")  # noqa: T201
    return float(sent / took_s)


def change_over(own: PrivateBroker, changes: int) -> float:
    """Leases that follow each other, each in a process of its own; the longest gap, s."""
    stop = threading.Event()
    with contextlib.ExitStack() as leases, ThreadPoolExecutor(2) as pool:
        last, port = leases.enter_context(receiving(own, "over"))
        senders = [pool.submit(post_until, port, stop, keeps=keeps) for keeps in (True, False)]
        for _ in range(changes):
            time.sleep(1)
            new, _ = leases.enter_context(receiving(own, "over", port=port))
            last.send(0)
            last.recv()
            last = new
        time.sleep(1)
        stop.set()
        found = [sender.result() for sender in senders]
        last.send(0)
        last.recv()
    for name, (longest_s, ends) in zip(("keeps its connection", "connects each time"), found, strict=True):
        print(f"over: who {name}: longest gap {longest_s:.3f} s over {changes} changes, {dict(ends)}")  # noqa: T201
    return max(longest_s for longest_s, _ in found)


def post_until(port: int, stop: threading.Event, *, keeps: bool) -> tuple[float, Counter[str]]:
    """Post one record after the other: the longest time between two that are acknowledged, and how requests have ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    longest_s, ends, last_s = 0.0, Counter[str](), time.monotonic()
    while not stop.is_set():
        try:
            connection.request("POST", "/", b"1", {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except OSError as error:
            ends[type(error).__name__] += 1
            connection.close()
            continue
        ends[str(answer.status)] += 1
        if answer.status == http.HTTPStatus.ACCEPTED:
            longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
        if not keeps:
            connection.close()
    connection.close()
    return longest_s, ends


def main() -> None:
    """Those that are named; all, where none is."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--only", choices=TOPICS, action="append")
    words.add_argument("--lines", type=int, default=1_000_000)
    words.add_argument("--posts", type=int, default=40_000)
    words.add_argument("--connections", type=int, default=64)
    words.add_argument("--changes", type=int, default=10)
    words.add_argument("--rounds", type=int, default=1, help="of tcp and http; the first of several warms the broker's JVM")
    given = words.parse_args()
    tcp, posts = partial(push, lines=given.lines), partial(post, posts=given.posts, connections=given.connections)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        own = new_broker(Path(folder) / "own")
        with running(own):
            for topic in TOPICS:
                make_topic({"bootstrap.servers": own.address()}, topic, 4)
            for topic, send in (("tcp", tcp), ("http", posts)):
                if not given.only or topic in given.only:
                    rates = [measure(own, topic, send) for _ in range(given.rounds)]
                    counted = rates[1:] or rates
                    print(f"{topic}: median of {len(counted)}: {statistics.median(counted):.0f} records/s")  # noqa: T201
            if not given.only or "over" in given.only:
                change_over(own, given.changes)


if __name__ == "__main__":
    main()
