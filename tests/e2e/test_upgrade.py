"""State, receipts and tables that an older commit has written: the schedule goes on with them as if nothing had changed.

The saved states (`tests/fixtures`) are what a platform had on its disk: the broker's log, the Iceberg catalog and its files,
Airflow's database with runs and Variables. A platform of this commit is started on each; what follows is done in this order.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from tests.batches import gaps, ranges_of_batches
from tests.catalogs import let_pyiceberg_find
from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tests.fixtures.make_state import SHOPS, produce
from tests.fixtures.saved_state import SAVED, restore, variables
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.audit.oracle import Verdict, judge
from tidegate.core.offsets.ranges import TopicPartition, total_count
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.state.codec import decode
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange
from tidegate.iceberg.history import IcebergReader, load_table
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.local import Platform

PIPELINES = ("shop", "late", "totals", "renewed")
BY_ORIGIN = ("shop", "late", "renewed")
PENDING = ("shop", "totals")
FIRST_OF_NEW = 100
"""The first `id` in the topic that was created again."""


@dataclass
class Upgraded:
    """A platform of this commit on the state of another one."""

    saved: Path
    project: Project
    platform: Platform
    api: AirflowApi
    kafka: dict[str, str]

    def runs(self, name: str) -> Runs:
        return Runs(self.api, name)

    def book(self, name: str) -> Ledger:
        return Ledger(ApiStore(self.api), name)

    def cursor(self, name: str) -> Cursor:
        return self.book(name).cursor()

    def ranges(self, name: str) -> list[SavedRange]:
        book = self.book(name)
        return [book.saved_range(r.key) for r in book.listing().ranges]

    def first_run(self, name: str) -> str:
        """The oldest run that Airflow remembers."""
        found: str = self.api.dag_runs(name)[0]["dag_run_id"]
        return found

    def verdict(self, name: str) -> Verdict:
        """Each record between the pipeline's start and its cursor against each row of its table."""
        cursor = self.cursor(name)
        marks = AdminBrokers(self.kafka).watermarks(sorted(cursor.topic_ids))
        starts = {tp: cursor.starts.get(tp, 0) for tp in cursor.offsets}
        return judge(read_offsets(self.kafka, Watermarks(starts, cursor.offsets, marks.topic_ids)), self.rows_by_origin(name))

    def rows_by_origin(self, name: str) -> dict[TopicPartition, list[int]]:
        """The offset of each row, without those of a topic that was deleted and created again: its offsets were used twice."""
        found: dict[TopicPartition, list[int]] = defaultdict(list)
        for row in content(name):
            if name != "renewed" or row["id"] >= FIRST_OF_NEW:
                found[TopicPartition(row["_kafka_topic"], row["_kafka_partition"])].append(row["_kafka_offset"])
        return found


@pytest.fixture(scope="module", params=SAVED, ids=lambda saved: saved.name)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    """Started on a saved state, and nothing else done to it."""
    root = tmp_path_factory.mktemp("upgraded")
    project = Project(root)
    shutil.copytree(request.param / "project", root, dirs_exist_ok=True)
    (root / "dags" / "pipelines" / "flights.yaml").unlink()
    restore(request.param, root / ".tidegate")
    platform = Platform(root / ".tidegate", root, extra_env=project.environment)
    try:
        platform.up()
        with pytest.MonkeyPatch.context() as patch, platform.api() as api:
            let_pyiceberg_find(platform, patch)
            for name in PIPELINES:
                api.wait_dag(name)
            yield Upgraded(
                request.param, project, platform, api, {"bootstrap.servers": platform.bootstrap_servers, "client.id": "test"}
            )
    finally:
        platform.down()


def test_it_is_read_without_a_word(upgraded: Upgraded) -> None:
    """Nothing is written by looking: plan, lag, history and a dry rebuild, which finds what the cursor says."""
    for name in PIPELINES:
        shown = upgraded.project.tidegate("ledger", "show", name)
        assert shown["faults"] == []
        assert shown["batches"]
        assert "records_behind" in upgraded.project.tidegate("lag", name)["total"]
        plan = upgraded.project.tidegate("plan", name)
        assert (plan.get("origin") == "adopted") == (name in PENDING)
    for name in PENDING:
        dry = upgraded.project.tidegate("ledger", "rebuild", name, "--dry-run")
        cursor = upgraded.cursor(name)
        rebuilt = Cursor.from_json(dry["cursor"])
        assert (rebuilt.seq, rebuilt.offsets, rebuilt.topic_ids) == (cursor.seq, cursor.offsets, cursor.topic_ids)
    assert bodies(upgraded.api.variables("tidegate.")) == bodies(variables(upgraded.saved))


