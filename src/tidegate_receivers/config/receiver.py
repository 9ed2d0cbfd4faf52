"""What a receiver file holds, stated as `tidegate.core.config.pipeline` states a pipeline's.

A receiver is of one of four kinds, or of a class of one's own. What belongs to one kind only stands in a section of its own
(`listen`, `http`, `connect`, `file`), and is refused by name where the kind is another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Literal

from tidegate.core.config import values
from tidegate.core.config.declared import FileName, OptionalSection, Settings, TakenBy
from tidegate.core.config.names import DEFAULT_POOL, RECEIVE_DAG
from tidegate.core.model.uris import is_loopback
from tidegate_receivers.rules.limits import HIGH, LOW, least_buffer_bytes

Policy = Literal["static", "rate", "watermark", "credit"]

SAFE_OVERLAP_S = 30
"""Seconds that Airflow needs at most, on a machine that is not overloaded, from the start of a run to its instances."""
MIB = 1 << 20


@dataclass(frozen=True)
class Listen(Settings):
    """Where a receiver waits for connections. All instances on one host share the port."""

    port: values.Port
    """Port on each host that runs an instance."""
    host: values.Address = "127.0.0.1"
    """Address to listen at."""
    max_connections: values.Connections | None = None
    """Most connections of an instance; by default 1000 for http, 200 for tcp_server."""
    _: KW_ONLY
    idle: values.Poll = 60
    """A connection that is silent for this long is closed."""


@dataclass(frozen=True)
class Http(Settings):
    """What an HTTP receiver takes."""

    path: values.UrlPath = "/"
    """Path that takes POST requests."""
    max_body_bytes: values.Bytes = 10 * MIB
    """Largest body of a request."""
    idempotency_header: values.Header = "Idempotency-Key"
    """Request header with the key by which a pipeline drops repeats."""
    _: KW_ONLY
    idempotency_field: values.FieldName | None = None
    """Field of each JSON record that is the key if the request does not have the header."""


@dataclass(frozen=True)
class Connect(Settings):
    """The server that a receiver connects to, and reads lines from."""

    host: values.Address
    """Server to connect to. Beyond the loopback, TLS is required."""
    port: values.Port
    """Its port."""


@dataclass(frozen=True)
class File(Settings):
    """The file that a receiver follows."""

    path: values.FilePath
    """File to follow, on the host that runs the instance."""
    state: values.FilePath | None = None
    """File that remembers how far it was read; by default a hidden file beside it."""


@dataclass(frozen=True)
class Tls(Settings):
    """PEM files on the hosts that run instances."""

    certificate: values.FilePath | None = None
    """Certificate of the receiver."""
    key: values.FilePath | None = None
    """Key of the certificate, without a password."""
    ca: values.FilePath | None = None
    """Authorities of the other side's certificate. A receiver that listens then requires client certificates; one that connects
    trusts the system's by default."""


@dataclass(frozen=True)
class Block(Settings):
    """When a block of records goes to Kafka: as soon as one of the two holds."""

    interval: values.BlockInterval = 0.2
    """Longest time that a record waits for others."""
    bytes: values.Bytes = MIB
    """Size at which a block goes at once."""


@dataclass(frozen=True)
class Rate(Settings):
    """How many records per second an instance takes."""

    max: values.Rate | None = None
    """Most records per second of an instance."""


@dataclass(frozen=True)
class ReceiverBackpressure(Settings):
    """How the pipeline that loads the topic slows the senders down."""

    policy: Policy = "static"
    """What slows senders down. static: `rate.max`. rate: the pipeline's speed. watermark: a nearly full backlog or buffer.
    credit: the places left in the backlog."""
    pipeline: values.PipelineName | None = None
    """rate, watermark and credit (required): the pipeline that loads the topic."""
    max_backlog: values.Records | None = None
    """watermark and credit (required): records of the topic that may wait for the pipeline."""
    _: KW_ONLY
    high: values.Share | None = None
    """watermark: share of the backlog, or of a buffer, at which all stop. By default 0.9."""
    low: values.Share | None = None
    """watermark: share below which they continue. By default 0.4."""
    safe_rate: values.SafeRate | None = None
    """rate, watermark and credit: records per second while the pipeline's state is unknown. By default 100."""
    silence: values.Poll | None = None
    """rate, watermark and credit: how long a last answer counts. By default 30 seconds."""

    TAKEN: ClassVar = TakenBy(
        "policy",
        {
            "static": (),
            "rate": ("pipeline", "safe_rate", "silence"),
            "watermark": ("pipeline", "max_backlog", "high", "low", "safe_rate", "silence"),
            "credit": ("pipeline", "max_backlog", "safe_rate", "silence"),
        },
        needs=("pipeline", "max_backlog"),
        usual="static",
    )

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        high, low = self.high or HIGH, self.low or LOW
        if low >= high:
            yield "low", f"{low} is not below high {high}; lower it, or raise the other"


