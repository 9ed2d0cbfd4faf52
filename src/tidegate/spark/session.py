"""A Spark Connect session that fails within seconds when its server is away, instead of after pyspark's ten minutes."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

from pyspark.sql import Observation, SparkSession
from pyspark.sql.connect import plan
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.logging import logger
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tidegate.core.model.errors import RequestError
from tidegate.sinks.failures import grpc_status
from tidegate.spark import kafka_source
from tidegate.spark.errors import translated
from tidegate.spark.settings import (
    APP_STARTED,
    OPTION_IN_TEXT,
    SHARED_CODE,
    SHARED_CODE_PROPERTIES,
    SHARED_CODE_SETTINGS,
    STRING_REGEX,
    remember_start,
    with_ours,
)

log = logging.getLogger(__name__)

PATIENCE_S = 4.0
"""Seconds a call keeps trying to reach the server, counted from its first failure."""

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""pyspark's own switch: with it, `pyspark.sql.functions` make columns of Spark Connect instead of asking a local JVM."""

LOG_LEVEL = "SPARK_CONNECT_LOG_LEVEL"
"""pyspark's own setting for the log of its Spark Connect client, which is off without it."""

CHANNEL_OPTIONS = [
    ("grpc.min_reconnect_backoff_ms", 4000),  # also the longest wait for a host that does not answer at all; default 20 s
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.keepalive_time_ms", 310_000),  # the server refuses pings more often than every 5 minutes
    ("grpc.keepalive_timeout_ms", 20_000),
]


@contextmanager
def connect(remote_url: str, *, name: str) -> Iterator[SparkSession]:
    """A new session of the server at `remote_url`, closed at the end; sessions of other loads are never reused.

    The URL is `sc://host:port`, with parameters after `/;` (`token=…`, `use_ssl=true`, `user_id=…`). The Spark UI shows `name`,
    a tag without commas, at each operation of the session.

    Nothing is shared with the pyspark sessions of this process, but the process must not hold a classic session meanwhile.
    Errors inside are raised, and not logged by pyspark as well, unless the environment has `SPARK_CONNECT_LOG_LEVEL`.
    The server redacts the credentials of Kafka connections in what it keeps of the session's requests.
    Where the server has the properties of `tidegate.spark.settings`, the session uses the code that others have compiled.

    Raises RequestError: the URL is not one of Spark Connect. SparkUnavailable: the server does not answer within about 10 s.
    (Later, inside the block, pyspark's own errors come as fast; `load_range` translates them.) SparkAuthFailed: the server
    refuses the credentials.
    """
    try:
        channel = DefaultChannelBuilder(remote_url, CHANNEL_OPTIONS)
    except Exception as error:
        # The URL may hold a token: only the kind of fault is named.
        raise RequestError(
            "the Spark connection's URL is not one of Spark Connect", fix="Write it like sc://host:15002/;use_ssl=true"
        ) from error
    _let_inputs_meet()
    with _connect_mode(), ExitStack() as opened:
        session = opened.enter_context(_patient(ConnectSession.builder.channelBuilder(channel).create()))
        # The first call: if the server is away or refuses the credentials, it fails here, before any work.
        with translated(server=channel.host):
            asked = [(key, None) for key in (APP_STARTED, STRING_REGEX, *SHARED_CODE_PROPERTIES)]
            started, theirs, *found = session.client.get_config_with_defaults(*asked)
            shares = [(value or "").lower() for value in found] == [*SHARED_CODE_PROPERTIES.values()]
            settings = {STRING_REGEX: with_ours(theirs, OPTION_IN_TEXT), **kafka_source.SETTINGS}
            # all of them in one round trip: the public method makes one of each
            session.conf._set_all({**settings, **(SHARED_CODE_SETTINGS if shares else {})}, silent=False)  # noqa: SLF001
            clone = _clone(session) if shares else None
            if clone is not None:
                first, session = session, opened.enter_context(_patient(clone))
                _close(first)  # before the clone is the active session: pyspark keeps the one that it has
                ConnectSession._set_default_and_active_session(session)  # noqa: SLF001 - as `create` does
                log.info("the session uses the code that others have compiled, and adds no artifacts")
        remember_start(session, started)
        session.addTag(name.replace(",", "_"))
        yield cast("SparkSession", session)  # one API, two classes without a common type


