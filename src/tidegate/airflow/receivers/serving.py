"""What runs an instance until its lease ends. Only here is `tidegate.ingest` named, and only when a task runs.

The operator gets a `Serve`, so that it is tested without sockets and brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tidegate.core.config.receiver import Http, Receiver
from tidegate.core.errors import ConfigError
from tidegate.core.ports import Downstream
from tidegate.core.receivers.backpressure import Backpressure

KEY_HEADER = "Tidegate-Key"


@dataclass(frozen=True)
class Order:
    """One instance of a receiver, for one lease. Its repr holds no secrets.

    Args:
        receiver: what its file holds.
        instance: its number, from 0.
        host: where it runs.
        until_s: when it stops accepting (epoch s).
        producer: librdkafka's settings.
        token: the bearer token that requests must have; None: they need none.
        downstream: what its back-pressure goes by; None: it has none.
    """

    receiver: Receiver
    instance: int
    host: str
    until_s: float
    producer: Mapping[str, str] = field(repr=False)
    token: str | None = field(default=None, repr=False)
    downstream: Downstream | None = None


Watch = Callable[[Mapping[str, Any]], object]
"""Hears how an instance does, JSON-ready."""


class Serve(Protocol):
    """Runs an instance."""

    async def __call__(
        self, order: Order, *, stop: asyncio.Event, tell: Callable[[str], None], watch: Watch
    ) -> Mapping[str, Any]:
        """Receive until the lease ends or `stop` is set, then deliver what was accepted; a report, JSON-ready.

        Args:
            order: which instance.
            stop: ends the lease early.
            tell: takes a line for the log.
            watch: hears every few seconds how the instance does: `state`, used share of the `buffer`, the `rate` and the `room`
                that it has, the topic's `lag`, whether it is `deaf`, and the report so far.

        Raises:
            TidegateError: the instance cannot run.
        """


async def serve(order: Order, *, stop: asyncio.Event, tell: Callable[[str], None], watch: Watch) -> Mapping[str, Any]:
    """The `Serve` of `tidegate.ingest`."""

    def show(status: Any) -> None:
        said = asdict(status)
        watch({**said.pop("report"), **said, "state": str(status.state)})

    supervisor = import_module("tidegate.ingest.supervisor")
    receiver = order.receiver
    lease = supervisor.Lease(
        receiver=receiver.name,
        instance=order.instance,
        host=order.host,
        topic=receiver.topic,
        until_s=order.until_s,
        drain_s=receiver.drain,
    )
    limits = supervisor.Limits(
        block_interval_s=receiver.block.interval,
        block_bytes=receiver.block.bytes,
        buffer_bytes=receiver.buffer_bytes,
        max_record_bytes=receiver.max_record_bytes,
        max_rate=receiver.rate.max,
        backpressure=Backpressure(**receiver.backpressure.settings),
    )
    report = await supervisor.serve(
        source_of(order),
        lease,
        limits,
        producer=order.producer,
        stop=stop,
        tell=tell,
        downstream=order.downstream,
        watch=show,
    )
    return asdict(report)


def source_of(order: Order) -> Any:
    """The source that the receiver's file describes.

    Raises:
        ConfigError: the class cannot be imported, or does not take its arguments.
    """
    module, name, arguments = described(order)
    if order.receiver.tls is not None:
        files = {which: None if file is None else Path(file) for which, file in asdict(order.receiver.tls).items()}
        arguments["tls"] = import_module("tidegate.ingest.listening").Tls(**files)
    try:
        return getattr(import_module(module), name)(**arguments)
    except (ImportError, AttributeError, TypeError) as error:
        own = ":" in order.receiver.kind
        raise ConfigError(
            f"receiver {order.receiver.name}: {order.receiver.kind} cannot be made: {type(error).__name__}: {error}",
            fix="Name a class that the workers can import, and the arguments that it takes"
            if own
            else "Install Tidegate on the workers with what receivers need",
            receiver=order.receiver.name,
        ) from error


def described(order: Order) -> tuple[str, str, dict[str, Any]]:
    """Module, class and arguments of the source; `tls` as the file has it."""
    receiver = order.receiver
    sources = "tidegate.ingest.sources"
    if receiver.listen is not None:
        listen, http = receiver.listen, receiver.http or Http()
        common = {
            "host": listen.host,
            "port": listen.port,
            "tls": receiver.tls,
            "idle_s": listen.idle,
            **({} if listen.max_connections is None else {"max_connections": listen.max_connections}),
        }
        if receiver.kind == "tcp_server":
            return f"{sources}.tcp_server", "TcpServerSource", common
        more = {
            "path": http.path,
            "token": order.token,
            "max_body_bytes": http.max_body_bytes,
            "key_header": receiver.key or KEY_HEADER,
            "idempotency_header": http.idempotency_header,
            "idempotency_field": http.idempotency_field,
        }
        return f"{sources}.http", "HttpSource", common | more
    if receiver.connect is not None:
        server = {"host": receiver.connect.host, "port": receiver.connect.port, "tls": receiver.tls}
        return f"{sources}.socket", "SocketSource", server
    if receiver.file is not None:
        return f"{sources}.file", "FileSource", {"path": receiver.file.path, "state_path": receiver.state_path}
    module, _, name = receiver.kind.partition(":")
    return module, name, dict(receiver.arguments or {})
