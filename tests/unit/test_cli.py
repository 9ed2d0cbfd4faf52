"""Laws of the smaller commands, on ports in memory; on the real parts: the integration and e2e tests."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

import tidegate.sinks.iceberg.catalog
from tests.unit.test_airflow_remote_api import api
from tests.unit.test_cli_schedule import FakeRemote
from tests.unit.test_rename import move_owner
from tidegate.cli import commands, extras_with, main, schedule
from tidegate.core.config.pipeline import Announce, Pipeline, Sink, Source
from tidegate.core.model.errors import ConfigError, TidegateError
from tidegate_local.cli.tools import _jsonable
from tidegate_receivers import cli as receivers

SRC = Path(__file__).parents[2] / "src"
HOURLY = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), announce=Announce())
ASSETS = [{"id": 3, "name": "tidegate/p/hours_of_others"}, {"id": 7, "name": "tidegate/p/hours"}]

Command = Callable[..., tuple[Result, list[dict[str, Any]]]]


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, and what it posts to an Airflow that has these assets."""

    def command(
        *words: str, pipeline: Pipeline = HOURLY, assets: list[dict[str, Any]] = ASSETS
    ) -> tuple[Result, list[dict[str, Any]]]:
        posted = []

        def answer(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                assert request.url.path == "/api/v2/assets/events"
                posted.append(json.loads(request.content))
            return httpx.Response(200, json={"assets": assets, "total_entries": len(assets)})

        with api(answer) as client:
            monkeypatch.setattr(schedule, "open_remote", lambda _: nullcontext(SimpleNamespace(api=client)))
            monkeypatch.setattr(schedule, "the_pipeline", lambda *_: pipeline)
            return CliRunner().invoke(schedule.app, ["announce", "p", *words]), posted

    return command


def test_each_command_that_a_message_or_a_page_names_is_there() -> None:
    """So that what is copied runs: by the words before what is filled in."""
    source = "".join(
        file.read_text() for package in ("tidegate", "tidegate_receivers") for file in (SRC / package).rglob("*.py")
    )
    named = {*re.findall(r"[`\"]tidegate ([a-z]+(?: [a-z]+)?)", source)}
    for line in named:
        at: Any = typer.main.get_command(commands())
        for word in line.split():
            if hasattr(at, "commands"):  # what follows a command is an argument
                assert word in at.commands, line
                at = at.commands[word]
    assert {"start", "ledger drop", "accept loss"} <= named


def test_each_hour_is_one_event_of_the_pipelines_asset(announced: Command) -> None:
    """From the hour in which `--since` is; a dry run writes none."""
    words, keys = ("--since", "2026-01-01T10:30", "--until", "2026-01-01T12:00Z"), [f"2026-01-01T{h}:00:00" for h in (10, 11)]
    result, posted = announced(*words)
    assert posted == [{"asset_id": 7, "partition_key": key, "extra": {"pipeline": "p"}} for key in keys]
    assert "announced 2 hours" in result.stdout
    result, posted = announced(*words, "--dry-run", "--json")
    assert (json.loads(result.stdout)["keys"], posted) == (keys, [])
    daily = replace(HOURLY, announce=Announce("day"))
    assert "announced 1 day" in announced("--since", "2026-01-01", "--until", "2026-01-02", pipeline=daily)[0].stdout


@pytest.mark.parametrize(
    ("since", "until", "world", "words"),
    [
        ("2026-01-02", "2026-01-01", {}, "no whole hour lies between"),
        ("2026-01-01T10:10", "2026-01-01T10:50", {}, "no whole hour lies between"),
        ("2026-01-01", "9999-01-01", {}, "has not ended"),
        ("soon", "2026-01-01", {}, "'soon' is not a valid time"),
        ("1970-01-01", "2026-01-01", {}, "490,896 hours are too many"),
        ("2026-01-01", "2026-01-02", {"pipeline": replace(HOURLY, announce=None)}, "announces no hours"),
        ("2026-01-01", "2026-01-02", {"assets": ASSETS[:1]}, "has no asset tidegate/p/hours"),
    ],
)
def test_no_other_hours_are_announced(announced: Command, since: str, until: str, world: dict[str, Any], words: str) -> None:
    result, posted = announced("--since", since, "--until", until, **world)
    assert (isinstance(result.exception, TidegateError), words in str(result.exception), posted) == (True, True, [])


FILE = "transform: rows:f\nsource: {topics: [t]}\nsink: {table: lake.a.b}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the project's pipelines."""
    made = tmp_path / "dags" / "pipelines"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    monkeypatch.setattr(schedule, "open_remote", lambda _: nullcontext(made))
    monkeypatch.setattr(tidegate.sinks.iceberg.catalog, "move_owner", lambda _, old, new: move_owner(made.sink, old, new))
    return made


def renames(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(commands(), ["rename", "p", "q", "--project", str(folder.parents[1]), *words])


def test_a_rename_moves_what_is_saved_once_its_file_is_renamed_and_nothing_runs(remote: FakeRemote, folder: Path) -> None:
    """A second time there is nothing left to do; the group follows with the next commit where the brokers refuse it now."""
    (folder / "p.yaml").write_text(FILE)
    assert "Rename the file to q.yaml first" in str(renames(folder).exception)
    (folder / "q.yaml").write_text(FILE)
    assert "q is a pipeline too" in str(renames(folder).exception)
    (folder / "p.yaml").rename(folder / "r.yaml")
    assert isinstance(renames(folder).exception, ConfigError)
    (folder / "r.yaml").unlink()
    remote.active_runs = lambda dag: ["manual__1"] if dag == "p__replay" else []
    assert "p__replay is running (manual__1)" in str(renames(folder).exception)
    assert "tidegate.p.cursor" in remote.store.values
    remote.active_runs = lambda _: []
    remote.api.dag = lambda dag: {"is_paused": False, "is_stale": dag != "p"}
    assert "DAG p is not paused" in str(renames(folder).exception)
    remote.api.dag = lambda _: None
    done = renames(folder)
    assert (done.exit_code, "p is q now (2 saved values moved): its next batch is 2" in done.output) == (0, True)
    assert "group tidegate-q shows the next commit only" in done.output
    assert json.loads(renames(folder, "--json").stdout) == {"old": "p", "new": "q", "moved": 0, "seq": 1}


def test_a_rename_before_the_first_commit_is_told(remote: FakeRemote, folder: Path) -> None:
    (folder / "q.yaml").write_text(FILE)
    remote.store.delete("tidegate.p.cursor")
    done = renames(folder)
    assert (done.exit_code, "its next batch is 1" in done.output, "group" in done.output) == (0, True, False)


SAID: dict[str, Any] = {"at": "2026-11-22T20:00:00+00:00", "state": "started", "last_error": "no [broker] answers"}
SAID |= {"buffer": 0.25, "records": 1234, "bytes": 99, "blocks": 3, "restarts": 2, "refused": 1, "throttled_s": 1.5}
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
    stated = "{kind: http, topic: orders, listen: {port: 8080}, instances: 3, workers: {queues: [a, b]}}"
    (folder / "posts.yaml").write_text(stated)
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
    names = ("instance", "host", "queue", "state", "tries", "status", "until")
    assert [tuple(each[name] for name in names) for each in view["instances"]] == [
        (0, "host0", "a", "started", 1, SAID, "2027-01-15T08:00:00Z"),
        (2, "host2", "a", "waiting", 0, {}, "2027-01-15T08:00:00Z"),
        (1, "host1", "b", "up_for_retry", 3, {}, "2027-01-15T08:00:00Z"),
    ]
    assert max(map(len, told(project, columns=80).stdout.splitlines())) <= 80


def test_an_instance_shows_what_its_back_pressure_leaves_it_and_waits_for_its_dag(airflow: Airflow, project: Path) -> None:
    """One of an older version says nothing of it. Airflow calls a task that waits up_for_reschedule."""
    held = {**SAID, "rate": 1500.4, "room": 0, "lag": 98_000, "deaf": True}
    airflow.answers[f"{DAG}/dagRuns/run2/taskInstances/receive_a/xcomEntries/status"] = {"value": json.dumps(held)}
    airflow.answers[f"{DAG}/dagRuns/run2/taskInstances"]["task_instances"][0]["state"] = "up_for_reschedule"
    (view,) = json.loads(told(project, "--json").stdout)
    assert (view["instances"][0]["state"], view["instances"][0]["status"]) == ("paused", held)
    assert "the safe rate holds" in " ".join(told(project).stdout.split())


@pytest.mark.parametrize(
    ("dag", "state"), [(None, "not known to Airflow yet"), ({"is_paused": True}, "paused"), ({"is_paused": False}, "starting")]
)
def test_a_receiver_without_instances_says_why(airflow: Airflow, project: Path, dag: Any, state: str) -> None:
    """Airflow has not read its file yet, its DAG is paused, or its run has not placed them."""
    airflow.answers = {} if dag is None else {DAG: dag, f"{DAG}/dagRuns": {"dag_runs": []}}
    ended = told(project)
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[1].strip().split(maxsplit=1) == ["posts", state]


def test_a_file_that_is_not_valid_hides_no_other_receiver(airflow: Airflow, project: Path, tmp_path: Path) -> None:
    """It is named with its fault, and the exit code is 1. A receiver that does not exist is refused with those that do."""
    (project / "dags" / "receivers" / "odd.yaml").write_text("kind: http\n")
    ended = told(project)
    assert (ended.exit_code, "posts[0]" in ended.stdout, "odd.yaml" in ended.output) == (1, True, True)
    assert told(project, "posts").exit_code == 0
    assert "no receiver nope" in str(told(project, "nope").exception)
    assert "no receiver in" in str(told(tmp_path / "elsewhere").exception)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("inf"), "inf"),
        (Decimal("1.50"), "1.50"),
        (date(2013, 1, 1), "2013-01-01"),
        (datetime(2013, 1, 1, 5, tzinfo=UTC), "2013-01-01T05:00:00+00:00"),
        (b"\xffa", "\\xffa"),
        ({"a": [{"b": Decimal(1)}]}, {"a": [{"b": "1"}]}),
        ([("k", float("nan"))], [["k", "nan"]]),
    ],
)
def test_every_value_of_an_answer_is_strict_json(value: Any, told: Any) -> None:
    """Nested ones too; nothing raises, and nothing becomes a number that JSON does not have."""
    assert _jsonable(value) == told
    json.dumps(_jsonable(value), allow_nan=False)


def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of a traceback; other commands run without."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    for name in [name for name in sys.modules if name.startswith("tidegate_local.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["tidegate", "status", "--project", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err == "psutil is not installed: install Tidegate with its extra cli\n"


def test_what_brings_a_module_is_read_from_the_package_itself() -> None:
    told = {"psutil": "cli", "filelock": "airflow cli", "confluent_kafka.admin": "airflow cli receivers"}
    told |= {"pyspark.sql": "airflow spark", "grpc": "cli", "aiohttp": "receivers"}
    assert {module: " ".join(extras_with(module)) for module in told} == told
