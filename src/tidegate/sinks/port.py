"""The port of sinks on Spark's side: what a load asks of the table that it writes to.

The laws that every adapter keeps are tests (`tests/spark/test_sink_laws.py`), and run against each of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from tidegate.core.load.lookup import Lookup
from tidegate.core.model.columns import ColumnChange
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Receipt, Write
from tidegate.sinks.identity import Identity

log = logging.getLogger(__name__)


class Phases:
    """Times phases by name; those that are entered several times are added up.

    `seconds` holds what each phase that was entered has taken so far.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._latest = ""

    @contextmanager
    def __call__(self, name: str, message: str) -> Iterator[None]:
        """Time what runs inside, and log the message unless the same phase goes on."""
        if name != self._latest:
            log.info(message)
        self._latest = name
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - started, 4)


@dataclass(frozen=True)
class Prepared:
    """A table that takes the rows of a load.

    `fitted` makes of the rows of the transform those to write, with the table's types. `changes` are those of the table's
    columns that the load needed. `misfit` is why a record of these rows does not fit the table, null where it does, if the
    contract rejects such records.
    """

    fitted: Callable[[DataFrame], DataFrame]
    changes: tuple[ColumnChange, ...] = ()
    misfit: Column | None = None


class SinkWriter(Protocol):
    """One table of a sink.

    A commit counts while the table's current state descends from it: one that was rolled back has not landed.
    """

    def lookup(self, job: LoadJob) -> Lookup:
        """What the table's receipts say of the load.

        Raises StateCorrupt: a receipt of the batch is there, but broken.
        """

    def prepare(self, schema: StructType, identity: Identity, job: LoadJob, lookup: Lookup) -> Prepared:
        """Make the table ready for the load: create it as the pipeline's own, or make sure that it takes these rows from it.

        Its columns change as the job's contract has it, and no row does. A table is looked at anew where somebody else has just
        created it. The schema is that of the rows that the transform makes, and `lookup` has answered to the same job.

        Raises SinkMisfit: the rows do not fit the table's columns or their identity, the table belongs to other pipelines, the
        load would replace rows of another one (`tidegate.core.load.lookup`), or its quarantine is another table's.
        """

    def changes(self, schema: StructType, job: LoadJob) -> list[str]:
        """What `prepare` would do to the columns of a table that exists, each as a statement of SQL; it does nothing.

        Raises SinkMisfit: the rows do not fit the table's columns, or those of a new table not its layout.
        """

    def replace(
        self, rows: Callable[[], DataFrame], identity: Identity, write: Write, lookup: Lookup, *, again: bool, phases: Phases
    ) -> Receipt:
        """Replace the rows of an identity by other rows, in one atomic commit that carries the receipt of the load.

        Where the table held no row of the identity when it was looked at, the commit only adds rows, and readers that follow
        the table see it as an append. It is refused where anything that `lookup` could not see was added since. When this
        raises, and the error is not `SinkUnavailable`, nothing was written, or the commit is found by the next `lookup`.

        `rows` makes the rows to write, each of them of this identity. It is called once, after all that the adapter looks at,
        and what it returns is executed exactly once. `lookup` has answered before the caller decided to write. `again` says
        that the load replaces rows, even if the table holds none: a replay, or a batch that has landed before; False is a
        guess, not a promise. `phases` times the steps `look` (optional), `write` and `receipt`.

        Raises SinkConflict: other commits got in the way; nothing was written, and the caller looks at the table anew.
        SinkUnavailable: whether the commit landed is unknown. ReceiptMissing: the write ended without an error, but no commit
        carries the receipt. Exception: what Spark raised while it made the rows, which `tidegate.spark.errors` translates;
        nothing was written.
        """

    def set_aside(self, records: DataFrame, identity: Identity, job: LoadJob, attempt: str) -> None:
        """Add rejected records to the job's quarantine, which is created if need be, under an attempt.

        Those of the job's ranges that it holds under this attempt are replaced; others stay. `prepare` has accepted it.
        """

    def held_aside(self, origins: DataFrame, job: LoadJob) -> int:
        """How many of these records, each once, the job's quarantine holds already, whichever load has set them aside."""

    def sweep(self, receipt: Receipt, job: LoadJob) -> tuple[OffsetRange, ...]:
        """Remove from quarantine what the rows of a load that landed have replaced: what counts no more in its ranges.

        That is what loads have set aside that are in the table's history below it, or were rolled back; what other attempts at
        the same load have set aside and not committed, or any attempt a day ago; and, where others are on top of it, its own.
        What another load has set aside and has yet to commit stays.

        Returns the ranges in which records may be missing that the receipt says were set aside: those that no load on top of it
        has replaced, where fewer are there than it says.
        """

    def offsets_of(self, receipt: Receipt) -> Mapping[TopicPartition, tuple[int, int]] | None:
        """The first and the last offset (both inclusive) of each partition's rows in a receipt's commit.

        A partition without a row is not in it. None where the sink cannot say, and for rows that have no origin.
        """

    def count_of(self, receipt: Receipt, identity: Identity, column: str) -> int:
        """How many rows of an identity have a value in a column, as of the receipt's commit, which replaced that identity."""
