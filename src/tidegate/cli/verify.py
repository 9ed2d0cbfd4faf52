"""`tidegate ledger verify`: log and table are read by clients of their own, neither of which has written the table."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    open_remote,
    out,
    print_json,
    print_table,
    show_progress,
    the_pipeline,
)
from tidegate.core.audit.oracle import (
    UNJUDGED,
    BatchVerification,
    Miscount,
    Verification,
    began_anew,
    committed_log,
    dedupings,
    former_ranges,
    verify,
    verify_batches,
    with_look_back,
)
from tidegate.core.audit.quarantine import judge_quarantine, replay_command
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.load.repeats import LoggedRepeats
from tidegate.core.model.ranges import OffsetRange, TopicPartition, ranges_to_json
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt

if TYPE_CHECKING:
    from tidegate.airflow.remote.schedule import Remote


def verify_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Compare log and table: each retained record before the cursor must be in the table exactly once. Exit code 1 if not.

    With `identity: batch`, only the table is read: every committed batch must have the rows that its commit wrote.
    """
    from tidegate.sinks.iceberg.history import changed_columns, strangers  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        cursor = remote.cursor(this)
        verification = (_verify_batches if this.identity == "batch" else _verify_records)(this, cursor, remote)
        anew = _began_anew(this, cursor, remote) if any(cursor.at.starts.values()) else ()
    others, columns = strangers(this.sink.table), changed_columns(this.sink.table)
    if as_json:
        said = {"pipeline": this.name, **verification.to_json(), "began_anew": ranges_to_json(anew)}
        said |= {"other_commits": others, "changed_columns": columns}
        print_json(said)
    else:
        for r in anew:
            lacks = f"the offsets from {r.from_offset} to it may be missing"
            out.print(f"{r.topic_partition} began anew at {r.until_offset}, as accepted: {lacks}", style="yellow")
        _print_verification(this, verification, others, columns)
    if not verification.holds:
        raise typer.Exit(1)


def _began_anew(this: Pipeline, cursor: Cursor, remote: Remote) -> tuple[OffsetRange, ...]:
    ledger = Ledger(remote.store, this.name)
    kept = [ledger.saved_range(key).after for key in ledger.listing().committed(cursor.seq)]
    receipts = remote.reader(this).receipts(this.sink.table, this.name)
    return began_anew(cursor, [*kept, *(receipt.load.after for receipt in receipts)])


def _verify_batches(this: Pipeline, cursor: Cursor, remote: Remote) -> BatchVerification:
    from tidegate.sinks.iceberg.history import read_batches  # noqa: PLC0415

    receipts = remote.reader(this).receipts(this.sink.table, this.name)
    return judge_batches(Ledger(remote.store, this.name), cursor, receipts, read_batches(this.sink.table))


def judge_batches(
    ledger: Ledger, cursor: Cursor, receipts: Sequence[Receipt], rows: Mapping[int | None, int]
) -> BatchVerification:
    """Compare the rows of each committed batch with its newest commit.

    `receipts` are all of the pipeline, oldest commit first, replays too; `rows` is how many the table has of each batch, where
    None is no batch. Saved ranges are read only of batches without a receipt, to know whether they read anything.

    Raises StateUnavailable: the store does not answer. StateCorrupt: a saved range cannot be read.
    """
    listing = ledger.listing()
    with_receipt = {receipt.load.batch for receipt in receipts}
    without_receipt = {r.seq: r.key for r in listing.ranges if r.seq <= cursor.seq and r.seq not in with_receipt}
    starts = cursor.at.starts
    loaded = [
        seq
        for seq, key in without_receipt.items()
        if any(r.until_offset > starts.get(r.topic_partition, 0) for r in ledger.saved_range(key).load.nonempty)
    ]
    return verify_batches(cursor.seq, rows, receipts, loaded, pending=bool(listing.of_seq(cursor.seq + 1)))


def _verify_records(this: Pipeline, cursor: Cursor, remote: Remote) -> Verification:
    from tidegate.kafka.log import compacted_topics, read_offsets, with_headers  # noqa: PLC0415
    from tidegate.sinks.iceberg.history import rows_without_origin  # noqa: PLC0415

    level = this.source.isolation_level
    with show_progress() as progress:
        ledger = Ledger(remote.store, this.name)
        pending = ledger.listing().of_seq(cursor.seq + 1)[:1]  # copies of a range that was adopted are the same
        in_flight = [r for copy in pending for r in ledger.saved_range(copy.key).load.nonempty]
        settings, topics = remote.kafka(this), sorted({tp.topic for tp in cursor.at.offsets})
        watermarks = remote.brokers(this).watermarks(topics, isolation_level=level)
        committed = committed_log(cursor, watermarks)
        compacted = compacted_topics(settings, topics)
        dedupes = dedupings(remote.reader(this).receipts(this.sink.table, this.name), this.dedupe)
        read = with_look_back(committed, watermarks.earliest, dedupes)
        logged = {dedupe: LoggedRepeats(dedupe, read.earliest, cursor.at.starts, compacted=compacted) for dedupe in dedupes}
        total = sum(read.latest[tp] - read.earliest[tp] for tp in read.latest)
        log = read_offsets(
            settings,
            read,
            isolation_level=level,
            progress=lambda done: progress("reading the log", done, total),
            see=[with_headers(found.see) for found in logged.values()],
        )
        progress("reading the table", 0, None)
        receipts = remote.reader(this).receipts(this.sink.table, this.name)
        origins, aside = _origins(this, receipts, cursor.at.offsets)
        found = verify(
            committed,
            log,
            origins,
            receipts,
            retained=watermarks.earliest,
            in_flight=in_flight,
            compacted=compacted,
            one_to_one=this.rows_per_record == "one",
            without_origin=rows_without_origin(this.sink.table),
            foreign_accepted=cursor.at.foreign == this.sink.table,
            former=former_ranges(cursor, receipts),
            logged=logged,
            dedupe=this.dedupe,
        )
        return replace(found, quarantined=aside)


