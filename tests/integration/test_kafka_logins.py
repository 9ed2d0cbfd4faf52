"""Every login that a connection may use, on a real broker: one `extra`, and both clients read the same records with it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jwt
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its names are imported from private modules
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

from tests.integration.private_broker import new_broker, openssl, running, sign
from tests.integration.token_endpoint import token_endpoint
from tests.topics import make_topic, write
from tidegate.core.config.pipeline import Source
from tidegate.core.model.errors import KafkaAuthFailed
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.ends import watching
from tidegate.kafka.settings import planning_client, spark_client
from tidegate.spark.errors import translated
from tidegate.spark.kafka_source import read_ranges

TOPIC = "guarded"
RECORDS = 20
USER, PASSWORD, WRONG = "alice", 'a"\\b;=', "hunter-2"
AUDIENCE, LOCK = "kafka", "pw12"
LISTENERS = {
    "PASSWORD": "SASL_PLAINTEXT",
    "UNSECURED": "SASL_PLAINTEXT",
    "OIDC": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "BOTH": "SASL_SSL",
}
OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Guarded:
    """Connections, each in librdkafka's names: those that are taken, by what they log in with."""

    extras: dict[str, dict[str, object]]

    def planned(self, login: str, **changes: object) -> dict[TopicPartition, int]:
        """The log ends that the planning client sees."""
        extra = {**self.extras[login], **changes}
        settings = planning_client(extra, connection="c", client_id="test").settings
        return dict(AdminBrokers(settings, timeout_s=8).watermarks([TOPIC]).latest)

    def watched(self, login: str) -> dict[TopicPartition, int]:
        """The log ends that a trigger sees."""

        async def settings() -> Mapping[str, str]:
            return planning_client(self.extras[login], connection="c", client_id="test").settings

        async def watch() -> dict[TopicPartition, int]:
            with watching("c", settings, Source((TOPIC,)), poll_s=0.2) as user:
                while not (reading := await user.next()).ends:
                    pass
                return dict(reading.ends)

        return asyncio.run(watch())

    def read(self, spark: SparkSession, login: str, **changes: object) -> list[int]:
        """The offsets that Spark's client reads."""
        extra = {**self.extras[login], **changes}
        options = spark_client(extra, connection="c", client_id="test").settings
        with translated():
            rows = read_ranges(spark, [OffsetRange(TOPIC, 0, 0, RECORDS)], options).select("_kafka_offset").collect()
        return sorted(row[0] for row in rows)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server and a client that it signed, the server's key store, and a key that signs tokens."""
    folder = sign(tmp_path_factory.mktemp("pem"), "server", "client")
    openssl(folder, f"pkcs8 -topk8 -v1 PBE-SHA1-3DES -in client.key -out client.locked -passout pass:{LOCK}")
    openssl(folder, "genrsa -out tokens.key 2048")
    key = jwt.get_algorithm_by_name("RS256").prepare_key((folder / "tokens.key").read_text())
    public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]}))
    return folder


@pytest.fixture(scope="module")
def token_url(pem: Path) -> Iterator[str]:
    """Where `USER` gets a token that the broker can check, for `PASSWORD`."""

    def make() -> str:
        now = int(time.time())
        claims = {"sub": USER, "aud": AUDIENCE, "iat": now, "exp": now + 600, "scope": "read"}
        return jwt.encode(claims, (pem / "tokens.key").read_text(), "RS256", headers={"kid": "1"})

    with token_endpoint(make, client=USER, secret=PASSWORD) as url:
        yield url


