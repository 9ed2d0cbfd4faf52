"""One Airflow connection configures two Kafka clients: librdkafka plans, the Java client in Spark reads.

The connection's extra uses librdkafka's names (the Kafka provider's convention). `planning_client` checks them for the first,
`spark_client` translates them for the second. Three rules, the same that Spark's `KafkaSourceProvider` has for its own options:

- settings by which a client would choose or commit offsets itself are left out, since the plan alone decides what is read;
- settings that only one client has are left out of the other;
- settings that secure a connection are translated or refused, never dropped.

`Translated.notes` names every change. It never contains a value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.core.model.errors import ConfigError, masked
from tidegate.kafka.security import pem_file, refused, sasl_settings, ssl_settings

LEFT_OUT = (
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "auto.offset.reset",
    "enable.auto.commit",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "allow.auto.create.topics",
    "key.deserializer",
    "value.deserializer",
    "interceptor.classes",
)
"""Left out of both clients: groups, resets and commits, since a plan names all offsets, and what changes records on the way."""

CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "oauth_cb", "on_commit", "logger")
"""Functions that the Kafka provider calls in the Airflow process. Neither of these clients can call them."""

SAME_NAME = {
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "security.protocol",
    "isolation.level",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "check.crcs",
    "enable.metrics.push",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
}
"""Settings that have one name in both clients."""

OTHER_NAME = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
}
"""The Java client's name of a setting, by librdkafka's."""

PEM_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""The Java client's setting that holds the content of a file, by librdkafka's setting that names the file."""

TRANSLATED_APART = {
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.config",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "enable.ssl.certificate.verification",
}
"""Settings that are part of a login or of TLS, and are translated together (`tidegate.kafka.security`)."""

NO_EQUIVALENT = {
    "ssl.crl.location": "The Java client reads no revocation list; leave it out, or check revocation in the JVM's own settings",
    "ssl.engine.location": "Give certificate and key as PEM",
    "ssl.engine.id": "Give certificate and key as PEM",
    "ssl.ca.certificate.stores": "Give the CA as PEM",
    "https.ca.location": "Put the CA of the token endpoint into the JVM's trust store and the system's",
    "https.ca.pem": "Put the CA of the token endpoint into the JVM's trust store and the system's",
}
"""Security settings that only one of the clients would obey. They are refused; the text is the fix."""

SECRET_WORDS = ("password", "passphrase", "secret", "private.key", "key.pem", "keystore.key", "jaas", "sasl.oauthbearer.config")
"""Parts of the names of settings, of either client, whose values are never shown."""


BROKERS = ("bootstrap.servers", "metadata.broker.list")
LOGIN = "sasl.username and sasl.password"
SPARK_API_TIMEOUT_MS = 15_000
"""What `tidegate.spark` sets as default.api.timeout.ms; Java's admin client refuses one below request.timeout.ms."""


@dataclass(frozen=True)
class Translated:
    """One client's configuration, and how it differs from the connection, one sentence each. Its repr holds names only."""

    settings: dict[str, str] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Translated(settings of {', '.join(sorted(self.settings))}; notes={self.notes!r})"


def planning_client(extra: Mapping[str, object], *, connection: str, client_id: str) -> Translated:
    """The planning client's configuration, in librdkafka's names, of the connection's extra, which may set another client id.

    Raises ConfigError: the connection names no broker, or a value is not a text, a number or a boolean.
    """
    settings: dict[str, str] = {}
    notes = []
    for name, value in extra.items():
        if name in LEFT_OUT:
            notes.append(f"{name} is left out: the plan alone decides what is read")
        elif name in CALLBACKS:
            notes.append(f"{name} is left out: this client calls no callbacks")
        elif value is None:
            notes.append(f"{name} is left out: it has no value")
        elif not isinstance(value, (str, int, float)):
            raise refused(f"{name} is {_kind(value)}", "Write a text, a number or a boolean", connection)
        else:
            settings[name] = _text(value)
    for name in BROKERS:
        if "@" in settings.get(name, ""):
            # no client knows such addresses, and errors, logs and pages name the brokers
            raise refused(
                f"{name} contains a login", f"Write HOST:PORT alone into {name}, and the login into {LOGIN}", connection
            )
    if not any(settings.get(name) for name in BROKERS):
        raise ConfigError(
            f"connection {connection} names no Kafka broker",
            fix='Put {"bootstrap.servers": "host:9092"} into its extra',
            connection=connection,
        )
    return Translated({"client.id": client_id, **settings}, tuple(notes))


def spark_client(extra: Mapping[str, object], *, connection: str, client_id: str) -> Translated:
    """The Java client's configuration, each name prefixed with `kafka.` as Spark's source takes it; the arguments are as above.

    PEM files are read here, and their content is passed on. Spark gives every read a consumer group of its own.

    Raises ConfigError: a security setting has no equivalent in the Java client or is incomplete, or a PEM file cannot be read.
    """
    planning = planning_client(extra, connection=connection, client_id=client_id)
    rdkafka, notes = planning.settings, list(planning.notes)
    java: dict[str, str] = {}
    for name, value in rdkafka.items():
        if name in NO_EQUIVALENT:
            raise refused(f"{name} has no equivalent in the Java client", NO_EQUIVALENT[name], connection)
        if name in SAME_NAME:
            java[name] = value
        elif name in OTHER_NAME:
            java[OTHER_NAME[name]] = value
            if OTHER_NAME[name] != name:
                notes.append(f"{name} is named {OTHER_NAME[name]} in Spark's client")
        elif name in PEM_FILES:
            if name == "ssl.ca.location" and value == "probe":
                notes.append("ssl.ca.location=probe: Spark's client uses the trust store of its JVM")
                continue
            java[PEM_FILES[name]] = pem_file(value, name, connection)
            notes.append(f"{name} is passed to Spark's client as the content of the file, in {PEM_FILES[name]}")
        elif name not in TRANSLATED_APART:
            notes.append(f"{name} is left out of Spark's client, which has no such setting")
    java.update(_other_values(java, notes))
    java.update(ssl_settings(rdkafka, java, connection))
    java.update(sasl_settings(rdkafka, java, connection, notes))
    return Translated({f"kafka.{name}": value for name, value in java.items()}, tuple(notes))


def is_secret(name: str) -> bool:
    """Whether the value of a setting (of either client) must never be shown."""
    return any(word in name for word in SECRET_WORDS)


def redact(text: str, settings: Mapping[str, str]) -> str:
    """The text with the value of every secret setting, and whatever else `masked` knows, replaced by `***`."""
    text = masked(text)
    secrets = {value for name, value in settings.items() if is_secret(name) and value}
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def _other_values(java: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """The settings whose values the Java client writes in another way."""
    changed: dict[str, str] = {}
    if "security.protocol" in java:
        changed["security.protocol"] = java["security.protocol"].upper()
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        changed["ssl.endpoint.identification.algorithm"] = ""
        notes.append("ssl.endpoint.identification.algorithm=none is an empty text for Spark's client")
    if java.get("connections.max.idle.ms") == "0":
        changed["connections.max.idle.ms"] = "-1"
        notes.append("connections.max.idle.ms=0 (never) is -1 for Spark's client")
    request_timeout = java.get("request.timeout.ms", "")
    if request_timeout.isdecimal() and int(request_timeout) > SPARK_API_TIMEOUT_MS:
        changed["default.api.timeout.ms"] = request_timeout
        notes.append("default.api.timeout.ms of Spark's client is raised to socket.timeout.ms: it must not be lower")
    return changed


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "of another kind"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
