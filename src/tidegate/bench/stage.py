"""What comparisons are measured on: an embedded platform in a temporary folder, records in its topics, and turns.

All comparisons of one command share the platform. Its servers are stopped between two comparisons, so that each begins with
JVMs that nothing has warmed up; topics stay, and are filled once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

from confluent_kafka import Producer

from tidegate.airflow.remote.api import AirflowApi
from tidegate.bench.page import is_rehearsal
from tidegate.bench.suite import Samples, add
from tidegate.core.errors import BrokerUnavailable
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.local import Platform
from tidegate.local.flights import create_topic

SCHEMA = "id BIGINT, name STRING, amount DOUBLE, at STRING"
KAFKA = '"key", "timestamp", "timestampType"'
TRANSFORMS = {
    "parse_json": "parse_json(records, SCHEMA)",
    "parse_json by workers": 'parse_json(records, SCHEMA, parser="python")',
    "from_json": f'records.withColumn("_v", F.from_json(F.col("value").cast("string"), SCHEMA)).drop("value", {KAFKA})'
    '.select("_v.*", "*").drop("_v")',
    "raw bytes": 'records.drop("key", "timestampType")',
}
"""What contenders make of a record, by name: an expression over `records`."""

_MODULE = f"""
from pyspark.sql import functions as F

from tidegate.spark.records import parse_json

SCHEMA = "{SCHEMA}"
"""
_DAGS = """
from pathlib import Path

from tidegate.airflow.dag_factory import build_dags

HERE = Path(__file__).resolve().parent

globals().update(build_dags(HERE / "pipelines", spark_jobs=HERE / "spark_jobs"))
"""

RUN = 4000
"""Records of a small batch."""

Round = Callable[[], Mapping[str, float]]
"""One round of a contender: its measures."""


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
    """One command's platform, and what was asked of it.

    Attributes:
        folder: a project with `dags/`, of which everything is gone after the command.
        rounds: how often each contender is measured.
        records: how many a large range holds.
        progress: called with a step, how much of it is done, and of how much.
    """

    def __init__(self, folder: Path, *, rounds: int, records: int, progress: Callable[[str, int, int | None], object]) -> None:
        self.folder, self.rounds, self.records, self.progress = folder, rounds, records, progress
        self.rehearsal = is_rehearsal(records)
        self.dags, self.spark_jobs, self.pipelines = (
            folder / "dags",
            folder / "dags" / "spark_jobs",
            folder / "dags" / "pipelines",
        )
        for needed in (self.spark_jobs, self.pipelines):
            needed.mkdir(parents=True)
        write_transforms(self.spark_jobs)
        self.platform = Platform(folder / ".tidegate", folder)
        self._filled: dict[str, tuple[int, ...]] = {}

    # ---- servers

    def up(self, *parts: str, warm: bool = False) -> Platform:
        """The platform, with these parts running; its catalog is that of PyIceberg in this process.

        With `warm`, a Spark server that is started is warmed up, as `tidegate up` does.
        """
        started = time.perf_counter()

        def report(part: str, state: str) -> None:
            self.progress(f"{part}: {state} ({time.perf_counter() - started:.0f} s)", 0, None)

        self.platform.up(parts, report=report, warm=warm)
        self.platform.use_catalog()
        return self.platform

    def down(self) -> None:
        """Stop what runs."""
        self.platform.down()

    @property
    def kafka(self) -> dict[str, str]:
        """The settings of a Kafka client."""
        return {"bootstrap.servers": self.platform.bootstrap_servers}

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's Kafka source."""
        return {f"kafka.{name}": value for name, value in self.kafka.items()}

    # ---- DAGs

    def set_dags(self, pipelines: Mapping[str, str], **files: str) -> None:
        """The DAG folder: a pipeline of JSON records for each name, which reads that topic, and other files of DAGs.

        Without both it is empty, as a new Airflow's.
        """
        for file in (*self.pipelines.glob("*.yaml"), *self.dags.glob("*.py")):
            file.unlink()
        for name, topic in pipelines.items():
            settings = {
                "source": {"topics": [topic]},
                "transform": transform("parse_json"),
                "sink": {"table": f"lake.bench.{name}"},
                "limits": {"max_records": RUN},
            }
            (self.pipelines / f"{name}.yaml").write_text(json.dumps(settings))
        if pipelines:
            (self.dags / "tidegate_dags.py").write_text(_DAGS)
        for name, text in files.items():
            (self.dags / f"{name}.py").write_text(text)

    def start_dags(self, api: AirflowApi, dag_ids: Iterable[str]) -> None:
        """Wait until Airflow has read the DAGs, and unpause them."""
        for dag_id in dag_ids:
            api.wait_dag(dag_id, timeout_s=120)
            api.unpause(dag_id)

    # ---- records

    def fill(self, topic: str, counts: Sequence[int]) -> tuple[OffsetRange, ...]:
        """Add so many records to each partition of a topic, which is made if it is missing; the ranges of the new ones."""
        before = self._filled.get(topic, (0,) * len(counts))
        self.progress(f"writing {sum(counts):,} records to {topic}", 0, None)
        fill(self.platform.bootstrap_servers, topic, counts)
        self._filled[topic] = tuple(map(sum, zip(before, counts, strict=True)))
        return tuple(
            OffsetRange(topic, p, start, start + count) for p, (start, count) in enumerate(zip(before, counts, strict=True))
        )

    def filled(self, topic: str, counts: Sequence[int]) -> tuple[OffsetRange, ...]:
        """As `fill`, once for all comparisons that read the same topic."""
        if topic not in self._filled:
            return self.fill(topic, counts)
        return tuple(OffsetRange(topic, p, 0, count) for p, count in enumerate(self._filled[topic]))

    # ---- turns

    def sizes(self, *sizes: int) -> tuple[int, ...]:
        """All of them, or the first alone in a rehearsal."""
        return sizes[:1] if self.rehearsal else sizes

    def alternate(self, contenders: Mapping[str, Round], *, warm_up: int = 2, in_order: bool = False) -> Samples:
        """As the function `alternate`, in the rounds of the command; a rehearsal does not warm up."""
        warm_up = 0 if self.rehearsal else warm_up
        return alternate(contenders, rounds=self.rounds, warm_up=warm_up, progress=self.progress, in_order=in_order)


