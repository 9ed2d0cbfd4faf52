"""The last task of a run: it moves the cursor (`core.planning.run`), or judges a replay (`core.replay.verdict`).

After it, with `catch_up: true`, comes the one that starts the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow import metrics
from tidegate.airflow.connections import kafka_settings
from tidegate.airflow.operators.events import Announcing, outlets_with, write_events
from tidegate.airflow.operators.tasks import SHOWN, Patient, plan_of, ports_of, said_of
from tidegate.airflow.store import VariableStore
from tidegate.core.config.names import CATCH_UP_RUN
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.load.answer import whole
from tidegate.core.model.columns import ColumnChange
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.events import Committed, Replayed
from tidegate.core.model.hours import Announcement
from tidegate.core.model.ranges import total_count
from tidegate.core.model.times import CLOCKS_APART_MS
from tidegate.core.model.uris import table_uri, topic_uris
from tidegate.core.planning.run import commit_batch
from tidegate.core.rates import BatchTiming
from tidegate.core.replay.verdict import ReplayVerdict, verify_replay
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Observed, Receipt
from tidegate.core.state.saved_range import SavedRange
from tidegate.core.state.saved_replay import SavedReplay
from tidegate.kafka.settings import planning_client
from tidegate.sinks import reader_of
from tidegate.views.runs import LoadFigures
from tidegate.waiting import now_ms


class FinishOperator(Patient):
    """The last task of a run: the cursor moves past a batch, or a replay is judged.

    Of a batch, its receipt has to cover this run's range; where the cursor has moved already, nothing is done. Of a replay, and
    of a backfill's run, the table has to hold every chunk's receipt, by one version of the transform, of the topics that were
    planned; the cursor stays. Then the table's asset gets an event, and the hours that are complete or changed are announced.
    In the DAG of replays (`replays`) its outlet is an alias, since an asset as outlet gets an event whatever table the replay
    wrote to.
    """

    ui_color = "#f6e3c5"

    def __init__(self, *, pipeline: Pipeline, replays: bool = False, **kwargs: Any) -> None:
        outlet = AssetAlias(name=pipeline.replay_dag) if replays else Asset(name=pipeline.sink.table)
        of_hours = [Asset(name=pipeline.hours_asset)] if pipeline.announce else []
        super().__init__(pipeline=pipeline, outlets=[outlet, *of_hours], **kwargs)
        self.replays = replays
        self._lines: list[str] = []

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit, or the verdict; the asset event says what was loaded.

        Raises CommitConflict: the cursor is elsewhere. ReceiptMismatch: the sink's receipt is not of this range; or chunks are
        missing, and the message names them. StateError: the schedule cannot be read or believed.
        """
        plan = plan_of(context, replays=self.replays)
        if "replay" in plan:
            return self._verified(plan["key"], context)
        return self._committed(plan, context)

    def _committed(self, plan: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Move the cursor, and tell of it."""
        answer = context["ti"].xcom_pull(task_ids="load")
        patience, store = self.patience(context), VariableStore()
        planned = Ledger(store, self.pipeline.name).saved_range(plan["key"])
        announcing = Announcing(self.pipeline, patience, self.log)
        result = timing = None
        if answer:
            result = patience.through(lambda: whole(answer, planned, self._receipt_at))
            tasks = plan, answer, self.took(context)
            disturbed = any(task.get("disturbed") for task in tasks)
            timing = None if disturbed else timing_of(planned, result, context, plan.get("started_ms"), idle_ms(*tasks))
        times = announcing.times([(result.observed, planned.load.nonempty)] if result else [])
        saved, cursor, moved = commit_batch(
            self.pipeline,
            plan["key"],
            result.receipt if result else None,
            store=store,
            record_bytes=result.observed.record_bytes if result else None,
            timing=timing,
            announce=partial(announcing.span, times),
        )
        done = "committed" if moved else "was committed before"
        self.log.info("batch %d of %s: %s", saved.load.seq, saved.load.pipeline, done)
        if moved:
            metrics.committed(saved, result=result, timing=timing, interval_s=self.pipeline.fixed_interval_s)
        self._show_in_group(cursor)
        said = announcing.said(cursor, times, complete=cursor.seq == saved.load.seq)
        event = Committed(
            pipeline=saved.load.pipeline,
            seq=saved.load.seq,
            key=plan["key"],
            offsets=total_count(saved.load.ranges),
            rows=result.receipt.rows if result else 0,
            transform=result.receipt.write.transform if result else None,
            snapshot=result.receipt.snapshot if result else None,
            table=table_uri(self.pipeline.sink.table),
            topics=topic_uris(self.pipeline.source.connection, saved.load.ranges),
            columns=tuple(map(str, result.receipt.write.columns)) if result else (),
        )
        self._announce(context, event, said)
        return {"seq": saved.load.seq, "moved": moved}

    def _verified(self, key: str, context: Context) -> dict[str, Any]:
        """The verdict on the saved replay at `key`, logged, in constant size."""
        pipeline, patience = self.pipeline, self.patience(context)
        ports = ports_of(pipeline, self.log)
        saved = Ledger(ports["store"], pipeline.name).saved_replay(key)
        verdict = patience.through(
            lambda: verify_replay(saved, sink=ports["sink"], brokers=ports["brokers"], level=pipeline.source.isolation_level)
        )
        self.log.info("all %d chunks of replay %s are in %s: %s", verdict.chunks, saved.name, saved.table, verdict)
        told = ("chunks", "offsets", "rows", "transform")
        loaded: dict[str, Any] = {"replay": saved.name, **{name: getattr(verdict, name) for name in told}}
        metrics.replayed(pipeline.name, offsets=verdict.offsets, rows=verdict.rows)
        loads = list(_answers(context["ti"].xcom_pull(task_ids="load")))
        columns = tuple(str(ColumnChange(*each)) for load in loads for each in load["receipt"].get("columns", ()))
        errors = sum(load.errors or 0 for load in map(LoadFigures.of, loads) if load)
        if self.replays and (columns or errors):
            self._lines = said_of(columns, errors, pipeline)
            self.note(context, *self._lines)
        if saved.table == pipeline.sink.table:  # a trial's table is nobody's asset, and has no hours
            event = Replayed(
                pipeline=pipeline.name,
                run_id=saved.load.run_id,
                table=table_uri(saved.table),
                topics=topic_uris(pipeline.source.connection, saved.selection),
                columns=columns,
                **loaded,
            )
            self._announce(context, event, self._announced_by(saved, verdict, loads, context))
        else:
            self.outlets = outlets_with(self.outlets, pipeline, ())
        expired = {"expired_offsets": total_count(verdict.expired), "expired": [str(r) for r in verdict.expired[:SHOWN]]}
        return {**loaded, **expired}

    def _announced_by(
        self, saved: SavedReplay, verdict: ReplayVerdict, loads: Sequence[Mapping[str, Any]], context: Context
    ) -> Announcement:
        """What a replay that is verified announces: what it has changed, and those before it that it goes on with."""
        if self.pipeline.announce is None:
            return Announcement()
        observed = {load["receipt"]["seq"]: Observed.from_json(load["observed"]) for load in loads}
        announcing = Announcing(self.pipeline, self.patience(context), self.log)
        cursor = Ledger(VariableStore(), self.pipeline.name).cursor()
        chunks = ((observed.get(number), chunk) for number, chunk in enumerate(saved.chunks))
        times = announcing.times([*chunks, (None, verdict.resumed)]) if cursor.announced else []
        return announcing.said(cursor, times, complete=False)

    def _announce(self, context: Context, event: Committed | Replayed, said: Announcement) -> None:
        """Write the asset events; that hours are left out is noted."""
        if said.left:
            self.note(context, *self._lines, f"Hours announced: {said}")
        self.outlets = outlets_with(self.outlets, self.pipeline, said.keys)
        write_events(context, self.outlets, self.pipeline.sink.table, self.pipeline.hours_asset, event, said.keys)

    def _receipt_at(self, snapshot: int) -> Receipt | None:
        reader, table, name = reader_of(self.pipeline.sink.kind), self.pipeline.sink.table, self.pipeline.name
        # those of expired snapshots, of a run that was cleared after weeks, are in a table that may be large
        for receipts in (reader.history(table).receipts, partial(reader.receipts, table)):
            found = next((receipt for receipt in receipts(name) if receipt.snapshot == snapshot), None)
            if found is not None:
                return found
        return None

    def _show_in_group(self, cursor: Cursor) -> None:
        """Commit the consumer group's offsets for the sake of lag tools; the cursor is the truth, so a failure is a warning."""
        from tidegate.kafka.brokers import commit_offsets  # noqa: PLC0415 - parsing the DAG needs no Kafka client

        group = self.pipeline.consumer_group
        try:
            commit_offsets(kafka_settings(self.pipeline, "commit", planning_client, self.log), group, cursor.at.offsets)
        except TidegateError as error:
            self.log.warning("consumer group %s does not show this commit: %s", group, error)


def _answers(handed_on: Any) -> Iterator[Mapping[str, Any]]:
    """The answer of a load, or those of each task that a load was mapped to."""
    if isinstance(handed_on, Mapping):
        yield handed_on
    for each in handed_on if isinstance(handed_on, list) else ():
        yield from _answers(each)


def idle_ms(*tasks: Mapping[str, Any]) -> int:
    """How long a run had no task at work because its DAG was paused.

    A pause that begins while no task is at work, which is for about a second, counts like a wait for a slot. `tasks` is what
    each has handed on of its times, in their order.
    """
    pauses = ((before["ended_ms"], after.get("started_ms")) for before, after in pairwise(tasks) if before.get("paused"))
    return sum(max(0, unpaused - paused) for paused, unpaused in pauses if unpaused is not None)


def timing_of(
    saved: SavedRange, result: LoadResult, context: Context, started_ms: int | None, idle_ms: int = 0
) -> BatchTiming | None:
    """What the batch takes that is committed now; None where its load was not the work of this run since it started.

    A run that somebody has cleared waited for a person, and parts of it may not have run again: it shows nothing. `started_ms`
    is when the run's plan started (epoch ms), if that is known; in `idle_ms` none of its tasks was at work, since its DAG was
    paused.
    """
    run = context["dag_run"]
    if started_ms is None or run.clear_number or result.landed_before:
        return None
    if result.receipt.committed_at_ms + CLOCKS_APART_MS < started_ms:
        return None
    return BatchTiming.between(
        total_count(saved.load.nonempty),
        saved.allowed if saved.why.rate else saved.why.limits.get("max_records"),
        due_ms=int(run.run_after.timestamp() * 1000),
        started_ms=started_ms,
        ended_ms=now_ms(),
        idle_ms=idle_ms,
        load_s=sum(result.seconds.values()),
    )


class CatchUpOperator(TriggerDagRunOperator):
    """Triggers the pipeline's next run where this run left records behind; it starts when this run has ended.

    The new run's id has the number of its batch and the start of this run, so a task that is tried again triggers no second
    run. Neither a paused DAG nor a run that was cleared triggers one.
    """

    ui_color = "#e3d9f0"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(trigger_dag_id=pipeline.name, logical_date=None, skip_when_already_exists=True, **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Trigger the next run.

        Raises AirflowSkipException: no more records waited than the batch took, the run was cleared or is a backfill's, or the
        DAG is paused.
        """
        ti, run = context["ti"], context["dag_run"]
        plan = ti.xcom_pull(task_ids="plan") or {}
        remaining = plan.get("remaining", 0)
        if not remaining:
            raise AirflowSkipException("no records waited beyond this batch")
        if run.clear_number:
            raise AirflowSkipException("the run was cleared: it starts no other one")
        if ti.get_dag(self.trigger_dag_id).is_paused:
            raise AirflowSkipException(f"{remaining:,} records wait, but the DAG is paused")
        self.log.info("%s records waited beyond this batch: the next run starts now", f"{remaining:,}")
        self.trigger_run_id = f"{CATCH_UP_RUN}{plan['seq'] + 1}__{run.start_date:%Y%m%dT%H%M%S.%f}"
        super().execute(context)
