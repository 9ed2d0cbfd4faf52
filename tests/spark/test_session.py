"""Sessions of servers that are not there, or that refuse; and what Spark redacts."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.logging import logger

from tidegate.core.model.errors import RequestError, SparkAuthFailed, SparkUnavailable
from tidegate.spark.session import CONNECT_MODE, LOG_LEVEL, connect, interrupt
from tidegate.spark.settings import OPTION_IN_TEXT, REDACTION, with_ours


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """A gRPC server that refuses every call as unauthenticated."""

    class Refuse:
        """Answers any method."""

        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            """Refuses."""

            def refuse(_request: bytes, context: grpc.ServicerContext) -> bytes:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "token")
                return b""

            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.server(ThreadPoolExecutor(max_workers=1), handlers=[Refuse()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"sc://127.0.0.1:{port}"
    server.stop(grace=None).wait()


def test_a_server_that_is_away_is_told_within_ten_seconds() -> None:
    """Left alone, pyspark would try for many minutes."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        started = time.monotonic()
        with pytest.raises(SparkUnavailable) as caught, connect(f"sc://127.0.0.1:{held.getsockname()[1]}", name="t"):
            pytest.fail("there is no server")
    assert time.monotonic() - started < 10
    assert caught.value.retryable


def test_a_server_that_refuses_is_told_at_once(refusing_server: str) -> None:
    """Wrong credentials are not retried, and the switch of pyspark to Connect is on only while a session is open."""
    started = time.monotonic()
    with pytest.raises(SparkAuthFailed), connect(refusing_server, name="t"):
        pytest.fail("refused")
    assert time.monotonic() - started < 5
    assert CONNECT_MODE not in os.environ


def test_what_is_raised_is_not_logged_as_well(
    refusing_server: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's logging enables a logger that pyspark leaves disabled; the one useful sentence is the error's."""
    monkeypatch.setattr(logger, "disabled", False)
    for wanted in (False, True):
        if wanted:
            monkeypatch.setenv(LOG_LEVEL, "ERROR")
        with pytest.raises(SparkAuthFailed), connect(refusing_server, name="t"):
            pytest.fail("refused")
        assert any(record.name == logger.name for record in caplog.records) is wanted
    assert logger.filters == []


def test_a_url_of_another_kind_is_refused_without_telling_it() -> None:
    """A URL may hold a token."""
    with pytest.raises(RequestError) as caught, connect("http://h:1/;token=hush", name="t"):
        pytest.fail("no such URL")
    assert "hush" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")  # pyspark warns that this server cannot release a session
def test_a_session_is_closed_once_and_not_again_as_garbage(refusing_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python collects garbage anywhere, also while another session holds the lock that closing a session waits for."""
    closed: list[int] = []
    real = SparkConnectClient.close

    def close(client: SparkConnectClient) -> None:
        closed.append(id(client))
        real(client)

    monkeypatch.setattr(SparkConnectClient, "close", close)
    with pytest.raises(SparkAuthFailed), connect(refusing_server, name="t"):
        pytest.fail("refused")
    gc.collect()
    assert len(closed) == 1


def test_an_interrupt_returns_in_time_and_never_raises() -> None:
    """It is called while a task is being killed."""

    class Stuck:
        """A session whose server does not answer."""

        def interruptAll(self) -> None:  # noqa: N802 - pyspark's name
            """Blocks."""
            released.wait(30)
            raise ConnectionError

    released = threading.Event()
    started = time.monotonic()
    interrupt(Stuck(), timeout_s=0.2)  # type: ignore[arg-type]
    assert time.monotonic() - started < 5
    released.set()


def replaced(spark: SparkSession, text: str, pattern: str) -> str:
    """As Java's regular expressions do it, which are what Spark redacts with."""
    row = spark.createDataFrame([(text, pattern)], "text STRING, pattern STRING")
    return str(row.select(F.regexp_replace("text", F.col("pattern"), F.lit("***"))).collect()[0][0])


@pytest.mark.parametrize(
    "name",
    [
        *("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.password", "kafka.SSL.TrustStore.Password"),
        *("kafka.sasl.oauthbearer.client.credentials.client.secret", "kafka.sasl.oauthbearer.assertion.private.key.passphrase"),
    ],
)
def test_an_options_value_is_gone_whatever_is_in_it(spark: SparkSession, name: str) -> None:
    """Quotes, backslashes, many lines; and not a letter of what follows."""
    value = r"a \"hush\" b;\n\\" + "hush" * 5000
    other = 'options {\n  key: "kafka.max.poll.records"\n  value: "7"\n}\n'
    text = f'{other}options {{\n  key: "{name}"\n  value: "{value}"\n}}\n{other}'
    assert replaced(spark, text, OPTION_IN_TEXT) == f"{other}options {{\n  ***\n}}\n{other}"


def test_names_of_credentials_match_and_others_do_not(spark: SparkSession) -> None:
    """What Spark prints by name."""
    pattern = REDACTION["spark.redaction.regex"]
    for name in ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "my.secret", "API_TOKEN", "fs.s3a.access.key"):
        assert "***" in replaced(spark, name, pattern)
    for name in ("kafka.bootstrap.servers", "kafka.client.id", "kafka.isolation.level", "spark.sql.catalog.lake.uri"):
        assert "***" not in replaced(spark, name, pattern)


def test_what_an_operator_redacts_stays_redacted(spark: SparkSession) -> None:
    """Ours is added once."""
    both = with_ours("(?i)iban", OPTION_IN_TEXT)
    assert replaced(spark, 'IBAN key: "a.password" value: "x" z', both) == "*** *** z"
    assert with_ours(both, OPTION_IN_TEXT) == both
    assert with_ours(None, OPTION_IN_TEXT) == OPTION_IN_TEXT
