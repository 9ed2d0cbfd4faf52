"""What Kafka's admin protocol answers and takes: no consumer, no rebalance.

`AdminBrokers` asks for topics, watermarks and offsets by time. `describe_topics` gives partitions and topic ids (KIP-516), then
`list_offsets` is asked for the earliest and the latest offset of all partitions, both at the same time; with `read_committed`
for both ends, the stable one and the last.

`commit_offsets` shows a pipeline's progress as a consumer group, so that every lag tool sees it. The group has no members. Its
offsets are a copy of the cursor, and no plan reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from tidegate.core.config.names import topic_filter
from tidegate.core.model.errors import BrokerUnavailable, KafkaError, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import IsolationLevel, Watermarks
from tidegate.kafka import log
from tidegate.kafka.client import MOVING, NOT_ALLOWED, Admin, LeaderMoving, meaning, no_leader

EARLIEST = admin.OffsetSpec.earliest()  # type: ignore[attr-defined, no-untyped-call]
LATEST = admin.OffsetSpec.latest()  # type: ignore[attr-defined, no-untyped-call]
NAMED = 10
"""Partitions that one message names."""
LEADER_WAIT_S = 0.2
UNKNOWN_WAIT_S = 1.0
SETTLE_S = 1.0
"""A broker may learn of a new topic some time after the controller has created it."""

T = TypeVar("T")
Offsets = Mapping[ck.TopicPartition, Future[Any]]


class AdminBrokers:
    """The `Brokers` port over one librdkafka admin client. Threads of the client end with the object.

    The arguments are those of `tidegate.kafka.client.Admin`; `tell` is also called when the retention of a topic is hidden.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        timeout_s: float = 15.0,
        refused_s: float | None = None,
        tell: Callable[[str], object] = str,
    ) -> None:
        self._open = partial(Admin, dict(settings), timeout_s=timeout_s, refused_s=refused_s, tell=tell)
        self._admin = self._open()
        self._settings = dict(settings)
        self._tell = tell
        self._timeout_s = timeout_s

    def watermarks(self, topics: Sequence[str], *, isolation_level: IsolationLevel = "read_uncommitted") -> Watermarks:
        """As the port."""
        level = ck.IsolationLevel[isolation_level.upper()]
        return self._until_led(lambda: self._watermarks(topics, level))

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """As the port."""
        return self._until_led(lambda: {topic: str(about.topic_id) for topic, about in self._describe(topics).items()})

    def match_topics(self, pattern: str, exclude: Sequence[str] = ()) -> list[str]:
        """As the port."""
        pick = topic_filter(pattern, exclude)
        return pick(self._until_led(lambda: self._admin.topics()))  # noqa: PLW0108 - after a failure it is another client

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """As the port."""
        return self._until_led(lambda: self._offsets_at(times)) if times else {}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """As the port."""
        return self._until_led(lambda: self._committed(group))

    def next_timestamps(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """As the port."""
        return log.next_timestamps(self._settings, positions, isolation_level=isolation_level, timeout_s=self._timeout_s)

    def retention_ms(self, topics: Sequence[str]) -> dict[str, int]:
        """As the port."""
        return log.retention_ms(self._settings, topics, timeout_s=self._timeout_s, tell=self._tell)

    def close(self) -> None:
        """Close the connections to the brokers; nothing can be asked any more."""
        self._admin.close()

    def settle(self) -> None:
        """Give a recovering broker a moment, before watermarks are read again."""
        time.sleep(SETTLE_S)

    def _until_led(self, ask: Callable[[], T]) -> T:
        try:
            return self._retried(ask)
        except BaseException:
            # the error's traceback keeps this object alive: end the client now, and open a new one for the next request
            self._admin.close()
            self._admin = self._open()
            raise

    def _retried(self, ask: Callable[[], T]) -> T:
        started = time.monotonic()
        while True:
            try:
                return ask()
            except TopicNotFound:
                if time.monotonic() > started + UNKNOWN_WAIT_S:
                    raise
            except LeaderMoving as error:
                if time.monotonic() > started + self._timeout_s:
                    raise BrokerUnavailable(
                        f"no broker has led {error.fields['of']} for {self._timeout_s:g} s",
                        fix="Start the broker that holds it, or see its log; the task tries again",
                        servers=self._admin.servers,
                    ) from error
            time.sleep(LEADER_WAIT_S)

    def _watermarks(self, topics: Sequence[str], level: ck.IsolationLevel) -> Watermarks:
        partitions: list[ck.TopicPartition] = []
        ids: dict[str, str] = {}
        leaderless: list[str] = []
        for topic, description in self._describe(topics).items():
            ids[topic] = str(description.topic_id)
            partitions += [ck.TopicPartition(topic, p.id) for p in description.partitions]
            leaderless += [f"{topic}-{p.id}" for p in description.partitions if p.leader is None or p.leader.id < 0]
        if leaderless:  # name all of them: the error of list_offsets would name the topic of one only
            raise no_leader(", ".join(leaderless[:NAMED]) + (" and more" if leaderless[NAMED:] else ""))
        uncommitted = ck.IsolationLevel.READ_UNCOMMITTED
        asked = [self._list(partitions, EARLIEST, level), self._list(partitions, LATEST, level)]
        if level != uncommitted:
            asked.append(self._list(partitions, LATEST, uncommitted))
        earliest, latest, *high = map(self._offsets, asked)
        # the requests are concurrent: an end that was read just before may be lower than another one for that alone
        behind = [ck.TopicPartition(tp.topic, tp.partition) for tp, end in latest.items() for ends in high if end < ends[tp]]
        if behind:
            latest |= self._offsets(self._list(behind, LATEST, level))
        latest = {tp: max(end, earliest[tp]) for tp, end in latest.items()}
        held_back = {tp: ends[tp] - end for tp, end in latest.items() for ends in high if end < ends[tp]}
        return Watermarks(earliest, latest, ids, held_back=held_back)

    def _list(self, partitions: Sequence[ck.TopicPartition], spec: Any, level: ck.IsolationLevel) -> Offsets:
        """Ask for an offset of each partition; the answers come later."""
        asked = dict.fromkeys(partitions, spec)
        return self._admin.client.list_offsets(asked, isolation_level=level, request_timeout=self._timeout_s)

    def _offsets(self, asked: Offsets) -> dict[TopicPartition, int]:
        return {
            TopicPartition(tp.topic, tp.partition): int(self._admin.answer(future, tp.topic).offset)
            for tp, future in asked.items()
        }

    def _offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        # list_offsets does not distinguish an unknown topic from a leader that moves: describe the topics first
        described = self._describe(tp.topic for tp in times)
        known = {TopicPartition(topic, p.id) for topic, about in described.items() for p in about.partitions}
        unknown = sorted(times.keys() - known)
        if unknown:
            raise TopicNotFound(
                f"there is no partition {', '.join(map(str, unknown[:NAMED]))} on {self._admin.servers}",
                fix="Correct the partitions in the pipeline's file",
                topic=unknown[0].topic,
            )
        asked = {
            ck.TopicPartition(tp.topic, tp.partition): admin.OffsetSpec.for_timestamp(at)  # type: ignore[attr-defined]
            for tp, at in times.items()
        }
        offsets = self._offsets(self._admin.client.list_offsets(asked, request_timeout=self._timeout_s))
        return {tp: offset if offset >= 0 else None for tp, offset in offsets.items()}

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        timeout = {"request_timeout": self._timeout_s}
        described = self._admin.client.describe_consumer_groups([group], **timeout)[group]
        if (error := self._admin.wait(described)) is not None and error.code() == ck.KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        if members := self._admin.answer(described, group).members:
            raise KafkaError(
                f"{len(members)} consumers are members of group {group}, which moves on while they read",
                fix="Stop them, wait until `kafka-consumer-groups.sh --describe --members` shows none, and clear the task",
                group=group,
            )
        # stable: not those of before a transaction whose end is on its way
        asked = self._admin.client.list_consumer_group_offsets(
            [ck.ConsumerGroupTopicPartitions(group)], require_stable=True, **timeout
        )
        answered = self._admin.answer(asked[group], group).topic_partitions
        for tp in answered:
            if tp.error is not None:
                is_moving = tp.error.code() in {*MOVING, ck.KafkaError.UNSTABLE_OFFSET_COMMIT}
                raise no_leader(group) if is_moving else self._admin.meaning(tp.error, tp.topic)
        return {TopicPartition(tp.topic, tp.partition): int(tp.offset) for tp in answered if tp.offset >= 0}

    def _describe(self, topics: Iterable[str]) -> dict[str, Any]:
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        asked = self._admin.client.describe_topics(ck.TopicCollection(names), request_timeout=self._timeout_s)
        return {topic: self._admin.answer(future, topic) for topic, future in asked.items()}


IN_USE = {ck.KafkaError.UNKNOWN_MEMBER_ID, ck.KafkaError.NON_EMPTY_GROUP, ck.KafkaError.ILLEGAL_GENERATION}
"""Errors of a broker when the group has members."""
COORDINATOR_WAIT_S = 0.2


def commit_offsets(
    settings: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float = 10.0
) -> None:
    """Make `offsets` (the next to read) the committed offsets of a consumer group without members.

    Partitions that are not named keep what they have. A group appears with its first commit. No offsets: nothing happens, and
    no broker is asked.

    Raises BrokerUnavailable: no broker, or no coordinator of the group, answered in time. Whether it was written is unknown.
    KafkaAuthFailed: the credentials are refused, or do not allow to write the group. KafkaError: the broker refuses offsets
    (the group has members, a partition is gone); the others are written.
    """
    if not offsets:
        return
    positions = [ck.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items())]
    request = [ck.ConsumerGroupTopicPartitions(group, positions)]
    with Admin(settings, timeout_s=timeout_s) as admin:
        alter = partial(admin.client.alter_consumer_group_offsets, request, request_timeout=timeout_s)
        answers = _answers(admin, group, alter)
    refused = [(tp, error) for tp, error in answers if error is not None]
    if refused:
        first, error = refused[0]
        if error.code() in NOT_ALLOWED:
            raise meaning(error, settings, group if NOT_ALLOWED[error.code()] == "group" else first.topic, operation="Read")
        why = "the group has members, and only they may commit its offsets" if error.code() in IN_USE else error.str()
        raise KafkaError(
            f"{len(refused)} of {len(positions)} offsets of group {group} were not written, "
            f"the first of {first.topic}-{first.partition}: {why}",
            fix="Stop its consumers, or choose a group that no consumer joins. The cursor is right, only the group is not"
            if error.code() in IN_USE
            else "The cursor is right, only the group is not; the next commit, or the same command, writes it again",
            group=group,
        )


