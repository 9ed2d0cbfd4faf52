"""The tasks of a pipeline with their ports in memory, without brokers, Spark, a table or Airflow's database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.airflow.operators import FinishOperator, finish, load, plan, replay, spark
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore


def use_ports(
    monkeypatch: pytest.MonkeyPatch, *, store: MemoryStore, sink: FakeReader, brokers: FakeBrokers, runner: Any
) -> None:
    """Let every task of a batch or a replay use these; `runner` runs the loads."""
    ports = {"store": store, "brokers": brokers, "sink": sink}
    connection = SimpleNamespace(conn_type="spark_connect", conn_id="c")
    for module in (plan, finish, replay):
        monkeypatch.setattr(module, "ports_of", lambda *_: ports)
    for module in (load, finish):
        monkeypatch.setattr(module, "VariableStore", lambda: store)
    monkeypatch.setattr(spark, "get_connection", lambda *_, **__: connection)
    monkeypatch.setattr(spark, "ConnectRunner", lambda *_, **__: runner)
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    monkeypatch.setattr(load, "brokers_of", lambda *_: brokers)
    monkeypatch.setattr(finish, "reader_of", lambda _: sink)
    monkeypatch.setattr(FinishOperator, "_show_in_group", lambda *_: None)
