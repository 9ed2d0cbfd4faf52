"""A StatsD server for the platform's Airflow: the last value of each metric that arrived."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PREFIX = "airflow.tidegate."
LONGEST_DATAGRAM = 65_536


class Statsd:
    """What has arrived of Tidegate's metrics, as `value|kind`, by the name behind `tidegate.`."""

    def __init__(self, server: socket.socket) -> None:
        self.environment = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(server.getsockname()[1]),
        }
        self.received: dict[str, str] = {}
        self._server = server

    def take(self) -> None:
        """Take in what arrives, until an empty datagram does."""
        while datagram := self._server.recv(LONGEST_DATAGRAM):
            for line in datagram.decode().splitlines():
                name, _, value = line.partition(":")
                if name.startswith(PREFIX):
                    self.received[name.removeprefix(PREFIX)] = value


@contextmanager
def serving() -> Iterator[Statsd]:
    """A server on a free port, until the end of the block."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        made = Statsd(server)
        taking = threading.Thread(target=made.take, name="statsd")
        taking.start()
        try:
            yield made
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", server.getsockname())
            taking.join()
