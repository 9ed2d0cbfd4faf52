"""Comparison `replay`: records per second of a replay, against the forward load of the same records in the same round.

forward     the batches of the schedule, one after the other, into a new table
aligned     a replay of all of them in chunks that end where the batches end
unaligned   a replay whose chunks cut through the batches' files, while another pipeline's schedule loads into the same table
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from pyspark.sql import SparkSession

from tidegate.bench.schedule import Schedule
from tidegate.bench.stage import Stage, evenly, rate_of, transform
from tidegate.bench.suite import Bar, Comparison, Samples, Term
from tidegate.bench.tables import drop
from tidegate.core.errors import RequestError
from tidegate.core.replay.request import Asked, ReplayRequest
from tidegate.spark.session import connect

PARTITIONS = 4
BATCHES = 4
TABLE = "lake.bench.replayed"
TOPIC, BESIDE = "replayed", "beside"


class Measured:
    """The pipeline that is replayed, and the one beside it, of one round."""

    def __init__(self, stage: Stage, spark: SparkSession, records: int) -> None:
        self.stage, self.spark, self.records = stage, spark, records
        self.size = records // BATCHES
        self.runs = count()
        self.begin()

    def begin(self) -> None:
        """A new table, and new schedules."""
        drop(self.spark, TABLE)
        self.main = self._schedule("replayed", TOPIC, self.size, "beside")
        self.beside = self._schedule("beside", BESIDE, max(self.stage.records // 200, 100), "replayed")

    def forward(self) -> dict[str, float]:
        """All batches."""
        self.begin()
        measured = rate_of(lambda: self.main.run_all(self.spark), self.records)
        rows = self.spark.table(TABLE).count()
        if rows != self.records:
            raise RequestError(f"{rows:,} rows of {self.records:,} records", fix="Report it: figures of such a load lie")
        return measured

    def aligned(self) -> dict[str, float]:
        """All batches again."""
        return self._replay(ReplayRequest(batches=(1, BATCHES), chunk_size=self.size))

    def unaligned(self) -> dict[str, float]:
        """From within the first batch on, and each batch in two chunks, of which one cuts through its files."""
        first = self.size // PARTITIONS // 4
        with live(self.beside, self.stage):
            return self._replay(
                ReplayRequest(offsets=(Asked(None, None, first, None),), chunk_size=self.size * 2 // 3), first * PARTITIONS
            )

    def _replay(self, request: ReplayRequest, left_out: int = 0) -> dict[str, float]:
        rows: list[int] = []
        records = self.records - left_out
        measured = rate_of(lambda: rows.append(self.main.replay(self.spark, f"replay {next(self.runs)}", request)), records)
        if rows != [records]:
            raise RequestError(f"{rows} rows replayed of {records:,} records", fix="Report it: figures of such a replay lie")
        return measured

    def _schedule(self, name: str, topic: str, batch: int, other: str) -> Schedule:
        return Schedule(
            name,
            topic,
            TABLE,
            transform=transform("parse_json"),
            kafka=self.stage.kafka,
            spark_jobs=self.stage.spark_jobs,
            batch=batch,
            shared_with=(other,),
        )


@contextmanager
def live(schedule: Schedule, stage: Stage) -> Iterator[None]:
    """The schedule's batches a second apart, in a session and a thread of their own, until the block ends."""
    ended = threading.Event()

    def loop() -> None:
        with connect(stage.platform.spark_remote, name="live") as spark:
            for n in count():
                schedule.run(spark, f"live {n}")
                if ended.wait(1):
                    return

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure(stage: Stage) -> Samples:
    """A round is one table: loaded, then replayed in both ways."""
    platform = stage.up("kafka", "spark")
    counts = evenly(stage.records, PARTITIONS)
    stage.filled(TOPIC, counts)
    stage.filled(BESIDE, evenly(max(stage.records // 10, 1000), PARTITIONS))
    with connect(platform.spark_remote, name="bench") as spark:
        measured = Measured(stage, spark, sum(counts))
        ways = {"forward": measured.forward, "aligned": measured.aligned, "unaligned": measured.unaligned}
        return stage.alternate(ways, warm_up=1, in_order=True)


COMPARISON = Comparison(
    name="replay",
    title="Replays against forward loads",
    about="`--records` JSON records in four partitions: `forward` as four batches into a new table, `aligned` as a replay "
    "of these batches, `unaligned` as a replay whose chunks cut through the batches' files, while another pipeline "
    "loads into the same table.",
    measures={"rate": "records/s", "time": "s"},
    bars=(
        Bar("replay: aligned, to forward", Term("aligned", "rate"), 0.9, against=Term("forward", "rate"), at_least=True),
        Bar("replay: unaligned, to forward", Term("unaligned", "rate"), 0.5, against=Term("forward", "rate"), at_least=True),
    ),
    shows=lambda m: (
        f"An aligned replay has {m['aligned']['rate'] / m['forward']['rate']:.2f} of the speed of a forward load, an unaligned "
        f"one {m['unaligned']['rate'] / m['forward']['rate']:.2f}."
    ),
    measure=measure,
)
