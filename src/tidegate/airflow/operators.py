"""The three tasks of a run: plan, load, commit.

They are thin: what happens is decided in `tidegate.core.schedule.run`; here it meets Airflow's context, connections and logs.
A run of Airflow's date backfill goes the same way with a replay of one chunk in the place of a batch: its plan says so, and its
commit checks the receipt and leaves the cursor alone (`tidegate.core.replay.run`).
`plan` and `commit` import neither Spark nor pandas. A run's range travels between the tasks as its Variable's key; the load's
answer as an XCom, which is JSON of a few hundred bytes, however many partitions there are (`tidegate.core.load.answer`).

What these tasks do not do: fence. A task that Airflow has given up may still be running; its load replaces what it reads and
its commit checks the cursor, so it can be late without harm.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow import notes
from tidegate.airflow.application import application_of, options_of
from tidegate.airflow.connections import extra_of, get_connection
from tidegate.airflow.retries import Patient
from tidegate.airflow.store import VariableStore
from tidegate.core.audit.table import CLOCKS_APART_MS
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import ConfigError, RequestError, SparkJobFailed, SparkUnavailable, TidegateError
from tidegate.core.load.answer import brief, whole
from tidegate.core.load.job import LoadJob, LoadResult, Split
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition, offsets_from_json, total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.replay.chunks import SavedReplay
from tidegate.core.replay.request import check_known, check_permitted
from tidegate.core.replay.run import PlannedReplay, ReplayVerdict, plan_backfill, verify_replay
from tidegate.core.schedule import run_notes
from tidegate.core.schedule.patience import Patience, is_away
from tidegate.core.schedule.plan import SavedRange, Skip
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.schedule.trust import check_topics
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.iceberg.history import IcebergReader
from tidegate.kafka.settings import Translated, planning_client, spark_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tidegate.kafka.brokers import AdminBrokers

BACKFILL = "backfill"
"""Airflow's type of the runs of a date backfill."""
SHOWN = 5
"""Entries of a list in an XCom; the log has all of them."""
MOST_LOST = 1
"""Times that one try begins its load again after Spark died under it."""
EXCHANGE_DIR = "TIDEGATE_EXCHANGE_DIR"
"""Environment: the folder through which a plan reaches spark-submit; shared with the driver where that runs elsewhere."""


def kafka_settings(pipeline: Pipeline, purpose: str, client: Callable[..., Translated], log: Any) -> dict[str, str]:
    """A client's settings, from the pipeline's connection; what was changed on the way is logged (never a secret)."""
    source = pipeline.source
    extra = extra_of(get_connection(source.connection, expected="a Kafka connection"))
    made = client(extra, connection=source.connection, client_id=f"tidegate-{pipeline.name}-{purpose}")
    for note in made.notes:
        log.info("connection %s: %s", source.connection, note)
    return made.settings


def brokers_of(pipeline: Pipeline, purpose: str, log: Any) -> AdminBrokers:
    """The pipeline's brokers."""
    from tidegate.kafka.brokers import AdminBrokers  # noqa: PLC0415 - parsing the DAG needs no Kafka client

    return AdminBrokers(kafka_settings(pipeline, purpose, planning_client, log))


def ports_of(pipeline: Pipeline, log: Any) -> dict[str, Any]:
    """The ports of a plan, as keyword arguments."""
    return {"store": VariableStore(), "brokers": brokers_of(pipeline, "plan", log), "sink": IcebergReader()}


def now_ms() -> int:
    """The time, epoch ms."""
    return time.time_ns() // 1_000_000


