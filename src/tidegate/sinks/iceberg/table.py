"""An Iceberg table as a sink: replace the rows of a range in one commit that carries its receipt, and find it again.

Rules:
- A table is partitioned by the origin's topic and partition, so a data file holds rows of one Kafka partition, and a batch
  that ends where earlier ones did replaces whole files. What else may be in the way: module `replacement`.
- A table of batches (`tidegate.sinks.identity`) is not partitioned, and belongs to one pipeline. Owners: module `receipts`.
- A load whose rows are new is an append (docs/adr/0026-appends.md). Every other load is an overwrite.
- A receipt counts when its commit is an ancestor of the table's current state: a commit that was rolled back holds no rows.
- Receipts live in snapshots. `write.metadata.*` prunes old metadata files, which repeat them. Module `maintenance` keeps the
  receipts of the snapshots that it expires.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ByteType,
    CharType,
    DataType,
    IntegerType,
    ShortType,
    StringType,
    StructType,
    VarcharType,
)

from tidegate.core.config.layout import Layout
from tidegate.core.config.sinks import ICEBERG_RESERVED
from tidegate.core.load.lookup import Lookup, in_the_way, own
from tidegate.core.model.columns import ORIGIN_COLUMNS, ColumnChange
from tidegate.core.model.errors import ReceiptMissing, SinkConflict, SinkMisfit
from tidegate.core.model.ranges import OffsetRange, TopicPartition, common, without
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import ATTEMPT, Receipt, Write, task_properties
from tidegate.core.state.rejection import load_of
from tidegate.sinks.columns import agreed, alterations, check_schema, fitted, misfit
from tidegate.sinks.failures import first_line, is_missing, text_of
from tidegate.sinks.iceberg.layout import VARIANTS, check_layout, create_table
from tidegate.sinks.iceberg.quarantine import attempts_in, check_own, remove
from tidegate.sinks.iceberg.receipts import (
    add_owner,
    began_at,
    by_others,
    carries,
    check_owner,
    head_and_receipts,
    is_current,
    landed_of,
    offsets_added,
    offsets_read,
    on_top_of,
    quoted,
    receipts_where,
)
from tidegate.sinks.iceberg.replacement import Cut, find_cut, find_free, in_boxes, kept_rows
from tidegate.sinks.iceberg.summary import ADDED_FILES, KEPT, LAST, OWNED, OWNER, QUARANTINE_OF
from tidegate.sinks.identity import Identity, any_of
from tidegate.sinks.port import Phases, Prepared

log = logging.getLogger(__name__)

TABLE_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    # A task reads one Kafka partition, or a piece of one, so it writes one file of one partition: no shuffle, no sort.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Receipts are snapshots: plain expire_snapshots keeps as many as the schedule keeps ranges.
    "history.expire.min-snapshots-to-keep": "1000",
    "commit.retry.num-retries": "10",
}
UNKNOWN_TYPES = ("void", "interval", "time(")
"""Types of Spark that Iceberg does not have. `variant` it has from format version 3 on."""
NOT_FREE = "Table %s may hold rows of this range. The load replaces them: its commit is an overwrite, not an append"
ADDED_BY = "added by {} of {}"
"""The comment of a column that a load has added."""
CHANGED = "The columns of table %s change, as contract says: %s"
NOT_CHANGED = "Table %s does not take %s: %s"
REFUSES = re.compile(r"(Analysis|IllegalArgument|IllegalState|UnsupportedOperation|Validation)Exception")
"""What is thrown where a table cannot have what a statement asks for, at any time."""
TRIES = 3
"""Changes of a table's columns that one load tries, where others change them at the same time."""
SWEPT = "Quarantine %s: records of this range that other loads have replaced, or have not committed, are removed: %s"
UNSORTED = "Table %s is created without the order of sink.sort_by, which `tidegate check` shows: %s"
TOO_MANY = "This load wrote %d data files into %s: choose fields of which a batch has fewer values for sink.partition_by"
MANY_FILES = 1000
"""Data files of one load, from which on it takes half a minute longer, and readers have to open them all."""
WRITING = "reading Kafka and writing the table (the first load after Spark's start compiles, which may take a minute)"


