"""The Kafka adapter against real brokers: watermarks, topic ids, the log, and what goes wrong."""

from __future__ import annotations

import gc
import time

import confluent_kafka as ck
import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.topics import make_topic, make_topic_again, transact, write
from tidegate.core.errors import BrokerUnavailable, ConfigError, KafkaError, TopicNotFound
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.groups import commit_offsets
from tidegate.kafka.log import read_offsets
from tidegate.local import sockets


def threads() -> int:
    """Threads of this process, librdkafka's among them."""
    return len(psutil.Process().threads())


def test_watermarks_are_the_logs_bounds_and_the_topics_ids(kafka: dict[str, str]) -> None:
    """Of every partition of every topic asked for; a deleted beginning shows."""
    make_topic(kafka, "marks-a", 2)
    make_topic(kafka, "marks-b", 1)
    write(kafka, "marks-a", 1, 30)
    admin = AdminClient(dict(kafka))
    for future in admin.delete_records([ck.TopicPartition("marks-a", 1, 12)]).values():
        future.result()
    marks = AdminBrokers(kafka).watermarks(["marks-a", "marks-b"])
    a0, a1, b0 = TopicPartition("marks-a", 0), TopicPartition("marks-a", 1), TopicPartition("marks-b", 0)
    assert marks.earliest == {a0: 0, a1: 12, b0: 0}
    assert marks.latest == {a0: 0, a1: 30, b0: 0}
    assert len(set(marks.topic_ids.values())) == 2


def test_a_topic_created_again_has_another_id(kafka: dict[str, str]) -> None:
    """Its offsets look valid, its id tells."""
    make_topic(kafka, "again", 1)
    before = AdminBrokers(kafka).watermarks(["again"]).topic_ids
    make_topic_again(kafka, "again")
    assert AdminBrokers(kafka).watermarks(["again"]).topic_ids != before


def test_a_missing_topic_is_named(kafka: dict[str, str]) -> None:
    """And the file to correct."""
    with pytest.raises(TopicNotFound, match=r"nowhere .*source\.topics"):
        AdminBrokers(kafka).watermarks(["nowhere"])


def test_a_broker_that_is_away_is_named_within_the_timeout() -> None:
    """A free port has no broker."""
    settings = {"bootstrap.servers": f"127.0.0.1:{sockets.choose_port([])}", "client.id": "test"}
    with pytest.raises(BrokerUnavailable, match="no Kafka broker answers"):
        AdminBrokers(settings, timeout_s=1).watermarks(["t"])


