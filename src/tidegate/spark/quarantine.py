"""Records of a load that are rejected: which ones, why, and whether they are too many.

A record is rejected where its format cannot decode it (`_error`), or where the transform says so (`_reject`). It goes to the
quarantine of the table, as it was in the log, under the attempt of the load. docs/adr/0036-quarantine.md has the order of the
commits, and why no kill between them loses a record, or leaves two copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.core.config.pipeline import Quarantine
from tidegate.core.model.columns import ORIGIN_COLUMNS
from tidegate.core.model.errors import BudgetExceeded, TransformError
from tidegate.core.model.ranges import OffsetRange, total_count
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Write
from tidegate.formats.columns import ERROR, RAW, REJECT

LONGEST = 1000
"""Characters of a reason that are kept."""
SHOWN = 5
"""Reasons that an error names."""


@dataclass(frozen=True)
class Marks:
    """What of the columns of a transform's rows says that their records are rejected, as the job's quarantine has it."""

    error: bool
    reject: bool

    @staticmethod
    def of(schema: StructType, quarantine: Quarantine | None, transform: str) -> Marks:
        """Those of a transform's rows.

        Raises:
            TransformError: the transform rejects, and the pipeline has no quarantine for what it rejects.
        """
        on = () if quarantine is None else quarantine.on
        rejects = REJECT in schema.names
        if rejects and "transform" not in on:
            raise TransformError(
                f"transform {transform} rejects records (column {REJECT}), and its pipeline has no quarantine for them",
                fix="Add `quarantine: {}` to the pipeline's file, with transform among its `on`",
                transform=transform,
                column=REJECT,
            )
        return Marks(error="decode" in on and ERROR in schema.names, reject=rejects)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.error or self.reject

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that the table does not have."""
        return (*((RAW, ERROR) if self.error else ()), *((REJECT,) if self.reject else ()))

    @property
    def _by(self) -> Column:
        """What has rejected a row; null where nothing has."""
        decode = F.when(F.col(ERROR).isNotNull(), F.lit("decode")) if self.error else F.lit(None)
        return F.coalesce(decode, F.when(F.col(REJECT).isNotNull(), F.lit("transform"))) if self.reject else decode

    @property
    def _reason(self) -> Column:
        columns = [*((ERROR,) if self.error else ()), *((REJECT,) if self.reject else ())]
        return F.substring(F.coalesce(*columns), 1, LONGEST)

    def kept(self, rows: DataFrame) -> DataFrame:
        """The rows that are not rejected, with the table's columns."""
        return rows.where(self._by.isNull()).drop(*self.left_out) if self else rows

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The origin of each rejected record, once, with `rejected_by` and `reason`."""
        marked = rows.select(*ORIGIN_COLUMNS, self._by.alias("rejected_by"), self._reason.alias("reason"))
        first = F.min(F.struct("rejected_by", "reason")).alias("first")
        return marked.where("rejected_by IS NOT NULL").groupBy(*ORIGIN_COLUMNS).agg(first).select(*ORIGIN_COLUMNS, "first.*")


@dataclass(frozen=True)
class Rejected:
    """How many records a load rejects, and each of the commonest reasons with its number and the first record."""

    count: int
    reasons: tuple[tuple[str, int, str], ...]

    @staticmethod
    def of(rejected: DataFrame) -> Rejected:
        """Of what `Marks.rejected` makes; one job."""
        place = F.min(F.struct(*ORIGIN_COLUMNS)).alias("place")
        grouped = rejected.groupBy("reason").agg(F.count(F.lit(1)).alias("n"), place).orderBy(F.desc("n"), "reason")
        (total,) = rejected.agg(F.count(F.lit(1)).alias("n")).collect()
        if not total["n"]:
            return Rejected(0, ())
        found = [(row["reason"], row["n"], row["place"]) for row in grouped.limit(SHOWN).collect()]
        return Rejected(total["n"], tuple((reason, n, f"offset {at[2]} of {at[0]}-{at[1]}") for reason, n, at in found))

    def check(self, job: LoadJob) -> None:
        """Refuse a load that rejects more than the budget allows.

        Raises:
            BudgetExceeded: it does; the commonest reasons are named, each with an offset.
        """
        offsets = total_count(job.load.ranges)
        if job.quarantine is None or self.count <= job.quarantine.budget * offsets:
            return
        reasons = "; ".join(f"{n} times {reason} (first at {first})" for reason, n, first in self.reasons)
        raise BudgetExceeded(
            f"{self.count} of {offsets} offsets of {job.load.named} are rejected, and quarantine.budget allows "
            f"{job.quarantine.budget:.4%}: {reasons}",
            fix="Nothing was written. Correct the transform or the sender, or raise the budget; then clear the load task and "
            "the tasks after it",
            rejected=self.count,
            offsets=offsets,
        )


def set_aside(
    rows: DataFrame,
    marks: Marks,
    job: LoadJob,
    write: Write,
    *,
    records: Callable[[tuple[OffsetRange, ...]], DataFrame],
    add: Callable[[DataFrame], None],
) -> int:
    """Find the records of a load that are rejected, and add them to quarantine; how many there are.

    Where there is none, nothing is added. The transform is executed once for the look, beside the write of its rows.

    Args:
        rows: what the transform makes of the records.
        marks: which of its columns reject.
        job: the load.
        write: the write that follows.
        records: the records of some ranges, as they are in the log.
        add: adds them to the quarantine.

    Raises:
        BudgetExceeded: there are too many; nothing is added.
    """
    rejected = marks.rejected(rows).persist()
    try:
        found = Rejected.of(rejected)
        found.check(job)
        if found.count:
            of_log = records(job.load.nonempty).select(*ORIGIN_COLUMNS, "timestamp", "key", "value", "headers")
            aside = of_log.join(F.broadcast(rejected), [*ORIGIN_COLUMNS])
            add(aside.withColumns({"transform": F.lit(write.transform), "attempt": F.lit(write.attempt)}))
        return found.count
    finally:
        rejected.unpersist()