@dataclass(frozen=True)
class Workers(Settings):
    """The Airflow workers that run instances, and how many of them a run waits for."""

    queues: values.Queues = ("default",)
    """Airflow queues whose workers may run instances. Only a queue of one host binds an instance to it."""
    expected: values.Positive = 1
    """Number of workers on these queues when all are up."""
    share: values.Share = 0.8
    """Share of them that must be up before instances are placed."""
    _: KW_ONLY
    wait: values.Pause = 60
    """Longest wait for them."""

    pool: values.Pool = DEFAULT_POOL
    """Airflow pool of the instances."""

    @property
    def tasks(self) -> dict[str, str]:
        """The mapped task of each queue, by the queue."""
        return {queue: "receive" if len(self.queues) == 1 else f"receive_{queue}" for queue in self.queues}


@dataclass(frozen=True)
class Receiver(Settings):
    """One receiver: what pushes, and the topic it lands in. The file's name is the receiver's; its DAG is `<name>__receive`.

    Durations are in seconds here, whatever the file writes.
    """

    name: FileName
    kind: values.Kind
    """What pushes: POST requests, lines over accepted connections, a server's lines, a growing file, or a class of your own."""
    topic: values.Topic
    """Topic that the records land in."""
    _: KW_ONLY
    connection: values.Connection = "kafka_default"
    """Airflow connection of the brokers."""
    listen: OptionalSection[Listen] = None
    """http and tcp_server: where connections are accepted."""
    http: OptionalSection[Http] = None
    """http: what is taken."""
    key: values.Header | None = None
    """http: request header with the Kafka key of the request's records. By default Tidegate-Key."""
    token: values.Connection | None = None
    """http: Airflow connection whose password is the bearer token that requests must have."""
    connect: OptionalSection[Connect] = None
    """socket: the server to connect to."""
    file: OptionalSection[File] = None
    """file: the file to follow."""
    tls: OptionalSection[Tls] = None
    """http, tcp_server and socket: TLS."""
    arguments: values.Arguments | None = None
    """module:Class: arguments of the class."""
    instances: values.Instances = 1
    """Simultaneous instances. A file is followed by one."""
    preferred_hosts: values.Hosts = ()
    """Hosts of the instances, in turn, if possible."""
    lease: values.Lease = 3600
    """How long a run receives before the next one takes over."""
    overlap: values.Pause | None = None
    """How long a receiver that listens continues beside its successor. The default is 30 seconds for http and tcp_server, else
    0. With 0, the next run starts after the last one has ended."""
    drain: values.Pause = 30
    """How long an instance may take to deliver, answer and close."""
    block: Block = field(default_factory=Block)
    buffer_bytes: values.Bytes = 16 * MIB
    """Bytes of an instance's records that wait or are in flight, plus 512 for each."""
    max_record_bytes: values.Bytes = MIB
    """Largest record."""
    rate: Rate = field(default_factory=Rate)
    backpressure: ReceiverBackpressure = field(default_factory=ReceiverBackpressure)
    workers: Workers = field(default_factory=Workers)
    description: values.Description = ""
    """Description of the DAG in the Airflow UI."""
    tags: values.Tags = ()
    """Further tags of the DAG in the Airflow UI."""

    TAKEN: ClassVar = TakenBy(
        "kind",
        {
            "http": ("listen", "http", "key", "token", "tls", "overlap"),
            "tcp_server": ("listen", "tls", "overlap"),
            "socket": ("connect", "tls"),
            "file": ("file",),
            "": ("arguments", "overlap"),  # a class of one's own gets everything else as arguments
        },
        needs=("listen", "connect", "file"),
    )
    SCHEMA: ClassVar = {
        "if": {"properties": {"kind": {"const": "file"}}, "required": ["kind"]},
        "then": {"properties": {"instances": {"const": 1}}},
    }

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says: what is reachable from outside is protected, and the buffer has room."""
        if self.kind == "file" and self.instances > 1:
            yield "instances", f"a file is followed by one instance, got {self.instances}; write a file for each host"
        yield from self._tls_faults()
        yield from self._open_faults()
        block, buffer, least = self.block.bytes, self.buffer_bytes, least_buffer_bytes(self.max_record_bytes)
        if block > buffer:
            yield "block.bytes", f"{block} is above buffer_bytes {buffer}; lower it, or raise the other"
        if least > buffer:  # one record that is on its way, and the one that is read
            why = f"{buffer} has no room for two records of max_record_bytes {self.max_record_bytes}"
            yield "buffer_bytes", f"{why}; set it to at least {least}, or lower the other"

    def _tls_faults(self) -> Iterator[tuple[str, str]]:
        """What is missing of a certificate with its key, which a receiver that listens has."""
        if self.tls is None or not (self.listen or self.tls.certificate or self.tls.key):
            return
        why = "a receiver that listens has a certificate with its key" if self.listen else "a certificate has its key"
        for name in ("certificate", "key"):
            if getattr(self.tls, name) is None:
                yield f"tls.{name}", f"required, but missing; {why}"

    def _open_faults(self) -> Iterator[tuple[str, str]]:
        """What is not on loopback is encrypted, and senders prove who they are."""
        if self.listen is not None and not is_loopback(self.listen.host):
            proof = "token or tls.ca (client certificates)" if self.kind == "http" else "tls.ca (client certificates)"
            proven = self.token is not None or (self.tls is not None and self.tls.ca is not None)
            for needed, there in (("tls", self.tls is not None), (proof, proven)):
                if not there:
                    where = f"{self.listen.host} is not of loopback"
                    yield "listen.host", f"{where}, which requires {needed}; set it, or listen at 127.0.0.1"
        if self.connect is not None and self.tls is None and not is_loopback(self.connect.host):
            yield "connect.host", f"{self.connect.host} is not of loopback, which requires tls; set it"

    @property
    def dag_id(self) -> str:
        """The DAG that runs this receiver."""
        return f"{self.name}{RECEIVE_DAG}"

    @property
    def overlap_s(self) -> float:
        """Seconds that an instance goes on beside its successor."""
        if self.overlap is not None:
            return self.overlap
        return SAFE_OVERLAP_S if self.listen is not None else 0

    @property
    def way(self) -> str:
        """From where to where it moves records."""
        return f"{self} -> topic {self.topic}"

    @property
    def pool(self) -> str:
        """The Airflow pool of its instances."""
        return self.workers.pool

    @property
    def slots(self) -> int:
        """The tasks that receive at the same time, each for a whole lease: twice the instances where leases overlap."""
        return self.instances * (2 if self.overlap_s else 1)

    @property
    def state_path(self) -> str | None:
        """The file that remembers how far `file.path` was read; None where no file is followed."""
        if self.file is None:
            return None
        # not beside the file under a longer name: the files that rotation leaves are looked for there
        folder, _, name = self.file.path.rpartition("/")
        return self.file.state or f"{folder}/.{name}.tidegate-{self.name}"

    @property
    def preferred(self) -> dict[int, str | None]:
        """The preferred host of each instance, from 0."""
        hosts = self.preferred_hosts
        return {instance: hosts[instance % len(hosts)] if hosts else None for instance in range(self.instances)}

    def __str__(self) -> str:
        """What pushes, in short."""
        if self.listen is not None:
            scheme = ("http" if self.kind == "http" else "tcp") + ("" if self.tls is None else "s")
            return f"{scheme}://{self.listen.host}:{self.listen.port}{self.http.path if self.http else ''}"
        if self.connect is not None:
            return f"lines of {self.connect.host}:{self.connect.port}"
        return f"lines of {self.file.path}" if self.file is not None else self.kind