@contextmanager
def _patient(session: ConnectSession) -> Iterator[ConnectSession]:
    """A session that gives up in time, and is closed at the end."""
    try:
        session.client.set_retry_policies([_Patience()])
        yield session
    finally:
        _close(session)


def _clone(session: ConnectSession) -> ConnectSession | None:
    """A session with the settings of another one, which adds no artifacts; None where the server is too old to make one."""
    try:
        clone = session.cloneSession()
    except Exception as error:
        if grpc_status(error) != "UNIMPLEMENTED":
            raise
        log.warning("the server has %s, but sessions share code only from Spark 4.1 on", SHARED_CODE)
        return None
    clone.release_session_on_close = True  # which pyspark's clone lacks, so that the server would keep it
    clone.client.add_artifacts = _refuse_artifacts  # type: ignore[method-assign]
    return clone


def _refuse_artifacts(*_paths: str, **_kinds: bool) -> None:
    """Replaces a method that would break the sessions of others; see `tidegate.spark.settings`."""
    raise RequestError(
        "sessions of this Spark Connect server share their code, and cannot add artifacts",
        fix="Import what a transform needs from its own folder, whose functions travel with the plan, or install it where "
        f"Spark's Python workers run. Or start the server without {SHARED_CODE}",
    )


def interrupt(session: SparkSession, *, timeout_s: float = 5.0) -> None:
    """Stop what the session runs; its blocked call then fails. Never raises, returns after `timeout_s` at the latest.

    Safe in a signal handler: the call is made by another thread, since the interrupted one may be inside gRPC.
    """

    def call() -> None:
        with suppress(Exception):
            session.interruptAll()

    thread = threading.Thread(target=call, name="tidegate-interrupt", daemon=True)
    thread.start()
    thread.join(timeout_s)


class _Patience(DefaultPolicy):
    """Retries what pyspark would retry, but within `PATIENCE_S`."""

    def __init__(self) -> None:
        super().__init__(max_retries=None, initial_backoff=100, backoff_multiplier=2.0, max_backoff=1000)

    def to_state(self) -> RetryPolicyState:
        return _PatienceState(self)


class _PatienceState(RetryPolicyState):
    """Counts from the first failure of one call. After the deadline it declines to retry, so pyspark raises the failure."""

    deadline: float | None = None

    def can_retry(self, exception: BaseException) -> bool:
        if not super().can_retry(exception):
            return False
        now = time.monotonic()
        if self.deadline is None:
            self.deadline = now + PATIENCE_S
        return now < self.deadline


@contextmanager
def _connect_mode() -> Iterator[None]:
    """Turn on pyspark's Connect mode, and turn off the log of its Connect client; both are restored at the end."""
    before = os.environ.get(CONNECT_MODE)
    os.environ[CONNECT_MODE] = "1"

    def is_enabled(_record: logging.LogRecord) -> bool:
        return LOG_LEVEL in os.environ

    # pyspark disables this logger by default, but a later set-up of logging, such as Airflow's, enables it again.
    logger.addFilter(is_enabled)
    try:
        yield
    finally:
        logger.removeFilter(is_enabled)
        if before is None:
            os.environ.pop(CONNECT_MODE, None)
        else:
            os.environ[CONNECT_MODE] = before


def _let_inputs_meet() -> None:
    """Let a plan have one observation on both sides of a join or a union.

    pyspark 4.1 merges the observations of both sides by `dict(**left, **right)`, which raises where they share one, although
    the server takes such a plan.
    """
    for kind in (plan.Join, plan.AsOfJoin, plan.LateralJoin, plan.SetOperation):
        kind.observations = property(_both)  # type: ignore[assignment, method-assign]


def _both(of: Any) -> dict[str, Observation]:
    sides = (of._child, getattr(of, "right", None) or getattr(of, "other", None))  # noqa: SLF001
    return {name: each for side in sides if side is not None for name, each in side.observations.items()}


def _close(session: ConnectSession) -> None:
    """Release the session on the server, or give up at once where the server is gone. Harmless for one that is closed."""
    # when the process ends, pyspark would call a server that is gone for ten minutes
    atexit.unregister(session.client._cleanup_ml_cache)  # noqa: SLF001
    session.client.set_retry_policies([])
    with suppress(Exception):
        session.stop()
    # pyspark closes a session once more when it is collected as garbage. Closing waits for a lock of the thread pool that all
    # sessions share. If the collector runs in a thread that holds that lock, the process deadlocks.
    session.client.close = lambda: None  # type: ignore[method-assign]
