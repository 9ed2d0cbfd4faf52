"""Where a Kafka connection's credentials could show in Spark: plans, texts of the UI, event logs; both ways of running."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.loading import SPARK_JOBS, new_topic, submitted
from tests.records import changed
from tests.topics import write
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate_local import spark_connect
from tidegate_local.jars import locate_jars, pyspark_home
from tidegate_local.platform import Platform
from tidegate_local.sockets import choose_port

SECRET = "hush-hush-4711"  # noqa: S105 - not one
SECRETS = {
    "kafka.sasl.jaas.config": f'a.b.PlainLoginModule required username="\\u" password="{SECRET}";',
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n{'x' * 3000}\n-----END PRIVATE KEY-----",
    "kafka.ssl.key.password": SECRET,
    "kafka.ssl.truststore.password": SECRET,
    "kafka.sasl.oauthbearer.client.credentials.client.secret": SECRET,
}


@dataclass(frozen=True)
class Logging:
    """A Spark Connect server that writes an event log, and nothing of ours in its settings."""

    remote: str
    conf: Path
    events: Path

    def told(self) -> str:
        """All event logs so far."""
        return "".join(file.read_text() for file in sorted(self.events.rglob("*")) if file.is_file() and file.suffix != ".crc")


@pytest.fixture(scope="module")
def server(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logging]:
    """Started beside the platform's own, on its catalog, and stopped by its pid file."""
    folder = tmp_path_factory.mktemp("spark")
    spark_connect.prepare(folder, platform.state_dir / "lake", locate_jars().spark)
    events = folder / "events"
    events.mkdir()
    settings = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    with (folder / "conf" / "spark-defaults.conf").open("a") as defaults:
        defaults.write(spark_connect.render_properties({f"spark.eventLog.{key}": value for key, value in settings.items()}))
    port = choose_port([])
    made = spark_connect.spark_connect(
        folder=folder,
        port=port,
        spark_home=pyspark_home(),
        env={**os.environ, **platform.environment(), "SPARK_CONF_DIR": str(folder / "conf")},
        log=folder / "spark.log",
        pid_file=folder / "spark.pid",
    )
    try:
        made.start()
        yield Logging(f"sc://127.0.0.1:{port}", folder / "conf", events)
        assert SECRET not in made.log.read_text()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def topic(platform: Platform) -> str:
    """A topic with 10 records."""
    name = new_topic(platform)
    write({"bootstrap.servers": platform.bootstrap_servers}, name, 0, [b'{"flight": %d}' % number for number in range(10)])
    return name


@pytest.fixture
def job(job_of: Callable[..., LoadJob], topic: str) -> LoadJob:
    """All of it, with credentials that a broker without security ignores."""
    made = job_of("transforms.flights:flights", OffsetRange(topic, 0, 0, 10))
    return changed(made, kafka_options={**made.reading.kafka_options, **SECRETS})


def test_no_plan_shows_an_option_of_the_connection(server: Logging, job: LoadJob) -> None:
    """In none of Spark's ways to explain."""
    with connect(server.remote, name="tests") as spark:
        records = read_ranges(spark, job.load.ranges, job.reading.kafka_options)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            for mode in ("simple", "extended", "codegen", "cost", "formatted"):
                records.explain(mode=mode)
    assert "KafkaScan" in shown.getvalue()
    assert SECRET not in shown.getvalue()


def test_a_connect_servers_event_log_holds_no_secret(server: Logging, job: LoadJob) -> None:
    """The server keeps the text of each request; our sessions redact it, whatever the server's settings are."""
    with connect(server.remote, name="tests") as spark:
        load_range(spark, job, spark_jobs=SPARK_JOBS)
        # requests that are less deep than a load's write are kept whole
        assert load_range(spark, changed(job, contiguous=True), spark_jobs=SPARK_JOBS).landed_before
        assert len(read_ranges(spark, job.load.ranges, job.reading.kafka_options).collect()) == 10
    told = server.told()
    assert "kafka.bootstrap.servers" in told
    assert job.table.rpartition(".")[2] in told
    assert SECRET not in told


def test_a_submitted_jobs_event_log_holds_no_secret(platform: Platform, server: Logging, job: LoadJob, tmp_path: Path) -> None:
    """Nor its output, nor its answer."""
    job_file, result_file = tmp_path / "job.json", tmp_path / "result.json"
    job_file.write_text(json.dumps(job.to_json()))
    application = [SPARK_JOBS / "load_range.py", "--job", job_file, "--result", result_file]
    done = submitted(platform, *application, SPARK_CONF_DIR=str(server.conf))
    assert done.returncode == 0, done.stderr
    told = server.told()
    assert "tidegate-flights-0" in told
    assert SECRET not in done.stdout + done.stderr + result_file.read_text() + told
