"""Replacements that go through data files, through Spark Connect, while others write the same table."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.records import changed, load_job
from tests.topics import make_topic, write
from tidegate.core.audit.oracle import judge
from tidegate.core.load.job import LoadResult
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.iceberg.origins import read_origins
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.local import Platform
from tidegate.spark.identity import ByOrigin
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate.spark.sinks.iceberg.replacement import Cut
from tidegate.spark.sinks.iceberg.table import IcebergTable

SPARK_JOBS = Path(__file__).parents[2] / "spark_jobs"
PARTITIONS, RECORDS, LOADED, STEP = 2, 3000, 2000, 250

pytestmark = [
    # PyIceberg's SQLAlchemy engine and gRPC leave sockets and files to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Meetings:
    """Stands in for the look of `IcebergTable`: the first looks of two loads wait for each other, so that both see the same."""

    def __init__(self, look: Callable[[IcebergTable, ByOrigin], Cut | None]) -> None:
        self.look = look
        self.meeting: frozenset[object] = frozenset()
        self.together = threading.Barrier(2, timeout=120)
        self.looks: Counter[object] = Counter()
        self.cuts: dict[object, Cut | None] = {}

    def __call__(self, table: IcebergTable, wanted: ByOrigin) -> Cut | None:
        """Look, and before the first answer wait until the other one has looked too."""
        key = tuple(wanted.ranges)
        self.looks[key] += 1
        found = self.look(table, wanted)
        if key in self.meeting and self.looks[key] == 1:
            self.cuts[key] = found
            self.together.wait()
        return found


@pytest.mark.usefixtures("catalog")
def test_replays_that_cross_leave_one_copy_while_the_schedule_goes_on(
    platform: Platform, kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two unaligned replays over the same files: the second is refused, looks anew, and replaces what it has to."""
    topic = make_topic(kafka, f"crossed-{uuid.uuid4().hex[:8]}", PARTITIONS)
    for partition in range(PARTITIONS):
        write(kafka, topic, partition, [b'{"flight": %d}' % n for n in range(RECORDS)])
    table = f"lake.it.t{uuid.uuid4().hex}"
    options = {"kafka.bootstrap.servers": platform.bootstrap_servers}

    def ranges(first: int, until: int) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(topic, partition, first, until) for partition in range(PARTITIONS))

    def load(seq: int, wanted: tuple[OffsetRange, ...], replay: str | None = None) -> LoadResult:
        job = load_job("crossed", seq, "r", wanted, "transforms.flights:flights", table, options)
        with connect(platform.spark_remote, name=f"tests-{seq}") as spark:
            return load_range(spark, changed(job, replay=replay, redo=replay is not None), spark_jobs=SPARK_JOBS)

    def go_forward() -> None:
        for seq, start in enumerate(range(LOADED, RECORDS, STEP), start=2):
            load(seq, ranges(start, start + STEP))

    meetings = Meetings(IcebergTable.find_cut)

    def look(self: IcebergTable, wanted: ByOrigin) -> Cut | None:
        return meetings(self, wanted)

    monkeypatch.setattr(IcebergTable, "find_cut", look)
    # The outer session keeps pyspark's switch to Connect on while the threads come and go.
    with connect(platform.spark_remote, name="tests"), ThreadPoolExecutor(3) as pool:
        load(1, ranges(0, LOADED))
        forward = pool.submit(go_forward)
        one, other = ranges(300, 1000), ranges(700, 1400)
        meetings.meeting = frozenset((one, other))
        replays = [pool.submit(load, 0, wanted, f"replay {i}") for i, wanted in enumerate((one, other))]
        results = [replay.result() for replay in replays]
        assert [r.receipt.rows for r in results] == [700 * PARTITIONS] * 2
        # both meant to write the same files anew, so the second commit was refused
        assert None not in (meetings.cuts[one], meetings.cuts[other])
        assert meetings.looks[one] + meetings.looks[other] >= 3
        forward.result()

    watermarks = AdminBrokers(kafka).watermarks([topic])
    verdict = judge(read_offsets(kafka, watermarks), read_origins(table))
    assert verdict.holds, verdict.to_json()
    assert verdict.total("rows") == PARTITIONS * RECORDS