class PlanOperator(Patient):
    """Saves the range that this run reads, before anything else happens; skips the run where there is nothing to read."""

    ui_color = "#dbe9f6"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, adopt, or find again this run's range; the XCom names its Variable.

        Raises:
            AirflowSkipException: there is nothing to read.
            TidegateError: see `tidegate.core.schedule.run.plan_batch`.
        """
        ports = ports_of(self.pipeline, self.log)
        run, run_id = context["dag_run"], context["run_id"]
        planned: Planned | PlannedReplay | Skip
        if run.run_type == BACKFILL:
            interval, scheduled = _interval(self.pipeline, run)
            planned = self.patience().through(
                lambda: plan_backfill(self.pipeline, run_id, interval, scheduled=scheduled, now_ms=now_ms(), **ports)
            )
        else:
            request = replace(_request(context["params"]), ran_at_ms=_ran_at_ms(run))
            planned = self.patience().through(lambda: plan_batch(self.pipeline, run_id, request, now_ms=now_ms(), **ports))
        if isinstance(planned, Skip):
            context["ti"].xcom_push(key=notes.XCOM_KEY, value=f"Nothing to read: {planned.reason}.")
            raise AirflowSkipException(planned.reason)
        if isinstance(planned, PlannedReplay):
            context["ti"].xcom_push(key=notes.XCOM_KEY, value=as_note(log_replay(planned, self.log)))
            return replay_answer(planned)
        context["ti"].xcom_push(key=notes.XCOM_KEY, value=as_note(self._log_plan(planned)))
        saved = planned.saved
        return {
            "key": planned.key,
            "seq": saved.seq,
            "origin": planned.origin,
            "redo": planned.committed,
            "create": planned.create,
            "records": total_count(saved.ranges),
            "partitions": len(saved.ranges),
        }

    def _log_plan(self, planned: Planned) -> list[str]:
        """Log what this run reads and why; returns the same lines."""
        saved = planned.saved
        how = {
            "planned": "planned now",
            "own": "this run's own range, saved by an earlier try"
            + ("; committed before: loading it again" if planned.committed else ""),
            "adopted": f"adopted from run {saved.adopted_from}, which did not commit it; this run's own limits are not applied",
        }[planned.origin]
        lines = [f"batch {saved.seq} of {saved.pipeline}, {total_count(saved.ranges)} offsets: {how}"]
        reasons = {d.topic_partition: d for d in saved.decisions}
        for r in saved.ranges:
            why = reasons[r.topic_partition]
            lines.append(f"{r}: {r.count} offsets, from: {why.from_reason}, until: {why.until_reason}")
        lines += [f"{tp}: the cursor leaves offset {offset}, as accepted" for tp, offset in saved.jumped.items()]
        if saved.retired:
            lines.append(f"retired, since they are gone: {', '.join(map(str, saved.retired))}")
        if planned.caught_up_from is not None:
            lines.append(f"the cursor had gone back to batch {planned.caught_up_from}: it follows the table's commits again")
        for line in lines:
            self.log.info("%s", line)
        return lines


def _request(params: Mapping[str, Any]) -> Request:
    check_known(params, ("max_records", "until"))
    until = params.get("until")
    if until is None:
        return Request(params.get("max_records"))
    try:
        offsets: dict[TopicPartition, int] = offsets_from_json(until)
    except (TidegateError, ValueError, TypeError, AttributeError) as error:
        raise RequestError(
            f"the parameter `until` cannot be read: {until!r}",
            fix='Write an offset (exclusive) for each partition, such as {"flights": {"0": 1000, "1": 1000}}',
        ) from error
    return Request(params.get("max_records"), offsets or None)  # one that names no partition sets no bound


def _ran_at_ms(run: Any) -> int | None:
    """When a run was created that somebody has cleared since (epoch ms); None for one that runs for the first time."""
    return int(run.run_after.timestamp() * 1000) if run.clear_number else None


def _interval(pipeline: Pipeline, run: Any) -> tuple[tuple[int, int], list[str]]:
    """What a backfill's run covers (epoch ms), and the run id that the schedule gives to the same logical date.

    A cron schedule's runs have a data interval without length; such a run covers the time from its date to the next one.
    """
    from croniter import croniter  # type: ignore[import-untyped]  # noqa: PLC0415 - Airflow's own; only a backfill needs it

    at: datetime = run.logical_date
    start, end = run.data_interval_start or at, run.data_interval_end or at
    if start == end and pipeline.schedule is not None:
        end = croniter(pipeline.schedule, start).get_next(datetime)
    covers = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
    return covers, [f"scheduled__{at.isoformat()}"]


def as_note(lines: Iterable[str]) -> str:
    """The text of a run's note, as much of it as Airflow keeps."""
    return "\n".join(lines)[: run_notes.LONGEST]


def log_replay(planned: PlannedReplay, log: Any) -> list[str]:
    """Log what is replayed, and what that does; returns the same lines."""
    saved = planned.saved
    how = "planned now"
    if planned.origin == "own":
        how = "this run's own, saved by an earlier try; " + (
            "all of it landed: loading it again" if planned.redo else f"{len(planned.todo)} chunks are missing"
        )
    lines = [
        f"replay {saved.replay} of {saved.pipeline} into {saved.table} by {saved.transform}, {len(saved.chunks)} chunks: {how}"
    ]
    lines += planned.report.lines() if planned.report is not None else []
    for line in lines:
        log.info("%s", line)
    return lines


def replay_answer(planned: PlannedReplay) -> dict[str, Any]:
    """What the plan of a replay hands on: its Variable's key, and how to load."""
    saved = planned.saved
    return {
        "replay": saved.replay,
        "key": planned.key,
        "origin": planned.origin,
        "redo": planned.redo,
        "chunks": len(saved.chunks),
        "todo": len(planned.todo),
        "parallel": saved.parallel,
        "records": total_count(saved.selection),
    }


