"""One librdkafka admin client, its answers, and what its errors mean.

The client must end in the thread that uses it. Left to the garbage collector, it may be ended by the collector running in
one of the client's own threads, and that kills the process. So an answer is read with `Future.exception`, never by letting
`Future.result` raise (a raised exception keeps the frames that keep the futures that keep the exception: a reference cycle that
only the collector frees), and code that raises an error closes the client first.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Self

import confluent_kafka as ck
from confluent_kafka import admin

from tidegate.core.model.errors import BrokerUnavailable, KafkaAuthFailed, KafkaError, TopicNotFound
from tidegate.kafka.settings import redact

UNREACHABLE = {
    ck.KafkaError._TIMED_OUT,  # noqa: SLF001 - librdkafka's local error codes are named with an underscore
    ck.KafkaError._TRANSPORT,  # noqa: SLF001
    ck.KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    ck.KafkaError._RESOLVE,  # noqa: SLF001
    ck.KafkaError.REQUEST_TIMED_OUT,
    ck.KafkaError.BROKER_NOT_AVAILABLE,
}
MOVING = {
    ck.KafkaError._NOENT,  # noqa: SLF001 - reported when no partition of a request has a leader
    ck.KafkaError.LEADER_NOT_AVAILABLE,
    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
    ck.KafkaError.REPLICA_NOT_AVAILABLE,
    ck.KafkaError.FENCED_LEADER_EPOCH,
    ck.KafkaError.UNKNOWN_LEADER_EPOCH,
    ck.KafkaError.OFFSET_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.NOT_COORDINATOR,
}
"""A partition whose leader, or a group whose coordinator, changes: the next metadata names the new one."""
REFUSED = {
    ck.KafkaError._AUTHENTICATION,  # noqa: SLF001
    ck.KafkaError._SSL,  # noqa: SLF001
    ck.KafkaError.SASL_AUTHENTICATION_FAILED,
}
NOT_ALLOWED = {
    ck.KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    ck.KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    ck.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
"""A right is missing; of what, in the words of `kafka-acls.sh`. The password is right."""
READS = {("topic", "Describe"): "Read"}
"""What to grant instead of what was asked: the next thing to be asked, which includes it."""
# In TLS 1.3 the broker checks the client's certificate after the handshake, and librdkafka reports a lost connection when
# it is refused. The numbers are TLS's: a certificate is bad, of another kind, revoked, expired, unknown, of an unknown CA,
# not allowed, or missing.
CERTIFICATE_REFUSED = re.compile(r"SSL alert number (42|43|44|45|46|48|49|116)\b")

LOST = {
    ck.KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
    ck.KafkaError.OFFSET_OUT_OF_RANGE,
}
"""Errors of a consumer with `auto.offset.reset=error` at an offset that is not in the log."""
ALL_DOWN = ck.KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001

PERSON_S = 10.0
"""How long somebody waits for an answer, who gives up sooner than a task does."""
REFUSED_S = 2.0
"""Refused connections: long enough for a host with several addresses, of which the first is refused."""
ANSWER_SLACK_S = 5.0
"""Added to a request's timeout, which librdkafka enforces itself: this limit is for a client that hangs."""
STEP_S = 0.2
TELL_S = 2.0
"""Seconds without an answer after which the user is told what a command waits for."""
KEPT = 100
"""Most errors of a client that are kept: it reports about ten a second while no broker can be reached."""


class LeaderMoving(BrokerUnavailable):
    """A topic, partitions or a group (the field `of`) have no leader or coordinator at the moment."""


def no_leader(of: str) -> LeaderMoving:
    """The error of a topic, of partitions or of a group that no broker leads."""
    return LeaderMoving(f"no broker leads {of}", fix="See the log of the broker that holds it", of=of)


