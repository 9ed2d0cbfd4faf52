"""What spark-submit runs: one load, or one step of maintenance. A file holds the job, another one takes the result.

    spark-submit tidegate/spark/submit/__main__.py --job job.json --result result.json --spark-jobs spark_jobs

The job may hold the brokers' credentials: it is never printed, and the result is readable by its owner only. The result is a
`LoadResult`, a `Maintained`, or `{"error": …}` with a `TidegateError`; it appears whole or not at all. The exit code is 0 only
without an error.

A driver on another machine than spark-submit's finds the job where spark-submit copies its `--files`: in the working directory.
It cannot write the result then, and the task that started a load finds its receipt in the table.

This is a package because Python puts the folder of a script first on `sys.path`: in `tidegate/spark` itself, modules such as
`records` would hide installed ones of the same name.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession

from tidegate.core.model.errors import RequestError, TidegateError
from tidegate.core.model.ranges import total_count
from tidegate.core.state.codec import newer
from tidegate.core.state.jobs import LoadJob, LoadResult, Maintained, MaintenanceJob
from tidegate.sinks import maintain
from tidegate.spark import kafka_source
from tidegate.spark.errors import translated
from tidegate.spark.load import load_range
from tidegate.spark.settings import REDACTION, with_ours


def main(arguments: list[str] | None = None) -> int:
    """Run the job of `--job`, write its result to `--result`, and return the exit code.

    An option that is given twice has its last value.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=Path, required=True, help="the job as JSON, or a file of its name in the working folder")
    parser.add_argument("--result", type=Path, required=True, help="file that the result is written to")
    parser.add_argument("--spark-jobs", type=Path, required=True, help="folder that the transforms are imported from")
    options = parser.parse_args(arguments)
    try:
        job = read_job(options.job)
        result = maintain_table(job) if isinstance(job, MaintenanceJob) else run(job, spark_jobs=options.spark_jobs)
    except TidegateError as error:
        write_answer(options.result, {"error": error.to_dict()})
        say(f"failed: {type(error).__name__}: {error}")
        return 1
    write_answer(options.result, result.to_json())
    if isinstance(result, Maintained):
        say(str(result))
    elif result.landed_before:
        say(f"snapshot {result.receipt.snapshot} already holds this load: nothing written")
    else:
        say(f"snapshot {result.receipt.snapshot}: {result.observed.records} records read, {result.receipt.rows} rows written")
    return 0


def run(job: LoadJob, *, spark_jobs: Path) -> LoadResult:
    """The load, in a classic session that spark-submit's settings describe; the session is stopped afterwards."""
    say(f"{job.load.named} of {job.load.pipeline}: {total_count(job.load.ranges)} offsets to {job.table} by {job.transform}")
    with (
        translated(pipeline=job.load.pipeline, seq=job.load.seq, table=job.table),
        classic_session(f"tidegate-{job.load.pipeline}-{job.load.seq}") as spark,
    ):
        return load_range(spark, job, spark_jobs=spark_jobs)


def maintain_table(job: MaintenanceJob) -> Maintained:
    """The step of maintenance, as `run` does a load."""
    say(f"{job.step} of {job.table}")
    with translated(pipeline=job.pipeline, table=job.table), classic_session(f"tidegate-{job.pipeline}-{job.step}") as spark:
        return maintain(spark, job)


@contextmanager
def classic_session(name: str) -> Iterator[SparkSession]:
    """A session that spark-submit's settings describe, stopped at the end."""
    builder = SparkSession.builder.appName(name)
    submitted = SparkConf()  # the settings of spark-submit and its defaults
    settings = {key: with_ours(submitted.get(key), pattern) for key, pattern in REDACTION.items()}
    for key, value in {**settings, **kafka_source.SETTINGS}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def read_job(file: Path) -> LoadJob | MaintenanceJob:
    """The job in the file.

    Raises RequestError: there is no such file, or it holds no JSON. StateCorrupt: the JSON is no job. StateNewer: it asks for
    something that the version here, on the driver's machine, does not know.
    """
    try:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:  # it is on another machine, or another user's
            text = Path(file.name).read_text(encoding="utf-8")  # the copy of `--files`
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise RequestError(
            f"the job file {file} cannot be read ({type(error).__name__})",
            fix="Let the load task write it where the driver runs",
        ) from error
    job = MaintenanceJob.from_json(value) if "step" in value else LoadJob.from_json(value)
    if json.loads(json.dumps(job.to_json())) != value:  # what is left out here would not be done
        raise newer("the job has fields that the driver's Tidegate does not know")
    return job


def write_answer(file: Path, answer: dict[str, Any]) -> None:
    """Write the result as JSON, mode 0600: whole, or not at all. A failure to write is printed."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            json.dump(answer, out)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError as error:
        say(f"the result cannot be written to {file} ({type(error).__name__}); the receipt of a commit is in the table")


def say(line: str) -> None:
    """Print one line to the driver's output."""
    sys.stdout.write(f"tidegate: {line}\n")
    sys.stdout.flush()
