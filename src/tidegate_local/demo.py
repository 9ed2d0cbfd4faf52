"""The main job, end to end, on the embedded platform, with a verdict that does not depend on Spark.

flights -> topic `flights` -> runs of the DAG `flights`, triggered through Airflow's REST API -> lake.demo.flights
verdict: librdkafka reads the topic, PyIceberg the table; every (partition, offset) is there exactly once
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.audit.oracle import Verdict, judge
from tidegate.core.model.errors import PlatformError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.sinks.iceberg.history import read_origins
from tidegate_local import flights
from tidegate_local.platform import Platform

PIPELINE = "flights"
TABLE = "lake.demo.flights"
LATER_ROUNDS = 36_776
RUN_TIMEOUT_S = 900.0
POLL_S = 0.25
DOING = {
    "plan": "asks Kafka for the end of the log and saves the range",
    "load": "Spark reads the range and writes the table",
    "commit": "checks the receipt and moves the cursor",
}
FIRST_LOAD = "; the first load after Spark's start compiles its code, which may take a minute"


class Progress(Protocol):
    """Called with the demo's progress."""

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """`done` of `total` of one step; a total of None is not known."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One DAG run as a row of the demo's table: seconds from queued to success, and of each task."""

    run_id: str
    state: str
    seq: int | None
    ranges: tuple[OffsetRange, ...]
    rows: int | None
    seconds: float
    task_seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "run_id": self.run_id,
            "state": self.state,
            "seq": self.seq,
            "ranges": [str(r) for r in self.ranges],
            "rows": self.rows,
            "seconds": round(self.seconds, 2),
            "task_seconds": {task: round(s, 2) for task, s in self.task_seconds.items()},
        }


class Demo:
    """One demo on a platform that is up."""

    def __init__(self, platform: Platform, api: AirflowApi, progress: Progress) -> None:
        self._platform = platform
        self._progress = progress
        self._api = api
        self._kafka = {"bootstrap.servers": platform.bootstrap_servers, "client.id": "tidegate-demo"}
        self._ledger = Ledger(ApiStore(self._api), PIPELINE)

    def produce(self, count: int | None) -> int:
        """Produce flights: all of 2013 the first time, later years afterwards; returns how many.

        Args:
            count: how many; None for the usual number of the round.
        """
        created = flights.create_topic(self._kafka)
        before = 0 if created else sum(self._watermarks().latest.values())
        first = before == 0
        frame = flights.read_flights(count if count is not None or first else LATER_ROUNDS, year=self._round(before))
        total = len(frame)
        return flights.produce(self._kafka, frame, progress=lambda done: self._progress("producing flights", done, total))

    @staticmethod
    def _round(records: int) -> int:
        return -(-records // 336_776)

    def runs(self) -> Iterator[Run]:
        """Trigger runs, one after the other, until nothing lags.

        Raises:
            PlatformError: a run failed, or did not end in time; the message has the cause.
        """
        self._progress(f"waiting until Airflow has read the DAG {PIPELINE}", 0, None)
        self._api.wait_dag(PIPELINE)
        self._api.unpause(PIPELINE)
        first = True
        while self.lag():
            run_id = self._api.trigger(PIPELINE, {})
            run = self._follow(run_id, FIRST_LOAD if first else "")
            first = False
            yield run
            if run.state != "success":
                raise PlatformError(
                    f"run {run_id} ended as {run.state}: {self._api.why_failed(PIPELINE, run_id)}",
                    fix="The saved range is kept, and the next run adopts it",
                )

    def lag(self) -> int:
        """Records between the cursor and the end of the log."""
        cursor = self._ledger.cursor() if self._ledger.listing().has_cursor else Cursor(pipeline=PIPELINE, seq=0)
        marks = self._watermarks()
        return sum(end - cursor.at.offsets.get(tp, marks.earliest[tp]) for tp, end in marks.latest.items())

    def verdict(self) -> Verdict:
        """Compare log and table, record by record."""
        self._platform.use_catalog()
        marks = self._watermarks()
        total = sum(marks.latest[tp] - marks.earliest[tp] for tp in marks.latest)
        log = read_offsets(self._kafka, marks, progress=lambda done: self._progress("reading the log", done, total))
        self._progress("reading the table", 0, None)
        return judge(log, read_origins(TABLE))

    def _watermarks(self) -> Watermarks:
        return AdminBrokers(self._kafka).watermarks([flights.TOPIC])

    def _follow(self, run_id: str, about_load: str) -> Run:
        def show(run: dict[str, Any]) -> None:
            tasks = self._api.task_instances(PIPELINE, run_id) if run["state"] == "running" else []
            self._progress(doing(run, tasks, about_load), 0, None)

        return self._row(self._api.wait_run(PIPELINE, run_id, timeout_s=RUN_TIMEOUT_S, poll_s=POLL_S, progress=show))

    def _row(self, run: dict[str, Any]) -> Run:
        run_id = run["dag_run_id"]
        plan = self._api.xcom(PIPELINE, run_id, "plan") or {}
        load = self._api.xcom(PIPELINE, run_id, "load") or {}
        tasks = self._api.task_instances(PIPELINE, run_id)
        order = {"plan": 0, "load": 1, "commit": 2}
        return Run(
            run_id=run_id,
            state=run["state"],
            seq=plan.get("seq"),
            ranges=self._ledger.saved_range(plan["key"]).load.ranges if plan else (),
            rows=load.get("receipt", {}).get("rows"),
            seconds=_seconds(run["queued_at"], run["end_date"]),
            task_seconds={
                t["task_id"]: t["duration"]
                for t in sorted(tasks, key=lambda t: order.get(t["task_id"], 9))
                if t["duration"] is not None
            },
        )


def doing(run: dict[str, Any], tasks: list[dict[str, Any]], about_load: str = "") -> str:
    """What a run does right now, in a line: the task that is at work, or the state that it waits in."""
    run_id = run["dag_run_id"]
    for task, what in DOING.items():
        state = next((t["state"] for t in tasks if t["task_id"] == task), None)
        if state == "running":
            return f"run {run_id}, {task}: {what}{about_load if task == 'load' else ''}"
        if state not in (None, "success"):
            return f"run {run_id}, {task}: {state}"
    return f"run {run_id}: {run['state']}"


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
