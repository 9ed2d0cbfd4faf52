"""What a plan says when a cluster has lost a log's end, or is without one of its brokers; on brokers of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.private_broker import PrivateBroker, new_broker, new_member, running
from tests.topics import make_topic, write
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.errors import BrokerUnavailable, CursorBeyondLog
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.kafka.brokers import AdminBrokers
from tidegate.testing.fakes import FakeReader, MemoryStore

TOPIC = "orders"
PIPELINE = Pipeline("p", Source(topics=(TOPIC,)), "m:f", Sink("lake.a.b"))
TIMEOUT_S = 3.0


def settings_of(broker: PrivateBroker) -> dict[str, str]:
    return {"bootstrap.servers": broker.address(), "client.id": "test"}


class Schedule:
    """One pipeline of the topic; what it saved is in `store`."""

    def __init__(self, broker: PrivateBroker) -> None:
        self.store = MemoryStore()
        self.ports: dict[str, Any] = {
            "store": self.store,
            "brokers": AdminBrokers(settings_of(broker), timeout_s=TIMEOUT_S),
            "sink": FakeReader(),
        }

    def plan(self, run_id: str) -> Planned:
        planned = plan_batch(PIPELINE, run_id, Request(), **self.ports, now_ms=1)
        assert isinstance(planned, Planned)
        return planned

    def run(self, run_id: str) -> list[str]:
        """Plan, take it for loaded, commit; what it read."""
        planned = self.plan(run_id)
        saved = planned.saved
        receipt = Receipt(LoadId("p", saved.seq, saved.run_id, saved.to_load, "v", "a"), saved.seq, saved.seq, 1)
        self.ports["sink"].found.append(receipt)
        commit_batch(PIPELINE, planned.key, receipt, store=self.store)
        return [str(r) for r in saved.ranges]


def test_a_log_that_came_back_shorter_stops_the_schedule(tmp_path: Path) -> None:
    """The same topic by its id, from an older copy of its files: the cursor is beyond its end, and nothing is saved."""
    broker = new_broker(tmp_path / "kafka")
    log, copy = tmp_path / "kafka" / "data" / f"{TOPIC}-0", tmp_path / "copy"
    with running(broker):
        make_topic(settings_of(broker), TOPIC, 2)
        write(settings_of(broker), TOPIC, 0, 5)
    shutil.copytree(log, copy)
    with running(broker):
        write(settings_of(broker), TOPIC, 0, 7)
        schedule = Schedule(broker)
        assert schedule.run("r1") == [f"{TOPIC}-0 [0, 12)", f"{TOPIC}-1 [0, 0)"]
        before = schedule.ports["brokers"].watermarks([TOPIC])
    shutil.rmtree(log)
    copy.rename(log)
    with running(broker):
        after = schedule.ports["brokers"].watermarks([TOPIC])
        assert after.topic_ids == before.topic_ids
        saved = dict(schedule.store.values)
        with pytest.raises(CursorBeyondLog, match=f"{TOPIC}-0 at 12, log end 5"):
            schedule.plan("r2")
        assert schedule.store.values == saved


def test_a_partition_without_a_leader_is_named_and_read_after_its_broker_came_back(tmp_path: Path) -> None:
    """Tried again by the task, after the client's time; nothing is saved until the whole topic can be planned."""
    first = new_broker(tmp_path / "first")
    second = new_member(first, tmp_path / "second", node_id=2)
    with running(first, second):
        admin = AdminClient({**settings_of(first)})
        admin.create_topics([NewTopic(TOPIC, 2, replica_assignment=[[1], [2]])])[TOPIC].result(30)
        for partition in (0, 1):
            write(settings_of(first), TOPIC, partition, 3)
        schedule = Schedule(first)
        second.server.stop()
        with pytest.raises(BrokerUnavailable, match=f"no broker has led {TOPIC}-1 for {TIMEOUT_S:g} s") as caught:
            schedule.plan("r1")
        assert caught.value.retryable
        assert schedule.store.values == {}
        second.server.start()
        assert schedule.run("r1") == [f"{TOPIC}-0 [0, 3)", f"{TOPIC}-1 [0, 3)"]
