"""What most benchmarks are measured on: an embedded platform, records in its topics, tables, and turns."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.records import load_job
from tidegate.core.load.lookup import Lookup
from tidegate.core.model.ranges import OffsetRange, total_count
from tidegate.core.state.jobs import LoadJob
from tidegate.sinks import sink_of
from tidegate.sinks.identity import identity_of
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate.spark.transforms import find_transform
from tidegate_local.flights import create_topic
from tidegate_local.platform import Platform

SCHEMA = "id BIGINT, name STRING, amount DOUBLE, at STRING"
KAFKA = '"key", "timestamp", "timestampType", "headers"'
TRANSFORMS = {
    "parse_json": "parse_json(records, SCHEMA)",
    "parse_json by workers": 'parse_json(records, SCHEMA, parser="python")',
    "from_json": f'records.withColumn("_v", F.from_json(F.col("value").cast("string"), SCHEMA)).drop("value", {KAFKA})'
    '.select("_v.*", "*").drop("_v")',
    "raw bytes": 'records.drop("key", "timestampType", "headers")',
}
"""What contenders make of a record, by name: an expression over `records`."""

_MODULE = f"""
from pyspark.sql import functions as F

from tidegate.formats.json import parse_json

SCHEMA = "{SCHEMA}"
"""
_DAGS = """
from pathlib import Path

from tidegate.airflow.dags import build_dags

HERE = Path(__file__).resolve().parent

globals().update(build_dags(HERE / "pipelines", spark_jobs=HERE / "spark_jobs"))
"""

RUN = 4000
"""Records of a small batch."""

Round = Callable[[], Mapping[str, float]]
"""One round of a contender: its measures."""

Samples = dict[str, dict[str, list[float]]]
"""Contender, measure, and its value in each round."""

_NUMBERS = count(1)


def write_transforms(spark_jobs: Path) -> None:
    """The module that `transform` names, into a folder of transforms."""
    functions = (f"\n\ndef {_function(name)}(records):\n    return {rows}\n" for name, rows in TRANSFORMS.items())
    (spark_jobs / "rows.py").write_text(_MODULE + "".join(functions))


def transform(name: str) -> str:
    """How a pipeline names one of `TRANSFORMS`."""
    return f"rows:{_function(name)}"


def _function(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_") + "_rows"


class Stage:
    """A platform, and the turns on it.

    Args:
        folder: a project with `dags/`, of which everything is gone after the benchmark.
        rounds: how often each contender is measured.
        warm_up: rounds before these, which are not measured.
    """

    def __init__(self, folder: Path, rounds: int, warm_up: int) -> None:
        self.folder, self.rounds, self.warm_up = folder, rounds, warm_up
        self.dags, self.spark_jobs, self.pipelines = (folder / "dags" / sub for sub in ("", "spark_jobs", "pipelines"))
        for needed in (self.spark_jobs, self.pipelines):
            needed.mkdir(parents=True)
        write_transforms(self.spark_jobs)
        self.platform = Platform(folder / ".tidegate", folder)
        self._filled: dict[str, tuple[int, ...]] = {}

    def close(self) -> None:
        """Stop what runs."""
        self.platform.down()

    def up(self, *parts: str, warm: bool = False) -> Platform:
        """The platform, with these parts running; its catalog is that of PyIceberg in this process.

        With `warm`, a Spark server that is started is warmed up, as `tidegate up` does.
        """
        self.platform.up(parts, report=lambda part, state: tell(f"{part}: {state}"), warm=warm)
        self.platform.use_catalog()
        return self.platform

    @property
    def kafka(self) -> dict[str, str]:
        """The settings of a Kafka client."""
        return {"bootstrap.servers": self.platform.bootstrap_servers}

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's Kafka source."""
        return {f"kafka.{name}": value for name, value in self.kafka.items()}

    def set_dags(self, pipelines: Iterable[str], **files: str) -> None:
        """A pipeline of JSON records for each name, which reads the topic of that name, and other files of DAGs."""
        for name in pipelines:
            settings = {
                "source": {"topics": [name]},
                "transform": transform("parse_json"),
                "sink": {"table": f"lake.bench.{name}"},
                "limits": {"max_records": RUN},
            }
            (self.pipelines / f"{name}.yaml").write_text(json.dumps(settings))
        for name, text in {"tidegate_dags": _DAGS, **files}.items():
            (self.dags / f"{name}.py").write_text(text)

    def fill(self, topic: str, counts: Sequence[int], *, header: str | None = None) -> tuple[OffsetRange, ...]:
        """Add so many records to each partition of a topic, which is made if it is missing; the ranges of the new ones."""
        before = self._filled.get(topic, (0,) * len(counts))
        fill(self.platform.bootstrap_servers, topic, counts, header=header)
        self._filled[topic] = tuple(map(sum, zip(before, counts, strict=True)))
        return tuple(
            OffsetRange(topic, p, start, start + count) for p, (start, count) in enumerate(zip(before, counts, strict=True))
        )

    def job_for(self, name: str, ranges: tuple[OffsetRange, ...], table: str | None = None) -> LoadJob:
        """The load of the ranges into a table of its own, by the transform of that name."""
        table = table or f"lake.bench.t{next(_NUMBERS)}"
        return load_job("bench", 1, "bench", ranges, transform(name), table, self.options)

    def make_table(self, spark: SparkSession, job: LoadJob) -> None:
        """The job's table, without rows: all are of one kind, with Tidegate's own properties."""
        identity = identity_of(job)
        rows = find_transform(job.transform, self.spark_jobs)(read_ranges(spark, job.load.ranges, job.reading.kafka_options))
        sink_of(job, spark).prepare(identity.check(rows.schema, job.transform), identity, job, Lookup(exists=False))

    @contextmanager
    def new_table(self, spark: SparkSession, name: str, ranges: tuple[OffsetRange, ...]) -> Iterator[LoadJob]:
        """A load into a new table, whose rows are counted at the end, and which is then dropped."""
        job = self.job_for(name, ranges)
        self.make_table(spark, job)
        yield job
        check_rows(spark, job)
        drop(spark, job.table)

    def compare_loads(self, jobs: Mapping[str, LoadJob], plain: Mapping[str, str]) -> dict[str, Any]:
        """Median seconds of each load, and how many times as long as its plain one it takes; after rounds that warm up.

        One that does not write a row for each of its records ends the benchmark.
        """

        def load(job: LoadJob) -> None:
            result, records = load_range(spark, job, spark_jobs=self.spark_jobs), total_count(job.load.ranges)
            if result.receipt.rows != records:
                raise SystemExit(f"{job.table}: {result.receipt.rows} rows of {records} records")
            tell(str(dict(result.seconds)))

        with connect(self.platform.spark_remote, name="bench") as spark:
            found = self.alternate({name: partial(seconds_of, partial(load, job)) for name, job in jobs.items()})
        seconds = {name: samples["time"] for name, samples in found.items()}

        def ratio(name: str, of: str) -> float:
            return round(statistics.median(a / b for a, b in zip(seconds[name], seconds[of], strict=True)), 3)

        medians = {name: round(statistics.median(taken), 2) for name, taken in seconds.items()}
        return {"seconds": medians, "ratio": {name: ratio(name, of) for name, of in plain.items()}, "rounds": self.rounds}

    def alternate(self, contenders: Mapping[str, Round], *, warm_up: int | None = None) -> Samples:
        """Each contender in turn, in every round."""
        return alternate(contenders, rounds=self.rounds, warm_up=self.warm_up if warm_up is None else warm_up)


