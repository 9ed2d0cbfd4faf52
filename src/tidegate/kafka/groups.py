"""The pipeline's progress as a consumer group, so that every lag tool sees it.

The group has no members. Its offsets are a copy of the cursor, and no plan reads them. They are written through the admin
client, which needs no consumer and no rebalance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import confluent_kafka as ck

from tidegate.core.model.errors import BrokerUnavailable, KafkaError
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka.client import MOVING, NOT_ALLOWED, Admin, LeaderMoving, meaning, no_leader

IN_USE = {ck.KafkaError.UNKNOWN_MEMBER_ID, ck.KafkaError.NON_EMPTY_GROUP, ck.KafkaError.ILLEGAL_GENERATION}
"""Errors of a broker when the group has members."""
COORDINATOR_WAIT_S = 0.2


def commit_offsets(
    settings: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float = 10.0
) -> None:
    """Make `offsets` (the next to read) the committed offsets of a consumer group without members.

    Partitions that are not named keep what they have. No offsets: nothing happens, and no broker is asked.

    Args:
        settings: librdkafka's configuration (`tidegate.kafka.settings.planning_client`).
        group: the group's id; it appears with its first commit.
        offsets: the next offset of each partition.
        timeout_s: seconds until the broker counts as unavailable.

    Raises:
        BrokerUnavailable: no broker, or no coordinator of the group, answered in time. Whether it was written is unknown.
        KafkaAuthFailed: the credentials are refused, or do not allow to write the group.
        KafkaError: the broker refuses offsets (the group has members, a partition is gone); the others are written.
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
            raise meaning(error, settings, first.topic, operation="Read")
        why = "the group has members, and only they may commit its offsets" if error.code() in IN_USE else error.str()
        raise KafkaError(
            f"{len(refused)} of {len(positions)} offsets of group {group} were not written, "
            f"the first of {first.topic}-{first.partition}: {why}",
            fix="The cursor is right, only lag tools see an old position; give the pipeline a group that no consumer joins"
            if error.code() in IN_USE
            else "The cursor is right, only lag tools see an old position; the next commit writes it again",
            group=group,
        )


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
