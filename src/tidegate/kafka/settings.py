"""One Airflow connection feeds two Kafka clients: librdkafka plans, the Java client in Spark reads.

The connection's extra uses librdkafka's names (the Kafka provider's convention). `for_planning` checks them for the first,
`for_spark` translates them for the second. Settings that would let a client move on its own (commit, reset, subscribe) are
refused by name, since a plan says what is read; settings that only one client knows are left out of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.errors import ConfigError

REFUSED = ("group.id", "group.instance.id", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store")
"""A plan names offsets; a group, a reset rule or a commit would be a second opinion. They are left out of both clients."""

SAME_NAME = {
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "security.protocol",
    "isolation.level",
    "sasl.kerberos.service.name",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "check.crcs",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "retry.backoff.ms",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
}
OTHER_NAME = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
PEM_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def for_planning(extra: Mapping[str, object], *, connection: str, client_id: str) -> dict[str, str]:
    """The planning client's configuration, in librdkafka's names.

    Raises:
        ConfigError: the connection names no broker.
    """
    settings = {name: _text(value) for name, value in extra.items() if name not in REFUSED}
    if not (settings.get("bootstrap.servers") or settings.get("metadata.broker.list")):
        raise ConfigError(
            f"connection {connection} names no Kafka broker",
            fix='Put {"bootstrap.servers": "host:9092"} into its extra',
            connection=connection,
        )
    return {"client.id": client_id, **settings}


def for_spark(extra: Mapping[str, object], *, connection: str, client_id: str) -> dict[str, str]:
    """The Java client's configuration, each name prefixed with `kafka.` as Spark's source takes it.

    Raises:
        ConfigError: a security setting has no equivalent in the Java client, or a PEM file cannot be read.
    """
    rdkafka = for_planning(extra, connection=connection, client_id=client_id)
    java: dict[str, str] = {}
    for name, value in rdkafka.items():
        if name in SAME_NAME:
            java[name] = value
        elif name in OTHER_NAME:
            java[OTHER_NAME[name]] = value
        elif name in PEM_FILES:
            java[PEM_FILES[name]] = _pem(value, name, connection)
    if rdkafka.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ConfigError(
            f"connection {connection}: enable.ssl.certificate.verification=false has no equivalent in the Java client",
            fix="Give the broker's CA in ssl.ca.location or ssl.ca.pem",
            connection=connection,
        )
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if "security.protocol" in java:
        java["security.protocol"] = java["security.protocol"].upper()
    if "ssl.truststore.certificates" in java:
        java["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.key" in java:
        java["ssl.keystore.type"] = "PEM"
    java.update(_sasl(rdkafka, java, connection))
    return {f"kafka.{name}": value for name, value in java.items()}


def _sasl(rdkafka: Mapping[str, str], java: Mapping[str, str], connection: str) -> dict[str, str]:
    if not java.get("security.protocol", "").startswith("SASL"):
        return {}
    mechanism = java.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(
            f"connection {connection}: sasl.mechanism {mechanism} cannot be translated for the Java client",
            fix=f"Use one of {', '.join(LOGIN_MODULES)}",
            connection=connection,
        )
    user, password = (_jaas(rdkafka.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";',
    }


def _jaas(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _pem(path: str, name: str, connection: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"connection {connection}: {name} cannot be read: {error.strerror} ({path})",
            fix="Give a PEM file that the Airflow worker can read",
            connection=connection,
        ) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


SECRET_WORDS = ("password", "passphrase", "secret", "private.key", "key.pem", "keystore.key", "jaas", "sasl.oauthbearer.config")


def is_secret(name: str) -> bool:
    """Whether the value of a setting (of either client) must never be shown."""
    return any(word in name for word in SECRET_WORDS)


def redact(text: str, settings: Mapping[str, str]) -> str:
    """The text with the value of every secret setting replaced by stars."""
    secrets = {value for name, value in settings.items() if is_secret(name) and value}
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "***")
    return text