def _origins(
    this: Pipeline, receipts: Sequence[Receipt], committed: Mapping[TopicPartition, int]
) -> tuple[Mapping[TopicPartition, Sequence[int]], int]:
    """The offset of every row and of every record in quarantine that counts, each in one of the two; how many these are."""
    from tidegate.sinks.iceberg.history import IcebergReader, read_origins  # noqa: PLC0415

    rows = read_origins(this.sink.table)
    there = IcebergReader().rejections(this.quarantine_table) if this.quarantine_table else ()
    aside = judge_quarantine(there, receipts, committed)
    for one in aside.rejected:
        rows.setdefault(one.topic_partition, array("q")).append(one.offset)
    return rows, aside.records


def _print_verification(
    this: Pipeline, verification: Verification | BatchVerification, others: list[dict[str, Any]], columns: list[str]
) -> None:
    if isinstance(verification, BatchVerification):
        _print_batches(verification)
    else:
        _print_records(verification)
    for what, rows in verification.unjudged.items():
        if rows:
            out.print(f"{rows:,} rows of {UNJUDGED[what]} were not judged")
    for other in others:
        out.print(f"commit {other['snapshot']} ({other['operation']}, {other['at']}) is not Tidegate's", style="yellow")
    for change in columns:
        out.print(f"since the last load, column {change}", style="yellow")
    if verification.holds:
        out.print("the table holds what was committed, exactly once", style="green")
        return
    if isinstance(verification, BatchVerification):
        replays = [f"tidegate replay {this.name} --batch {m.receipt.load.batch}" for m in verification.miscounts]
    else:
        replays = [replay_command(this.name, verification.to_replay) or ""]
    runs = "`, then `".join(filter(None, replays)) or f"tidegate ledger reload {this.name}"
    says = f"the table does not hold what was committed; run `{runs}`"
    if this.quarantine_table:
        says += f". Rejected records are looked for in {this.quarantine_table} alone"
    elif any(m.receipt.write.quarantined for m in verification.miscounts):
        says += ". Loads have rejected records, and the file has no quarantine for them: if there is one, name it again instead"
    out.print(says, style="red")


def _print_records(verification: Verification) -> None:
    table = Table(title="committed and retained (librdkafka read the log, PyIceberg the table)", title_justify="left")
    for column in ("partition", "records", "rows", "lost", "duplicated", "unknown"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in verification.verdict.partitions:
        counts = (p.records, p.rows, len(p.lost), len(p.duplicated), len(p.unknown))
        table.add_row(str(p.topic_partition), *(f"{count:,}" for count in counts))
    print_table(table)
    if verification.quarantined:
        out.print(f"{verification.quarantined:,} of the rows are records in quarantine")
    _print_miscounts(verification.miscounts)
    for tp, rows in verification.ahead.items():
        out.print(f"{tp}: {rows:,} rows are beyond the cursor, and no pending batch covers them", style="red")
    if verification.without_origin:
        out.print(f"{verification.without_origin:,} rows have no origin (_kafka_* is null)", style="red")
    if verification.repeats:
        out.print(f"{verification.repeats:,} repeats were left out (dedupe), and are not among the records")
    if verification.unclear:
        out.print(f"{verification.unclear:,} records that may be repeats of records that are gone were not judged")


def _print_batches(verification: BatchVerification) -> None:
    out.print(
        f"{verification.batches:,} committed batches, {verification.rows:,} rows "
        "(PyIceberg read the table; rows have no single record)"
    )
    _print_miscounts(verification.miscounts)
    for batch in verification.missing:
        out.print(f"batch {batch} is committed, but no snapshot carries its receipt", style="red")
    for batch, rows in verification.ahead.items():
        out.print(f"batch {batch}: {rows:,} rows are beyond the cursor, and the batch is not pending", style="red")
    if verification.unknown:
        out.print(f"{verification.unknown:,} rows belong to no batch with a commit in the table", style="red")


def _print_miscounts(miscounts: Iterable[Miscount]) -> None:
    for m in miscounts:
        what = f"batch {m.receipt.load.seq}" if m.receipt.load.replay is None else f"replay {m.receipt.load.replay}"
        aside = m.receipt.write.quarantined
        rejected = f" and rejected {aside:,} records" if aside else ""
        there = "table and quarantine have" if aside else "the table has"
        counts = (
            f"{what}: snapshot {m.receipt.snapshot} wrote {m.receipt.rows:,} rows{rejected}, {there} {m.rows_now:,} of them now"
        )
        out.print(counts, style="red")
