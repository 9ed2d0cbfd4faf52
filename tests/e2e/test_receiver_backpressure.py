"""A burst held by what its pipeline loads: a socket, a receiver, a topic, a pipeline, a table. All policies: the unit tests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tests.topics import make_topic
from tidegate.airflow.remote.api import AirflowApi
from tidegate.kafka.brokers import AdminBrokers
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.waiting import wait_until
from tidegate_local import sockets
from tidegate_local.platform import Platform

LINES = 4500
LINE = json.dumps({"carrier": "AA", "tailnum": "x" * 2900}).encode() + b"\n"
"""Together they are more than all sockets on their way hold."""
MOST = 2000
BATCH = {"max_records": 2000, "interval_s": 60}
FAST = {"max_records": 24_000, "interval_s": 60}
RATE = 400
BACKPRESSURE: dict[str, dict[str, Any]] = {
    "rate": {"policy": "rate", "pipeline": "burst_rate"},
    "credit": {"policy": "credit", "pipeline": "burst_credit", "max_backlog": MOST},
}
OPEN_S = 240.0
"""Airflow reads the files, and starts two runs of three tasks."""
LANDED_S = 120.0
LEASE = "1d"
"""Leases begin at its multiples, so no second instance takes over while a test runs, except at midnight (UTC)."""


@dataclass
class Burst:
    """A sender without a brake, of all lines over one connection."""

    port: int
    error: Exception | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._send, daemon=True)
        self.thread.start()

    def _send(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(LINE * LINES)
        except OSError as error:
            self.error = error

    @property
    def is_held(self) -> bool:
        """Whether it has not handed over all."""
        return self.thread.is_alive()


@pytest.fixture(scope="module")
def ports(platform: Platform, project: Project) -> Iterator[dict[str, int]]:
    """The port of a receiver for each policy, once all listen; paused afterwards, which ends them."""
    folder = project.root / "dags" / "receivers"
    folder.mkdir(exist_ok=True)
    ports = {policy: sockets.choose_port() for policy in BACKPRESSURE}
    for policy, stated in BACKPRESSURE.items():
        name = f"burst_{policy}"
        make_topic({"bootstrap.servers": platform.bootstrap_servers}, name, 1)
        limits = BATCH if "max_backlog" in stated else FAST
        project.write(name, source={"topics": [name]}, sink={"table": f"lake.demo.{name}"}, limits=limits)
        receiver = {
            "kind": "tcp_server",
            "topic": name,
            "listen": {"port": ports[policy]},
            "lease": LEASE,
            "backpressure": stated,
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(receiver))
    project.let_airflow_read()
    with platform.api() as api:
        try:
            for policy in ports:
                api.wait_dag(f"burst_{policy}__receive")
                api.unpause(f"burst_{policy}__receive")
            assert wait_until(lambda: all(map(sockets.answers, ports.values())), OPEN_S, poll_s=0.5)
            yield ports
        finally:
            for policy in ports:
                api.patch(f"/dags/burst_{policy}__receive", {"is_paused": True})
                (folder / f"burst_{policy}.yaml").unlink()
            project.let_airflow_read()
            assert wait_until(lambda: not any(map(sockets.answers, ports.values())), OPEN_S, poll_s=0.5)


def end_of(platform: Platform, topic: str) -> int:
    (end,) = AdminBrokers({"bootstrap.servers": platform.bootstrap_servers}).watermarks([topic]).latest.values()
    return end


def status(project: Project, name: str) -> dict[str, Any]:
    """What the receiver's instance has told Airflow last; it does so every few seconds."""
    (view,) = json.loads(project.call("receivers", name, "--json").out)
    said: dict[str, Any] = view["instances"][0]["status"]
    return said


def rows_of(name: str) -> int:
    table = load_table(f"lake.demo.{name}")
    return 0 if table is None else table.scan(selected_fields=("carrier",)).to_arrow().num_rows


def test_a_rate_spreads_a_burst_and_every_line_becomes_one_row(
    ports: dict[str, int], platform: Platform, project: Project, api: AirflowApi, catalog: None
) -> None:
    """What the pipeline loads: its bound for each second of its interval."""
    policy, name = "rate", "burst_rate"
    burst = Burst(ports[policy])
    assert wait_until(lambda: status(project, name).get("rate") == RATE, LANDED_S, poll_s=1)
    assert wait_until(lambda: end_of(platform, name) == LINES, LANDED_S, poll_s=0.2)
    assert burst.error is None
    run = Runs(api, name).run()
    assert (run["state"], rows_of(name)) == ("success", LINES)
    assert wait_until(lambda: status(project, name)["records"] == LINES, LANDED_S, poll_s=1)
    assert status(project, name)["throttled_s"] > LINES / RATE / 2


def test_a_slow_pipeline_holds_the_sender_and_the_backlog_stays_in_its_bound(
    ports: dict[str, int], platform: Platform, project: Project, api: AirflowApi, catalog: None
) -> None:
    """Each run makes room for more; in the end every line is one row. Credit keeps the bound to the record."""
    policy, name = "credit", "burst_credit"
    runs = Runs(api, name)
    burst = Burst(ports[policy])
    loaded, backlogs = 0, []

    def is_full() -> bool:
        backlogs.append(end_of(platform, name) - loaded)
        if backlogs[-1] >= 0.9 * MOST or loaded + backlogs[-1] == LINES:
            return True
        said = status(project, name)
        return backlogs[-1] > 0.4 * MOST and said.get("room") == 0 and bool(said["lag"] == backlogs[-1])

    while loaded < LINES:
        assert wait_until(is_full, LANDED_S, poll_s=0.5), (loaded, backlogs, status(project, name))
        assert burst.is_held or loaded + backlogs[-1] + 4 * MOST >= LINES
        assert runs.run()["state"] == "success"
        loaded = rows_of(name)
    assert loaded == LINES
    assert burst.error is None
    assert max(backlogs) <= 1.2 * MOST
    assert max(backlogs) >= 0.9 * MOST
    assert status(project, name)["last_error"] is None
