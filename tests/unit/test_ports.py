"""The ports in memory obey the laws of the ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

import pytest

from tests.receivers import MemorySender
from tests.sender_contract import SenderContract
from tidegate.core.model.errors import StateError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.history import TableCommit
from tidegate.core.state.receipt import Receipt
from tidegate.testing.contracts.brokers import BrokersContract
from tidegate.testing.contracts.sink_reader import SinkReaderContract
from tidegate.testing.contracts.state_store import StateStoreContract
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore
from tidegate_receivers.rules.records import Outgoing


class TestMemoryStore(StateStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def another(self, store: MemoryStore) -> MemoryStore:
        return MemoryStore(store.values)

    @pytest.fixture
    def unreachable(self) -> MemoryStore:
        return MemoryStore(failing=True)


class CreatedTopics:
    """The log of `FakeBrokers`, changed as a cluster is."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.brokers = brokers

    def make_topic(self, name: str, partitions: int = 1) -> None:
        self.brokers.ids[name] = uuid4().hex
        self.add_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        for kept in (self.brokers.latest, self.brokers.earliest, self.brokers.times):
            for where in [where for where in kept if where.topic == name]:
                del kept[where]

    def add_partitions(self, name: str, partitions: int) -> None:
        for number in range(partitions):
            where = TopicPartition(name, number)
            self.brokers.latest.setdefault(where, 0)
            self.brokers.times.setdefault(where, [])

    def write(self, where: TopicPartition, times: Sequence[int]) -> None:
        self.brokers.times[where] += times
        self.brokers.latest[where] += len(times)

    def open_transaction(self, where: TopicPartition, times: Sequence[int]) -> Callable[[], None]:
        self.brokers.stable[where] = self.brokers.latest[where]
        self.write(where, times)

        def commit() -> None:
            del self.brokers.stable[where]
            self.write(where, [times[-1]])  # the marker

        return commit

    def delete_records(self, where: TopicPartition, before: int) -> None:
        self.brokers.earliest[where] = before

    def commit(self, group: str, at: Mapping[TopicPartition, int]) -> None:
        self.brokers.groups[group] = dict(at)

    def join(self, group: str, topic: str) -> Callable[[], None]:
        self.brokers.joined.add(group)
        return lambda: self.brokers.joined.remove(group)


class TestFakeBrokers(BrokersContract):
    @pytest.fixture
    def brokers(self) -> FakeBrokers:
        return FakeBrokers(latest={TopicPartition("__consumer_offsets", 0): 7})

    @pytest.fixture
    def cluster(self, brokers: FakeBrokers) -> CreatedTopics:
        return CreatedTopics(brokers)

    @pytest.fixture
    def unreachable(self) -> FakeBrokers:
        return FakeBrokers(latest={TopicPartition("t", 0): 5}, away=True)


class CommittedRows:
    """The table of `FakeReader`, changed as a sink's is."""

    name = "lake.demo.flights"

    def __init__(self, reader: FakeReader) -> None:
        self.reader = reader
        self.snapshot = 0

    def commit(self, properties: Mapping[str, str], *offsets: int, kept: int = 0) -> int:
        self.snapshot += 1
        at, rows = self.snapshot, len(offsets) - kept
        try:
            receipt = Receipt.from_properties(properties, snapshot=self.snapshot, committed_at_ms=at, rows=rows, kept=kept)
        except StateError:
            receipt = None
        if receipt is None:
            self.reader.others.append(TableCommit(self.snapshot, at, {**properties}, rows=rows, kept=kept))
        else:
            self.reader.found.append(receipt)
        return self.snapshot

    def roll_back(self, snapshot: int) -> None:
        self.reader.found = [receipt for receipt in self.reader.found if receipt.snapshot <= snapshot]
        self.reader.others = [commit for commit in self.reader.others if commit.snapshot <= snapshot]

    def expire(self, snapshot: int) -> None:
        self.reader.found = [receipt for receipt in self.reader.found if receipt.snapshot != snapshot]
        self.reader.expired = True

    def own(self, pipeline: str) -> None:
        self.reader.owners |= {pipeline}

    def drop(self) -> None:
        self.reader.exists = False


class TestFakeReader(SinkReaderContract):
    @pytest.fixture
    def reader(self) -> FakeReader:
        return FakeReader()

    @pytest.fixture
    def table(self, reader: FakeReader) -> CommittedRows:
        return CommittedRows(reader)

    @pytest.fixture
    def unreachable(self) -> tuple[FakeReader, str]:
        return FakeReader(away=True), CommittedRows.name


class TestMemorySender(SenderContract):
    @pytest.fixture
    def longest(self) -> int:
        return 1000

    @pytest.fixture
    def sender(self, longest: int) -> MemorySender:
        return MemorySender(longest=longest + 10)

    @pytest.fixture
    def landed(self, sender: MemorySender) -> Callable[[], Sequence[Outgoing]]:
        return lambda: sender.log

    @pytest.fixture
    def unreachable(self) -> MemorySender:
        return MemorySender(away=True)
