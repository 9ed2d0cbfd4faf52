"""How the Java client is given the TLS settings and the logins of a connection, which has them in librdkafka's names.

Each is translated as a whole, or refused with a fix: a connection is never less secure in one client than in the other.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.model.errors import ConfigError

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
# the class of this name in the package `secured` is the same one, deprecated in Kafka 3 and removed in Kafka 4
OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

LOGIN_NAMES = {"sasl.username": "username", "sasl.password": "password"}
OIDC_NAMES = {"sasl.oauthbearer.client.id": "clientId", "sasl.oauthbearer.client.secret": "clientSecret"}

UNSECURED_FORM = "Write `principal=NAME`, and optionally scope=A,B, lifeSeconds=N and extension_X=Y, separated by blanks"

PBES2 = bytes.fromhex("2a864886f70d01050d")
"""The object id of this encryption, 1.2.840.113549.1.5.13, as an encrypted key contains it."""
PEM_START = "-----BEGIN"


def ssl_settings(rdkafka: Mapping[str, str], java: Mapping[str, str], connection: str) -> dict[str, str]:
    """The kinds of the Java client's key and trust stores, of the settings in both clients' names.

    Raises ConfigError: a setting has no equivalent, or the client's key is incomplete or of a kind that Java does not read.
    """
    if rdkafka.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise refused(
            "enable.ssl.certificate.verification=false has no equivalent in the Java client",
            "Give the broker's CA in ssl.ca.location or ssl.ca.pem",
            connection,
        )
    settings: dict[str, str] = {}
    if "ssl.truststore.certificates" in java:
        settings["ssl.truststore.type"] = "PEM"
    key, chain = java.get("ssl.keystore.key"), java.get("ssl.keystore.certificate.chain")
    if "ssl.keystore.location" in java:
        if key is not None or chain is not None:
            raise refused(
                "ssl.keystore.location and a PEM key or certificate are both given", "Give one of the two", connection
            )
        settings["ssl.keystore.type"] = "PKCS12"
    elif (key is None) != (chain is None):
        missing = "certificate (ssl.certificate.*)" if chain is None else "key (ssl.key.*)"
        raise refused(f"the client's {missing} is missing", "Give both the certificate and the key, or neither", connection)
    elif key is not None:
        settings["ssl.keystore.type"] = "PEM"
        if "BEGIN PRIVATE KEY" not in key and "BEGIN ENCRYPTED PRIVATE KEY" not in key:
            raise refused(
                "the client's key is not in PKCS#8, the only format that the Java client reads",
                "Convert it with `openssl pkcs8 -topk8`",
                connection,
            )
        if "BEGIN ENCRYPTED PRIVATE KEY" in key and not java.get("ssl.key.password"):
            raise refused("the client's key is encrypted", "Give its password in ssl.key.password", connection)
        if "BEGIN ENCRYPTED PRIVATE KEY" in key and PBES2 in _der(key):
            raise refused(
                "the client's key is encrypted by PBES2, which Kafka's Java client cannot read on Java 17",
                "Convert it with `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`, or give a PKCS#12 store in ssl.keystore.location",
                connection,
            )
    return settings


def sasl_settings(rdkafka: Mapping[str, str], java: Mapping[str, str], connection: str, notes: list[str]) -> dict[str, str]:
    """The Java client's login; none where the security protocol has none. Adds a note: one sentence for each change.

    `java` has the mechanism and the security protocol. Raises ConfigError: the mechanism cannot be translated, or the login is
    incomplete.
    """
    if not java.get("security.protocol", "").upper().startswith("SASL"):
        return {}
    mechanism = java.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in LOGIN_MODULES:
        known = ", ".join(LOGIN_MODULES)
        raise refused(f"sasl.mechanism {mechanism} cannot be translated for the Java client", f"Use one of {known}", connection)
    if mechanism == "OAUTHBEARER":
        login = _token(rdkafka, connection)
    else:
        login = {"sasl.jaas.config": _jaas(mechanism, _needed(rdkafka, LOGIN_NAMES, mechanism, connection))}
    notes.append(f"the {mechanism} login is passed to Spark's client in sasl.jaas.config")
    return {"sasl.mechanism": mechanism, **login}


def _token(rdkafka: Mapping[str, str], connection: str) -> dict[str, str]:
    if rdkafka.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        return _oidc(rdkafka, connection)
    if rdkafka.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true":
        return _unsecured(rdkafka.get("sasl.oauthbearer.config", ""), connection)
    raise refused(
        "OAUTHBEARER without sasl.oauthbearer.method=oidc creates tokens in a way that the Java client does not support",
        "Set sasl.oauthbearer.method to oidc, with client id, client secret and token endpoint url",
        connection,
    )


def _unsecured(config: str, connection: str) -> dict[str, str]:
    """An unsigned token, for test brokers: they accept whatever name it contains."""
    given = dict(pair.partition("=")[::2] for pair in config.split())
    name, scope = given.pop("principalClaimName", "sub"), given.pop("scopeClaimName", "scope")
    options = {"unsecuredLoginPrincipalClaimName": name, "unsecuredLoginScopeClaimName": scope}
    for setting, value in given.items():
        kind, _, extension = setting.partition("_")
        if setting == "principal":
            options[f"unsecuredLoginStringClaim_{name}"] = value
        elif setting == "scope":
            options[f"unsecuredLoginListClaim_{scope}"] = f",{value}"  # the first character is the separator of the list
        elif setting == "lifeSeconds":
            options["unsecuredLoginLifetimeSeconds"] = value
        elif kind == "extension" and extension.isalpha():
            options[f"unsecuredLoginExtension_{extension}"] = value
        else:
            raise refused("sasl.oauthbearer.config contains an unknown setting", UNSECURED_FORM, connection)
    if not given.get("principal"):
        raise refused("sasl.oauthbearer.config names no principal", UNSECURED_FORM, connection)
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
            raise refused(
                "sasl.oauthbearer.extensions is not a list of name=value",
                "Write name=value pairs separated by commas; a name consists of letters",
                connection,
            )
        needed[f"extension_{name}"] = value
    return {
        "sasl.login.callback.handler.class": OIDC_HANDLER,
        url: endpoint,
        "sasl.jaas.config": _jaas("OAUTHBEARER", needed),
    }


def _needed(rdkafka: Mapping[str, str], names: Mapping[str, str], mechanism: str, connection: str) -> dict[str, str]:
    missing = [name for name in names if not rdkafka.get(name)]
    if missing:
        raise refused(f"{mechanism} needs {' and '.join(missing)}", "Add what is missing to the connection's extra", connection)
    return {theirs: rdkafka[name] for name, theirs in names.items()}


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    quoted = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required{quoted};"


def _quoted(value: str) -> str:
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return value.replace("\n", "\\n").replace("\r", "\\r")  # the text is one line


def pem_file(path: str, name: str, connection: str) -> str:
    """The content of the PEM file that the setting names. Raises ConfigError: it cannot be read, or is a PEM text itself."""
    if PEM_START in path:  # the message below would show the path, which is the key itself
        raise refused(f"{name} holds a PEM text", f"Put it into {name.replace('.location', '.pem')}", connection)
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise refused(
            f"{name} cannot be read: {why} ({path})", "Give a PEM file that the Airflow worker can read", connection
        ) from None


def _der(pem: str) -> bytes:
    body = "".join(line for line in pem.splitlines() if not line.startswith("-----") and ":" not in line)
    try:
        return base64.b64decode(body)
    except ValueError:
        return b""  # the client itself refuses it, and names the reason


def refused(what: str, fix: str, connection: str) -> ConfigError:
    """The error of a connection's setting, with its fix."""
    return ConfigError(f"connection {connection}: {what}", fix=fix, connection=connection)
