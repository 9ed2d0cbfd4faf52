"""One Airflow connection feeds two Kafka clients: librdkafka plans, the Java client in Spark reads.

The connection's extra uses librdkafka's names (the Kafka provider's convention). `planning_client` checks them for the first,
`spark_client` translates them for the second. Three rules, the same that Spark's `KafkaSourceProvider` has for its own options:

- what would let a client move on its own (commit, reset, a group's assignment) is left out, since a plan says what is read;
- what only one client knows is left out of the other;
- what makes a connection safe is translated or refused, never dropped.

Every change is told in `Translated.notes`, by name; a value is never told, since it may be a secret.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core.errors import ConfigError

REFUSED = (
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
"""A plan names offsets; a group, a reset rule or a commit would be a second opinion. They are left out of both clients."""

CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "oauth_cb", "on_commit", "logger")
"""What the Kafka provider calls in the Airflow process. Neither of these clients can."""

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
PEM_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
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
NO_EQUIVALENT = {
    "ssl.crl.location": "The Java client reads no revocation list; leave it out, or check revocation in the JVM's own settings",
    "ssl.engine.location": "Give certificate and key as PEM",
    "ssl.engine.id": "Give certificate and key as PEM",
    "ssl.ca.certificate.stores": "Give the CA as PEM",
    "https.ca.location": "Put the CA of the token endpoint into the JVM's trust store and the system's",
    "https.ca.pem": "Put the CA of the token endpoint into the JVM's trust store and the system's",
}
"""Security settings that one client would obey and the other not: refused, with what to do instead."""

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
# the class of this name in the package `secured` is the same one, deprecated in Kafka 3 and gone in Kafka 4
OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

SPARK_API_TIMEOUT_MS = 15_000
"""What `tidegate.spark` sets as default.api.timeout.ms; Java's admin client refuses one below request.timeout.ms."""

SECRET_WORDS = ("password", "passphrase", "secret", "private.key", "key.pem", "keystore.key", "jaas", "sasl.oauthbearer.config")
PBES2 = bytes.fromhex("2a864886f70d01050d")
"""Its object id, 1.2.840.113549.1.5.13, as it stands in a key."""
PEM_START = "-----BEGIN"


@dataclass(frozen=True)
class Translated:
    """One client's configuration, and what was changed on the way to it, one sentence each. Its repr holds names only."""

    settings: dict[str, str] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Translated(settings of {', '.join(sorted(self.settings))}; notes={self.notes!r})"


def planning_client(extra: Mapping[str, object], *, connection: str, client_id: str) -> Translated:
    """The planning client's configuration, in librdkafka's names.

    Args:
        extra: the Airflow connection's extra.
        connection: its id, for errors.
        client_id: how the client calls itself to the broker, unless the connection says otherwise.

    Raises:
        ConfigError: the connection names no broker, or a value is not a text, a number or a boolean.
    """
    settings: dict[str, str] = {}
    notes = []
    for name, value in extra.items():
        if name in REFUSED:
            notes.append(f"{name} is left out: the plan says what is read, and nothing else does")
        elif name in CALLBACKS:
            notes.append(f"{name} is left out: no callback is called")
        elif value is None:
            notes.append(f"{name} is left out: it has no value")
        elif not isinstance(value, (str, int, float)):
            raise ConfigError(
                f"connection {connection}: {name} is {_kind(value)}",
                fix="Write a text, a number or a boolean",
                connection=connection,
            )
        else:
            settings[name] = _text(value)
    if not (settings.get("bootstrap.servers") or settings.get("metadata.broker.list")):
        raise ConfigError(
            f"connection {connection} names no Kafka broker",
            fix='Put {"bootstrap.servers": "host:9092"} into its extra',
            connection=connection,
        )
    return Translated({"client.id": client_id, **settings}, tuple(notes))


