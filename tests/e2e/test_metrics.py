"""Metrics of a real batch, as they arrive at a StatsD server: of tasks, and of the scheduler."""

from __future__ import annotations

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tests.e2e.statsd import Statsd
from tests.topics import make_topic, write
from tidegate.airflow.remote.api import AirflowApi
from tidegate.views.metrics import METRICS
from tidegate.waiting import wait_until
from tidegate_local.platform import Platform

ARRIVES_S = 30


def arrived(statsd: Statsd, pipeline: str, **expected: str) -> bool:
    """Whether these values came, by the name with `_` for its first dot."""
    names = {f"{name.replace('_', '.', 1)}.{pipeline}": value for name, value in expected.items()}
    return wait_until(lambda: names.items() <= statsd.received.items(), ARRIVES_S)


def test_a_batch_says_what_it_took_and_a_failed_run_that_the_pipeline_stopped(
    api: AirflowApi, platform: Platform, project: Project, statsd: Statsd
) -> None:
    """Also how many of its rows are of broken records, which the run's note says as well."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    make_topic(kafka, "metered", 1)
    write(kafka, "metered", 0, [b'{"carrier":"AA"}'] * 29 + [b"no JSON"])
    what = {"source": {"topics": ["metered"]}, "sink": {"table": "lake.demo.metered"}}
    project.write("metered", **what)
    runs = Runs(api, "metered")
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    answer = api.xcom("metered", run["dag_run_id"], "load")
    assert answer["observed"]["errors"] == 1
    # what the limit `max_bytes` of the next run counts by
    assert state_of(api, "tidegate.metered.cursor")["record_bytes"] == (29 * len(b'{"carrier":"AA"}') + len(b"no JSON")) / 30
    assert answer["spark_age_s"] > 0
    assert run["note"].endswith("rows of broken records: 1, each with the reason in its column _error")
    assert arrived(statsd, "metered", lag_records="30|g", batch_rows="30|g", batch_errors="1|g", batch_committed="1|c")
    assert arrived(statsd, "metered", pipeline_stopped="0|g")

    write(kafka, "metered", 0, [b'{"carrier":"AA"}'] * 5)
    project.write("metered", **what, transform="transforms.flights:missing")
    failed = runs.run()
    assert failed["state"] == "failed"
    assert arrived(statsd, "metered", lag_records="5|g", pipeline_stopped="1|g", batch_failed="1|c")
    mine = {name.removesuffix(".metered") for name in statsd.received if name.endswith(".metered")}
    assert mine <= METRICS.keys()
