"""Records of a load that are rejected: which ones, why, and whether they are too many.

A record is rejected where its format cannot decode it (`_error`), where it does not fit the table and the contract says so, or
where the transform says so (`_reject`). It goes to the
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
from tidegate.core.model.columns import ERROR, OFFSET, ORIGIN_COLUMNS, RAW, REJECT, TOPIC
from tidegate.core.model.errors import BudgetExceeded, TransformError
from tidegate.core.model.ranges import total_count
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Write
from tidegate.core.state.rejection import load_of
from tidegate.sinks.failures import DECIDED_TWICE

LONGEST = 1000
"""Characters of a reason that are kept."""
FEW = 100_000
"""Rejected records that every task can hold."""
SHOWN = 5
"""Reasons that an error names."""


@dataclass(frozen=True)
class Marks:
    """What says of a transform's rows that their records are rejected, as the job's quarantine has it.

    `error` and `reject` are whether the rows have these columns, `misfit` is `Prepared.misfit` of the sink.
    """

    error: bool
    reject: bool
    misfit: Column | None = None

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
        return self.error or self.reject or self.misfit is not None

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that the table does not have."""
        return (*((RAW, ERROR) if self.error else ()), *((REJECT,) if self.reject else ()))

    def of_table(self, schema: StructType) -> StructType:
        """The columns of the rows without those that the table does not have."""
        return StructType([f for f in schema.fields if f.name not in self.left_out])

    @property
    def _reasons(self) -> dict[str, Column]:
        """What may reject a row, with the reason, which is null where it does not; the first one counts."""
        decode = {"decode": F.col(ERROR)} if self.error else {}
        contract = {} if self.misfit is None else {"contract": self.misfit}
        return {**decode, **contract, **({"transform": F.col(REJECT)} if self.reject else {})}

    @property
    def _by(self) -> Column:
        """What has rejected a row; null where nothing has."""
        # of what a try before has rejected, none may be left: others have changed the table
        return F.coalesce(*(F.when(reason.isNotNull(), F.lit(by)) for by, reason in self._reasons.items()), F.lit(None))

    def kept(self, rows: DataFrame, rejected: Rejected) -> DataFrame:
        """The rows of the records that are not rejected, with the table's columns.

        What was rejected is decided once: a row that is rejected now, and whose record was not, fails the job. Of a transform
        that decides by the clock, or at random, no record is lost, or is in both places.
        """
        if rejected.count:
            rows = rows.join(rejected.sent(rejected.origins.select(*ORIGIN_COLUMNS)), [*ORIGIN_COLUMNS], "left_anti")
        doubtful = F.raise_error(F.concat(F.lit(f"{DECIDED_TWICE} "), F.col(TOPIC), F.lit(" at offset "), F.col(OFFSET)))
        guarded = F.when(self._by.isNull(), F.col(OFFSET)).otherwise(doubtful.cast("long"))
        return rows.withColumn(OFFSET, guarded).drop(*self.left_out)

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The origin of each rejected record, once, with `rejected_by` and `reason`."""
        reason = F.substring(F.coalesce(*self._reasons.values()), 1, LONGEST)
        marked = rows.select(*ORIGIN_COLUMNS, self._by.alias("rejected_by"), reason.alias("reason"))
        first = F.min(F.struct("rejected_by", "reason")).alias("first")
        return marked.where("rejected_by IS NOT NULL").groupBy(*ORIGIN_COLUMNS).agg(first).select(*ORIGIN_COLUMNS, "first.*")


@dataclass(frozen=True)
class Rejected:
    """The records that a load rejects: how many, and their `origins`, with reasons."""

    count: int
    origins: DataFrame

    @staticmethod
    def of(rows: DataFrame, marks: Marks) -> Rejected:
        """Of the rows that the transform makes, which are made once for this.

        A checkpoint, and no cache: what an executor takes with it fails the load, and is not decided anew.
        """
        origins = marks.rejected(rows).localCheckpoint()
        return Rejected(origins.count(), origins)

    def sent(self, origins: DataFrame) -> DataFrame:
        """These origins for a join: every task gets them all where they are few, and the other side is not shuffled then."""
        return F.broadcast(origins) if self.count <= FEW else origins

    def records(self, of_log: DataFrame, write: Write) -> DataFrame:
        """These records as they are in the log, as quarantine holds them for this write."""
        of_log = of_log.select(*ORIGIN_COLUMNS, "timestamp", "key", "value", "headers")
        aside = of_log.join(self.sent(self.origins), [*ORIGIN_COLUMNS])
        said = {"transform": write.transform, "load": load_of(write.load), "attempt": write.attempt}
        return aside.withColumns({**{name: F.lit(value) for name, value in said.items()}, "added_at": F.current_timestamp()})

    def check(self, job: LoadJob, held: Callable[[DataFrame], int]) -> None:
        """Refuse more than the budget of the job allows.

        Those that are in quarantine already are no news: a replay whose transform has been corrected for some of them may keep
        the others. `held` counts them.

        Raises:
            BudgetExceeded: the commonest reasons are named, each with an offset.
        """
        offsets = total_count(job.load.ranges)
        if job.quarantine is None or self.count / offsets <= job.quarantine.budget:
            return
        before = held(self.origins)
        if (self.count - before) / offsets <= job.quarantine.budget:
            return
        place = F.min(F.struct(*ORIGIN_COLUMNS)).alias("place")
        grouped = self.origins.groupBy("reason").agg(F.count(F.lit(1)).alias("n"), place)
        commonest = grouped.orderBy(F.desc("n"), "reason").limit(SHOWN).collect()
        reasons = (f"{n} times {reason} (first at offset {at[2]} of {at[0]}-{at[1]})" for reason, n, at in commonest)
        raise BudgetExceeded(
            f"{self.count} of {offsets} offsets of {job.load.named} are rejected"
            f"{f', {before} of them again' if before else ''}, and quarantine.budget allows "
            f"{job.quarantine.budget * 100:g} %: {'; '.join(reasons)}",
            fix="No row was written. Correct the transform or the sender, or raise the budget; then clear the load task and "
            "the tasks after it",
            rejected=self.count,
            offsets=offsets,
        )
