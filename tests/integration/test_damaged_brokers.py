"""What a plan reads as topics come and grow, and says when a cluster has lost a log's end or is without one of its brokers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.integration.private_broker import PrivateBroker, new_member, running
from tests.records import write_of
from tests.topics import make_topic, write
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, CursorBeyondLog
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.receipt import Receipt
from tidegate.kafka.brokers import AdminBrokers
from tidegate.testing.fakes import FakeReader, MemoryStore
from tidegate.waiting import wait_until

SHORTER, LED = "shorter", "without-a-leader"
TIMEOUT_S = 3.0


def settings_of(broker: PrivateBroker) -> dict[str, str]:
    return {"bootstrap.servers": broker.address(), "client.id": "test"}


class Schedule:
    """One pipeline; what it saved is in `store`."""

    def __init__(self, broker: PrivateBroker, **source: Any) -> None:
        self.pipeline = Pipeline("p", Source(**source), "m:f", sink=Sink("lake.a.b"))
        self.store = MemoryStore()
        self.ports: dict[str, Any] = {
            "store": self.store,
            "brokers": AdminBrokers(settings_of(broker), timeout_s=TIMEOUT_S),
            "sink": FakeReader(),
        }

    def plan(self, run_id: str) -> Planned:
        planned = plan_batch(self.pipeline, run_id, Request(), **self.ports, now_ms=1)
        assert isinstance(planned, Planned)
        return planned

    def run(self, run_id: str) -> list[str]:
        """Plan, take it for loaded, commit; what it read."""
        planned = self.plan(run_id)
        load = planned.saved.load
        write = write_of("p", load.seq, run_id, load.nonempty, "v", "a")
        receipt = Receipt(write, load.seq, load.seq, rows=1) if load.nonempty else None
        self.ports["sink"].found += [receipt] if receipt is not None else []
        commit_batch(self.pipeline, planned.key, receipt, store=self.store)
        return [str(r) for r in load.ranges]


def test_what_a_source_names_is_read_from_where_it_begins(own: PrivateBroker) -> None:
    """By a pattern: new topics and partitions from their first record on, excluded ones never; or by number."""
    for topic in ("pat-a", "pat-x"):
        make_topic(settings_of(own), topic)
        write(settings_of(own), topic, 0, 3)
    matching = Schedule(own, pattern="pat-.*", exclude=("pat-x.*",), start="latest")
    assert matching.run("r1") == ["pat-a-0 [3, 3)"]
    admin = AdminClient({**settings_of(own)})
    admin.create_partitions([NewPartitions("pat-a", 3)])["pat-a"].result(30)
    make_topic(settings_of(own), "pat-b")
    write(settings_of(own), "pat-b", 0, 2)
    assert wait_until(lambda: len(matching.ports["brokers"].watermarks(["pat-a"]).latest) == 3, 30, poll_s=0.2)
    write(settings_of(own), "pat-a", 1, 4)
    assert matching.run("r2") == ["pat-a-1 [0, 4)", "pat-a-2 [0, 0)", "pat-b-0 [0, 2)"]
    assert Schedule(own, assign={"pat-a": (0, 2)}).run("r1") == ["pat-a-0 [0, 3)", "pat-a-2 [0, 0)"]


def test_a_log_that_came_back_shorter_stops_the_schedule(own: PrivateBroker, tmp_path: Path) -> None:
    """The same topic by its id, from an older copy of its files: the cursor is beyond its end, and nothing is saved."""
    log, copy = own.folder / "data" / f"{SHORTER}-0", tmp_path / "copy"
    make_topic(settings_of(own), SHORTER, 2)
    write(settings_of(own), SHORTER, 0, 5)
    own.server.stop()
    shutil.copytree(log, copy)
    own.server.start()
    write(settings_of(own), SHORTER, 0, 7)
    schedule = Schedule(own, topics=(SHORTER,))
    assert schedule.run("r1") == [f"{SHORTER}-0 [0, 12)", f"{SHORTER}-1 [0, 0)"]
    before = schedule.ports["brokers"].watermarks([SHORTER])
    own.server.stop()
    shutil.rmtree(log)
    copy.rename(log)
    own.server.start()
    after = schedule.ports["brokers"].watermarks([SHORTER])
    assert after.topic_ids == before.topic_ids
    saved = dict(schedule.store.values)
    with pytest.raises(CursorBeyondLog, match=f"{SHORTER}-0 at 12, log end 5"):
        schedule.plan("r2")
    assert schedule.store.values == saved


def test_a_partition_without_a_leader_is_named_and_read_after_its_broker_came_back(own: PrivateBroker, tmp_path: Path) -> None:
    """Tried again by the task, after the client's time; nothing is saved until the whole topic can be planned."""
    second = new_member(own, tmp_path / "second", node_id=3)
    with running(second):
        admin = AdminClient({**settings_of(own)})
        admin.create_topics([NewTopic(LED, 2, replica_assignment=[[1], [3]])])[LED].result(30)
        for partition in (0, 1):
            write(settings_of(own), LED, partition, 3)
        schedule = Schedule(own, topics=(LED,))
        second.server.stop()
        with pytest.raises(BrokerUnavailable, match=f"no broker has led {LED}-1 for {TIMEOUT_S:g} s") as caught:
            schedule.plan("r1")
        assert caught.value.retryable
        assert schedule.store.values == {}
        second.server.start()
        assert schedule.run("r1") == [f"{LED}-0 [0, 3)", f"{LED}-1 [0, 3)"]