def settings(pem: Path) -> dict[str, str]:
    """The broker's: what each listener takes."""
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    # once for JAAS, and once more for a properties file
    plain = f'{PLAIN} required username="b" password="b" user_{USER}="{quoted}";'.replace("\\", "\\\\")
    unsecured = f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    found = {
        "listener.name.password.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.password.plain.sasl.jaas.config": plain,
        "listener.name.password.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.password.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.both.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.both.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.unsecured.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.unsecured.oauthbearer.sasl.jaas.config": unsecured,
        "listener.name.oidc.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oidc.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": (pem / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    for listener in ("tls", "mutual", "both"):
        found[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{listener}.ssl.keystore.location"] = str(pem / "server.pem")
    trust = {"client.auth": "required", "truststore.type": "PEM", "truststore.location": str(pem / "ca")}
    return {**found, **{f"listener.name.mutual.ssl.{name}": value for name, value in trust.items()}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, pem: Path, token_url: str) -> Iterator[Guarded]:
    """A broker that asks for every kind of login, with a topic of `RECORDS` records."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(pem / 'jwks.json').as_uri()}"
    own = new_broker(tmp_path_factory.mktemp("guarded") / "kafka", LISTENERS, settings(pem), [allowed])
    with running(own):
        inside = {"bootstrap.servers": own.address()}
        make_topic(inside, TOPIC)
        write(inside, TOPIC, 0, RECORDS)
        client = AdminClient({**inside})
        hashes = [ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512]
        for mechanism in hashes:
            users: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            ]
            client.alter_user_scram_credentials(users)[USER].result(30)

        def at(listener: str, **more: object) -> dict[str, object]:
            named = {name.replace("_", "."): value for name, value in more.items()}
            return {"bootstrap.servers": own.address(listener), "security.protocol": LISTENERS[listener], **named}

        login = {"sasl_username": USER, "sasl_password": PASSWORD}
        ca = {"ssl_ca_location": str(pem / "ca")}
        oidc = {"client.id": USER, "client.secret": PASSWORD, "token.endpoint.url": token_url, "method": "oidc", "scope": "x"}
        unsecured = {"sasl_oauthbearer_config": f"principal={USER}", "enable_sasl_oauthbearer_unsecure_jwt": True}
        certificate = {"ssl_certificate_location": str(pem / "client"), "ssl_key_location": str(pem / "client.key")}
        locked = {**certificate, "ssl_key_location": str(pem / "client.locked"), "ssl_key_password": LOCK}
        yield Guarded(
            {
                # a timeout that is longer than one of Java's own
                "PLAIN": at("PASSWORD", sasl_mechanism="PLAIN", socket_timeout_ms=90_000, **login),
                "SCRAM-SHA-256": at("PASSWORD", sasl_mechanism="SCRAM-SHA-256", **login),
                "SCRAM-SHA-512": at("PASSWORD", sasl_mechanisms="SCRAM-SHA-512", **login),
                "SCRAM over TLS": at("BOTH", sasl_mechanism="SCRAM-SHA-512", **login, **ca),
                "unsecured token": at("UNSECURED", sasl_mechanism="OAUTHBEARER", **unsecured),
                "OIDC": at("OIDC", sasl_mechanism="OAUTHBEARER", **{f"sasl_oauthbearer_{name}": v for name, v in oidc.items()}),
                "TLS": at("TLS", **ca),
                "TLS, CA inline": at("TLS", ssl_ca_pem=(pem / "ca").read_text()),
                "client certificate": at("MUTUAL", **ca, **certificate),
                "encrypted key": at("MUTUAL", **ca, **locked),
            }
        )


LOGINS = (
    *("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM over TLS", "unsecured token"),
    *("OIDC", "TLS", "TLS, CA inline", "client certificate", "encrypted key"),
)


@pytest.mark.parametrize("login", LOGINS)
def test_one_connection_lets_both_clients_in(guarded: Guarded, spark: SparkSession, login: str) -> None:
    """The planner and a trigger see the log's end, and Spark reads up to it."""
    assert guarded.planned(login) == guarded.watched(login) == {TopicPartition(TOPIC, 0): RECORDS}
    assert guarded.read(spark, login) == list(range(RECORDS))


PASSWORDS = [
    ("PLAIN", "sasl.password"),
    ("SCRAM-SHA-256", "sasl.password"),
    ("SCRAM-SHA-512", "sasl.password"),
    ("SCRAM over TLS", "sasl.password"),
    ("OIDC", "sasl.oauthbearer.client.secret"),
]


@pytest.mark.parametrize(("login", "name"), PASSWORDS)
def test_a_wrong_password_is_named_by_the_planner(guarded: Guarded, login: str, name: str) -> None:
    """The error is not that of a broker that is away, and does not contain the password."""
    with pytest.raises(KafkaAuthFailed, match="refuses the connection's credentials") as caught:
        guarded.planned(login, **{name: WRONG})
    assert WRONG not in str(caught.value)


@pytest.mark.parametrize(("login", "name"), PASSWORDS[-2:])
def test_a_wrong_password_is_named_by_spark(guarded: Guarded, spark: SparkSession, login: str, name: str) -> None:
    """As the same error."""
    with pytest.raises(KafkaAuthFailed) as caught:
        guarded.read(spark, login, **{name: WRONG})
    assert WRONG not in str(caught.value)


@pytest.mark.parametrize(
    ("login", "without"),
    [("TLS", ["ssl.ca.location"]), ("client certificate", ["ssl.certificate.location", "ssl.key.location"])],
)
def test_a_certificate_that_is_missing_is_named_by_both_clients(
    guarded: Guarded, spark: SparkSession, login: str, without: list[str]
) -> None:
    """The CA of the broker, and the client's own where the broker asks for one."""
    less: dict[str, object] = dict.fromkeys(without)
    with pytest.raises(KafkaAuthFailed):
        guarded.planned(login, **less)
    with pytest.raises(KafkaAuthFailed):
        guarded.read(spark, login, **less)
