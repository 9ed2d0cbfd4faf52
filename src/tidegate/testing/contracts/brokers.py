"""The laws of `Brokers`: what Kafka holds, as plans rely on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from uuid import uuid4

import pytest

from tidegate.core.config.names import INTERNAL_TOPICS, WARM_UP_TOPIC
from tidegate.core.model.errors import BrokerUnavailable, ConfigError, KafkaError, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import begins
from tidegate.core.state.ports import Brokers

NOW_MS = time.time_ns() // 1_000_000
"""A time for records, which retention by time leaves alone."""


class Cluster(Protocol):
    """The Kafka cluster behind the brokers under test. What it did is visible to them when a method returns."""

    def make_topic(self, name: str, partitions: int = 1) -> None:
        """A new topic; its timestamps are those of the producer."""

    def delete_topic(self, name: str) -> None:
        """The topic is gone."""

    def add_partitions(self, name: str, partitions: int) -> None:
        """The topic has so many partitions from now on."""

    def write(self, where: TopicPartition, times: Sequence[int]) -> None:
        """One record for each timestamp (epoch ms), in this order."""

    def open_transaction(self, where: TopicPartition, times: Sequence[int]) -> Callable[[], None]:
        """The same in a transaction; what is returned commits it, and writes its marker."""

    def delete_records(self, where: TopicPartition, before: int) -> None:
        """Retention removes the records before an offset."""

    def commit(self, group: str, at: Mapping[TopicPartition, int]) -> None:
        """A consumer group commits offsets, and has no member then."""

    def join(self, group: str, topic: str) -> Callable[[], None]:
        """A consumer becomes a member of the group; what is returned lets it leave."""


class BrokersContract:
    """Laws of `Brokers`.

    Fixtures of the subclass:
        brokers: the brokers under test; the cluster has Kafka's own topic `__consumer_offsets`, and maybe topics of others.
        cluster: a `Cluster`, by which the laws make topics in it.
        unreachable: brokers that do not answer.
    """

    @pytest.fixture
    def word(self) -> str:
        """What the names of one test's topics contain."""
        return f"law{uuid4().hex}"

    def test_watermarks_are_the_bounds_of_every_partition(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Half-open; a beginning that was deleted shows, and so does a partition that is empty, ever or again."""
        a0, a1, a2, b0 = (*(TopicPartition(f"{word}-a", number) for number in range(3)), TopicPartition(f"{word}-b", 0))
        cluster.make_topic(a0.topic, 3)
        cluster.make_topic(b0.topic)
        cluster.write(a1, [NOW_MS] * 30)
        cluster.write(a2, [NOW_MS] * 4)
        cluster.delete_records(a1, 12)
        cluster.delete_records(a2, 4)
        marks = brokers.watermarks([a0.topic, b0.topic])
        assert marks.earliest == {a0: 0, a1: 12, a2: 4, b0: 0}
        assert marks.latest == {a0: 0, a1: 30, a2: 4, b0: 0}
        assert brokers.watermarks([b0.topic]).latest == {b0: 0}

    def test_a_topic_that_is_named_twice_counts_once(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """And no topic gives nothing."""
        cluster.make_topic(word)
        assert brokers.watermarks([word, word]).latest == {TopicPartition(word, 0): 0}
        none = brokers.watermarks([])
        assert (none.earliest, none.latest, none.topic_ids) == ({}, {}, {})

    def test_a_topic_keeps_its_id_until_it_is_created_again(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Each topic has one, and no other topic has it; new records and partitions do not change it."""
        topics = [f"{word}-a", f"{word}-b"]
        for topic in topics:
            cluster.make_topic(topic)
        ids = brokers.watermarks(topics).topic_ids
        assert sorted(ids) == topics
        assert len({*ids.values()}) == 2
        assert (brokers.topic_ids(topics), brokers.topic_ids([])) == (ids, {})
        cluster.write(TopicPartition(topics[0], 0), [NOW_MS])
        cluster.add_partitions(topics[0], 2)
        assert brokers.watermarks(topics).topic_ids == ids
        cluster.delete_topic(topics[0])
        cluster.make_topic(topics[0])
        again = brokers.watermarks(topics)
        assert again.latest == {TopicPartition(topic, 0): 0 for topic in topics}
        assert again.topic_ids[topics[0]] not in ids.values()
        assert again.topic_ids[topics[1]] == ids[topics[1]]

    def test_a_topic_that_is_missing_or_deleted_is_named(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Also beside one that is there: no answer holds a part of the topics."""
        there, gone = TopicPartition(f"{word}-there", 0), TopicPartition(f"{word}-gone", 0)
        cluster.make_topic(there.topic)
        with pytest.raises(TopicNotFound, match=gone.topic):
            brokers.watermarks([there.topic, gone.topic])
        cluster.make_topic(gone.topic)
        cluster.write(gone, [NOW_MS])
        assert brokers.watermarks([gone.topic]).latest == {gone: 1}
        cluster.delete_topic(gone.topic)
        with pytest.raises(TopicNotFound, match=gone.topic):
            brokers.watermarks([there.topic, gone.topic])
        with pytest.raises(TopicNotFound, match=gone.topic):
            brokers.offsets_at({there: 0, gone: 0})
        assert brokers.match_topics(f"{word}.*") == [there.topic]

    def test_a_new_partition_is_empty_and_the_old_ones_stay(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """It begins at 0."""
        old, new = TopicPartition(word, 0), TopicPartition(word, 1)
        cluster.make_topic(word)
        cluster.write(old, [NOW_MS] * 3)
        assert brokers.watermarks([word]).latest == {old: 3}
        cluster.add_partitions(word, 2)
        marks = brokers.watermarks([word])
        assert (marks.earliest, marks.latest) == ({old: 0, new: 0}, {old: 3, new: 0})
        assert brokers.offsets_at({old: NOW_MS, new: NOW_MS}) == {old: 0, new: None}

    def test_an_open_transaction_holds_back_the_end_of_read_committed_only(
        self, brokers: Brokers, cluster: Cluster, word: str
    ) -> None:
        """It stays where the transaction began until this ends; then both ends are behind its marker."""
        where = TopicPartition(word, 0)
        cluster.make_topic(word)
        cluster.write(where, [NOW_MS] * 5)
        commit = cluster.open_transaction(where, [NOW_MS] * 2)
        assert brokers.watermarks([word]).latest == {where: 7}
        assert brokers.watermarks([word], isolation_level="read_uncommitted").latest == {where: 7}
        stable = brokers.watermarks([word], isolation_level="read_committed")
        assert (stable.latest, stable.held_back) == ({where: 5}, {where: 2})
        assert brokers.next_timestamps(begins(stable)) == {where: NOW_MS}
        commit()
        assert brokers.watermarks([word]).latest == {where: 8}
        stable = brokers.watermarks([word], isolation_level="read_committed")
        assert (stable.latest, stable.held_back) == ({where: 8}, {})

    def test_a_pattern_matches_whole_names(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Sorted; letters compare exactly, a dot is any character, and nothing at all is a legal answer."""
        names = [f"{word}.{name}" for name in ("eu", "eu-west_1", "EU", "us", "us.dead")]
        for name in (*names, f"x{word}.eu", f"{word}-eu"):
            cluster.make_topic(name)
        assert brokers.match_topics(rf"{word}\..*") == sorted(names)
        assert brokers.match_topics(f"{word}.eu") == [f"{word}-eu", f"{word}.eu"]
        assert brokers.match_topics(rf"{word}\.(us|EU)") == [f"{word}.EU", f"{word}.us"]
        assert brokers.match_topics(rf"(?i){word}\.eu") == [f"{word}.EU", f"{word}.eu"]
        assert brokers.match_topics(rf"{word}\.[a-z]+-[a-z]+_\d") == [f"{word}.eu-west_1"]
        assert brokers.match_topics(word) == []
        assert brokers.match_topics("") == []

    def test_what_exclude_matches_as_a_whole_is_left_out(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Any of its patterns."""
        for name in ("eu", "us", "us.dead", "us.dead.old"):
            cluster.make_topic(f"{word}.{name}")
        assert brokers.match_topics(rf"{word}\..*", [r".*\.dead", word, "us"]) == [
            f"{word}.{name}" for name in ("eu", "us", "us.dead.old")
        ]
        assert brokers.match_topics(rf"{word}\..*", [rf"{word}\.eu", r".*\.dead.*"]) == [f"{word}.us"]
        assert brokers.match_topics(rf"{word}\..*", [".*"]) == []

    def test_kafkas_own_topics_never_match(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """By their names: other topics may begin with underscores too."""
        cluster.make_topic(f"__{word}")
        assert brokers.match_topics("__consumer_offsets") == []
        names = brokers.match_topics(".*")
        assert f"__{word}" in names
        assert not INTERNAL_TOPICS & {*names}

    def test_the_topic_of_a_warm_up_never_matches(self, brokers: Brokers, cluster: Cluster) -> None:
        """A pipeline that had begun to read it would miss it a few seconds later."""
        cluster.make_topic(WARM_UP_TOPIC)
        assert WARM_UP_TOPIC not in brokers.match_topics(".*")

    @pytest.mark.parametrize(("pattern", "exclude", "field"), [("(", [], "pattern"), ("a", ["b", "["], "exclude")])
    def test_a_pattern_that_does_not_compile_is_named(
        self, unreachable: Brokers, pattern: str, exclude: list[str], field: str
    ) -> None:
        """Before any broker is asked."""
        with pytest.raises(ConfigError, match=rf"^{field}: .* is not a regular expression"):
            unreachable.match_topics(pattern, exclude)

    def test_a_time_is_the_first_offset_at_or_after_it(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """In offset order, though timestamps may go back; None where the log has no such record."""
        t0, t1, t2 = (TopicPartition(word, number) for number in range(3))
        cluster.make_topic(word, 3)
        cluster.write(t0, [NOW_MS, NOW_MS + 10, NOW_MS + 5, NOW_MS + 20])
        cluster.write(t1, [NOW_MS])
        assert brokers.offsets_at({t0: 0, t1: NOW_MS, t2: NOW_MS}) == {t0: 0, t1: 0, t2: None}
        assert brokers.offsets_at({t0: NOW_MS + 1, t1: NOW_MS + 1}) == {t0: 1, t1: None}
        assert brokers.offsets_at({t0: NOW_MS + 11}) == {t0: 3}
        assert brokers.offsets_at({t0: NOW_MS + 21, t2: 0}) == {t0: None, t2: None}
        assert brokers.offsets_at({}) == {}

    def test_a_time_before_the_log_is_its_first_record(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Of those that retention has left; an emptied partition has none."""
        t0, t1 = TopicPartition(word, 0), TopicPartition(word, 1)
        cluster.make_topic(word, 2)
        for where in (t0, t1):
            cluster.write(where, [NOW_MS, NOW_MS + 1, NOW_MS + 2])
        cluster.delete_records(t0, 2)
        cluster.delete_records(t1, 3)
        assert brokers.offsets_at({t0: NOW_MS, t1: NOW_MS}) == {t0: 2, t1: None}

    def test_a_partition_that_is_missing_is_named(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """Also beside one that is there."""
        cluster.make_topic(word)
        with pytest.raises(TopicNotFound, match=f"{word}-7"):
            brokers.offsets_at({TopicPartition(word, 0): 0, TopicPartition(word, 7): 0})

    def test_a_group_is_where_it_has_committed(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """As long as it has no member, which would move it; a group that is not there is nowhere."""
        t0 = TopicPartition(word, 0)
        cluster.make_topic(word, 2)
        cluster.write(t0, [NOW_MS] * 3)
        assert brokers.committed(word) == {}
        cluster.commit(word, {t0: 2})
        assert brokers.committed(word) == {t0: 2}
        leave = cluster.join(word, word)
        with pytest.raises(KafkaError, match="members") as refused:
            brokers.committed(word)
        assert not refused.value.retryable
        leave()
        assert brokers.committed(word)[t0] == 2

    def test_the_next_record_of_a_position_has_its_own_timestamp(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """The end of a log has none, and neither has an empty partition."""
        t0, t1, t2 = (TopicPartition(word, number) for number in range(3))
        cluster.make_topic(word, 3)
        cluster.write(t0, [NOW_MS, NOW_MS + 10, NOW_MS + 5])
        cluster.write(t1, [NOW_MS])
        assert brokers.next_timestamps({t0: 1, t1: 0, t2: 0}) == {t0: NOW_MS + 10, t1: NOW_MS}
        assert brokers.next_timestamps({t0: 2, t1: 1}, isolation_level="read_committed") == {t0: NOW_MS + 5}
        assert brokers.next_timestamps({}) == {}

    def test_retention_is_asked_of_the_topics_that_are_named(self, brokers: Brokers, cluster: Cluster, word: str) -> None:
        """And of no other."""
        cluster.make_topic(word)
        assert brokers.retention_ms([word]).keys() <= {word}
        assert brokers.retention_ms([]) == {}

    @pytest.mark.parametrize(
        "call",
        [
            lambda brokers: brokers.watermarks(["t"]),
            lambda brokers: brokers.watermarks(["t"], isolation_level="read_committed"),
            lambda brokers: brokers.match_topics(".*"),
            lambda brokers: brokers.offsets_at({TopicPartition("t", 0): 0}),
            lambda brokers: brokers.next_timestamps({TopicPartition("t", 0): 0}),
            lambda brokers: brokers.retention_ms(["t"]),
            lambda brokers: brokers.committed("g"),
        ],
        ids=["watermarks", "read-committed", "match", "times", "timestamps", "retention", "group"],
    )
    def test_brokers_that_do_not_answer_are_unavailable(self, unreachable: Brokers, call: Callable[[Brokers], object]) -> None:
        """A topic that nobody was asked about is never missing; the question can be asked again."""
        with pytest.raises(BrokerUnavailable) as refused:
            call(unreachable)
        assert refused.value.retryable

    def test_settling_asks_nobody(self, unreachable: Brokers) -> None:
        """It only lets time pass."""
        unreachable.settle()
