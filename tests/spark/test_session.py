"""Servers that are not there, or that refuse: nothing here needs a Spark server."""

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
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.logging import logger

from tidegate.core.model.errors import RequestError, SparkAuthFailed, SparkUnavailable
from tidegate.spark.session import CONNECT_MODE, LOG_LEVEL, connect, interrupt


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
    """Wrong credentials are not retried."""
    started = time.monotonic()
    with pytest.raises(SparkAuthFailed), connect(refusing_server, name="t"):
        pytest.fail("refused")
    assert time.monotonic() - started < 5


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


def test_the_process_is_left_as_it_was(refusing_server: str) -> None:
    """The switch of pyspark to Connect is on only while a session is open."""
    assert CONNECT_MODE not in os.environ
    with pytest.raises(SparkAuthFailed), connect(refusing_server, name="t"):
        pytest.fail("refused")
    assert CONNECT_MODE not in os.environ


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