def spark_client(extra: Mapping[str, object], *, connection: str, client_id: str) -> Translated:
    """The Java client's configuration, each name prefixed with `kafka.` as Spark's source takes it.

    PEM files are read here and travel by content. Spark gives every read a consumer group of its own.

    Args:
        extra: the Airflow connection's extra, in librdkafka's names.
        connection: its id, for errors.
        client_id: how the client calls itself to the broker, unless the connection says otherwise.

    Raises:
        ConfigError: a security setting has no equivalent in the Java client or is incomplete, or a PEM file cannot be read.
    """
    planning = planning_client(extra, connection=connection, client_id=client_id)
    rdkafka, notes = planning.settings, list(planning.notes)
    java: dict[str, str] = {}
    for name, value in rdkafka.items():
        if name in NO_EQUIVALENT:
            raise _refused(f"{name} has no equivalent in the Java client", NO_EQUIVALENT[name], connection)
        if name in SAME_NAME:
            java[name] = value
        elif name in OTHER_NAME:
            java[OTHER_NAME[name]] = value
            if OTHER_NAME[name] != name:
                notes.append(f"{name} is {OTHER_NAME[name]} in Spark's client")
        elif name in PEM_FILES:
            if name == "ssl.ca.location" and value == "probe":
                notes.append("ssl.ca.location=probe: Spark's client trusts what its JVM trusts")
                continue
            java[PEM_FILES[name]] = _pem(value, name, connection)
            notes.append(f"{name} travels to Spark by content, as {PEM_FILES[name]}")
        elif name not in TRANSLATED_APART:
            notes.append(f"{name} is left out of Spark's client: it has no such setting")
    java.update(_values(java, notes))
    java.update(_ssl(rdkafka, java, connection))
    java.update(_sasl(rdkafka, java, connection, notes))
    return Translated({f"kafka.{name}": value for name, value in java.items()}, tuple(notes))


def is_secret(name: str) -> bool:
    """Whether the value of a setting (of either client) must never be shown."""
    return any(word in name for word in SECRET_WORDS)


