"""The task between plan and commit: one bounded Spark job, which replaces the rows of a saved range or of a chunk of a replay.

How the job runs is a `JobRunner`'s (`tidegate.airflow.runners`); here it is ordered, waited for, and its answer handed on.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from tidegate.airflow import notes
from tidegate.airflow.operators.announce import window_of
from tidegate.airflow.operators.shared import brokers_of, check_own, kafka_settings, plan_of
from tidegate.airflow.operators.spark import SparkTask
from tidegate.airflow.store import VariableStore
from tidegate.core.config.pipeline import Split
from tidegate.core.load.answer import brief
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.repeats import look_back, read_beginnings
from tidegate.core.rates.resources import Resources
from tidegate.core.replay.chunks import SavedReplay
from tidegate.core.replay.request import check_permitted
from tidegate.core.schedule.topics import check_topics
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange
from tidegate.kafka.settings import spark_client


class SparkLoad(SparkTask):
    """A task that runs a `LoadJob`. One that is run again, since Spark was away, looks for its receipt first."""

    _ordered: LoadJob | None = None
    _result: LoadResult | None = None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the load read and wrote, for Airflow's OpenLineage provider; None where it did not come to a load."""
        del task_instance
        if self._ordered is None:
            return None
        from tidegate.airflow.lineage import lineage_of  # noqa: PLC0415 - only with the provider

        return lineage_of(self._ordered, self._result)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete

    def order(self, resources: Resources | None = None, saved: SavedRange | None = None, **what: Any) -> LoadJob:
        """A job with all that the pipeline says; `what` are the fields that differ from load to load, `saved` is its batch.

        Where repeats are left out, the cursor and the batch say how far to look back for them.
        With `resources`, it is cut into as many pieces, unless the pipeline's file cuts it, and spark-submit asks for as much.
        """
        source, split = self.pipeline.source, self.pipeline.split
        if resources is not None and split == Split():
            split = Split(min_partitions=resources.pieces)
        if resources is not None:
            self._num_executors, self._executor_cores = resources.executors, resources.cores
            # of a standalone master, which counts no executors
            self._total_executor_cores = None if resources.executors is None else resources.total_cores
        dedupe = self.pipeline.dedupe
        replay = what.get("replay") is not None
        return LoadJob(
            pipeline=self.pipeline.name,
            hours=window_of(self._ledger, replay=replay) if self.pipeline.announce else None,
            dedupe=dedupe,
            look_back={} if dedupe is None else look_back(what["ranges"], dedupe.window, read_beginnings(self._ledger, saved)),
            kafka_options=kafka_settings(self.pipeline, "load", spark_client, self.log),
            split=split,
            isolation_level=source.isolation_level,
            contiguous=source.contiguous,
            identity=self.pipeline.identity,
            shared_with=self.pipeline.sink.shared_with,
            **what,
        )

    @property
    def _ledger(self) -> Ledger:
        return Ledger(VariableStore(), self.pipeline.name)

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
        self._ordered = job
        patience = self.patience(context)
        if job.redo:  # perhaps long after it was planned
            brokers = brokers_of(self.pipeline, "load", self.log)
            patience.through(lambda: check_topics(self.pipeline, job.topic_ids, job.ranges, brokers, since="this was planned"))
        result = self.through_spark(lambda runner: runner.run(job), context, patience)
        self._result = result
        self._log_result(result)
        if result.observed.errors:
            context["ti"].xcom_push(key=notes.XCOM_KEY, value=_broken(result.observed.errors))
        return brief(result)

    def _log_result(self, result: LoadResult) -> None:
        receipt, records = result.receipt, result.observed.records
        if result.landed_before:
            self.log.info("snapshot %d already holds this batch (an earlier try landed): nothing written", receipt.snapshot)
        elif records is None:
            self.log.info("snapshot %d, found by its receipt: %d rows written", receipt.snapshot, receipt.rows)
        else:
            self.log.info("snapshot %d: %d records read, %d rows written", receipt.snapshot, records, receipt.rows)
        if result.observed.errors:
            self.log.warning("%s", _broken(result.observed.errors))
        if result.observed.repeats is not None:
            self.log.info("%d of the records were repeats, and left out", result.observed.repeats)
        self.log.info("seconds: %s", ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.seconds.items()))


def _broken(errors: int) -> str:
    return f"rows of broken records: {errors}, each with the reason in its column _error"


class LoadOperator(SparkLoad):
    """Replaces, in the sink, the rows of this run's range."""

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Load the saved range and hand on the receipt found in the sink.

        Raises:
            TidegateError: as `run_job`.
        """
        plan = plan_of(context)
        ledger = self._ledger
        redo = bool(plan["redo"]) or self.cleared(context)
        if "replay" in plan:
            replay = ledger.saved_replay(plan["key"])
            check_own(replay, context)
            return self.run_job(self.order_chunk(replay, 0, redo=redo), context)
        saved = ledger.saved_range(plan["key"])
        check_own(saved, context)
        if not saved.to_load:
            self.log.info("batch %d holds no offsets: it only fixes where new partitions start", saved.seq)
            return {}
        job = self.order(
            saved.resources,
            seq=saved.seq,
            run_id=saved.run_id,
            ranges=saved.to_load,
            saved=saved,
            transform=self.pipeline.transform,
            table=self.pipeline.sink.table,
            redo=redo,
            topic_ids=saved.topic_ids,
            generation=saved.generation,
            others=saved.others,
            create=plan.get("create", True),
        )
        return {**self.run_job(job, context), "disturbed": self.disturbed(context)}
