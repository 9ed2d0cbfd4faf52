"""Laws of the DAGs that receiver files become. What their tasks do: `test_receiver_tasks.py`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DeltaTriggerTimetable
from airflow.serialization.serialized_objects import DagSerialization
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dags.test_dags import OWN, VALUES, change, dags, parse
from tidegate.airflow.dags import _validate
from tidegate.core.config.declared import members
from tidegate.core.model.errors import ConfigError
from tidegate_receivers.airflow.dag import receiver_dag
from tidegate_receivers.config.files import parse_receiver
from tidegate_receivers.config.receiver import Listen, Receiver

__all__ = ["dags"]  # a fixture
POSTS = "kind: http\ntopic: orders\nlisten: {port: 8080}\n"
LOG = "kind: file\ntopic: orders\nfile: {path: /var/log/orders.log}\n"


def write(dags: Path, **texts: str) -> None:
    """Receiver files by name."""
    folder = dags / "receivers"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


def test_every_receiver_file_is_a_dag_beside_those_of_the_pipelines(dags: Path) -> None:
    """With no connection defined; a receiver may have the name of a pipeline."""
    write(dags, flights=POSTS, log=LOG)
    found, serialized, errors = parse(dags)
    assert (set(serialized), errors) == ({*OWN, "flights__receive", "log__receive"}, {})
    assert "listen: {port: 8080}" in (found["flights__receive"].doc_md or "")


def test_a_receiver_is_wait_then_place_then_a_task_for_each_instance(dags: Path) -> None:
    """Each instance is bounded by its lease, runs on the receiver's queue, and is tried again until its lease ends."""
    write(dags, posts=f"{POSTS}lease: 1h\noverlap: 20s\ndrain: 10s\nworkers: {{queues: [edge]}}\n")
    dag = parse(dags).dags["posts__receive"]
    assert [t.task_id for t in dag.topological_sort()] == ["wait_for_workers", "place", "receive"]
    receive = dag.get_task("receive")
    assert receive.is_mapped
    assert (receive.queue, receive.map_index_template) == ("edge", "{{ task.label }}")
    assert receive.execution_timeout == timedelta(seconds=3600 + 20 + 10 + 60)
    assert (receive.retries, receive.retry_delay) == (724, timedelta(seconds=5))
    assert dag.get_task("wait_for_workers").queue == "default"


def test_runs_of_a_receiver_that_listens_overlap_and_those_that_read_follow_each_other(dags: Path) -> None:
    """Somebody always listens; a file is never read by two."""
    write(dags, posts=f"{POSTS}lease: 10m\n", log=LOG, one=f"{POSTS.replace('8080', '8081')}overlap: 0\n")
    bag = parse(dags).dags
    posts, log, one = (bag[f"{name}__receive"] for name in ("posts", "log", "one"))
    assert (posts.timetable, posts.max_active_runs) == (DeltaTriggerTimetable(timedelta(minutes=10)), 2)
    assert [(type(dag.timetable).__name__, dag.max_active_runs) for dag in (log, one)] == [("ContinuousTimetable", 1)] * 2
    assert not any(dag.catchup for dag in bag.values())


def test_each_queue_has_a_mapped_task_of_its_own(dags: Path) -> None:
    """Airflow sends all instances of a mapped task to one queue."""
    write(dags, posts=f"{POSTS}instances: 40\nworkers: {{queues: [edge1, edge.2]}}\n")
    dag = parse(dags).dags["posts__receive"]
    assert dag.get_task("place").downstream_task_ids == {"on_edge1", "on_edge.2"}
    assert dag.get_task("on_edge.2").downstream_task_ids == {"receive_edge.2"}
    assert [dag.get_task(f"receive_{queue}").queue for queue in ("edge1", "edge.2")] == ["edge1", "edge.2"]
    assert dag.max_active_tasks >= 40


def test_a_broken_receiver_is_an_import_error_of_its_own_file_and_leaves_the_others(dags: Path) -> None:
    """Also beside a broken pipeline of the same name, and where two would each get a part of the other's connections."""
    write(dags, broken="kind: ftp\ntopic: orders\n", posts=POSTS, lines=POSTS.replace("http", "tcp_server"), log=LOG)
    (dags / "pipelines" / "broken.yaml").write_text("transform: 5\n")
    (dags / "receivers" / "other.yml").touch()
    _, serialized, errors = parse(dags)
    assert set(serialized) == {*OWN, "log__receive"}
    names = ("receivers/broken.yaml", "receivers/other.yml", "receivers/posts.yaml", "receivers/lines.yaml")
    assert errors.keys() == {*names, "pipelines/broken.yaml"}
    assert 'receivers/broken.yaml: kind: expected "http"' in errors["receivers/broken.yaml"]
    assert "8080 is also the port of receiver lines" in errors["receivers/posts.yaml"]


KINDS: list[dict[str, Any]] = [
    {"kind": "http", "listen": {"port": 8080}},
    {"kind": "tcp_server", "listen": {"port": 8080}},
    {"kind": "socket", "connect": {"host": "localhost", "port": 9}},
    {"kind": "file", "file": {"path": "/a"}},
    {"kind": "m:C"},
]
SETTINGS = list(members(Receiver))


@settings(max_examples=3 * settings().max_examples)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(SETTINGS), VALUES, min_size=1, max_size=2))
def test_whatever_a_receiver_file_may_hold_airflow_takes(kind: dict[str, Any], changes: dict[str, Any]) -> None:
    """Any value of any setting is a fault that the file's rules name, or part of a DAG that is valid."""
    made: dict[str, Any] = json.loads(json.dumps({**kind, "topic": "t"}))
    change(made, changes)
    try:
        receiver = parse_receiver("r", made, file="r.yaml")
    except ConfigError:
        return
    takes(receiver)


def takes(receiver: Receiver) -> None:
    dag = receiver_dag(receiver)
    _validate(dag)
    data = DagSerialization.to_dict(dag)
    json.dumps(data, allow_nan=False).encode()
    DagSerialization.from_dict(data)


@pytest.mark.parametrize(
    "changes",
    [
        *({"lease": 10.0, "overlap": 3600.0}, {"lease": 7 * 86_400.0, "instances": 1000}, {"overlap": 0.001, "drain": 0.0}),
        {"tags": ("x" * 100,), "description": "x" * 1000},
    ],
)
def test_the_bounds_of_a_receivers_settings_make_valid_dags(changes: dict[str, Any]) -> None:
    """The longest and shortest times, the most instances."""
    takes(Receiver("r", "http", "t", listen=Listen(1), **changes))