def alternate(
    contenders: Mapping[str, Round],
    *,
    rounds: int,
    warm_up: int,
    progress: Callable[[str, int, int | None], object],
    in_order: bool = False,
) -> Samples:
    """Each contender in turn, in every round; those that warm up are not measured.

    Every other round goes backwards, so that none always follows the same one; not where they depend on each other
    (`in_order`).
    """
    samples: Samples = {}
    total = rounds + warm_up
    for turn in range(total):
        order = list(contenders.items())
        for name, run in order if in_order or turn % 2 == 0 else reversed(order):
            what = "warm-up" if turn < warm_up else f"round {turn - warm_up + 1} of {rounds}"
            progress(f"{what}: {name}", turn, total)
            measured = run()
            if turn >= warm_up:
                add(samples, name, measured)
    return {name: samples[name] for name in contenders}


def seconds_of(run: Callable[[], object]) -> dict[str, float]:
    """How long it takes."""
    started = time.perf_counter()
    run()
    return {"time": time.perf_counter() - started}


def rate_of(run: Callable[[], object], records: int) -> dict[str, float]:
    """Records per second, and how long it takes."""
    seconds = seconds_of(run)["time"]
    return {"rate": records / seconds, "time": seconds}


def evenly(records: int, partitions: int = 2) -> tuple[int, ...]:
    """As many records for each partition."""
    return (records // partitions,) * partitions


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
    for partition, count in enumerate(counts):
        for number, value in enumerate(islice(cycle(values), count)):
            own: list[tuple[str, str | bytes | None]] = (
                [] if header is None else [(header, f"{number:032x}/{partition}".encode())]
            )
            producer.produce(topic, value=value, partition=partition, headers=own)
            if number % 10_000 == 0:
                producer.flush()
    if producer.flush(60):
        raise BrokerUnavailable("the broker did not take all records in a minute", fix="Run the comparison again", topic=topic)
