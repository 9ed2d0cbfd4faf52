"""The tasks of a pipeline and their runs, with ports in memory: without brokers, Spark, a table or Airflow's database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from tidegate.airflow.operators import finish, load, plan, spark
from tidegate.airflow.operators.finish import FinishOperator
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.operators.plan import PlanOperator, PlanReplayOperator
from tidegate.core.config.pipeline import Pipeline
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore


def use_ports(
    monkeypatch: pytest.MonkeyPatch, *, store: MemoryStore, sink: FakeReader, brokers: FakeBrokers, runner: Any
) -> None:
    """Let every task of a batch or a replay use these; `runner` runs the loads."""
    ports = {"store": store, "brokers": brokers, "sink": sink}
    connection = SimpleNamespace(conn_type="spark_connect", conn_id="c")
    for module in (plan, finish):
        monkeypatch.setattr(module, "ports_of", lambda *_: ports)
    for module in (load, finish):
        monkeypatch.setattr(module, "VariableStore", lambda: store)
    monkeypatch.setattr(spark, "get_connection", lambda *_, **__: connection)
    monkeypatch.setattr(spark, "ConnectRunner", lambda *_, **__: runner)
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    monkeypatch.setattr(load, "brokers_of", lambda *_: brokers)
    monkeypatch.setattr(finish, "reader_of", lambda _: sink)
    monkeypatch.setattr(FinishOperator, "_show_in_group", lambda *_: None)


class Run:
    """A DAG run whose tasks are executed one after the other; what they hand on is kept as JSON, as by Airflow."""

    def __init__(self, run_id: str, params: Mapping[str, Any] | None = None, run_type: str = "manual", **dag_run: Any) -> None:
        self.run_id, self.params = run_id, dict(params or {})
        self.cleared = 0  # tries more than the task has of itself, as Airflow adds them
        self.dag_run = SimpleNamespace(run_type=run_type, **{"clear_number": 0, **dag_run})
        self.xcoms: dict[tuple[str, str], str] = {}
        self.loads: dict[str, Any] = {}
        self.events: dict[str, Any] = {}
        self.outlets = OutletEventAccessors()

    def execute(self, task: Any) -> Any:
        def push(key: str, value: Any) -> None:
            self.xcoms[task.task_id, key] = json.dumps(value)

        def pull(task_ids: str, key: str = "return_value") -> Any:
            if task_ids == "load" and len(self.loads) > 1:
                return [*self.loads.values()]
            return json.loads(self.xcoms.get((task_ids, key), "null"))

        self.outlets, tries = OutletEventAccessors(), task.retries + self.cleared
        ti = SimpleNamespace(xcom_push=push, xcom_pull=pull, try_number=1, max_tries=tries, map_index=0, start_date=None)
        context = {"ti": ti, "run_id": self.run_id, "params": self.params, "dag_run": self.dag_run}
        returned = task.execute({**context, "outlet_events": self.outlets})
        push("return_value", returned)
        if task.task_id == "load":
            self.loads[str(task.chunks)] = json.loads(json.dumps(returned))
        # as Airflow does with the outlets of a task that has succeeded
        self.events = {o.name: self.outlets[o].extra for o in task.outlets if isinstance(o, Asset)}
        for alias in (o for o in task.outlets if isinstance(o, AssetAlias)):
            self.events |= {event.dest_asset_key.name: event.extra for event in self.outlets[alias].asset_alias_events}
        return returned

    def skips(self, task: Any) -> None:
        with pytest.raises(AirflowSkipException):
            self.execute(task)

    def load(self, pipeline: Pipeline, chunks: Any = None) -> Any:
        return self.execute(load_of(pipeline, chunks))


def load_of(pipeline: Pipeline, chunks: Any = None) -> LoadOperator:
    """The load of a batch, or of chunks of a replay."""
    return LoadOperator(task_id="load", pipeline=pipeline, spark_jobs=Path(), chunks=chunks)


def finish_of(pipeline: Pipeline, *, replays: bool = False) -> FinishOperator:
    """The last task of a batch, or of a replay."""
    return FinishOperator(task_id="verify" if replays else "commit", pipeline=pipeline, replays=replays)


def batch_of(run: Run, pipeline: Pipeline, *, commit: bool = True) -> Run:
    """A run of the pipeline."""
    run.execute(PlanOperator(task_id="plan", pipeline=pipeline))
    run.load(pipeline)
    if commit:
        run.execute(finish_of(pipeline))
    return run


def replay_by(run: Run, pipeline: Pipeline) -> Run:
    """A run of the pipeline's replay."""
    for chunks in run.execute(PlanReplayOperator(task_id="plan", pipeline=pipeline)):
        run.load(pipeline, chunks)
    run.execute(finish_of(pipeline, replays=True))
    return run
