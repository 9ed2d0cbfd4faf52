"""The laws of `JobRunner`: a job that has run is in the sink once, and its answer is the receipt, which maintenance keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from tidegate.core.config.pipeline import Step
from tidegate.core.model.errors import TopicRecreated
from tidegate.core.state.jobs import LoadJob, MaintenanceJob
from tidegate.core.state.ports import JobRunner, SinkReader


class JobRunnerContract:
    """Laws of a `JobRunner`.

    Fixtures of the subclass:
        runner: the port under test.
        job: a job whose records are there, and whose table does not exist yet.
        sink: reads the table that the jobs write into.
    """

    def test_a_job_answers_with_the_receipt_that_it_left_in_the_sink(
        self, runner: JobRunner, job: LoadJob, sink: SinkReader
    ) -> None:
        """The receipt covers the ranges, and names batch and run."""
        result = runner.run(job)
        assert not result.landed_before
        assert result.receipt.covers(job.load.ranges)
        load = result.receipt.load
        assert (load.pipeline, load.seq, load.run_id) == (job.load.pipeline, job.load.seq, job.load.run_id)
        assert sink.receipts(job.table, job.load.pipeline) == [result.receipt]

    def test_a_job_that_is_run_again_finds_its_commit(self, runner: JobRunner, job: LoadJob, sink: SinkReader) -> None:
        """Whoever lost the answer asks again, and nothing is written twice."""
        first, again = runner.run(job), runner.run(job)
        assert again.landed_before
        assert again.receipt == first.receipt
        assert sink.receipts(job.table, job.load.pipeline) == [first.receipt]

    def test_a_job_that_must_not_read_fails_unless_it_has_landed(
        self, runner: JobRunner, job: LoadJob, sink: SinkReader
    ) -> None:
        """Of the error that keeps it from reading; nothing is written then."""
        refused = replace(job, refused=TopicRecreated("another topic", fix="wait").to_dict())
        with pytest.raises(TopicRecreated, match="another topic"):
            runner.run(refused)
        assert sink.receipts(job.table, job.load.pipeline) == []
        first = runner.run(job)
        assert runner.run(refused).receipt == first.receipt
        with pytest.raises(TopicRecreated):
            runner.run(replace(refused, redo=True))

    def test_a_job_that_is_to_write_in_any_case_does(self, runner: JobRunner, job: LoadJob, sink: SinkReader) -> None:
        """Its receipt is one of its own, and the older one stays part of the table's history."""
        first, again = runner.run(job), runner.run(replace(job, redo=True))
        assert not again.landed_before
        assert sink.receipts(job.table, job.load.pipeline) == [first.receipt, again.receipt]

    def test_maintenance_leaves_the_receipts(self, runner: JobRunner, job: LoadJob, sink: SinkReader) -> None:
        """Each step answers for itself, unless its answer is lost; the batch is found afterwards."""
        first = runner.run(job)
        for step in get_args(Step):
            done = runner.maintain(MaintenanceJob(job.load.pipeline, job.table, step, now_ms=first.receipt.committed_at_ms))
            assert done is None or done.step == step
        assert sink.receipts(job.table, job.load.pipeline) == [first.receipt]
        assert runner.run(job).landed_before

    def test_a_runner_without_a_job_may_be_stopped_and_used(self, runner: JobRunner, job: LoadJob, sink: SinkReader) -> None:
        """A task may be killed before it has begun, and after it has ended."""
        runner.stop()
        result = runner.run(job)
        runner.stop()
        assert sink.receipts(job.table, job.load.pipeline) == [result.receipt]
        assert runner.lost == 0
