"""What the core asks of the world. Each port has one production adapter, and tests may bring their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from tidegate.core.audit.table import TableHistory
from tidegate.core.events import Committed, Replayed
from tidegate.core.load.cutting import Box
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.schedule.plan import Watermarks

IsolationLevel = Literal["read_committed", "read_uncommitted"]


class StateStore(Protocol):
    """Keys and texts, as Airflow Variables have them: no compare-and-set, no transaction."""

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`. Raises StateUnavailable: the listing failed."""

    def get(self, key: str) -> str:
        """The value of a key that `keys` has listed. Raises StateUnavailable: it cannot be read (missing included)."""

    def put(self, key: str, value: str, description: str) -> None:
        """Write the value. Raises StateUnavailable: whether it was written is unknown."""

    def delete(self, key: str) -> None:
        """Remove the key. Raises StateUnavailable: whether it was removed is unknown."""


class Brokers(Protocol):
    """What Kafka holds."""

    def watermarks(self, topics: Sequence[str], *, isolation_level: IsolationLevel = "read_uncommitted") -> Watermarks:
        """Of every partition of the topics; read_committed ends at the last stable offset. Raises KafkaError."""

    def match_topics(self, pattern: str, exclude: Sequence[str] = ()) -> list[str]:
        """Topics whose whole name matches the pattern and none of `exclude`, sorted. Raises KafkaError, ConfigError."""

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time (epoch ms); None where no record is that late. Raises KafkaError."""

    def settle(self) -> None:
        """Give a recovering broker a moment, before watermarks are read again."""


class SinkReader(Protocol):
    """What a table's own commits say."""

    def history(self, table: str) -> TableHistory:
        """The commits that the table's current state descends from. Raises SinkUnavailable."""

    def files(self, table: str, *, by_batch: bool = False) -> list[Box]:
        """The bounds of each data file of the current state: over topic, partition and offset, or over the batch alone.

        A bound that is not kept is None; a table without these columns has none. Raises SinkUnavailable.
        """

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline that the table's state stands on, oldest commit first, replays too.

        Raises SinkUnavailable, StateCorrupt.
        """


class JobRunner(Protocol):
    """What runs the Spark job of a load, one job at a time."""

    @property
    def lost(self) -> int:
        """How many jobs of this runner have lost the server that ran them, so that the job itself may be what ends it."""

    def run(self, job: LoadJob) -> LoadResult:
        """Run the job to its end. It may be run again, whatever became of it: it looks for its receipt first.

        Raises:
            SparkUnavailable: there is no Spark, or it was lost with the job.
            SparkJobFailed: the job failed, or ended without an answer and without a receipt.
            TidegateError: what the job itself raised; see `tidegate.spark.load.load_range`.
        """

    def stop(self) -> None:
        """End the job that is running, if there is one: its `run` then fails. May be called by the handler of a signal."""


class Events(Protocol):
    """Who is told when rows of a pipeline's table have changed. An event may come twice, when its task is run again."""

    def committed(self, event: Committed) -> None:
        """A batch was committed."""

    def replayed(self, event: Replayed) -> None:
        """A replay was verified."""
