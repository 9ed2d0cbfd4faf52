# ruff: noqa: RUF009 - setting() and section() are field(), with the rule beside the default
"""What a receiver file holds, stated as `tidegate.core.config.pipeline` states a pipeline's.

A receiver is of one of four kinds, or of a class of one's own. What belongs to one kind only stands in a section of its own
(`listen`, `http`, `connect`, `file`), and is refused by name where the kind is another.

Pure: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tidegate.core.config import values
from tidegate.core.config.model import Relation, section, setting
from tidegate.core.config.names import RECEIVE_DAG
from tidegate.core.config.receiver_rules import (
    SAFE_OVERLAP_S,
    FitsBuffer,
    LowBelowHigh,
    Reachable,
    SettingsOfBackpressure,
    SettingsOfKind,
    TlsOfKind,
)
from tidegate.core.config.rules import choice
from tidegate.core.receivers.backpressure import Policy

MIB = 1 << 20


@dataclass(frozen=True)
class Listen:
    """Where a receiver waits for connections. All instances on one host share the port."""

    port: int = setting(values.PORT, "Port on each host that runs an instance. Instances on one host share it.")
    host: str = setting(
        values.ADDRESS, "Address to listen at. One that is not of loopback requires TLS and proof of who sends.", "127.0.0.1"
    )
    max_connections: int | None = setting(
        values.CONNECTIONS,
        "Most connections of an instance at the same time. The default is 1000 for http and 200 for tcp_server.",
        None,
    )
    idle: float = setting(values.POLL, "How long a connection may be silent before it is closed.", 60)


@dataclass(frozen=True)
class Http:
    """What an HTTP receiver takes."""

    path: str = setting(values.URL_PATH, "Path that takes POST requests.", "/")
    max_body_bytes: int = setting(values.BYTES, "Largest body of a request. A larger one is answered with 413.", 10 * MIB)
    idempotency_header: str = setting(
        values.HEADER,
        "Request header whose value travels with each record, so that a pipeline can drop what a sender repeats.",
        "Idempotency-Key",
    )
    idempotency_field: str | None = setting(
        values.FIELD,
        "Field of each JSON record whose value, a text or a number, travels with the record in the same way, where the request "
        "does not have that header.",
        None,
    )


@dataclass(frozen=True)
class Connect:
    """The server that a receiver connects to, and reads lines from."""

    host: str = setting(values.ADDRESS, "Server to connect to. One that is not of loopback requires TLS.")
    port: int = setting(values.PORT, "Its port.")


@dataclass(frozen=True)
class File:
    """The file that a receiver follows."""

    path: str = setting(values.FILE_PATH, "File to follow, on the host that runs the instance.")
    state: str | None = setting(
        values.FILE_PATH,
        "File that remembers how far it was read. The default is a hidden file beside it, in the receiver's name.",
        None,
    )


@dataclass(frozen=True)
class Tls:
    """PEM files on the hosts that run instances."""

    certificate: str | None = setting(values.FILE_PATH, "Certificate of the receiver. Receivers that listen require it.", None)
    key: str | None = setting(values.FILE_PATH, "Key of the certificate, without a password.", None)
    ca: str | None = setting(
        values.FILE_PATH,
        "Authorities that the other side's certificate must come from. A receiver that listens then requires client "
        "certificates; one that connects trusts the system's authorities without it.",
        None,
    )


@dataclass(frozen=True)
class Block:
    """When a block of records goes to Kafka: as soon as one of the two holds."""

    interval: float = setting(values.BLOCK_INTERVAL, "Longest time that a record waits for others.", 0.2)
    bytes: int = setting(values.BYTES, "Size of a block at which it goes at once.", MIB)


@dataclass(frozen=True)
class Rate:
    """How many records per second an instance takes."""

    max: float | None = setting(values.RATE, "Most records per second of an instance. Without it, there is no limit.", None)


@dataclass(frozen=True)
class Backpressure:
    """How the pipeline that loads the topic slows the senders down."""

    policy: Policy = setting(
        choice(Policy),
        "What slows senders down. static: `rate.max` alone. rate: an instance takes its part of the records per second that "
        "the pipeline can load. watermark: all instances stop while the topic's backlog, or the buffer of one of them, is "
        "nearly full. credit: they take as many records as the topic's backlog has places left.",
        "static",
    )
    pipeline: str | None = setting(
        values.PIPELINE_NAME, "rate, watermark and credit: the pipeline that loads the topic. They require it.", None
    )
    max_backlog: int | None = setting(
        values.RECORDS,
        "watermark and credit: records of the topic that may wait for the pipeline. They require it. A pipeline whose batches "
        "may hold more records than this loads this many a run.",
        None,
    )
    high: float | None = setting(
        values.SHARE, "watermark: share of the backlog, or of a buffer, from which on all stop. The default is 0.9.", None
    )
    low: float | None = setting(values.SHARE, "watermark: share below which they go on. The default is 0.4.", None)
    safe_rate: float | None = setting(
        values.SAFE_RATE,
        "rate, watermark and credit: records per second of an instance that does not know how the pipeline does. With 0 it "
        "takes nothing. The default is 100.",
        None,
    )
    silence: float | None = setting(
        values.POLL,
        "rate, watermark and credit: how long an instance goes by what it heard last of the pipeline, and of the other "
        "instances. The default is 30 seconds.",
        None,
    )

    RELATIONS: ClassVar[tuple[Relation, ...]] = (SettingsOfBackpressure(), LowBelowHigh())

    @property
    def settings(self) -> dict[str, Any]:
        """The policy and what is set of its settings, as `tidegate.core.receivers.backpressure.Backpressure` takes them."""
        stated = {"silence_s" if name == "silence" else name: value for name, value in asdict(self).items()}
        return {name: value for name, value in stated.items() if value is not None and name != "pipeline"}


@dataclass(frozen=True)
class Workers:
    """The Airflow workers that run instances, and how many of them a run waits for."""

    queues: tuple[str, ...] = setting(
        values.QUEUES,
        "Airflow queues whose workers may run instances. An instance is placed on a host only as far as the host has a queue "
        "of its own.",
        ("default",),
    )
    expected: int = setting(values.POSITIVE, "Number of workers on these queues when all of them are up.", 1)
    share: float = setting(values.SHARE, "Share of the expected workers that must be up before instances are placed.", 0.8)
    wait: float = setting(values.PAUSE, "Longest time that a run waits for them. Then it goes on with those that are up.", 60)

    @property
    def tasks(self) -> dict[str, str]:
        """The mapped task of each queue, by the queue."""
        return {queue: "receive" if len(self.queues) == 1 else f"receive_{queue}" for queue in self.queues}


@dataclass(frozen=True)
class Receiver:
    """One receiver: what pushes, and the topic it lands in. The file's name is the receiver's; its DAG is `<name>__receive`.

    Durations are in seconds here, whatever the file writes.
    """

    name: str
    kind: str = setting(
        values.KIND,
        "What pushes. http: POST requests. tcp_server: lines over connections that are accepted. socket: lines of a server. "
        "file: lines of a growing file. module:Class: a class of your own.",
    )
    topic: str = setting(values.TOPIC_NAME, "Topic that the records land in.")
    connection: str = setting(
        values.CONNECTION,
        "Airflow connection of the Kafka brokers. Its extra uses the setting names of librdkafka.",
        "kafka_default",
    )
    listen: Listen | None = setting(
        values.SETTINGS, "http and tcp_server: where connections are accepted.", None, mapping=Listen
    )
    http: Http | None = setting(values.SETTINGS, "http: what is taken.", None, mapping=Http)
    key: str | None = setting(
        values.HEADER,
        "http: request header that holds the key of the request's records. The default is Tidegate-Key.",
        None,
    )
    token: str | None = setting(
        values.CONNECTION,
        "http: Airflow connection whose password is the bearer token that requests must have. Without it, they need none.",
        None,
    )
    connect: Connect | None = setting(values.SETTINGS, "socket: the server to connect to.", None, mapping=Connect)
    file: File | None = setting(values.SETTINGS, "file: the file to follow.", None, mapping=File)
    tls: Tls | None = setting(
        values.SETTINGS, "http, tcp_server and socket: connections are encrypted by TLS.", None, mapping=Tls
    )
    arguments: Mapping[str, Any] | None = setting(values.ARGUMENTS, "module:Class: arguments of the class.", None)
    instances: int = setting(values.INSTANCES, "Instances that run at the same time. A file is followed by one.", 1)
    preferred_hosts: tuple[str, ...] = setting(
        values.HOSTS, "Hosts on which instances run if they can, in turn: the first instance on the first host.", ()
    )
    lease: float = setting(values.LEASE, "How long a run receives before the next one takes over.", 3600)
    overlap: float | None = setting(
        values.PAUSE,
        "How long a receiver that listens goes on beside the run that takes over, so that no connect is refused. "
        f"The default is {SAFE_OVERLAP_S} seconds for http and tcp_server, and 0 for a class of your own. With 0, the next run "
        "starts after the last one has ended.",
        None,
    )
    drain: float = setting(
        values.PAUSE, "How long an instance may take at the end for what it has accepted: delivery, answers, closing.", 30
    )
    block: Block = section(Block, "When a block of records goes to Kafka.")
    buffer_bytes: int = setting(
        values.BYTES,
        "Bytes of records of an instance that wait or are on their way, and 512 for each. When it is full, the source is not "
        "read.",
        16 * MIB,
    )
    max_record_bytes: int = setting(values.BYTES, "Largest record. A larger one is refused.", MIB)
    rate: Rate = section(Rate, "How many records per second an instance takes.")
    backpressure: Backpressure = section(Backpressure, "How the pipeline that loads the topic slows the senders down.")
    workers: Workers = section(Workers, "Which Airflow workers run instances.")
    description: str = setting(values.DESCRIPTION, "Description of the DAG in the Airflow UI.", "")
    tags: tuple[str, ...] = setting(values.TAGS, "Tags of the DAG in the Airflow UI, in addition to `tidegate`.", ())

    RELATIONS: ClassVar[tuple[Relation, ...]] = (
        SettingsOfKind(),
        TlsOfKind(),
        Reachable(),
        FitsBuffer(),
    )

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
