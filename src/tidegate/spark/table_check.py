"""What the next load of each pipeline will change of its table's columns, before it runs.

A transform is the user's code, as in `tidegate.spark.transform_check`: a process of its own (`python -m
tidegate.spark.table_check FOLDER ANSWERS`, the jobs on stdin) plans them on a Spark Connect server, where the tables are. It
reads no record, and changes nothing. The server's URL, which may hold a token, is in its environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, Reading
from tidegate.core.state.receipt import Load
from tidegate.spark.transform_check import answers_of

REMOTE = "SPARK_REMOTE"
"""pyspark's own variable for the URL of a Spark Connect server."""
TIMEOUT_S = 60.0
NOWHERE = OffsetRange("none", 0, 0, 1)
"""The range of a job whose plan is made, and not executed."""


def column_changes(
    pipelines: Sequence[Pipeline], spark_jobs: Path, url: str, *, timeout_s: float = TIMEOUT_S
) -> dict[str, list[str] | str]:
    """By pipeline the statements that its next load will run, or why the table will not take its rows.

    A pipeline that could not be looked at is missing.
    """
    orders = json.dumps([_job(pipeline).to_json() for pipeline in pipelines])
    return answers_of("table_check", spark_jobs, timeout_s=timeout_s, given=orders, env={REMOTE: url})[0]


def _job(pipeline: Pipeline) -> LoadJob:
    batch = 1 if pipeline.identity == "batch" else None
    load = Load(pipeline=pipeline.name, seq=1, run_id="check", ranges=(NOWHERE,), batch=batch)
    reading = Reading(kafka_options={"kafka.bootstrap.servers": "localhost:1"})
    return LoadJob.of(pipeline, load, reading, table=pipeline.sink.table, transform=pipeline.transform)


def look(orders: Sequence[Mapping[str, object]], spark_jobs: Path, answers: Path) -> None:
    """Plan each job in this process, and add its answer to the file at once, as one line of JSON, `[pipeline, answer]`."""
    from tidegate.sinks import sink_of  # noqa: PLC0415 - these import pyspark
    from tidegate.sinks.identity import identity_of  # noqa: PLC0415
    from tidegate.spark.kafka_source import read_ranges  # noqa: PLC0415
    from tidegate.spark.quarantine import Marks  # noqa: PLC0415
    from tidegate.spark.session import connect  # noqa: PLC0415
    from tidegate.spark.transforms import find_transform  # noqa: PLC0415

    with connect(os.environ.pop(REMOTE), name="tidegate check") as spark:
        for order in orders:
            job = LoadJob.from_json(order)
            try:
                transform = find_transform(job.transform, spark_jobs)
                schema = transform.schema(transform(read_ranges(spark, job.load.ranges, job.reading.kafka_options)))
                schema = Marks.of(schema, job.quarantine, transform.name).of_table(schema)
                schema = identity_of(job).check(schema, transform.name)
                said: list[str] | str = sink_of(job, spark).changes(schema, replace(job, load=replace(job.load, ranges=())))
            except TidegateError as error:
                said = str(error)
            except Exception:  # noqa: BLE001, S112 - nothing is said of a pipeline that Spark cannot look at
                continue
            with answers.open("a", encoding="utf-8") as file:
                file.write(json.dumps([job.load.pipeline, said]) + "\n")


if __name__ == "__main__":
    look(json.load(sys.stdin), Path(sys.argv[1]), Path(sys.argv[2]))