class SparkLoad(Patient, SparkSubmitOperator):
    """A task that runs a `LoadJob`: through Spark Connect or spark-submit, by the connection's type.

    It waits for a server that is away, and then does the load again, which looks for its receipt first. A Spark Connect server
    that died under the load is waited for `MOST_LOST` times a try: a job that ends its server must not do so again and again.

    Args:
        pipeline: what to load.
        spark_jobs: folder of the transforms, and of the project's own `load_range.py` where it has one.
    """

    ui_color = "#cfe3cf"

    def __init__(self, *, pipeline: Pipeline, spark_jobs: Path, **kwargs: Any) -> None:
        super().__init__(
            application=str(application_of(spark_jobs)),
            conn_id=pipeline.spark.connection,
            name=f"tidegate-{pipeline.name}",
            durable=False,  # a second submission replaces the same rows; a job found again has no result file to hand over
            **kwargs,
        )
        self.pipeline = pipeline
        self.spark_jobs = spark_jobs
        self._session: SparkSession | None = None
        self._lost = 0

    def order(self, **what: Any) -> LoadJob:
        """A job with all that the pipeline says; `what` are the fields that differ from load to load."""
        source = self.pipeline.source
        return LoadJob(
            pipeline=self.pipeline.name,
            kafka_options=kafka_settings(self.pipeline, "load", spark_client, self.log),
            split=Split(self.pipeline.split.min_partitions, self.pipeline.split.max_records_per_partition),
            isolation_level=source.isolation_level,
            contiguous=source.contiguous,
            identity=self.pipeline.identity,
            shared_with=self.pipeline.sink.shared_with,
            **what,
        )

    def order_chunk(self, saved: SavedReplay, number: int, *, redo: bool) -> LoadJob:
        """The job that loads one chunk of a replay.

        Raises:
            RequestError: the pipeline's file does not allow its table or its transform.
        """
        check_permitted(self.pipeline, saved.table, saved.transform)
        return self.order(
            seq=number,
            run_id=saved.run_id,
            ranges=saved.chunk(number),
            transform=saved.transform,
            table=saved.table,
            redo=redo,
            topic_ids=saved.topic_ids,
            generation=saved.generation,
            replay=saved.replay,
            batch=saved.batches[number] if saved.batches else None,
        )

    def cleared(self, context: Context) -> bool:
        """Whether this is the first try after somebody cleared the task, which asks for a write whatever has landed.

        Airflow counts tries on: that one is the first of a new set of retries. The retries after it look first.
        """
        ti = context["ti"]
        return ti.try_number > 1 and ti.try_number == (ti.max_tries or 0) - (self.retries or 0) + 1

    def run_job(self, job: LoadJob, context: Context) -> dict[str, Any]:
        """Load, and hand on the receipt found in the sink.

        Raises:
            TidegateError: Spark, the sink, the brokers or the transform; see `tidegate.core.errors`.
        """
        patience, self._lost = self.patience(), 0
        if job.redo:  # perhaps long after it was planned
            brokers = brokers_of(self.pipeline, "load", self.log)
            patience.through(lambda: check_topics(self.pipeline, job.topic_ids, job.ranges, brokers, since="this was planned"))
        connection = get_connection(
            self.pipeline.spark.connection, expected="spark_connect (a warm server) or spark (spark-submit)"
        )
        ways = {"spark_connect": self._through_connect, "spark": self._through_submit}
        if connection.conn_type not in ways:
            raise ConfigError(
                f"connection {connection.conn_id} is of type {connection.conn_type}",
                fix=f"Use a connection of one of the types {', '.join(ways)}",
                connection=connection.conn_id,
            )
        run = ways[connection.conn_type]
        result = patience.through(lambda: run(job, context, patience), waits_for=self._waits_for)
        self._log_result(result)
        return brief(result)

    def _waits_for(self, error: TidegateError) -> bool:
        if isinstance(error, SparkUnavailable) and self._lost > MOST_LOST:
            self.log.warning("Spark was lost %d times under this load; a job that ends its server is not run on", self._lost)
            return False
        return is_away(error)

    def _through_connect(self, job: LoadJob, context: Context, patience: Patience) -> LoadResult:
        del context
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook  # noqa: PLC0415 - only on this way

        from tidegate.spark.load import load_range  # noqa: PLC0415 - only a load needs Spark's client
        from tidegate.spark.session import connect  # noqa: PLC0415

        url = SparkConnectHook(self.pipeline.spark.connection).get_connection_url()
        self.log.info("opening a session of Spark Connect, %s", url.partition("/;")[0])
        try:
            with connect(url, name=f"tidegate-{job.pipeline}-{job.seq}") as self._session:
                patience.answered(SparkUnavailable)
                try:
                    return load_range(self._session, job, spark_jobs=self.spark_jobs)
                except SparkUnavailable:
                    self._lost += 1
                    raise
        finally:
            self._session = None

    def _through_submit(self, job: LoadJob, context: Context, patience: Patience) -> LoadResult:
        del patience  # a driver tells at its end only
        self._hook = None  # the one of an earlier submission has that one's arguments
        with _exchange(job) as (job_file, result_file):
            self.application_args = ["--job", str(job_file), "--result", str(result_file), *options_of(self.spark_jobs)]
            failure: Exception | None = None
            try:
                SparkSubmitOperator.execute(self, context)  # not this class's own, which is what called
            except Exception as error:  # noqa: BLE001 - the driver's own words, where it left some, are better
                failure = error
            return _read_result(result_file, failure)

    def _log_result(self, result: LoadResult) -> None:
        receipt, observed = result.receipt, result.observed
        if result.landed_before:
            self.log.info("snapshot %d already holds this batch (an earlier try landed): nothing written", receipt.snapshot)
        else:
            self.log.info("snapshot %d: %s records read, %d rows written", receipt.snapshot, observed.records, receipt.rows)
        self.log.info("seconds: %s", ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.seconds.items()))

    def on_kill(self) -> None:
        """Stop the job: interrupt the Connect session's operations, or kill the submitted driver; stop waiting for a server."""
        self._stopped = True
        if self._session is not None:
            from tidegate.spark.session import interrupt  # noqa: PLC0415

            interrupt(self._session)
        elif self._hook is not None:
            SparkSubmitOperator.on_kill(self)


