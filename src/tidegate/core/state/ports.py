"""What the core asks of the world. Every adapter of a port, and its fake, passes one suite: `tidegate.testing.contracts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate.core.config.layout import Layout
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import IsolationLevel, Watermarks
from tidegate.core.state.history import NoOrigin, TableHistory
from tidegate.core.state.jobs import LoadJob, LoadResult, Maintained, MaintenanceJob
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.rejection import Rejection


class StateStore(Protocol):
    """Keys and texts, as Airflow Variables have them: no compare-and-set, no transaction.

    A key is printable text of the form `tidegate.<pipeline>.<rest>`, at most 250 characters; keys compare letter by letter. A
    value is any text without NUL, up to 1 MB, and may be empty. It is read back as it was written; only a value that is JSON as
    a whole may come back as equal JSON in another notation.
    """

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, each once, sorted by code point. Raises StateUnavailable: the listing failed."""

    def get(self, key: str) -> str:
        """The value of a key that `keys` has listed. Raises StateUnavailable: it cannot be read (missing included)."""

    def put(self, key: str, value: str, description: str) -> None:
        """Write the value, over the last one; the description is for people.

        Raises StateUnavailable: whether it was written is unknown.
        """

    def delete(self, key: str) -> None:
        """Remove the key, unless it is missing. Raises StateUnavailable: whether it was removed is unknown."""


class Brokers(Protocol):
    """What Kafka holds. Every question raises BrokerUnavailable where no broker answers, and KafkaError where one refuses."""

    def watermarks(self, topics: Sequence[str], *, isolation_level: IsolationLevel = "read_uncommitted") -> Watermarks:
        """Beginning and end of every partition of the topics, and the topics' ids; a name given twice counts once.

        With read_committed a partition ends at its last stable offset, which an open transaction holds back. A topic that is
        created again has another id. Raises TopicNotFound: one of the topics does not exist.
        """

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of the topics. Raises TopicNotFound: one of the topics does not exist."""

    def match_topics(self, pattern: str, exclude: Sequence[str] = ()) -> list[str]:
        """Topics whose whole name matches the pattern and none of `exclude`, sorted; Kafka's own topics never match.

        Raises ConfigError, before any broker is asked: a pattern is not a regular expression.
        """

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first retained offset, in offset order, of a record at or after each time (epoch ms); None where there is none.

        Raises TopicNotFound: a topic, or a partition of it, does not exist.
        """

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed; none of a group that is not there.

        Raises KafkaError: consumers are members of the group, so it moves on.
        """

    def next_timestamps(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """The timestamp (epoch ms) of the first record at or after each position, where there is one. Raises KafkaError."""

    def retention_ms(self, topics: Sequence[str]) -> dict[str, int]:
        """How long each topic keeps a record, ms; without topics that keep it for ever or do not say. Raises KafkaError."""

    def settle(self) -> None:
        """Give a recovering broker a moment, before watermarks are read again; asks nobody."""


class SinkReader(Protocol):
    """What a table's own commits say. Every question raises SinkUnavailable where the catalog does not answer.

    A table that does not exist is no error: it has no commits and no receipts.
    """

    def history(self, table: str, *, expired: bool = False) -> TableHistory:
        """The commits that the table's current state descends from, newest first; what was rolled back is not among them.

        With those that have `expired`, as far as maintenance has kept them elsewhere, which may take longer to read.
        """

    def without_origin(self, table: str) -> NoOrigin | None:
        """Why rows of the current state may have no origin, by what the sink keeps of its files; no row is read."""

    def layout(self, table: str) -> Layout | None:
        """How the table is laid out now, with all its properties. None where there is no table, or its kind has no layout."""

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline in the table's history, oldest commit first, replays too.

        Raises StateCorrupt: a receipt of the pipeline cannot be read.
        """

    def rejections(self, quarantine: str, *, most: int | None = None) -> list[Rejection]:
        """Every record in a quarantine; none where there is no such table.

        Raises SinkMisfit: the table is no quarantine. RequestError: it holds more than `most` records.
        """

    def rejected_values(self, quarantine: str, rejections: Sequence[Rejection]) -> dict[Rejection, bytes | None]:
        """The values of some records in a quarantine, each of which is read by its offset."""

    def broken(self, table: str, ranges: Sequence[OffsetRange], *, most: int) -> list[Rejection]:
        """Records of the ranges whose row in the table says what is wrong with it, or which the table is the quarantine of.

        At most so many, in any order, by one range a partition; none where there is no such table, or its rows do not say it.
        """


class JobRunner(Protocol):
    """What runs the Spark job of a load, or of a step of maintenance, one job at a time."""

    @property
    def lost(self) -> int:
        """How many jobs of this runner have lost the server that ran them, so that the job itself may be what ends it."""

    def run(self, job: LoadJob) -> LoadResult:
        """Run the job to its end. It may be run again, whatever became of it: it looks for its receipt first.

        Raises SparkUnavailable: there is no Spark, or it was lost with the job. SparkJobFailed: the job failed, or ended
        without an answer and without a receipt. TidegateError: what the job itself raised; see
        `tidegate.spark.load.load_range`.
        """

    def maintain(self, job: MaintenanceJob) -> Maintained | None:
        """Do a step of maintenance; None where it was done, and its answer is lost. It may be done again. Raises as `run`."""

    def stop(self) -> None:
        """End the job that is running, if there is one: its call then fails. May be called by the handler of a signal."""
