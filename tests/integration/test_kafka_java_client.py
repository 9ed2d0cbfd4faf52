"""What the translation makes, given to the Java client that Spark has: it takes every login and every key."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.integration.token_endpoint import token_endpoint
from tidegate.kafka.settings import spark_client
from tidegate_local import jars

LOGIN = {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": 'a"\\b\n;='}
TOKEN_SECRET = 's"'  # noqa: S105 - of this test's own endpoint


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with Spark's Kafka client; `java.jvm` is its packages."""
    ours, sparks = jars.ensure_jars(lambda *_: None).spark, Path(pyspark.__file__).parent / "jars"
    (py4j,) = sparks.glob("py4j-*.jar")
    path = [*ours.glob("kafka-clients-*.jar"), *sparks.glob("slf4j-api-*.jar"), *sparks.glob("jackson-*.jar")]
    port, jvm = launch_gateway(
        jarpath=str(py4j),
        classpath=":".join(map(str, path)),
        die_on_exit=True,
        java_path=str(jars.find_java()),
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        jvm.stdin.close()
        jvm.wait(30)


@pytest.fixture(scope="module")
def token_url() -> Iterator[str]:
    """Where `me` gets a token that this client takes; it has to have three parts, whatever they are signed with."""

    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    def make() -> str:
        now = int(time.time())
        return f"{part({'alg': 'none'})}.{part({'sub': 'me', 'iat': now, 'exp': now + 600, 'scope': 'x'})}.c2ln"

    with token_endpoint(make, client="me", secret=TOKEN_SECRET) as url:
        yield url


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate, its key, and the key encrypted."""
    folder = tmp_path_factory.mktemp("pem")
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert", "-days", "2", "-subj", "/CN=x"]
    lock = ["pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", "key", "-out", "locked", "-passout", "pass:pw12"]
    for command in (new, lock):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    return folder


def take(java: Any, extra: dict[str, object]) -> None:
    """Make a client of the connection; it logs in, fetches tokens and reads keys, and asks no broker."""
    made = java.jvm.java.util.HashMap()
    for name, value in spark_client(
        {"bootstrap.servers": "127.0.0.1:9", **extra}, connection="c", client_id="t"
    ).settings.items():
        made.put(name.removeprefix("kafka."), value)
    java.jvm.org.apache.kafka.clients.admin.Admin.create(made).close(java.jvm.java.time.Duration.ofMillis(0))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_java_client_takes_a_login_whatever_its_password_holds(java: Any, mechanism: str) -> None:
    """Quotes, backslashes, line ends and semicolons; timeouts above its own."""
    take(java, {**LOGIN, "sasl.mechanism": mechanism, "socket.timeout.ms": 90_000})


def test_the_java_client_fetches_its_token(java: Any, token_url: str) -> None:
    """Making the client logs in: no token, no client."""
    extra = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.scope": "x"}
    names = {"client.id": "me", "client.secret": TOKEN_SECRET, "token.endpoint.url": token_url}
    take(java, {**LOGIN, **extra, **{f"sasl.oauthbearer.{name}": value for name, value in names.items()}})


@pytest.mark.parametrize("key", ["key", "locked"])
def test_the_java_client_reads_pem_keys(java: Any, pem: Path, key: str) -> None:
    """Plain and encrypted, with the certificate they belong to."""
    extra = {"security.protocol": "ssl", "ssl.ca.location": str(pem / "cert"), "ssl.certificate.location": str(pem / "cert")}
    take(java, {**extra, "ssl.key.location": str(pem / key), **({"ssl.key.password": "pw12"} if key == "locked" else {})})
