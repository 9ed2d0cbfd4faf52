"""What a Kafka connection may not do is known before a load needs it, on a broker that asks who may do what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its names are imported from private modules
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.private_broker import PASSWORD, USER, PrivateBroker
from tests.topics import make_topic
from tidegate.core.audit.findings import Finding
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.rights import brokers_found, retention_found, rights_found
from tidegate_local import sockets
from tidegate_local.platform import Platform

GROUP = "tidegate-guarded"


@pytest.fixture
def open_to_all(own: PrivateBroker) -> dict[str, str]:
    return {"bootstrap.servers": own.address()}


@pytest.fixture
def login(own: PrivateBroker) -> dict[str, str]:
    as_user = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    return {"bootstrap.servers": own.address("LOGIN"), "security.protocol": "SASL_PLAINTEXT", **as_user}


def states(found: Iterable[Finding]) -> dict[str, str]:
    return {each.check: each.state for each in found}


def test_each_right_that_is_missing_is_named_with_the_command_that_grants_it(
    open_to_all: dict[str, str], login: dict[str, str]
) -> None:
    """One after the other is granted, until nothing is missing. A group need not exist."""
    topics = [make_topic(open_to_all, name, 1) for name in ("guarded", "guarded-too")]
    admin = AdminClient(dict(open_to_all))

    def found() -> list[Finding]:
        return list(rights_found(login, "p", topics, GROUP))

    def grant(kind: ResourceType, name: str, operation: AclOperation) -> None:
        right = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation)
        admin.create_acls([binding := AclBinding(*right, AclPermissionType.ALLOW)])[binding].result(30)

    assert states(found()) == {"topics": "broken", "group": "doubtful"}
    assert f"does not allow Describe on topic {topics[0]}" in found()[0].says
    for topic in topics:
        grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    missing = {each.check: each for each in found()}
    assert states(found()) == {"topics": "sound", "read": "broken", "describe-configs": "doubtful", "group": "doubtful"}
    assert f"lacks the right Read on topic {topics[0]}, {topics[1]}: loads fail" in missing["read"].says
    assert f"--operation DescribeConfigs --topic {topics[0]} --topic {topics[1]}`" in missing["describe-configs"].fix
    grant(ResourceType.TOPIC, topics[0], AclOperation.READ)
    assert f"on topic {topics[1]}: loads fail" in {each.check: each for each in found()}["read"].says
    grant(ResourceType.TOPIC, topics[1], AclOperation.READ)
    for topic in topics:
        grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    grant(ResourceType.GROUP, GROUP, AclOperation.DESCRIBE)
    assert states(found()) == {"topics": "sound", "read": "sound", "describe-configs": "sound", "group": "doubtful"}
    grant(ResourceType.GROUP, GROUP, AclOperation.READ)
    assert states(found()) == {"topics": "sound", "read": "sound", "describe-configs": "sound", "group": "sound"}


def test_who_asks_nobody_lacks_no_right(open_to_all: dict[str, str]) -> None:
    topic = make_topic(open_to_all, "open", 1)
    assert [each for each in rights_found(open_to_all, "p", [topic], "any") if each.state != "sound"] == []
    (lost, *_) = rights_found(open_to_all, "p", [topic], "any", {topic: (0, 9)})
    assert (lost.check, "has no partition 9" in lost.says) == ("topics", True)
    (gone, *_) = rights_found(open_to_all, "p", ["nowhere"], "any")
    assert (gone.state, gone.check) == ("broken", "topics")
    assert "does not exist" in gone.says


def test_each_address_has_to_answer_as_the_same_cluster(
    own: PrivateBroker, platform: Platform, login: Mapping[str, str]
) -> None:
    """One that does not answer beside others is doubtful, as loads go on; a login that is refused breaks them."""
    nobody = f"{sockets.LOOPBACK}:{sockets.choose_port()}"
    assert states(brokers_found({"bootstrap.servers": own.address()}, "c")) == {"brokers": "sound"}
    (away,) = brokers_found({"metadata.broker.list": f"{nobody}, {own.address()}"}, "c")
    assert (away.state, nobody in away.says) == ("doubtful", True)
    (away,) = brokers_found({"bootstrap.servers": nobody}, "c")
    assert away.state == "broken"
    (two,) = brokers_found({"bootstrap.servers": f"{own.address()},{platform.bootstrap_servers}"}, "c")
    assert (two.state, "different clusters" in two.says) == ("broken", True)
    (refused,) = brokers_found({**login, "sasl.password": "wrong-1"}, "c")
    assert refused.state == "broken"
    assert "wrong-1" not in str(refused)


def test_records_have_to_be_kept_for_two_runs(open_to_all: dict[str, str]) -> None:
    topic = make_topic(open_to_all, "short", 1, **{"retention.ms": "3600000"})
    brokers = AdminBrokers(open_to_all)
    assert states(retention_found(brokers.retention_ms, "p", [topic], 1800.0)) == {"retention": "sound"}
    (short,) = retention_found(brokers.retention_ms, "p", [topic], 1801.0)
    assert "keeps records for 3600 s, and runs are 1801 s apart" in short.says