def alternate(contenders: Mapping[str, Round], *, rounds: int, warm_up: int) -> Samples:
    """Each contender in turn, in every round; those that warm up are not measured.

    Every other round goes backwards, so that none always follows the same one.
    """
    samples: Samples = {name: {} for name in contenders}
    for turn in range(warm_up + rounds):
        order = list(contenders.items())
        for name, run in order if turn % 2 == 0 else reversed(order):
            tell(f"{'warm-up' if turn < warm_up else f'round {turn - warm_up + 1} of {rounds}'}: {name}")
            measured = run()
            if turn >= warm_up:
                for measure, value in measured.items():
                    samples[name].setdefault(measure, []).append(value)
    return samples


def told(samples: Samples) -> dict[str, Any]:
    """What a benchmark prints: on what it was measured, the median of each measure, and its values."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    commit = subprocess.run(described, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
    versions = {name: importlib.metadata.version(name) for name in ("pyspark", "apache-airflow")}
    return {
        "machine": {"commit": commit, "cores": os.cpu_count(), "load": os.getloadavg()[0], **versions},
        "medians": {name: {of: statistics.median(values) for of, values in each.items()} for name, each in samples.items()},
        "values": samples,
    }


def tell(step: str) -> None:
    """What is done now, for who waits."""
    print(step, file=sys.stderr)  # noqa: T201


def seconds_of(run: Callable[[], object]) -> dict[str, float]:
    """How long it takes."""
    started = time.perf_counter()
    run()
    return {"time": time.perf_counter() - started}


def check_rows(spark: SparkSession, job: LoadJob) -> None:
    """Each record of the job's ranges is a row, or the benchmark ends: figures of such a load lie."""
    rows, expected = spark.table(job.table).count(), total_count(job.load.ranges)
    if rows != expected:
        raise SystemExit(f"{job.table} holds {rows:,} rows of {expected:,} records")


def drop(spark: SparkSession, table: str) -> None:
    """The table and its files."""
    spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")


def fill(bootstrap: str, topic: str, counts: Sequence[int], *, header: str | None = None) -> None:
    """Add so many records of about 140 bytes to each partition of a topic; `header` has another value in each of them.

    They are the same thousand values over and over: making JSON is not what is measured.
    """
    settings = {"bootstrap.servers": bootstrap}
    create_topic(settings, topic, len(counts))
    producer = Producer({**settings, "linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000})
    values = [
        json.dumps(
            {"id": n, "name": f"customer-{n:06}", "amount": n / 7, "at": "2026-01-01T10:00:00Z", "note": "x" * 40}
        ).encode()
        for n in range(1000)
    ]
    for partition, records in enumerate(counts):
        for number, value in enumerate(islice(cycle(values), records)):
            own: list[tuple[str, str | bytes | None]] = (
                [] if header is None else [(header, f"{number:032x}/{partition}".encode())]
            )
            producer.produce(topic, value=value, partition=partition, headers=own)
            if number % 10_000 == 0:
                producer.flush()
    if producer.flush(60):
        raise SystemExit(f"the broker did not take all records of {topic} in a minute")
