"""Settings of a valid pipeline file that have no effect beside the others: `tidegate check` warns of them.

A file is not refused for them, since it means what it says. Each warning is one sentence: the setting, why it does nothing, and
what to do. What a file does not tell (the type of a connection, the data) is no reason to warn.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.core.config.pipeline import LagSchedule, Limits, Pipeline, Spark, Split
from tidegate.core.config.schedules import shortest_gap_s


def ineffective(pipeline: Pipeline) -> tuple[str, ...]:
    """One warning for each setting without effect."""
    return tuple(warning for of in (_limits, _rates, _starts, _spark, _tasks) for warning in of(pipeline))


def _limits(this: Pipeline) -> Iterator[str]:
    least, most, delay_s = this.limits.min_records, _largest_batch(this), this.limits.max_delay_s
    gap_s = shortest_gap_s(this.schedule) if isinstance(this.schedule, str) else None
    if least == 1:
        yield "limits.min_records: 1 skips no run, since a run without records is skipped in any case; raise or remove it"
    elif least is not None and delay_s is not None and gap_s is not None and delay_s < gap_s and not this.catch_up:
        yield (
            f"limits.min_records: skips no run of the schedule, since max_delay_s {delay_s:g} is over before the next run, "
            f"{gap_s} s later; raise max_delay_s, or remove both"
        )
    if least is not None and most is not None and least > most[0]:
        yield (
            f"limits.min_records: {least} is above {most[1]} {most[0]}, so that each run leaves records behind that start no "
            "further one; lower it, or raise the other"
        )


def _rates(this: Pipeline) -> Iterator[str]:
    rate, least, interval_s = this.limits.max_rate_per_partition, this.limits.min_rate_per_partition, this.interval_s
    if rate is None and this.rate_control is None and least != Limits.min_rate_per_partition:
        yield (
            "limits.min_rate_per_partition: has no effect without limits.max_rate_per_partition or a backpressure policy with "
            "a bound; set one, or remove it"
        )
    if rate is not None and rate * interval_s < least:
        yield (
            f"limits.max_rate_per_partition: {rate} records/s for {interval_s:g} s are fewer than "
            f"min_rate_per_partition {least}, which is taken instead; raise the one, or lower the other"
        )


def _starts(this: Pipeline) -> Iterator[str]:
    schedule, most, limits = this.schedule, _largest_batch(this), this.limits
    bounds = (limits.max_records, limits.max_bytes, limits.max_rate_per_partition, this.rate_control)
    if this.catch_up and all(bound is None for bound in bounds):
        yield (
            "catch_up: has no effect without a bound, since each batch takes all that waits; set backpressure or "
            "limits.max_records, or remove it"
        )
    if not isinstance(schedule, LagSchedule):
        return
    if schedule.max_delay is not None and schedule.max_delay < schedule.poll:
        yield (
            f"schedule.max_delay: {schedule.max_delay:g} s are shorter than schedule.poll {schedule.poll:g} s, so that a "
            "record waits for the next poll; shorten poll, or lengthen max_delay"
        )
    if schedule.lag is not None and most is not None and schedule.lag > most[0] and not (schedule.max_delay or this.catch_up):
        yield (
            f"schedule.lag: {schedule.lag} is above {most[1]} {most[0]}, so that each run leaves records behind that start no "
            "further one; set catch_up: true or schedule.max_delay, or lower lag"
        )


def _spark(this: Pipeline) -> Iterator[str]:
    spark, connect = this.spark, Spark.connection
    if spark.connection != connect:  # only Airflow knows its type
        return
    if spark.max_executors is not None:
        yield (
            f"spark.max_executors: has no effect in a Spark Connect server, which {connect} names; set spark.connection to one "
            "of type spark, or remove it"
        )
    elif spark.cores is not None and this.split != Split():
        yield "spark.cores: has no effect in a Spark Connect server beside `split`, which cuts the loads; remove one of them"


def _tasks(this: Pipeline) -> Iterator[str]:
    if this.retries == 0 and this.retry_delay_s != Pipeline.retry_delay_s:
        yield "retry_delay_s: has no effect with retries: 0; remove it, or allow a retry"
    if this.timeout_s is not None and this.wait_s >= this.timeout_s and this.wait_s != Pipeline.wait_s:
        yield f"wait_s: {this.wait_s:g} s are never waited, since timeout_s ends the run after {this.timeout_s} s; lower it"
    if this.identity == "batch" and this.rows_per_record != Pipeline.rows_per_record:
        yield "rows_per_record: has no effect with identity: batch, whose rows are counted by batch; remove it"


def _largest_batch(this: Pipeline) -> tuple[int, str] | None:
    """The most records of a batch, and the setting that says so; None where none states a number."""
    stated = {"limits.max_records": this.limits.max_records, "backpressure.max_records": this.backpressure.max_records}
    return min(((most, name) for name, most in stated.items() if most is not None), default=None)
