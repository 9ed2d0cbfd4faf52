"""The example DAGs of the docs around a pipeline on the platform: its batches, its lag, and a replay that somebody approves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.e2e.project import REPO, Project
from tests.e2e.runs import POLL_S, Runs
from tests.mails import serving, text_of
from tests.topics import make_topic, write
from tidegate.airflow.remote.api import AirflowApi
from tidegate.waiting import wait_until
from tidegate_local.platform import Platform

NAME = "sales"
AFTER, GATE, WATCH = f"{NAME}_after_batch", f"{NAME}__gated_replay", f"{NAME}_watch_lag"
CHANGES = {
    "payments": NAME,
    "dbt build": "echo",  # nobody has it here
    "MOST = 100_000": "MOST = 3",
    "minutes=15": "seconds=1",
    "poke_interval=30": "poke_interval=10",
}
SALE = b'{"carrier":"AA"}'
RUNS_S = 180


@pytest.fixture
def examples(project: Project) -> Iterator[None]:
    """The examples as somebody has copied and changed them."""
    copied = []
    for name in ("after_batch", "gated_replay", "watch_lag"):
        text = (REPO / "docs" / "examples" / f"{name}.py").read_text()
        for old, new in CHANGES.items():
            text = text.replace(old, new)
        copied.append(project.root / "dags" / f"{name}.py")
        copied[-1].write_text(text)
    yield
    for file in copied:
        file.unlink()


def counted(api: AirflowApi, runs: int) -> list[int]:
    """How many rows each run after a batch has read, the first one first, once there are so many."""

    def done() -> bool:
        found = api.dag_runs(AFTER)
        return len(found) >= runs and all(run["state"] == "success" for run in found)

    assert wait_until(done, RUNS_S, poll_s=POLL_S)
    return [sum(api.xcom(AFTER, run["dag_run_id"], "count").values()) for run in api.dag_runs(AFTER)]


def has_left(platform: Platform, run_id: str) -> bool:
    """Whether the scheduler knows that the task's process has ended: Airflow fails a task that is answered before."""
    said = (platform.state_dir / "logs" / "airflow-scheduler.log").read_text().splitlines()
    return any("Received executor event" in line and "task_id='ask'" in line and run_id in line for line in said)


def test_a_pipeline_is_orchestrated_by_the_examples(
    api: AirflowApi, platform: Platform, project: Project, examples: None
) -> None:
    """After each batch its rows are read, who is on call hears of a lag, and a large replay is loaded once it is approved."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    make_topic(kafka, NAME, 2)
    write(kafka, NAME, 0, [SALE] * 3)
    project.write(NAME, source={"topics": [NAME]}, sink={"table": f"lake.shop.{NAME}"})
    runs, gate, _ = (Runs(api, dag_id) for dag_id in (NAME, GATE, AFTER))

    run = runs.run()
    assert run["state"] == "success", runs.log(run, "commit")
    assert counted(api, 1) == [3]

    write(kafka, NAME, 1, [SALE] * 4)
    with serving() as server:
        smtp = {**server.connection, "extra": json.dumps(server.connection["extra"])}
        api.sync_connection("smtp_default", smtp, mark="of a test")
        Runs(api, WATCH)  # its schedule starts a run at once
        assert wait_until(lambda: bool(server.mails), RUNS_S, poll_s=POLL_S)
        assert server.mails[0]["Subject"] == f"{NAME} is late"
        assert text_of(server.mails[0]).startswith("What was in the topic at 20")
    (watching,) = api.dag_runs(WATCH)
    assert watching["state"] == "running"
    assert runs.run()["state"] == "success"
    assert api.wait_run(WATCH, watching["dag_run_id"], timeout_s=RUNS_S)["state"] == "success"
    assert counted(api, 2) == [3, 4]

    run_id = api.trigger(GATE, {"replay": {"batches": "1..2"}})
    gate.wait_task(run_id, "ask", "awaiting_input")
    assert wait_until(lambda: has_left(platform, run_id), RUNS_S, poll_s=POLL_S)
    path = f"/dags/{GATE}/dagRuns/{quote(run_id, safe='')}/taskInstances/ask/-1/hitlDetails"
    assert api.get(path)["subject"] == f"Replay 7 offsets of {NAME}?"
    api.patch(path, {"chosen_options": ["Approve"], "params_input": {}})
    assert gate.ended(run_id)["tasks"] == dict.fromkeys(("measure", "gate", "ask", "replay"), "success")
    replays = [(run["conf"], run["state"]) for run in api.dag_runs(f"{NAME}__replay")]
    assert replays == [({"batches": "1..2", "dry_run": True}, "success"), ({"batches": "1..2"}, "success")]
    assert counted(api, 3) == [3, 4, 7]