def test_settings_that_librdkafka_refuses_are_named() -> None:
    """A mistyped name is not a broker that is away."""
    with pytest.raises(KafkaError, match=r"no\.such\.setting"):
        AdminBrokers({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"})


def test_the_log_holds_committed_records_only_and_shows_its_gaps(kafka: dict[str, str]) -> None:
    """An aborted transaction and every marker leave a gap in the offsets."""
    make_topic(kafka, "gaps", 2)
    for count, commit in ((3, True), (2, False), (4, True)):
        transact(kafka, "gaps", 0, count, commit=commit)
    marks = AdminBrokers(kafka).watermarks(["gaps"])
    counted: list[int] = []
    found = read_offsets(kafka, marks, progress=counted.append)
    # 0-2, marker 3; 4-5 aborted, marker 6; 7-10, marker 11
    assert list(found[TopicPartition("gaps", 0)]) == [0, 1, 2, 7, 8, 9, 10]
    assert list(found[TopicPartition("gaps", 1)]) == []
    assert counted[-1] == 7


def test_an_open_transaction_holds_back_the_end_of_read_committed_only(kafka: dict[str, str]) -> None:
    """The last stable offset stays where the transaction began, until it ends."""
    make_topic(kafka, "stable", 1)
    write(kafka, "stable", 0, 5)
    tp, brokers = TopicPartition("stable", 0), AdminBrokers(kafka)
    producer = ck.Producer({**kafka, "transactional.id": "stable"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("stable", b"x", partition=0)
    assert producer.flush(30) == 0
    assert brokers.watermarks(["stable"]).latest == {tp: 6}
    assert brokers.watermarks(["stable"], isolation_level="read_committed").latest == {tp: 5}
    producer.commit_transaction(30)
    deadline = time.monotonic() + 30  # the marker is written by the coordinator, after the commit was answered
    while brokers.watermarks(["stable"], isolation_level="read_committed").latest != {tp: 7}:
        assert time.monotonic() < deadline
    assert brokers.watermarks(["stable"]).latest == {tp: 7}


def test_a_topic_named_twice_counts_once_and_no_topic_gives_nothing(kafka: dict[str, str]) -> None:
    """The brokers would refuse both."""
    make_topic(kafka, "twice", 1)
    assert AdminBrokers(kafka).watermarks(["twice", "twice"]).latest == {TopicPartition("twice", 0): 0}
    assert AdminBrokers(kafka).watermarks([]).latest == {}


def test_a_pattern_matches_whole_names_and_never_kafkas_own_topics(kafka: dict[str, str]) -> None:
    """What `exclude` matches is left out; nothing at all is a legal answer."""
    for name in ("match.eu", "match.us", "match.us.dead", "rematch.eu"):
        make_topic(kafka, name, 1)
    commit_offsets(kafka, "makes-the-internal-topic", {TopicPartition("match.eu", 0): 0})
    brokers = AdminBrokers(kafka)
    assert brokers.match_topics(r"match\..*") == ["match.eu", "match.us", "match.us.dead"]
    assert brokers.match_topics(r"match\..*", [r".*\.dead", "match"]) == ["match.eu", "match.us"]
    assert brokers.match_topics("match") == []
    found = brokers.match_topics(".*")
    assert {"match.eu", "rematch.eu"} <= set(found)
    assert not [name for name in found if name.startswith("__")]


@pytest.mark.parametrize(("pattern", "exclude", "field"), [("(", [], "pattern"), ("a", ["b", "["], "exclude")])
def test_a_pattern_that_does_not_compile_is_named(kafka: dict[str, str], pattern: str, exclude: list[str], field: str) -> None:
    """Before any broker is asked."""
    with pytest.raises(ConfigError, match=rf"^{field}: .* is not a regular expression"):
        AdminBrokers(kafka).match_topics(pattern, exclude)


def test_a_time_is_the_first_offset_at_or_after_it(kafka: dict[str, str]) -> None:
    """In offset order, though timestamps may go back; None where the log has no such record."""
    make_topic(kafka, "times", 3)
    now = time.time_ns() // 1_000_000
    write(kafka, "times", 0, 4, times=[now, now + 10, now + 5, now + 20])
    write(kafka, "times", 1, 1, times=[now])
    t0, t1, t2 = (TopicPartition("times", n) for n in range(3))
    brokers = AdminBrokers(kafka)
    assert brokers.offsets_at({t0: 0, t1: now, t2: now}) == {t0: 0, t1: 0, t2: None}
    assert brokers.offsets_at({t0: now + 1, t1: now + 1}) == {t0: 1, t1: None}
    assert brokers.offsets_at({t0: now + 11}) == {t0: 3}
    assert brokers.offsets_at({}) == {}


@pytest.mark.parametrize(("topic", "partition", "named"), [("never-made", 0, "never-made"), ("times-one", 7, "times-one-7")])
def test_a_time_in_a_partition_that_is_not_there_names_it(
    kafka: dict[str, str], topic: str, partition: int, named: str
) -> None:
    """A topic that is missing, and a partition that is."""
    if "times-one" not in AdminBrokers(kafka).match_topics("times-one"):
        make_topic(kafka, "times-one", 1)
    with pytest.raises(TopicNotFound, match=named):
        AdminBrokers(kafka).offsets_at({TopicPartition("times-one", 0): 0, TopicPartition(topic, partition): 0})


def test_many_partitions_cost_little_of_this_process(kafka: dict[str, str]) -> None:
    """Ten thousand in a second of CPU, librdkafka's decoding included: here 300, with room for a busy machine."""
    make_topic(kafka, "wide", 300)
    brokers, deadline = AdminBrokers(kafka), time.monotonic() + 60
    while not brokers.match_topics("wide"):  # the broker makes the folders of new partitions one after the other
        assert time.monotonic() < deadline
    spent = []
    for _ in range(5):
        before = time.process_time()
        assert len(brokers.watermarks(["wide"]).latest) == 300
        spent.append(time.process_time() - before)
    assert min(spent) < 300 / 10_000 * 5


def test_threads_end_with_the_object_also_after_an_error(kafka: dict[str, str]) -> None:
    """At once: no ring of references waits for the garbage collector."""
    make_topic(kafka, "thread", 1)
    gc.collect()
    gc.disable()
    try:
        before = threads()
        for _ in range(2):
            AdminBrokers(kafka).watermarks(["thread"])
            with pytest.raises(TopicNotFound):
                AdminBrokers(kafka).watermarks(["no-thread"])
            with pytest.raises(BrokerUnavailable):
                AdminBrokers({"bootstrap.servers": f"127.0.0.1:{sockets.choose_port([])}"}, timeout_s=0.2).match_topics(".*")
        assert threads() <= before
    finally:
        gc.enable()