@dataclass(frozen=True)
class IcebergTable:
    """The port `SinkWriter` for one table of a Spark catalog, by its name `catalog.namespace.table`.

    Holds nothing but names; every call asks Spark. In Spark Connect a new batch costs one round trip for `lookup`, up to three
    for `prepare`, one for the write and one for its receipt.
    """

    spark: SparkSession
    name: str

    def lookup(self, job: LoadJob) -> Lookup:
        """See `SinkWriter`, as all public methods that say no more.

        One round trip, and two more for each receipt of the same batch, or that is in the way, down to the newest that counts.
        """
        mine = any_of(
            carries(task_properties(name, n, job.load.replay)) for name in job.names for n in (job.load.seq, job.load.seq - 1)
        )
        try:
            head, found = head_and_receipts(self.spark, self.name, mine | by_others(job))
        except AnalysisException as error:
            if is_missing(error):
                return Lookup(exists=False)
            raise
        receipts = [(own(receipt, job), summary) for receipt, summary in found]
        newest_first = [r for r, _ in reversed(receipts)]
        last = (r for r, summary in receipts if r.snapshot == head and summary.get(LAST) == "true")
        same = (r for r in newest_first if r.load.task == job.load.task)
        others = (r for r in newest_first if in_the_way(r, job))
        return Lookup(
            exists=True,
            landed=next(filter(self._counts, same), None),
            owns=any(summary.get(OWNED) == "true" for r, summary in receipts if r.load.pipeline == job.load.pipeline),
            others=tuple(islice(filter(self._counts, others), 1)),
            head=head,
            last=next(last, None),
        )

    def _counts(self, receipt: Receipt) -> bool:
        return is_current(self.spark, self.name, receipt.snapshot)

    def prepare(self, schema: StructType, identity: Identity, job: LoadJob, lookup: Lookup) -> Prepared:
        """One round trip for a table that exists; up to three more where no recent commit says that the pipeline owns it.

        Columns change in one commit for those that are added, and one for those that take wider types, before the rows are
        written. An added column names its load in its comment, so that a load that is killed in between finds it again.
        """
        has_variant = lookup.exists or job.layout.format_version >= VARIANTS
        unknown = UNKNOWN_TYPES if has_variant else (*UNKNOWN_TYPES, "variant")
        check_schema(schema, reserved=ICEBERG_RESERVED, unknown=unknown, transform=job.transform)
        if not lookup.exists:
            check_layout(schema, job.layout, table=self.name, transform=job.transform)
        created = not lookup.exists and self.create(schema, identity, job.load.pipeline, job.layout)
        new_owner = not created and check_owner(self.spark, job, lookup)
        if job.quarantine is not None and self.spark.catalog.tableExists(job.quarantined):
            check_own(self.spark, job.quarantined, self.name)
        comment = ADDED_BY.format(job.load.named, job.load.pipeline)
        changes: list[ColumnChange] = []
        for tries_left in reversed(range(TRIES)):
            held = self.spark.table(self.name).schema
            identity.check_kind([f.name.lower() for f in held.fields], self.name)
            to_change = agreed(held, schema, job, kept_as=_kept_as)
            if not to_change:
                break
            if self._change(alterations(quoted(self.name), to_change, comment=comment), can_retry=tries_left > 0):
                changes += [one.change for one in to_change]
        else:
            raise SinkConflict(f"others change the columns of table {self.name}", fix="Try again", table=self.name)
        if new_owner:
            add_owner(self.spark, job)
        added = [f for f in held.fields if f.metadata.get("comment") == comment]
        changes += [ColumnChange(f.name, None, f.dataType.simpleString()) for f in added]
        unfit = misfit(held, schema, job.contract, kept_as=_kept_as)
        return Prepared(partial(fitted, held=held, kept_as=_kept_as), tuple(dict.fromkeys(changes)), unfit)

    def changes(self, schema: StructType, job: LoadJob) -> list[str]:
        """One round trip, two for a table that does not exist."""
        if not self.spark.catalog.tableExists(self.name):
            check_layout(schema, job.layout, table=self.name, transform=job.transform)
            return []
        return alterations(self.name, agreed(self.spark.table(self.name).schema, schema, job, kept_as=_kept_as))

    def _change(self, statements: Sequence[str], *, can_retry: bool) -> bool:
        """Change the columns. False where a statement fails, and is to be tried again: others may have changed them too."""
        for statement in statements:
            try:
                self.spark.sql(statement)
            except Exception as error:
                log.warning(NOT_CHANGED, self.name, statement, first_line(str(error)))
                if can_retry:
                    return False
                if not REFUSES.search(text_of(error)):
                    raise
                raise SinkMisfit(
                    f"table {self.name} refuses {statement}: {first_line(str(error))}",
                    fix="Run the statement by hand; contract.columns and contract.types set to freeze name the other choices",
                    table=self.name,
                ) from error
            log.warning(CHANGED, self.name, statement)
        return True

    def create(self, schema: StructType, identity: Identity, owner: str, layout: Layout) -> bool:
        """Create the table, and its namespace, for rows of this schema, as the pipeline's own.

        False where somebody else has just done so.
        """
        namespace = self.name.rpartition(".")[0]
        try:
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(namespace)}")
        except Exception:
            if not self.spark.catalog.databaseExists(namespace):
                raise
        # Bounds of text columns are cut to 16 characters by default, and those of the hundredth column not kept at all;
        # a replacement relies on exact ones.
        exact = {f"write.metadata.metrics.column.{name}": "full" for name in identity.columns}
        properties = {**TABLE_PROPERTIES, **exact, f"{OWNER}{owner}": "true"}
        try:
            self.spark.sql(create_table(self.name, schema, layout, identity.partitioned_by, properties))
        except Exception as error:
            if self.spark.catalog.tableExists(self.name):
                return False
            if layout != Layout() and isinstance(error, (AnalysisException, IllegalArgumentException)):
                raise SinkMisfit(
                    f"table {self.name} cannot be created as the pipeline's file says: {first_line(str(error))}",
                    fix="Correct sink.partition_by or sink.properties; then clear the load task and the tasks after it",
                    table=self.name,
                ) from error
            raise
        if layout.sort_by:
            try:
                self.spark.sql(f"ALTER TABLE {quoted(self.name)} WRITE {layout.order}")
            except Exception as error:  # noqa: BLE001 - it needs Iceberg's SQL extensions, which a load does not
                log.warning(UNSORTED, self.name, first_line(str(error)))
        return True

    def replace(
        self, rows: Callable[[], DataFrame], identity: Identity, write: Write, lookup: Lookup, *, again: bool, phases: Phases
    ) -> Receipt:
        """An append where the table held none of the rows at `lookup.head`, otherwise an overwrite."""
        try:
            with phases("look", "looking for rows of the range, and for data files that it goes through"):
                cut = None if again else find_free(self.spark, self.name, identity, lookup)
                if cut is None:
                    if not again:
                        log.warning(NOT_FREE, self.name)
                    cut = find_cut(self.spark, self.name, identity, lookup.head)
            with phases("write", WRITING):
                self.overwrite(rows(), identity, write, cut)
            with phases("receipt", "reading the receipt of the commit"):
                return self.receipt_of_attempt(write)
        except Exception as error:
            if lookup.head and f"snap-{lookup.head}-" in str(error) and not self._has_snapshot(lookup.head):
                raise SinkConflict(
                    "the snapshot that this load looked at has expired since; nothing was written",
                    fix="Clear the task with those after it, which looks at the table anew",
                ) from error
            raise

    def _has_snapshot(self, snapshot: int) -> bool:
        return not self.spark.table(f"{self.name}.snapshots").where(f"snapshot_id = {snapshot}").isEmpty()

    def overwrite(self, rows: DataFrame, identity: Identity, write: Write, cut: Cut) -> None:
        """Replace all rows of an identity with `rows`, which are all of it, in one commit that carries the load's receipt.

        Raises Exception: Spark's. `translate` makes it a `SinkConflict` where the table is not, or no longer, as `cut` has it;
        nothing is written then.
        """
        properties = {**write.to_properties(), OWNED: "true"}
        if cut.last:
            properties[LAST] = "true"
        if cut.kept:
            properties[KEPT] = str(cut.kept)
            rows = kept_rows(self.spark, self.name, identity, cut).unionByName(rows, allowMissingColumns=True)
        writer = rows.writeTo(self.name).option("isolation-level", "serializable")
        if cut.snapshot is not None:
            writer = writer.option("validate-from-snapshot-id", str(cut.snapshot))
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        # Iceberg calls a commit an append only where its condition is the literal false, as of no boxes.
        writer.overwrite(in_boxes(identity, cut.boxes))

    def receipt_of_attempt(self, write: Write) -> Receipt:
        """The receipt of exactly this write. One round trip. Raises ReceiptMissing: no commit carries it."""
        receipts = receipts_where(self.spark, self.name, carries({ATTEMPT: write.attempt}))
        if not receipts:
            raise ReceiptMissing(
                f"table {self.name} holds no commit of attempt {write.attempt}",
                fix="Clear the load task and the tasks after it: the load replaces the same rows",
                table=self.name,
                attempt=write.attempt,
            )
        receipt, summary = receipts[-1]
        if (files := int(summary.get(ADDED_FILES, "0"))) > MANY_FILES:
            log.warning(TOO_MANY, files, self.name)
        return receipt

    def set_aside(self, records: DataFrame, identity: Identity, job: LoadJob, attempt: str) -> None:
        """Up to five round trips, and the write."""
        aside = IcebergTable(self.spark, job.quarantined)
        mine = Layout(properties={f"{QUARANTINE_OF}{self.name}": "true"})
        is_there = self.spark.catalog.tableExists(aside.name)
        if is_there or not aside.create(records.schema, identity, job.load.pipeline, mine):
            # an attempt that its driver repeats under the same name
            remove(
                self.spark, aside.name, job.load.ranges, {attempt} & attempts_in(self.spark, aside.name, job.load.ranges).keys()
            )
        records.writeTo(aside.name).option(f"snapshot-property.{ATTEMPT}", attempt).append()

    def held_aside(self, origins: DataFrame, job: LoadJob) -> int:
        """Two round trips, one where there is no quarantine."""
        if not self.spark.catalog.tableExists(job.quarantined):
            return 0
        held = self.spark.table(job.quarantined).select(*ORIGIN_COLUMNS).distinct()
        return held.join(origins.select(*ORIGIN_COLUMNS), [*ORIGIN_COLUMNS], "left_semi").count()

    def sweep(self, receipt: Receipt, job: LoadJob) -> tuple[OffsetRange, ...]:
        """One round trip where nothing is to be removed, and nothing is missing."""
        name, ranges, attempt = job.quarantined, receipt.load.ranges, receipt.write.attempt
        held = attempts_in(self.spark, name, ranges)
        mine, others = held.pop(attempt, None), held
        is_whole = (mine.records if mine else 0) >= (receipt.write.quarantined or 0)
        if not others and is_whole:
            return ()
        # in this order: a load that lands meanwhile is still under way here, or on top there
        landed = landed_of(self.spark, self.name, others)
        on_top = on_top_of(self.spark, self.name, receipt)
        if on_top is None:  # it counts no more itself
            return ()
        dead = {of for of, aside in others.items() if of in landed or aside.is_old or aside.load == load_of(receipt.load)}
        above = {other.write.attempt for other in on_top}
        if under_way := others.keys() - dead - above:
            # the table of their loads was dropped since: what one of them could still commit, it would add again
            began = began_at(self.spark, self.name)
            dead |= {of for of in under_way if began is not None and others[of].added_at < began}
        dead -= above
        replaced = common(ranges, [r for other in on_top for r in other.load.ranges])
        if dead:
            log.warning(SWEPT, name, ", ".join(sorted(dead)))
        places = {tp for of in dead for tp in others[of].partitions}
        remove(self.spark, name, tuple(r for r in ranges if r.topic_partition in places), dead)
        remove(self.spark, name, replaced, {attempt} if mine else ())
        return () if is_whole else without(ranges, replaced)

    def offsets_of(self, receipt: Receipt) -> dict[TopicPartition, tuple[int, int]] | None:
        """One round trip, none for a batch's rows. Of a plain commit the bounds of its files are read, and no row.

        A commit that kept older rows holds them in its files too, so there the rows of the ranges are read instead, as of that
        commit. (The guard of origins lets a load write no others.)
        """
        if receipt.load.batch is not None:
            return None
        if receipt.kept:
            return offsets_read(self.spark, self.name, receipt)
        return offsets_added(self.spark, self.name, receipt.snapshot)

    def count_of(self, receipt: Receipt, identity: Identity, column: str) -> int:
        """One round trip, which reads the column in the files that hold rows of the identity."""
        held = self.spark.read.option("versionAsOf", str(receipt.snapshot)).table(self.name)
        return held.where(identity.inside() & F.col(column).isNotNull()).count()


def _kept_as(of: DataType) -> DataType:
    """A type as Iceberg keeps it: without lengths of texts, and integers shorter than 32 bits."""
    if isinstance(of, (ByteType, ShortType)):
        return IntegerType()
    return StringType() if isinstance(of, (CharType, VarcharType)) else of