class LoadOperator(SparkLoad):
    """Replaces, in the sink, the rows of this run's range."""

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Load the saved range and hand on the receipt found in the sink.

        Raises:
            TidegateError: as `run_job`.
        """
        plan = context["ti"].xcom_pull(task_ids="plan")
        if not plan:
            raise RequestError("this run has no plan to load", fix="Clear the run's plan task")
        ledger = Ledger(VariableStore(), self.pipeline.name)
        redo = bool(plan["redo"]) or self.cleared(context)
        if "replay" in plan:
            return self.run_job(self.order_chunk(ledger.saved_replay(plan["key"]), 0, redo=redo), context)
        saved = ledger.saved_range(plan["key"])
        if not saved.to_load:
            self.log.info("batch %d holds no offsets: it only fixes where new partitions start", saved.seq)
            return {}
        job = self.order(
            seq=saved.seq,
            run_id=saved.run_id,
            ranges=saved.to_load,
            transform=self.pipeline.transform,
            table=self.pipeline.sink.table,
            redo=redo,
            topic_ids=saved.topic_ids,
            generation=saved.generation,
            others=saved.others,
            create=plan.get("create", True),
        )
        return self.run_job(job, context)


@contextmanager
def _exchange(job: LoadJob) -> Iterator[tuple[Path, Path]]:
    """A folder for one job's order and answer, readable by its owner only, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"tidegate-{job.pipeline}-", dir=os.environ.get(EXCHANGE_DIR)) as folder:
        job_file = Path(folder) / "job.json"
        job_file.touch(mode=0o600)
        job_file.write_text(json.dumps(job.to_json()), encoding="utf-8")
        yield job_file, Path(folder) / "result.json"


def _read_result(result_file: Path, failure: Exception | None) -> LoadResult:
    if not result_file.exists():
        message = "spark-submit ended without an answer" if failure is None else f"spark-submit failed: {failure}"
        raise SparkJobFailed(
            message.splitlines()[0],
            fix="See the driver's output in this task's log; whether its commit landed is looked up by the next try",
        ) from failure
    answer = json.loads(result_file.read_text(encoding="utf-8"))
    if "error" in answer:
        raise TidegateError.from_dict(answer["error"]) from failure
    return LoadResult.from_json(answer)


