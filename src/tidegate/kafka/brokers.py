"""Watermarks and topic ids, by Kafka's admin protocol: no consumer, no group, no committed position.

`describe_topics` gives partitions and topic ids (KIP-516), then `list_offsets` is asked for the earliest and the latest
offset of all partitions, both at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import confluent_kafka as ck
from confluent_kafka import admin

from tidegate.errors import BrokerUnavailable, KafkaAuthFailed, KafkaError, TopicNotFound
from tidegate.planning import Watermarks
from tidegate.ranges import TopicPartition

UNREACHABLE = {
    ck.KafkaError._TIMED_OUT,  # noqa: SLF001 - librdkafka's local error codes are named with an underscore
    ck.KafkaError._TRANSPORT,  # noqa: SLF001
    ck.KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    ck.KafkaError._RESOLVE,  # noqa: SLF001
    ck.KafkaError.REQUEST_TIMED_OUT,
    ck.KafkaError.BROKER_NOT_AVAILABLE,
}
MOVING = {
    ck.KafkaError.LEADER_NOT_AVAILABLE,
    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
    ck.KafkaError.REPLICA_NOT_AVAILABLE,
    ck.KafkaError.FENCED_LEADER_EPOCH,
    ck.KafkaError.UNKNOWN_LEADER_EPOCH,
}
"""A partition whose leader changes: the next metadata tells where it went."""
REFUSED = {
    ck.KafkaError._AUTHENTICATION,  # noqa: SLF001
    ck.KafkaError._SSL,  # noqa: SLF001
    ck.KafkaError.SASL_AUTHENTICATION_FAILED,
    ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
}


OFFSET_SPECS = (admin.OffsetSpec.earliest(), admin.OffsetSpec.latest())  # type: ignore[attr-defined, no-untyped-call]


LEADER_WAIT_S = 0.2


class _LeaderMoving(Exception):
    """A partition of the topic in `args` has no leader right now."""


class AdminBrokers:
    """The `Brokers` port over one librdkafka admin client. Threads of the client end with the object.

    Args:
        settings: librdkafka's configuration (`tidegate.kafka.settings.for_planning`).
        timeout_s: how long each request may take before the broker counts as unavailable.
    """

    def __init__(self, settings: Mapping[str, str], *, timeout_s: float = 15.0) -> None:
        self._servers = settings.get("bootstrap.servers", settings.get("metadata.broker.list", ""))
        self._timeout_s = timeout_s
        self._client_errors: list[ck.KafkaError] = []
        # librdkafka reports a refused login only through this callback, while every request just times out
        conf: dict[str, Any] = {**settings, "error_cb": self._client_errors.append}
        conf.setdefault("log_level", 2)
        try:
            self._admin = admin.AdminClient(conf)
        except ck.KafkaException as error:
            raise KafkaError(
                f"the Kafka connection's settings are refused: {error.args[0].str()}",
                fix="Correct the connection's extra; its names are librdkafka's",
            ) from error

    def watermarks(self, topics: Sequence[str]) -> Watermarks:
        """Earliest and latest offsets of every partition of `topics`, and the topics' ids.

        Raises:
            TopicNotFound: a topic does not exist.
            BrokerUnavailable: no broker, or no leader of a partition, answered in time.
            KafkaAuthFailed: the credentials are refused, or do not allow to describe a topic.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._read(topics)
            except _LeaderMoving as error:
                if time.monotonic() > deadline:
                    raise BrokerUnavailable(
                        f"topic {error} has had a partition without a leader for {self._timeout_s:g} s",
                        fix="See the broker's log; the task tries again",
                        servers=self._servers,
                    ) from error
            time.sleep(LEADER_WAIT_S)

    def _read(self, topics: Sequence[str]) -> Watermarks:
        partitions: list[ck.TopicPartition] = []
        ids: dict[str, str] = {}
        described = self._admin.describe_topics(ck.TopicCollection(list(topics)), request_timeout=self._timeout_s)
        for topic, future in described.items():
            description = self._answer(future, topic)
            ids[topic] = str(description.topic_id)
            partitions += [ck.TopicPartition(topic, p.id) for p in description.partitions]
        asked = [
            self._admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=self._timeout_s) for spec in OFFSET_SPECS
        ]
        earliest, latest = (
            {
                TopicPartition(tp.topic, tp.partition): int(self._answer(future, tp.topic).offset)
                for tp, future in answers.items()
            }
            for answers in asked
        )
        # the two requests run side by side: retention may move past an end that was read just before
        return Watermarks(earliest, {tp: max(end, earliest[tp]) for tp, end in latest.items()}, ids)

    def _answer(self, future: Future[Any], topic: str) -> Any:
        try:
            return future.result(timeout=self._timeout_s + 5)
        except ck.KafkaException as error:
            self._raise(error.args[0], topic, error)
        except TimeoutError as error:
            self._raise(ck.KafkaError(ck.KafkaError._TIMED_OUT), topic, error)  # noqa: SLF001

    def _raise(self, error: ck.KafkaError, topic: str, cause: Exception) -> NoReturn:
        self._admin.poll(0)
        refused = next((e for e in [error, *self._client_errors] if e.code() in REFUSED), None)
        if refused is not None:
            raise KafkaAuthFailed(
                f"the Kafka broker {self._servers} refuses the connection's credentials: {refused.str()}",
                fix="Correct the user, password or certificate in the Airflow connection, and what they are allowed to do",
                servers=self._servers,
            ) from cause
        if error.code() in MOVING:
            raise _LeaderMoving(topic) from cause
        if error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicNotFound(
                f"topic {topic} does not exist on {self._servers}",
                fix="Create it, or correct `source.topics` in the pipeline's file",
                topic=topic,
            ) from cause
        if error.code() in UNREACHABLE:
            raise BrokerUnavailable(
                f"no Kafka broker answers at {self._servers} ({error.str()})",
                fix="Start the broker, or correct `bootstrap.servers` in the Airflow connection",
                servers=self._servers,
            ) from cause
        raise KafkaError(f"Kafka at {self._servers} answers: {error.str()}", fix="See the broker's log", topic=topic) from cause