def redact(text: str, settings: Mapping[str, str]) -> str:
    """The text with the value of every secret setting replaced by stars."""
    secrets = {value for name, value in settings.items() if is_secret(name) and value}
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def _values(java: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    changed: dict[str, str] = {}
    if "security.protocol" in java:
        changed["security.protocol"] = java["security.protocol"].upper()
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        changed["ssl.endpoint.identification.algorithm"] = ""
        notes.append("ssl.endpoint.identification.algorithm=none is written as nothing for Spark's client")
    if java.get("connections.max.idle.ms") == "0":
        changed["connections.max.idle.ms"] = "-1"
        notes.append("connections.max.idle.ms=0, never, is -1 for Spark's client")
    request_timeout = java.get("request.timeout.ms", "")
    if request_timeout.isdecimal() and int(request_timeout) > SPARK_API_TIMEOUT_MS:
        changed["default.api.timeout.ms"] = request_timeout
        notes.append("default.api.timeout.ms of Spark's client is raised to socket.timeout.ms: it must not be less")
    return changed


def _ssl(rdkafka: Mapping[str, str], java: Mapping[str, str], connection: str) -> dict[str, str]:
    if rdkafka.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise _refused(
            "enable.ssl.certificate.verification=false has no equivalent in the Java client",
            "Give the broker's CA in ssl.ca.location or ssl.ca.pem",
            connection,
        )
    found: dict[str, str] = {}
    if "ssl.truststore.certificates" in java:
        found["ssl.truststore.type"] = "PEM"
    key, chain = java.get("ssl.keystore.key"), java.get("ssl.keystore.certificate.chain")
    if "ssl.keystore.location" in java:
        if key is not None or chain is not None:
            raise _refused("there is a key store and a PEM key or certificate", "Give one of the two", connection)
        found["ssl.keystore.type"] = "PKCS12"
    elif (key is None) != (chain is None):
        missing = "certificate (ssl.certificate.*)" if chain is None else "key (ssl.key.*)"
        raise _refused(f"the client's {missing} is missing", "Give both, or none", connection)
    elif key is not None:
        found["ssl.keystore.type"] = "PEM"
        if "BEGIN PRIVATE KEY" not in key and "BEGIN ENCRYPTED PRIVATE KEY" not in key:
            raise _refused(
                "the client's key is not in PKCS#8, and the Java client reads nothing else",
                "Convert it with `openssl pkcs8 -topk8`",
                connection,
            )
        if "BEGIN ENCRYPTED PRIVATE KEY" in key and not java.get("ssl.key.password"):
            raise _refused("the client's key is encrypted", "Give its password in ssl.key.password", connection)
        if "BEGIN ENCRYPTED PRIVATE KEY" in key and PBES2 in _der(key):
            raise _refused(
                "the client's key is encrypted by PBES2, which Kafka's Java client cannot read on Java 17",
                "Convert it with `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`, or give a PKCS#12 store in ssl.keystore.location",
                connection,
            )
    return found


def _sasl(rdkafka: Mapping[str, str], java: Mapping[str, str], connection: str, notes: list[str]) -> dict[str, str]:
    if not java.get("security.protocol", "").upper().startswith("SASL"):
        return {}
    mechanism = java.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in LOGIN_MODULES:
        known = ", ".join(LOGIN_MODULES)
        raise _refused(
            f"sasl.mechanism {mechanism} cannot be translated for the Java client", f"Use one of {known}", connection
        )
    if mechanism == "OAUTHBEARER":
        found = _token(rdkafka, connection)
    else:
        found = {"sasl.jaas.config": _jaas(mechanism, _needed(rdkafka, LOGIN_NAMES, mechanism, connection))}
    notes.append(f"the {mechanism} login is sasl.jaas.config in Spark's client")
    return {"sasl.mechanism": mechanism, **found}


LOGIN_NAMES = {"sasl.username": "username", "sasl.password": "password"}
OIDC_NAMES = {"sasl.oauthbearer.client.id": "clientId", "sasl.oauthbearer.client.secret": "clientSecret"}

UNSECURED_FORM = "Write `principal=NAME`, and maybe scope=A,B, lifeSeconds=N and extension_X=Y, parted by blanks"


def _token(rdkafka: Mapping[str, str], connection: str) -> dict[str, str]:
    if rdkafka.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        return _oidc(rdkafka, connection)
    if rdkafka.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true":
        return _unsecured(rdkafka.get("sasl.oauthbearer.config", ""), connection)
    raise _refused(
        "OAUTHBEARER without sasl.oauthbearer.method=oidc makes its token in a way that the Java client has not",
        "Set sasl.oauthbearer.method to oidc, with client id, client secret and token endpoint url",
        connection,
    )


def _unsecured(config: str, connection: str) -> dict[str, str]:
    """A token that nobody signs, for brokers on trial: they believe whatever name is in it."""
    given = dict(pair.partition("=")[::2] for pair in config.split())
    name, scope = given.pop("principalClaimName", "sub"), given.pop("scopeClaimName", "scope")
    options = {"unsecuredLoginPrincipalClaimName": name, "unsecuredLoginScopeClaimName": scope}
    for setting, value in given.items():
        kind, _, extension = setting.partition("_")
        if setting == "principal":
            options[f"unsecuredLoginStringClaim_{name}"] = value
        elif setting == "scope":
            options[f"unsecuredLoginListClaim_{scope}"] = f",{value}"  # its first character says what parts the list
        elif setting == "lifeSeconds":
            options["unsecuredLoginLifetimeSeconds"] = value
        elif kind == "extension" and extension.isalpha():
            options[f"unsecuredLoginExtension_{extension}"] = value
        else:
            raise _refused("sasl.oauthbearer.config holds what is unknown", UNSECURED_FORM, connection)
    if not given.get("principal"):
        raise _refused("sasl.oauthbearer.config names no principal", UNSECURED_FORM, connection)
    return {"sasl.jaas.config": _jaas("OAUTHBEARER", options)}


def _oidc(rdkafka: Mapping[str, str], connection: str) -> dict[str, str]:
    url = "sasl.oauthbearer.token.endpoint.url"
    needed = _needed(rdkafka, {**OIDC_NAMES, url: url}, "OAUTHBEARER", connection)
    endpoint = needed.pop(url)
    if scope := rdkafka.get("sasl.oauthbearer.scope"):
        needed["scope"] = scope
    for pair in filter(None, rdkafka.get("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        if not name.isalpha() or not value:
            raise _refused("sasl.oauthbearer.extensions is not a list of name=value", "Names hold letters only", connection)
        needed[f"extension_{name}"] = value
    return {
        "sasl.login.callback.handler.class": OIDC_HANDLER,
        url: endpoint,
        "sasl.jaas.config": _jaas("OAUTHBEARER", needed),
    }


def _needed(rdkafka: Mapping[str, str], names: Mapping[str, str], mechanism: str, connection: str) -> dict[str, str]:
    missing = [name for name in names if not rdkafka.get(name)]
    if missing:
        raise _refused(f"{mechanism} needs {' and '.join(missing)}", "Put it into the connection's extra", connection)
    return {theirs: rdkafka[name] for name, theirs in names.items()}


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    quoted = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required{quoted};"


def _quoted(value: str) -> str:
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return value.replace("\n", "\\n").replace("\r", "\\r")  # a line's end would end the text


def _pem(path: str, name: str, connection: str) -> str:
    if PEM_START in path:  # the path would be told, and it is the key itself
        raise _refused(f"{name} holds a PEM text", f"Put it into {name.replace('.location', '.pem')}", connection)
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise _refused(
            f"{name} cannot be read: {why} ({path})", "Give a PEM file that the Airflow worker can read", connection
        ) from None


def _der(pem: str) -> bytes:
    body = "".join(line for line in pem.splitlines() if not line.startswith("-----") and ":" not in line)
    try:
        return base64.b64decode(body)
    except ValueError:
        return b""  # the client will say what is wrong with it


def _refused(what: str, fix: str, connection: str) -> ConfigError:
    return ConfigError(f"connection {connection}: {what}", fix=fix, connection=connection)


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "of another kind"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