def verified(pipeline: Pipeline, key: str, patience: Patience, log: Any) -> tuple[SavedReplay, dict[str, Any]]:
    """The saved replay at `key`, and the verdict on it, logged, as JSON of constant size.

    Raises:
        ReceiptMismatch: chunks are missing, or differ in their transform's version.
        TidegateError: see `tidegate.core.replay.run.verify_replay`.
    """
    ports = ports_of(pipeline, log)
    saved = Ledger(ports["store"], pipeline.name).saved_replay(key)
    found: ReplayVerdict = patience.through(
        lambda: verify_replay(saved, sink=ports["sink"], brokers=ports["brokers"], level=pipeline.source.isolation_level)
    )
    log.info("all %d chunks of replay %s are in %s: %s", found.chunks, saved.replay, saved.table, found)
    return saved, {
        "replay": saved.replay,
        "chunks": found.chunks,
        "offsets": found.offsets,
        "rows": found.rows,
        "transform": found.transform,
        "expired_offsets": total_count(found.expired),
        "expired": [str(r) for r in found.expired[:SHOWN]],
    }


def replay_event(saved: SavedReplay, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What the asset event of a replay says."""
    told = {name: verdict[name] for name in ("replay", "chunks", "offsets", "rows", "transform")}
    return {"pipeline": saved.pipeline, "run_id": saved.run_id, **told}


def timing_of(saved: SavedRange, result: LoadResult, context: Context) -> BatchTiming | None:
    """What the batch takes that is committed now; None where its load was not the work of this run since it started."""
    run = context["dag_run"]
    if run.start_date is None or result.landed_before:
        return None
    started_ms = int(run.start_date.timestamp() * 1000)
    if result.receipt.committed_at_ms + CLOCKS_APART_MS < started_ms:
        return None
    # a run that was cleared waited for a person, which says nothing of how fast batches are
    due = run.start_date if run.clear_number else run.run_after
    return BatchTiming.between(
        total_count(saved.to_load),
        saved.limits.get("max_records"),
        due_ms=int(due.timestamp() * 1000),
        started_ms=started_ms,
        ended_ms=now_ms(),
        load_s=sum(result.seconds.values()),
    )


class CommitOperator(Patient):
    """Moves the cursor past this run's range, once its receipt covers it; moved already: nothing to do.

    Of a backfill's run it only checks the receipt: the cursor stays.
    """

    ui_color = "#f6e3c5"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(outlets=[Asset(name=pipeline.sink.table)], **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit; the asset event carries pipeline, batch and range.

        Raises:
            CommitConflict: the cursor is elsewhere.
            ReceiptMismatch: the sink's receipt is not of this range.
            StateError: the schedule cannot be read or believed.
        """
        plan = context["ti"].xcom_pull(task_ids="plan")
        if not plan:
            raise RequestError("this run has no plan to commit", fix="Clear the run's plan task")
        if "replay" in plan:
            saved_replay, verdict = verified(self.pipeline, plan["key"], self.patience(), self.log)
            self._tell_assets(context, replay_event(saved_replay, verdict))
            return verdict
        loaded = context["ti"].xcom_pull(task_ids="load")
        store = VariableStore()
        result = timing = None
        if loaded:
            planned = Ledger(store, self.pipeline.name).saved_range(plan["key"])
            result = self.patience().through(lambda: whole(loaded, planned, self._receipt_at))
            timing = timing_of(planned, result, context)
        saved, cursor, moved = commit_batch(
            self.pipeline,
            plan["key"],
            result.receipt if result else None,
            store=store,
            record_bytes=result.observed.record_bytes if result else None,
            timing=timing,
        )
        self.log.info("batch %d of %s: %s", saved.seq, saved.pipeline, "committed" if moved else "was committed before")
        self._tell_brokers(cursor)
        event = {
            "pipeline": saved.pipeline,
            "seq": saved.seq,
            "key": plan["key"],
            "offsets": total_count(saved.ranges),
            "rows": result.receipt.rows if result else 0,
            "transform": result.receipt.load.transform if result else None,
            "snapshot": result.receipt.snapshot if result else None,
        }
        self._tell_assets(context, event)
        return {"seq": saved.seq, "moved": moved}

    def _tell_assets(self, context: Context, event: dict[str, Any]) -> None:
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = event

    def _receipt_at(self, snapshot: int) -> Receipt | None:
        receipts = IcebergReader().receipts(self.pipeline.sink.table, self.pipeline.name)
        return next((receipt for receipt in receipts if receipt.snapshot == snapshot), None)

    def _tell_brokers(self, cursor: Cursor) -> None:
        """Commit the consumer group's offsets for the sake of lag tools; the cursor is the truth, so a failure is a warning."""
        from tidegate.kafka.groups import commit_offsets  # noqa: PLC0415 - parsing the DAG needs no Kafka client

        group = self.pipeline.consumer_group
        try:
            commit_offsets(kafka_settings(self.pipeline, "commit", planning_client, self.log), group, cursor.offsets)
        except TidegateError as error:
            self.log.warning("consumer group %s does not show this commit: %s", group, error)
