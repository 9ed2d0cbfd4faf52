"""Posts that a receiver lands in a topic, from where a pipeline loads them: curl to Iceberg, through Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.project import Project
from tests.e2e.runs import Runs, saved_ranges
from tests.topics import make_topic
from tidegate.airflow.remote.api import AirflowApi
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.waiting import wait_until
from tidegate_local import sockets
from tidegate_local.platform import Platform

DAG = "posts__receive"
OPEN_S = 180.0
"""Airflow reads the file, starts a run and three tasks, one after the other."""
ENDED_S = 120.0
LEASE = "1d"
"""Leases begin at its multiples, so no second instance takes over while a test runs, except at midnight (UTC)."""


@pytest.fixture
def receiver(platform: Platform, project: Project, api: AirflowApi) -> Iterator[str]:
    """Its URL, once it answers; paused afterwards, which ends it."""
    make_topic({"bootstrap.servers": platform.bootstrap_servers}, "posts", 2)
    port = sockets.choose_port()
    folder = project.root / "dags" / "receivers"
    folder.mkdir(exist_ok=True)
    stated = {"kind": "http", "topic": "posts", "listen": {"port": port}, "lease": LEASE}
    (folder / "posts.yaml").write_text(yaml.safe_dump(stated))
    project.let_airflow_read()
    try:
        api.wait_dag(DAG)
        api.unpause(DAG)
        assert wait_until(lambda: sockets.answers(port), OPEN_S, poll_s=0.5), api.dag_runs(DAG)
        yield f"http://127.0.0.1:{port}/"
    finally:
        api.patch(f"/dags/{DAG}", {"is_paused": True})
        (folder / "posts.yaml").unlink()
        project.let_airflow_read()
        assert wait_until(lambda: not sockets.answers(port), ENDED_S, poll_s=0.5)


def landed(project: Project) -> int:
    """Records, as the receiver's instance has told Airflow; it does so for the first time after seconds."""
    (view,) = json.loads(project.call("receivers", "posts", "--json").out)
    (instance,) = view["instances"]
    assert instance["state"] in ("running", "started")
    return int(instance["status"].get("records", 0))


def test_posts_are_in_the_table_once_each_after_a_run_of_the_pipeline_and_after_a_replay(
    receiver: str, api: AirflowApi, project: Project, catalog: None
) -> None:
    """What was answered 202 is in the topic; from there on it is a record as any other, except one that is sent again."""
    with httpx.Client(trust_env=False) as client:
        answered: list[Any] = [client.post(receiver, json={"carrier": "AA", "flight": n}) for n in range(20)]
        answered.append(client.post(receiver, json=[{"carrier": "BB"}, {"carrier": "CC"}]))
        assert [answer.status_code for answer in answered] == [202] * 21
        assert client.post(receiver, content=b"{", headers={"content-type": "application/json"}).status_code == 400
    for _ in range(3):  # each over a connection of its own
        again = httpx.post(receiver, json={"carrier": "DD"}, headers={"Idempotency-Key": "one"}, trust_env=False)
        assert again.status_code == 202
    assert wait_until(lambda: landed(project) == 25, ENDED_S, poll_s=1)
    repeats = {"dedupe": {"window": 1000}}
    project.write("posts", source={"topics": ["posts"]}, sink={"table": "lake.demo.posts"}, limits={}, **repeats)
    run = Runs(api, "posts").run()
    assert run["state"] == "success"
    loaded = saved_ranges(api, "posts", run["dag_run_id"])["posts"]
    assert sum(until - since for since, until in loaded.values()) == 25
    assert carriers() == ["AA"] * 20 + ["BB", "CC", "DD"]
    verdict = project.tidegate("ledger", "verify", "posts")
    assert (verdict["holds"], verdict["records"], verdict["repeats"]) == (True, 23, 2)
    first = carriers("_kafka_offset")
    replay = Runs(api, "posts__replay").run(batches="1")
    assert replay["state"] == "success"
    assert carriers("_kafka_offset") == first


def carriers(*and_column: str) -> list[Any]:
    """Who sent the rows of the table, sorted; with another column, both."""
    table = load_table("lake.demo.posts")
    assert table is not None
    columns = ["carrier", *and_column]
    rows = [tuple(row[name] for name in columns) for row in table.scan().to_arrow().to_pylist()]
    return sorted(rows if and_column else [row[0] for row in rows])
