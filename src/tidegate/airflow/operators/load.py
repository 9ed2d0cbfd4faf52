"""The task between plan and finish: one bounded Spark job, which replaces the rows of a range or of a chunk of a replay.

How the job runs is a `JobRunner`'s (`tidegate.airflow.runners`); here it is ordered, waited for, and its answer handed on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk import Context

from tidegate.airflow.connections import brokers_of, kafka_settings
from tidegate.airflow.operators.events import window_of
from tidegate.airflow.operators.spark import SparkTask
from tidegate.airflow.operators.tasks import plan_edited, plan_of, said_of
from tidegate.airflow.store import VariableStore
from tidegate.core.config.pipeline import Split
from tidegate.core.load.answer import brief
from tidegate.core.load.repeats import look_back, needed_from, reaching_before
from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.topics import check_topics
from tidegate.core.planning.trust import KEEP_ROWS
from tidegate.core.rates.advice import Resources
from tidegate.core.replay.request import check_permitted
from tidegate.core.state.jobs import LoadJob, LoadResult, Reading
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.ports import Brokers
from tidegate.core.state.receipt import Load
from tidegate.core.state.saved_replay import SavedReplay, check_numbers
from tidegate.kafka.settings import spark_client

POLL_S = 1.0


class LoadOperator(SparkTask):
    """Replaces, in the sink, the rows of this run's range, or those of some chunks of its replay, one after the other.

    A job that is run again, since Spark was away, looks for its receipt first. `chunks` are their numbers.
    """

    def __init__(self, *, chunks: Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.chunks = chunks
        self._jobs: list[LoadJob] = []
        self._results: list[LoadResult] = []

    @property
    def shown_as(self) -> str:
        """What Airflow shows of the task in the DAG of replays. Where it cannot be made, Airflow shows no other error."""
        return f"chunk {str(self.chunks).strip('[]')}"

    def execute(self, context: Context) -> dict[str, Any] | list[dict[str, Any]]:  # type: ignore[override]
        """Load what is saved, and hand on the receipt found in the sink. What has landed is written again only on purpose."""
        plan = plan_of(context, replays=self.chunks is not None)
        if self.chunks is not None:
            # people edit XComs, and versions before handed on other lists
            if not (isinstance(self.chunks, list) and self.chunks and all(map(is_whole, self.chunks))):
                raise plan_edited()
            self._wait_for_turn(context, plan["parallel"])
        again = {"redo": bool(plan["redo"]) or self.cleared(context), "formerly": tuple(plan["formerly"])}
        if "replay" in plan:
            replay = self._ledger.saved_replay(plan["key"])
            # a backfill's run has one chunk, and no mapped task
            answers = [self.run_job(self._chunk(replay, n, context, again), context) for n in self.chunks or (0,)]
            return answers[0] if self.chunks is None else answers
        job = self._batch(plan, context, again)
        if job is None:
            self.log.info("batch %d holds no offsets: it only fixes where new partitions start", plan["seq"])
            return {}
        return {**self.run_job(job, context), **self.handed_on(context)}

    def _chunk(self, replay: SavedReplay, number: int, context: Context, again: Mapping[str, Any]) -> LoadJob:
        """The job of a chunk. Raises RequestError: it may not be loaded, or not any more."""
        check_permitted(self.pipeline, replay.table, replay.transform)
        if replay.batches:
            check_numbers(replay, self._ledger.cursor().generation)
        return self.order(context, replay.chunk(number), transform=replay.transform, table=replay.table, **again)

    def _batch(self, plan: Mapping[str, Any], context: Context, again: Mapping[str, Any]) -> LoadJob | None:
        """The job of a batch; None where there is nothing to load."""
        pipeline = self.pipeline
        saved = self._ledger.saved_range(plan["key"])
        nonempty = saved.load.nonempty
        if not nonempty:
            return None
        beside = saved.after.beside(nonempty, saved.load.topic_ids)
        batch = saved.load.seq if pipeline.identity == "batch" else None
        return self.order(
            context,
            replace(saved.load, ranges=nonempty, beside=beside, batch=batch),
            begun=saved.after.starts,
            resources=saved.resources,
            transform=pipeline.transform,
            table=pipeline.sink.table,
            create=plan["create"],
            **again,
        )

    def _wait_for_turn(self, context: Context, parallel: int | None) -> None:
        """Wait until fewer than `parallel` tasks before this one load; the first of them never waits.

        Airflow has no such limit for one run. It is kept here in the process: giving the slot back and coming again
        (a reschedule) is a race in its scheduler, which may take the first ending for that of the second coming.
        """
        ti = context["ti"]
        place = ti.map_index or 0
        while parallel is not None and place >= parallel:
            states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
            running = (name for name, state in states.get(ti.run_id, {}).items() if state == "running")
            before = sum(int(name.rpartition("_")[2]) < place for name in running)
            if before < parallel:
                return
            time.sleep(POLL_S)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the load read and wrote, for Airflow's OpenLineage provider; None where it did not come to a load."""
        del task_instance
        if not self._jobs:
            return None
        from tidegate.airflow.lineage import lineage_of  # noqa: PLC0415 - only with the provider

        return lineage_of(self._jobs, self._results)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete

    def order(
        self,
        context: Context,
        load: Load,
        *,
        begun: Mapping[TopicPartition, int] | None = None,
        resources: Resources | None = None,
        **what: Any,
    ) -> LoadJob:
        """The job of a load, with all that the pipeline says.

        `begun` is where each partition begins (None: where the cursor says), `resources` what it gets of Spark (None: what
        there is), and `what` are fields of the job that differ from load to load.
        """
        pipeline, source = self.pipeline, self.pipeline.source
        load = replace(load, dedupe=pipeline.dedupe)
        look_back = {} if load.dedupe is None else self._look_back(load.ranges, load.dedupe.window, begun, context)
        reading = Reading(
            kafka_options=kafka_settings(pipeline, "load", spark_client, self.log),
            isolation_level=source.isolation_level,
            contiguous=source.contiguous,
            split=self._cut(resources),
            look_back=look_back,
            hours=window_of(self._ledger, replay=load.replay is not None) if pipeline.announce else None,
        )
        return LoadJob.of(pipeline, load, reading, **what)

    def _look_back(
        self, ranges: Sequence[OffsetRange], window: int, begun: Mapping[TopicPartition, int] | None, context: Context
    ) -> dict[TopicPartition, int]:
        """From where each partition is read for repeats. The brokers are asked only where that is before the pipeline began."""
        begun = self._ledger.cursor().at.starts if begun is None else begun
        topics = reaching_before(ranges, window, begun)
        if not topics:
            return look_back(ranges, window, {})
        brokers = brokers_of(self.pipeline, "load", self.log)
        earliest = self.patience(context).through(lambda: brokers.watermarks(topics)).earliest
        return look_back(ranges, window, needed_from(begun, earliest))

    def _cut(self, resources: Resources | None) -> Split:
        """How the job is cut: as the pipeline's file says, or into as many pieces; spark-submit asks for as many executors."""
        split = self.pipeline.split
        if resources is None:
            return split
        self._num_executors, self._executor_cores = resources.executors, resources.cores
        # of a standalone master, which counts no executors
        self._total_executor_cores = None if resources.executors is None else resources.total_cores
        return Split(min_partitions=resources.pieces) if split == Split() else split

    @property
    def _ledger(self) -> Ledger:
        return Ledger(VariableStore(), self.pipeline.name)

    def cleared(self, context: Context) -> bool:
        """Whether somebody has cleared the task, which asks for a write whatever has landed.

        Each try since then writes: what one that failed has not written again is there as of before, with its receipt. Airflow
        adds the task's retries to the tries that there were.
        """
        return (context["ti"].max_tries or 0) > (self.retries or 0)

    def run_job(self, job: LoadJob, context: Context) -> dict[str, Any]:
        """Load, and hand on the receipt found in the sink."""
        self._jobs.append(job)
        patience = self.patience(context)
        brokers = brokers_of(self.pipeline, "load", self.log) if job.load.topic_ids else None
        result = self.through_spark(lambda runner: runner.run(checked(job, brokers)), context, patience)
        self._results.append(result)
        self._log_result(result)
        if self.chunks is None and (lines := self._noted(result)):  # of a replay its last task tells, of all chunks
            self.note(context, *lines)
        return brief(result)

    def _log_result(self, result: LoadResult) -> None:
        receipt, records = result.receipt, result.observed.records
        where = f"snapshot {receipt.snapshot}", receipt.load.named
        if result.landed_before:
            self.log.info("%s already holds %s (an earlier try landed): nothing written", *where)
        elif records is None:
            self.log.info("%s, found by the receipt of %s: %d rows written", *where, receipt.rows)
        else:
            self.log.info("%s, %s: %d records read, %d rows written", *where, records, receipt.rows)
        for line in self._noted(result):
            self.log.warning("%s", line)
        if result.observed.repeats is not None:
            self.log.info("%d of the records were repeats, and left out", result.observed.repeats)
        self.log.info("seconds: %s", ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.seconds.items()))

    def _noted(self, result: LoadResult) -> list[str]:
        return said_of(result.receipt.write.columns, result.observed.errors, self.pipeline)


def checked(job: LoadJob, brokers: Brokers | None) -> LoadJob:
    """The job, which does not read where a topic is another one than when it was planned, or no broker says so.

    Between plan and load a topic may be created again, whose records have the same offsets. The job finds out first whether it
    has landed before: then it is done, whatever became of the topic.
    """
    fix = KEEP_ROWS if job.redo else "Nothing was written; the error of the next plan names how to start the topic anew"
    try:
        if brokers is not None:
            check_topics(job.load.topic_ids, job.load.ranges, brokers, since="this was planned", fix=fix)
    except TidegateError as error:
        return replace(job, refused=error.to_dict())
    return job