class Admin:
    """An admin client that raises Tidegate's errors; a context manager that ends its threads.

    Each request may take `timeout_s`; then the broker counts as unavailable. A client that never had an answer gives up after
    `refused_s` if each connection failed (it was refused, the name is unknown, the login failed); None: it tries until the
    timeout, as brokers may be starting. `tell` is called once, with a sentence, when an answer takes longer than a person
    expects.

    Raises KafkaError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        timeout_s: float,
        refused_s: float | None = None,
        tell: Callable[[str], object] = str,
    ) -> None:
        self.servers = servers_of(settings)
        self.timeout_s = timeout_s
        self._refused_s = refused_s
        self._tell: Callable[[str], object] | None = tell
        self._answered = False
        self._settings = dict(settings)
        self._client_errors: deque[ck.KafkaError] = deque(maxlen=KEPT)
        # librdkafka reports a refused login only through this callback, while every request just times out
        conf: dict[str, Any] = {**settings, "error_cb": self._client_errors.append}
        conf.setdefault("log_level", 2)
        try:
            self.client = admin.AdminClient(conf)
        except ck.KafkaException as error:
            raise settings_refused(error, settings) from None  # the cause contains the value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the client and its threads, here and now. Harmless when it has ended."""
        self.client.__exit__(None, None, None)

    def answer(self, future: Future[Any], topic: str, operation: str = "Describe") -> Any:
        """What the broker answers about `topic`, or about a group; `operation` is what was asked, as ACLs name it.

        Raises LeaderMoving: a partition of the topic has no leader at the moment. KafkaError: any other refusal.
        """
        if (error := self.wait(future)) is not None:
            raise self.meaning(error, topic, operation)
        return future.result()

    def wait(self, future: Future[Any]) -> ck.KafkaError | None:
        """Wait for an answer; None when it is a value, and then `future.result()` has it."""
        started = time.monotonic()
        while True:
            try:
                failure = future.exception(timeout=STEP_S)
                break
            except TimeoutError:
                waited_s = time.monotonic() - started
                if waited_s > self.timeout_s + ANSWER_SLACK_S:
                    return ck.KafkaError(ck.KafkaError._TIMED_OUT)  # noqa: SLF001
                if self._gives_up(waited_s):
                    return ck.KafkaError(ALL_DOWN)
        if failure is None:
            self._answered = True
            return None
        if isinstance(failure, ck.KafkaException):
            error: ck.KafkaError = failure.args[0]
            return error
        return ck.KafkaError(ck.KafkaError._FAIL, str(failure))  # noqa: SLF001

    def topics(self) -> list[str]:
        """The names of the cluster's topics. Raises KafkaError."""
        started = time.monotonic()
        while True:
            waited_s = time.monotonic() - started
            try:
                return list(self.client.list_topics(timeout=max(STEP_S, min(TELL_S, self.timeout_s - waited_s))).topics)
            except ck.KafkaException as error:
                refusal: ck.KafkaError = error.args[0]
            waited_s = time.monotonic() - started
            if refusal.code() not in UNREACHABLE or waited_s >= self.timeout_s or self._gives_up(waited_s):
                raise self.meaning(refusal, "*")

    def _gives_up(self, waited_s: float) -> bool:
        self.client.poll(0)
        down = any(error.code() == ALL_DOWN for error in self._client_errors)
        if self._refused_s is not None and waited_s >= self._refused_s and down and not self._answered:
            return True
        if self._tell is not None and waited_s >= TELL_S:
            self._tell(f"asking Kafka at {self.servers} ...")
            self._tell = None
        return False

    def meaning(self, error: ck.KafkaError, topic: str, operation: str = "Describe") -> KafkaError:
        """What librdkafka's error about a topic means, with what the client has reported beside."""
        self.client.poll(0)
        return meaning(error, self._settings, topic, self._client_errors, operation=operation)

    def forget_reports(self) -> None:
        """After an answer: what the client has reported before explains no later error. For clients that live long."""
        self.client.poll(0)
        self._client_errors.clear()


def servers_of(settings: Mapping[str, str]) -> str:
    """The bootstrap servers of librdkafka's configuration, by either name."""
    return settings.get("bootstrap.servers", settings.get("metadata.broker.list", ""))


def grant(operation: str, of: str) -> str:
    """The fix where a right is missing; `of` are options of `kafka-acls.sh`."""
    return f"Grant it: `kafka-acls.sh --add --allow-principal User:NAME --operation {operation} {of}`"


def meaning(
    error: ck.KafkaError,
    settings: Mapping[str, str],
    topic: str,
    reports: Iterable[ck.KafkaError] = (),
    *,
    operation: str = "Describe",
) -> KafkaError:
    """The error to raise for one of librdkafka's, with which a request about a topic, or a group, ended.

    `reports` are the client's other errors, oldest first; `operation` is what was asked, as ACLs name it.
    """
    servers = servers_of(settings)
    if (kind := NOT_ALLOWED.get(error.code())) is not None:
        of = "the cluster" if kind == "cluster" else f"{kind} {topic}"
        return KafkaAuthFailed(
            f"Kafka at {servers} accepts the connection's credentials, but does not allow {operation} on {of}",
            fix=grant(READS.get((kind, operation), operation), f"--{kind}" if kind == "cluster" else f"--{kind} {topic}"),
            **{kind.replace("-", "_"): topic},
        )
    errors = [error, *reports]
    refused = next((e for e in errors if _is_refusal(e)), None)
    if refused is not None:
        what, fix = (
            "refuses the connection's credentials",
            "Correct the user, password or certificate in the Airflow connection",
        )
        if "certificate verify failed" in refused.str():  # here, of the broker's
            what = "has a certificate of a CA that the connection does not trust"
            fix = "Let ssl.ca.location of the Airflow connection name the CA that signed the broker's certificate"
        return KafkaAuthFailed(
            f"the Kafka broker {servers} {what}: {redact(refused.str(), settings)}", fix=fix, servers=servers
        )
    if error.code() in MOVING:
        return no_leader(topic)
    if error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
        return TopicNotFound(
            f"topic {topic} does not exist on {servers}",
            fix="Create it, or correct `source.topics` in the pipeline's file",
            topic=topic,
        )
    if error.code() in UNREACHABLE:
        # the error of the request says only that there was no answer
        why = next((e for e in reversed(errors) if e.code() != ALL_DOWN), error)
        return BrokerUnavailable(
            f"no Kafka broker answers at {servers} ({_plain(redact(why.str(), settings))})",
            fix="Start the broker, or correct `bootstrap.servers` in the Airflow connection",
            servers=servers,
        )
    return KafkaError(f"Kafka at {servers} answers: {redact(error.str(), settings)}", fix="See the broker's log", topic=topic)


def _plain(text: str) -> str:
    """A message without librdkafka's names of the connection and its state, such as `connection refused`."""
    why = re.sub(r" \(after \d+ms in state .*", "", text)
    why = re.sub(r"^\S+: ", "", why).rpartition(" failed: ")[2]
    return why[:1].lower() + why[1:]


def _is_refusal(error: ck.KafkaError) -> bool:
    return error.code() in REFUSED or bool(CERTIFICATE_REFUSED.search(error.str()))


def settings_refused(error: ck.KafkaException, settings: Mapping[str, str]) -> KafkaError:
    """The error of a client that cannot be made, without the value of any secret."""
    return KafkaError(
        f"the Kafka connection's settings are refused: {redact(error.args[0].str(), settings)}",
        fix="Correct the connection's extra; its names are librdkafka's",
    )
