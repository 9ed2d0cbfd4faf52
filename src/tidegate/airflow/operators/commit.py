"""The last task of a run: it moves the cursor, once the sink's receipt covers the run's range (`core.schedule.run`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from airflow.sdk import Asset, Context

from tidegate.airflow import metrics, notes
from tidegate.airflow.events import AssetEvents
from tidegate.airflow.operators.announce import Announcing, hours_outlets, outlets_with
from tidegate.airflow.operators.replay import announced_by, verified
from tidegate.airflow.operators.shared import check_own, kafka_settings, now_ms, plan_of
from tidegate.airflow.retries import Patient
from tidegate.airflow.store import VariableStore
from tidegate.core.announce.hours import Announcement
from tidegate.core.audit.table import CLOCKS_APART_MS
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import TidegateError
from tidegate.core.events import Committed
from tidegate.core.lineage import table_uri, topic_uris
from tidegate.core.load.answer import whole
from tidegate.core.load.job import LoadResult
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.schedule.run import commit_batch
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange
from tidegate.iceberg.history import IcebergReader
from tidegate.kafka.settings import planning_client


class CommitOperator(Patient):
    """Moves the cursor past this run's range, once its receipt covers it; moved already: nothing to do.

    Of a backfill's run it only checks the receipt: the cursor stays.
    """

    ui_color = "#f6e3c5"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(outlets=[Asset(name=pipeline.sink.table), *hours_outlets(pipeline)], **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit; the asset event carries pipeline, batch and range.

        Raises:
            CommitConflict: the cursor is elsewhere.
            ReceiptMismatch: the sink's receipt is not of this range.
            StateError: the schedule cannot be read or believed.
        """
        plan = plan_of(context)
        patience = self.patience(context)
        if "replay" in plan:
            saved_replay, event, verdict = verified(self.pipeline, plan["key"], context, patience, self.log)
            said = announced_by(self.pipeline, saved_replay, patience, context, self.log)
            self._events(context, said).replayed(event, said.keys)
            return verdict
        answer = context["ti"].xcom_pull(task_ids="load")
        store = VariableStore()
        planned = Ledger(store, self.pipeline.name).saved_range(plan["key"])
        check_own(planned, context)
        result = timing = times = announcing = None
        if self.pipeline.announce:
            announcing = Announcing(self.pipeline, self.pipeline.announce, patience, self.log)
        if answer:
            result = patience.through(lambda: whole(answer, planned, self._receipt_at))
            disturbed = plan.get("disturbed") or answer.get("disturbed") or self.disturbed(context)
            timing = None if disturbed else timing_of(planned, result, context, plan.get("started_ms"))
            if announcing:
                times = result.observed.times or announcing.times_by_ends(planned.to_load)
        saved, cursor, moved = commit_batch(
            self.pipeline,
            plan["key"],
            result.receipt if result else None,
            store=store,
            record_bytes=result.observed.record_bytes if result else None,
            timing=timing,
            announce=partial(announcing.span, times) if announcing else None,
        )
        self.log.info("batch %d of %s: %s", saved.seq, saved.pipeline, "committed" if moved else "was committed before")
        if moved:
            metrics.committed(
                saved,
                result=result,
                timing=timing,
                interval_s=self.pipeline.fixed_interval_s,
            )
        self._show_in_group(cursor)
        said = announcing.of_batch(saved, cursor, times) if announcing else Announcement()
        if said.left:
            context["ti"].xcom_push(key=notes.XCOM_KEY, value=f"Hours announced: {said}")
        self._events(context, said).committed(
            Committed(
                pipeline=saved.pipeline,
                seq=saved.seq,
                key=plan["key"],
                offsets=total_count(saved.ranges),
                rows=result.receipt.rows if result else 0,
                transform=result.receipt.load.transform if result else None,
                snapshot=result.receipt.snapshot if result else None,
                table=table_uri(self.pipeline.sink.table),
                topics=topic_uris(self.pipeline.source.connection, saved.ranges),
            ),
            said.keys,
        )
        return {"seq": saved.seq, "moved": moved}

    def _events(self, context: Context, said: Announcement) -> AssetEvents:
        self.outlets = outlets_with(self.outlets, self.pipeline, said.keys)
        return AssetEvents(context, self.outlets, self.pipeline.sink.table, self.pipeline.hours_asset)

    def _receipt_at(self, snapshot: int) -> Receipt | None:
        reader, table, name = IcebergReader(), self.pipeline.sink.table, self.pipeline.name
        # those of expired snapshots, of a run that was cleared after weeks, are in a table that may be large
        for receipts in (reader.history(table).receipts, partial(reader.receipts, table)):
            found = next((receipt for receipt in receipts(name) if receipt.snapshot == snapshot), None)
            if found is not None:
                return found
        return None

    def _show_in_group(self, cursor: Cursor) -> None:
        """Commit the consumer group's offsets for the sake of lag tools; the cursor is the truth, so a failure is a warning."""
        from tidegate.kafka.groups import commit_offsets  # noqa: PLC0415 - parsing the DAG needs no Kafka client

        group = self.pipeline.consumer_group
        try:
            commit_offsets(kafka_settings(self.pipeline, "commit", planning_client, self.log), group, cursor.offsets)
        except TidegateError as error:
            self.log.warning("consumer group %s does not show this commit: %s", group, error)


def timing_of(saved: SavedRange, result: LoadResult, context: Context, started_ms: int | None) -> BatchTiming | None:
    """What the batch takes that is committed now; None where its load was not the work of this run since it started.

    A run that somebody has cleared waited for a person, and parts of it may not have run again: it shows nothing.

    Args:
        saved: the range.
        result: of its load.
        context: of the task that commits.
        started_ms: when the run's plan started (epoch ms); None where that is not known.
    """
    run = context["dag_run"]
    if started_ms is None or run.clear_number or result.landed_before:
        return None
    if result.receipt.committed_at_ms + CLOCKS_APART_MS < started_ms:
        return None
    return BatchTiming.between(
        total_count(saved.to_load),
        saved.allowed if saved.rate else saved.limits.get("max_records"),
        due_ms=int(run.run_after.timestamp() * 1000),
        started_ms=started_ms,
        ended_ms=now_ms(),
        load_s=sum(result.seconds.values()),
    )
