"""Laws of `tidegate receivers`, on an Airflow whose answers are in memory; on the real one: tests/e2e/test_receivers.py."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tests.unit.test_airflow_remote_api import api
from tidegate.cli import commands
from tidegate_receivers import cli as receivers

SAID = {
    "at": "2026-11-22T20:00:00+00:00",
    "state": "started",
    "buffer": 0.25,
    "records": 1234,
    "bytes": 99,
    "blocks": 3,
    "restarts": 2,
    "refused": 1,
    "throttled_s": 1.5,
    "last_error": "no [broker] answers",
    "undelivered": 0,
}
RUNS = [{"dag_run_id": "run2", "state": "running"}, {"dag_run_id": "run1", "state": "success"}]
DAG = "/api/v2/dags/posts__receive"


class Airflow:
    """What it answers, by path; the rest is not found."""

    def __init__(self) -> None:
        place = [{"instance": n, "host": f"host{n}", "queue": q, "until_s": 1_800_000_000.5} for n, q in enumerate("aba")]
        tasks = [{"task_id": "receive_a", "map_index": 0, "state": "running", "try_number": 1}]
        tasks.append({"task_id": "receive_b", "map_index": 0, "state": "up_for_retry", "try_number": 3})
        self.answers: dict[str, Any] = {
            DAG: {"is_paused": False},
            f"{DAG}/dagRuns": {"dag_runs": RUNS},
            f"{DAG}/dagRuns/run2/taskInstances": {"task_instances": tasks, "total_entries": 2},
            f"{DAG}/dagRuns/run2/taskInstances/place/xcomEntries/return_value": {"value": json.dumps(place)},
            f"{DAG}/dagRuns/run2/taskInstances/receive_a/xcomEntries/status": {"value": json.dumps(SAID)},
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/status") and request.url.params["map_index"] != "0":
            return httpx.Response(404, json={"detail": "no such entry"})
        found = self.answers.get(path)
        return httpx.Response(404, json={"detail": "not found"}) if found is None else httpx.Response(200, json=found)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "dags" / "receivers"
    folder.mkdir(parents=True)
    (folder / "posts.yaml").write_text(
        "kind: http\ntopic: orders\nlisten: {port: 8080}\ninstances: 3\nworkers: {queues: [a, b]}\n"
    )
    return tmp_path


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Airflow]:
    made = Airflow()
    with api(made) as client:
        monkeypatch.setattr(receivers, "open_remote", lambda _: contextlib.nullcontext(SimpleNamespace(api=client)))
        yield made


def told(project: Path, *words: str, columns: int = 160) -> Result:
    return CliRunner().invoke(commands(), ["receivers", *words, "--project", str(project)], env={"COLUMNS": str(columns)})


def test_each_instance_is_shown_with_its_host_its_state_and_what_it_said_last(airflow: Airflow, project: Path) -> None:
    """One that has said nothing, or whose task does not run, has the state of its task."""
    (view,) = json.loads(told(project, "--json").stdout)
    assert (view["receiver"], view["paused"]) == ("posts", False)
    shown = [(each["instance"], each["host"], each["queue"], each["state"], each["tries"]) for each in view["instances"]]
    assert shown == [
        (0, "host0", "a", "started", 1), (2, "host2", "a", "waiting", 0), (1, "host1", "b", "up_for_retry", 3),
    ]  # fmt: skip
    assert [each["status"] for each in view["instances"]] == [SAID, {}, {}]
    assert {each["until"] for each in view["instances"]} == {"2027-01-15T08:00:00Z"}
    assert max(map(len, told(project, columns=80).stdout.splitlines())) <= 80


def test_an_instance_shows_what_its_back_pressure_leaves_it_and_waits_for_its_dag(airflow: Airflow, project: Path) -> None:
    """One of an older version says nothing of it. Airflow calls a task that waits up_for_reschedule."""
    status = f"{DAG}/dagRuns/run2/taskInstances/receive_a/xcomEntries/status"
    held = {**SAID, "rate": 1500.4, "room": 0, "lag": 98_000, "deaf": True}
    airflow.answers[status] = {"value": json.dumps(held)}
    airflow.answers[f"{DAG}/dagRuns/run2/taskInstances"]["task_instances"][0]["state"] = "up_for_reschedule"
    (view,) = json.loads(told(project, "--json").stdout)
    assert (view["instances"][0]["state"], view["instances"][0]["status"]) == ("paused", held)
    shown = " ".join(told(project).stdout.split())
    for words in ("rate: 1,500 records/s", "room: 0 records", "backlog: 98,000 records", "the safe rate holds", "restarts: 2"):
        assert words in shown


@pytest.mark.parametrize(
    ("dag", "state"),
    [(None, "not known to Airflow yet"), ({"is_paused": True}, "paused"), ({"is_paused": False}, "starting")],
)
def test_a_receiver_without_instances_says_why(airflow: Airflow, project: Path, dag: Any, state: str) -> None:
    """Airflow has not read its file yet, its DAG is paused, or its run has not placed them."""
    airflow.answers = {} if dag is None else {DAG: dag, f"{DAG}/dagRuns": {"dag_runs": []}}
    ended = told(project)
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[1].strip().split(maxsplit=1) == ["posts", state]


def test_a_file_that_is_not_valid_hides_no_other_receiver(airflow: Airflow, project: Path) -> None:
    """It is named with its fault, and the exit code is 1."""
    (project / "dags" / "receivers" / "odd.yaml").write_text("kind: http\n")
    ended = told(project)
    assert ended.exit_code == 1
    assert "posts[0]" in ended.stdout
    assert "odd.yaml" in ended.output
    assert told(project, "posts").exit_code == 0


def test_a_receiver_that_does_not_exist_is_refused_by_name(airflow: Airflow, tmp_path: Path, project: Path) -> None:
    """With those that do."""
    assert "no receiver nope" in str(told(project, "nope").exception)
    assert "no receiver in" in str(told(tmp_path / "elsewhere").exception)
