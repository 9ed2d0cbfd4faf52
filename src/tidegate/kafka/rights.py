"""What a Kafka connection may do, and whether its addresses are of one cluster: one request for each, which changes nothing.

A broker says what the client may do with a topic or a group (KIP-430), so that a right is known to be missing before it is
needed. One without an authorizer allows everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import confluent_kafka as ck

from tidegate.core.audit.findings import Finding, State, broken, doubtful, of_error, sound, unknown
from tidegate.core.model.errors import KafkaError, some
from tidegate.kafka.brokers import COORDINATOR_WAIT_S
from tidegate.kafka.client import MOVING, PERSON_S, REFUSED_S, Admin, grant
from tidegate.kafka.settings import BROKERS

UNTOLD = "the broker does not say who may do what"


class Right(NamedTuple):
    """What a pipeline does with topics or groups: by librdkafka's name and by that of ACLs, and what is so without it."""

    check: str
    name: str
    operation: str
    kind: str
    state: State
    effect: str

    def found(self, of: str, allowed: Mapping[str, set[str]]) -> Finding:
        """Whether it is there, by what the broker allows on each topic or group; nothing where it does not say."""
        on = [name for name, operations in allowed.items() if operations and self.name not in operations]
        if not on:
            return sound(self.check, of) if all(allowed.values()) else unknown(self.check, of, UNTOLD)
        says = f"the login lacks the right {self.operation} on {self.kind} {some(on)}: {self.effect}"
        names = " ".join(f"--{self.kind} {name}" for name in on)
        return Finding(check=self.check, of=of, state=self.state, says=says, fix=grant(self.operation, names))


TOPIC_RIGHTS = (
    Right("read", "READ", "Read", "topic", "broken", "loads fail"),
    Right("describe-configs", "DESCRIBE_CONFIGS", "DescribeConfigs", "topic", "doubtful", "nothing warns of lost records"),
)
GROUP_RIGHT = Right("group", "READ", "Read", "group", "doubtful", "lag tools see no position of the pipeline")


def brokers_found(settings: Mapping[str, str], connection: str) -> Iterator[Finding]:
    """Whether each address of the connection answers, and which cluster it is of."""
    name = next(name for name in BROKERS if name in settings)
    clusters: dict[str, str] = {}
    failed: list[KafkaError] = []
    for server in filter(None, (part.strip() for part in settings[name].split(","))):
        try:
            with Admin({**settings, name: server}, timeout_s=PERSON_S, refused_s=REFUSED_S) as admin:
                asked = admin.client.describe_cluster(request_timeout=PERSON_S)
                clusters[server] = str(admin.answer(asked, "*").cluster_id)
        except KafkaError as error:
            failed.append(error)
    for each in failed:
        yield of_error("brokers", connection, each, "doubtful" if clusters and each.retryable else "broken")
    if len(set(clusters.values())) > 1:
        of_each = ", ".join(f"{server} is of {cluster}" for server, cluster in clusters.items())
        yield broken(
            "brokers",
            connection,
            f"the addresses are of different clusters: {of_each}",
            "Name the brokers of one cluster in bootstrap.servers, and make a connection of its own for each other one",
        )
    elif clusters and not failed:
        yield sound("brokers", connection)


def rights_found(
    settings: Mapping[str, str], of: str, topics: Sequence[str], group: str, assigned: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Finding]:
    """Whether a pipeline may do with its topics and its group what it does. Brokers that do not answer are findings too.

    `assigned` are the partitions that it reads of a topic; all of a topic that is not among them.
    """
    with Admin(settings, timeout_s=PERSON_S, refused_s=REFUSED_S) as admin:
        allowed: dict[str, set[str]] = {}
        failed: list[Finding] = []
        asked = admin.client.describe_topics(
            ck.TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=PERSON_S
        )
        for topic, future in asked.items():
            if (error := admin.wait(future)) is None:
                about = future.result()
                allowed[topic] = _names(about.authorized_operations)
                failed += _partitions(of, about, (assigned or {}).get(topic))
            else:
                failed.append(of_error("topics", of, admin.meaning(error, topic)))
        yield from failed or [sound("topics", of)]
        for right in TOPIC_RIGHTS if allowed else ():
            yield right.found(of, allowed)
        yield _group(admin, of, group)


def _partitions(of: str, topic: Any, assigned: Sequence[int] | None) -> Iterator[Finding]:
    """Partitions of a topic that cannot be read; none where all can."""
    led = {each.id for each in topic.partitions if each.leader is not None and each.leader.id >= 0}
    if missing := sorted({*([each.id for each in topic.partitions] if assigned is None else assigned)} - led):
        says = f"topic {topic.name} has no partition {some(list(map(str, missing)))}, or no broker leads it"
        fix = "Correct source.assign, or start the broker that holds it"
        yield broken("topics", of, says, fix)


def _group(admin: Admin, of: str, group: str) -> Finding:
    """Whether the position of a group may be written, which need not exist. The first group of a cluster takes a while."""
    until = time.monotonic() + PERSON_S
    while True:
        asked = admin.client.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=PERSON_S)
        error = admin.wait(future := asked[group])
        if error is None or error.code() not in MOVING or time.monotonic() > until:
            break
        time.sleep(COORDINATOR_WAIT_S)
    if error is not None and error.code() != ck.KafkaError.GROUP_ID_NOT_FOUND:
        return of_error("group", of, admin.meaning(error, group, "Read"), "doubtful")  # includes Describe
    if error is not None:
        return sound("group", of)  # it is not there yet, and may be described
    return GROUP_RIGHT.found(of, {group: _names(future.result().authorized_operations)})


def retention_found(
    retention_ms: Callable[[Sequence[str]], Mapping[str, int]], of: str, topics: Sequence[str], interval_s: float
) -> Iterator[Finding]:
    """Whether records are kept for at least two runs, since one may fail."""
    apart = f"and runs are {interval_s:g} s apart: a run that fails loses records"
    fix = "Raise retention.ms of the topic, or run more often (`schedule`)"
    short = {topic: kept for topic, kept in retention_ms(topics).items() if kept < 2000 * interval_s}
    found = [
        doubtful("retention", of, f"topic {topic} keeps records for {kept / 1000:g} s, {apart}", fix)
        for topic, kept in short.items()
    ]
    yield from found or [sound("retention", of)]


def _names(operations: object) -> set[str]:
    return {each.name for each in operations} if isinstance(operations, list) else set()
