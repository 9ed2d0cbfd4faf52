"""What is wrong with pipeline files that are valid by themselves: conflicts between them, and settings without effect.

Two of them may not commit to one consumer group, nor write into one table, unless they name each other (`sink.shared_with`) and
read different partitions. The owners that the table itself names are checked by each load. One of the pipelines of a table may
maintain it, and then the table that keeps its commits is nobody else's.

A file is not refused for settings without effect, since it means what it says: `tidegate check` warns of them. Each warning is
one sentence: the setting, why it does nothing, and what to do. What a file does not tell (the type of a connection, the data)
is no reason to warn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import permutations, product

from tidegate.core.config.names import COMMITS_TABLE
from tidegate.core.config.pipeline import LagSchedule, Limits, Pipeline, Source, Spark, Split
from tidegate.core.config.schedules import shortest_gap_s
from tidegate.core.model.errors import some


def table_faults(pipelines: Iterable[Pipeline], files: Collection[str] = ()) -> dict[str, list[str]]:
    """What is wrong with the tables of pipelines whose files are valid, by the pipeline's name: the setting, and a sentence.

    `files` are the names of further pipelines that have a file, valid or not.
    """
    faults: dict[str, list[str]] = {}
    by_name = sorted(pipelines, key=lambda p: p.name)
    known = {p.name for p in by_name} | {*files}
    for this in by_name:
        if unknown := sorted({*this.sink.shared_with} - known):
            faults[this.name] = [_unknown_fault(unknown)]
    for this, that in product(by_name, repeat=2):
        fault = _orphans_fault(this, that)
        if this is not that:
            fault = _maintenance_fault(this, that) or fault or _quarantine_fault(this, that) or _fault(this, that)
        if fault is not None:
            faults.setdefault(this.name, []).append(fault)
    return faults


def group_faults(pipelines: Iterable[Pipeline]) -> dict[str, list[str]]:
    """As `table_faults`, of their consumer groups: what one pipeline has read, lag tools would see of the other."""
    faults: dict[str, list[str]] = {}
    for this, that in permutations(sorted(pipelines, key=lambda p: p.name), 2):
        if (this.source.connection, this.consumer_group) == (that.source.connection, that.consumer_group):
            fault = f"group: {this.consumer_group} is also the consumer group of pipeline {that.name}; choose another name"
            faults.setdefault(this.name, []).append(fault)
    return faults


def _fault(this: Pipeline, that: Pipeline) -> str | None:
    table = this.sink.table
    if table.lower() != that.sink.table.lower():
        if that.writes(table):
            return f"sink.table: replays of pipeline {that.name} may write into {table}; choose a table of another name"
        return None
    also, own = f"{table} is also the table of pipeline {that.name}", "choose another table"
    if "batch" in (this.identity, that.identity):
        return f"sink.table: {also}, and with `identity: batch` a table belongs to one pipeline; {own}"
    without = [p.name for p, q in ((this, that), (that, this)) if q.name not in p.sink.shared_with]
    if without:
        missing = " and ".join(f"{name}.yaml" for name in sorted(without))
        return (
            f"sink.table: {also}; {own}, or let both files name the other pipeline in sink.shared_with (missing in {missing})"
        )
    common = _read_by_both(this.source, that.source)
    if common:
        return f"sink.table: {also}, and both read {some(common)}: a load of one would delete the rows of the other; {own}"
    return None


def _quarantine_fault(this: Pipeline, that: Pipeline) -> str | None:
    """Of two tables whose rejected records would be each other's: each load removes what it does not find in its receipts."""
    aside = this.quarantine_table
    if aside is None or this.sink.table.lower() == that.sink.table.lower():
        return None
    if that.writes(aside) or aside.lower() in (that.sink.table.lower(), (that.quarantine_table or "").lower()):
        return f"quarantine.table: {aside} is also a table of pipeline {that.name}, of other rows; choose another name"
    return None


def _unknown_fault(names: list[str]) -> str:
    """Whoever shares a table with a pipeline that does not run begins behind records that nobody has read."""
    files = " and ".join(f"{name}.yaml" for name in names)
    return (
        f"sink.shared_with: there is no {files}; leave the name out, or, where a pipeline had that name before, "
        "name its file back, or run `tidegate rename OLD NEW`"
    )


def _maintenance_fault(this: Pipeline, that: Pipeline) -> str | None:
    """Of the pipeline whose file asks for maintenance: another one is not stopped by it."""
    if this.maintenance is None:
        return None
    commits = f"{this.sink.table}{COMMITS_TABLE}"
    if that.writes(commits):
        return f"maintenance: it keeps commits in {commits}, which pipeline {that.name} writes; rename one of the tables"
    if that.maintenance is not None and this.sink.table.lower() == that.sink.table.lower():
        return f"maintenance: {that.sink.table} is also maintained by pipeline {that.name}; leave it to one of them"
    return None


def _orphans_fault(this: Pipeline, that: Pipeline) -> str | None:
    """Catalogs keep a table in a folder of its name, below the one of its namespace, and its files there in `data`."""
    if this.maintenance is None or this.maintenance.keep_orphans is None:
        return None
    cleaned, others = (this.sink.table, this.quarantine_table), (that.sink.table, *that.replay.tables, that.quarantine_table)
    for own, table in product(filter(None, cleaned), filter(None, others)):
        if f"{table}.".lower().startswith(f"{own}.data.".lower()):
            return (
                f"maintenance.keep_orphans: {table} of pipeline {that.name} may keep its files in the data folder of {own}, "
                "where they look like orphans; leave keep_orphans out"
            )
    return None


def _read_by_both(this: Source, that: Source) -> list[str]:
    """The topics, and the partitions of a topic, that both files name."""
    of_this, of_that = _partitions_by_topic(this), _partitions_by_topic(that)
    common = []
    for topic in sorted(of_this.keys() & of_that.keys()):
        one, other = of_this[topic], of_that[topic]
        if one is None or other is None:
            common.append(f"topic {topic}")
        else:
            common += [f"{topic}-{partition}" for partition in sorted(one & other)]
    return common


def _partitions_by_topic(source: Source) -> dict[str, frozenset[int] | None]:
    """The topics that a file names, each with the partitions that it names; None is every partition."""
    if source.assign is not None:
        return {topic: frozenset(partitions) for topic, partitions in source.assign.items()}
    return dict.fromkeys(source.topics or ())


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
