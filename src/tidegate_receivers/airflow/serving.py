"""What runs an instance until its lease ends, and what the instance hears of the pipeline behind it.

The operator gets a `Serve`, so that it is tested without sockets and brokers. Only here is `tidegate_receivers.runtime` named,
and only when a task runs.

Nothing is published for receivers. The cursor of the pipeline is moved by each commit: it says how far the pipeline has come,
and holds the state of its rate policy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, cursor_key
from tidegate.core.state.ports import Brokers, StateStore
from tidegate_receivers.config.receiver import Http, Listen, Receiver
from tidegate_receivers.runtime.backpressure import Heard, loadable_rate, records_behind

if TYPE_CHECKING:
    from tidegate_receivers.runtime.receiver import RecordSource


LOOK_S = 2.0
"""What Airflow is asked for is asked so often; what the brokers are asked for, each time."""

Buffers = Mapping[str, tuple[float, float]]
"""As `Heard.buffers`."""


@dataclass(kw_only=True)
class PipelineBehind:
    """The pipeline that loads a receiver's topic, and the other instances.

    Args:
        pipeline: its file.
        topic: the receiver's.
        store: has its cursor.
        brokers: of the topic.
        instances: how many instances share what the pipeline takes, at a time (epoch s).
        buffers: what the instances have told of their buffers.
    """

    pipeline: Pipeline
    topic: str
    store: StateStore
    brokers: Brokers
    instances: Callable[[float], int]
    buffers: Callable[[], Buffers]
    _asked_s: float = field(default=float("-inf"), init=False)
    _cursor: Cursor | None = field(default=None, init=False)
    _buffers: Buffers = field(default_factory=dict, init=False)

    def __call__(self) -> Heard:
        """How they do now. The cursor is read before the log, so that what was loaded meanwhile counts as waiting.

        Raises:
            KafkaError, StateError: they cannot be read.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s >= LOOK_S:
            self._cursor, self._buffers = self._saved(), self.buffers()
            self._asked_s = now_s
        pipeline, cursor = self.pipeline, self._cursor
        return Heard(
            lag=records_behind(cursor, self.brokers.watermarks([self.topic]).assigned(pipeline.source.assign)),
            rate=loadable_rate(pipeline.rate_control, pipeline.limits.max_records, cursor, pipeline.interval_s),
            instances=self.instances(time.time()),
            buffers=self._buffers,
        )

    def _saved(self) -> Cursor | None:
        """The saved cursor; None where the pipeline has not loaded anything."""
        key = cursor_key(self.pipeline.name)
        return Ledger(self.store, self.pipeline.name).cursor() if key in self.store.keys(key) else None


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
        downstream: tells what its back-pressure goes by; None: it has none.
    """

    receiver: Receiver
    instance: int
    host: str
    _: KW_ONLY
    until_s: float
    producer: Mapping[str, str] = field(repr=False)
    token: str | None = field(default=None, repr=False)
    downstream: Callable[[], Heard] | None = None


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
    """The `Serve` of `tidegate_receivers.runtime`."""
    source = source_of(order)
    from tidegate_receivers.runtime import supervisor  # noqa: PLC0415 - only tasks receive

    def show(status: supervisor.Status) -> None:
        said = asdict(status)
        watch({**said.pop("report"), **said, "state": str(status.state)})

    lease = supervisor.Lease(order.receiver, order.instance, order.host, until_s=order.until_s)
    report = await supervisor.serve(
        source, lease, producer=order.producer, stop=stop, tell=tell, downstream=order.downstream, watch=show
    )
    return asdict(report)


def source_of(order: Order) -> RecordSource:
    """The source that the receiver's file describes.

    Raises:
        ConfigError: the class cannot be imported, or does not take its arguments.
    """
    receiver = order.receiver
    module, _, name = receiver.kind.partition(":")
    try:
        if name:
            source: RecordSource = getattr(import_module(module), name)(**(receiver.arguments or {}))
            return source
        return _built_in(order)
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"receiver {receiver.name}: {receiver.kind} cannot be made: {type(error).__name__}: {error}",
            fix="Name a class that the workers can import, and the arguments that it takes"
            if name
            else "Install Tidegate on the workers with what receivers need",
            receiver=receiver.name,
        ) from error


def _built_in(order: Order) -> RecordSource:
    from tidegate_receivers.runtime import sources  # noqa: PLC0415 - as above

    receiver = order.receiver
    if receiver.connect is not None:
        return sources.SocketSource(receiver.connect.host, receiver.connect.port, receiver.tls)
    if receiver.file is not None:
        return sources.FileSource(path=Path(receiver.file.path), state_path=Path(receiver.state_path or ""))
    listen = cast("Listen", receiver.listen)
    common: dict[str, Any] = {"host": listen.host, "port": listen.port, "tls": receiver.tls, "idle_s": listen.idle}
    if listen.max_connections is not None:
        common["max_connections"] = listen.max_connections
    if receiver.kind == "tcp_server":
        return sources.TcpServerSource(**common)
    if receiver.key is not None:
        common["key_header"] = receiver.key
    return sources.HttpSource(**common, http=receiver.http or Http(), token=order.token)