def delete_group(settings: Mapping[str, str], group: str, *, timeout_s: float = 10.0) -> bool:
    """Delete a consumer group without members, and its offsets; whether there was one.

    Raises KafkaError: no broker answered, the login may not delete it, or the group has members.
    """
    with Admin(settings, timeout_s=timeout_s) as admin:
        (deleted,) = admin.client.delete_consumer_groups([group], request_timeout=timeout_s).values()
        if (error := admin.wait(deleted)) is None or error.code() == ck.KafkaError.GROUP_ID_NOT_FOUND:
            return error is None
        raise admin.meaning(error, group, "Delete")


def _answers(
    admin: Admin, group: str, ask: Callable[[], Mapping[str, Future[Any]]]
) -> list[tuple[ck.TopicPartition, ck.KafkaError | None]]:
    deadline = time.monotonic() + admin.timeout_s
    while True:
        (future,) = ask().values()
        try:
            answers = [(tp, tp.error) for tp in admin.answer(future, group, "Read").topic_partitions]
            if any(error is not None and error.code() in MOVING for _, error in answers):
                raise no_leader(group)
            return answers  # noqa: TRY300 - same
        except LeaderMoving as moving:
            if time.monotonic() > deadline:
                raise BrokerUnavailable(
                    f"group {group} has had no coordinator for {admin.timeout_s:g} s",
                    fix="The next commit writes the offsets again; see the broker's log",
                    group=group,
                ) from moving
        time.sleep(COORDINATOR_WAIT_S)