def bodies(saved: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What the values hold; Airflow's API formats those that are JSON as a whole anew."""
    return {key: decode(key.split(".")[2], text, key=key, repair="") for key, text in saved.items()}


@pytest.mark.parametrize("name", PIPELINES)
def test_what_the_table_holds_is_what_was_committed(upgraded: Upgraded, name: str) -> None:
    """By the command that says so."""
    found = upgraded.project.tidegate("ledger", "verify", name)
    assert (found["holds"], found["miscounts"], found["other_commits"]) == (True, [], [])


@pytest.mark.parametrize("name", PENDING)
def test_a_range_that_waits_is_adopted_by_the_next_run(upgraded: Upgraded, name: str) -> None:
    """As it was saved."""
    before = upgraded.cursor(name)
    (waiting,) = [saved for saved in upgraded.ranges(name) if saved.seq == before.seq + 1]
    runs = upgraded.runs(name)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    assert f"adopted from run {waiting.run_id}" in runs.log(run, "plan")
    after = upgraded.cursor(name)
    assert (after.seq, after.generation) == (before.seq + 1, before.generation)
    assert after.offsets == {**before.offsets, **{r.topic_partition: r.until_offset for r in waiting.ranges}}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_next_run_reads_from_the_cursor_and_only_what_is_new(upgraded: Upgraded, name: str) -> None:
    """Also in a partition that had been silent since before the pipeline began."""
    before = upgraded.cursor(name)
    for topic, partitions in {"sales": 2, "refunds": 3, "renewed": 1}.items():
        if topic in before.topic_ids:
            produce(upgraded.kafka, topic, range(partitions), range(5000, 5012))
    runs = upgraded.runs(name)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "plan")
    (planned,) = [saved for saved in upgraded.ranges(name) if saved.seq == before.seq + 1]
    assert {r.topic_partition: r.from_offset for r in planned.ranges} == dict(before.offsets)
    assert all(r.count for r in planned.ranges)
    (newest,) = [
        r for r in IcebergReader().receipts(f"lake.state.{name}", name) if r.load.seq == before.seq + 1 and not r.load.replay
    ]
    assert total_count(newest.load.ranges) == total_count(planned.ranges)
    assert upgraded.cursor(name).generation == before.generation


@pytest.mark.parametrize("name", PENDING)
def test_a_run_of_then_that_is_cleared_does_its_own_range_again(upgraded: Upgraded, name: str) -> None:
    """By today's code; the cursor stays."""
    cursor, rows = upgraded.cursor(name), content(name)
    runs, first = upgraded.runs(name), upgraded.first_run(name)
    upgraded.api.clear(name, first)
    again = runs.ended(first)
    assert again["tasks"] == {"plan": "success", "load": "success", "commit": "success"}, runs.log(again, "plan")
    assert "loading it again" in runs.log(again, "plan")
    assert upgraded.cursor(name) == cursor
    assert content(name) == rows


@pytest.mark.parametrize("name", PENDING)
def test_batches_of_then_are_replayed(upgraded: Upgraded, name: str) -> None:
    """By their numbers."""
    cursor, rows = upgraded.cursor(name), content(name)
    assert upgraded.project.tidegate("replay", name, "--batch", "1..2")["state"] == "success"
    assert upgraded.cursor(name) == cursor
    assert content(name) == rows


@pytest.mark.parametrize("name", BY_ORIGIN)
def test_each_record_is_there_once(upgraded: Upgraded, name: str) -> None:
    """By librdkafka and PyIceberg."""
    verdict = upgraded.verdict(name)
    assert verdict.holds, verdict.to_json()
    assert verdict.total("records") > 0


def test_each_batch_is_what_its_records_add_up_to(upgraded: Upgraded) -> None:
    """Batches of then and of now, made again here from the log."""
    receipts = IcebergReader().receipts("lake.state.totals", "totals")
    ranges, cursor = ranges_of_batches(upgraded.book("totals"), receipts), upgraded.cursor("totals")
    assert gaps(ranges, cursor) == []
    log = read_values(upgraded.kafka, "sales", cursor)
    expected: dict[tuple[int, str], tuple[int, int]] = {}
    for batch, read in ranges.items():
        for r in read:
            for offset in range(r.from_offset, r.until_offset):
                value = log[r.partition, offset]
                count, amount = expected.get((batch, value["shop"]), (0, 0))
                expected[batch, value["shop"]] = (count + 1, amount + value["amount"])
    found = [((row["_batch"], row["shop"]), (row["sales"], row["amount"])) for row in content("totals")]
    assert {shop for _batch, shop in expected} == set(SHOPS)
    assert sorted(found) == sorted(expected.items())


def content(name: str) -> list[dict[str, Any]]:
    """Every row of a pipeline's table, in an order that does not depend on its files."""
    table = load_table(f"lake.state.{name}")
    assert table is not None
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def read_values(kafka: dict[str, str], topic: str, cursor: Cursor) -> dict[tuple[int, int], dict[str, Any]]:
    """The values of the topic's records before the cursor, by partition and offset."""
    left = {tp.partition: end for tp, end in cursor.offsets.items() if tp.topic == topic and end}
    consumer = ck.Consumer({**kafka, "group.id": "test-values", "enable.auto.commit": False})
    found: dict[tuple[int, int], dict[str, Any]] = {}
    try:
        consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in left])
        while left:
            for message in consumer.consume(1000, timeout=5.0):
                assert message.error() is None, message.error()
                partition, offset = message.partition() or 0, message.offset() or 0
                found[partition, offset] = json.loads(message.value() or b"")
                if offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
    finally:
        consumer.close()
    return found
