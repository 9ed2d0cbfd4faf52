"""Laws of the application that spark-submit runs: the project's `spark_jobs/load_range.py`, and the installed package's own."""

from __future__ import annotations

import json
import runpy
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.records import changed, load_job
from tidegate.airflow.runners import INSTALLED, application_of, options_of
from tidegate.core.config.layout import Layout
from tidegate.core.config.pipeline import Contract, Dedupe, Maintenance, Quarantine, Split
from tidegate.core.model.errors import SparkJobFailed, StateCorrupt, StateNewer
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Position
from tidegate.core.state.jobs import LoadJob, MaintenanceJob
from tidegate.spark import submit

SPARK_JOBS = Path(__file__).parents[2] / "spark_jobs"


@pytest.fixture(params=["project", "installed"])
def application(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Path], int]:
    """Runs the application that a load gets, as a script, with an order and an answer; the exit code."""
    folder = SPARK_JOBS if request.param == "project" else tmp_path
    assert (application_of(folder) == INSTALLED) is (request.param == "installed")

    def run(order: Path, answer: Path) -> int:
        command = [application_of(folder), "--job", order, "--result", answer, *options_of(folder)]
        monkeypatch.setattr(sys, "argv", [str(word) for word in command])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(application_of(folder)), run_name="__main__")
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return run


@pytest.mark.parametrize(("content", "error"), [(None, "RequestError"), ("{", "RequestError"), ("{}", "StateCorrupt")])
def test_an_order_that_cannot_be_read_is_answered_with_an_error(
    application: Callable[[Path, Path], int], tmp_path: Path, content: str | None, error: str
) -> None:
    """There is an answer whatever happens, whole, and readable by its owner only."""
    order, answer = tmp_path / "job.json", tmp_path / "result.json"
    if content is not None:
        order.write_text(content)
    assert application(order, answer) == 1
    assert json.loads(answer.read_text())["error"]["error"] == error
    assert stat.S_IMODE(answer.stat().st_mode) == 0o600
    assert {file.name for file in tmp_path.iterdir()} <= {"job.json", "result.json"}


def test_what_is_printed_holds_no_secret(
    application: Callable[[Path, Path], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order's Kafka options are neither in the driver's output nor in its answer, also when the load fails."""

    def fail(*_: object, **__: object) -> None:
        raise SparkJobFailed("it failed")

    monkeypatch.setattr(submit, "SparkSession", type("S", (), {"builder": type("B", (), {"appName": fail})}))
    options = {"kafka.sasl.jaas.config": 'password="hush"'}
    job = load_job("orders", 0, "r", (OffsetRange("orders", 0, 0, 5),), "a:b", "lake.a.b", options)
    order, answer = tmp_path / "job.json", tmp_path / "result.json"
    order.write_text(json.dumps(job.to_json()))
    assert application(order, answer) == 1
    said = capsys.readouterr()
    assert "batch 0 of orders: 5 offsets to lake.a.b by a:b" in said.out
    assert "hush" not in said.out + said.err + answer.read_text()


def test_a_driver_elsewhere_reads_the_copy_of_its_order_and_goes_on_without_an_answer(
    application: Callable[[Path, Path], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """spark-submit copies the order into the working directory; the folder of the task is not there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.json").write_text("{}")
    gone = tmp_path / "gone"
    assert application(gone / "job.json", gone / "result.json") == 1
    said = capsys.readouterr().out
    assert "failed: StateCorrupt" in said
    assert f"the result cannot be written to {gone / 'result.json'} (FileNotFoundError)" in said


def test_a_driver_beside_a_task_of_another_user_reads_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not look into the task's folder, not even whether the order is there."""
    read = Path.read_text

    def refused(path: Path, *given: Any, **named: Any) -> str:
        if path.parent == tmp_path / "task":
            raise PermissionError(path)
        return read(path, *given, **named)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "read_text", refused)
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(StateCorrupt):
        submit.read_job(tmp_path / "task" / "job.json")


LOAD = load_job("orders", 0, "r", (OffsetRange("orders", 0, 0, 5),), "a:b", "lake.a.b", {"kafka.x": "y"})
ORDERS: dict[str, LoadJob | MaintenanceJob] = {
    "load": LOAD,
    "load with all that a file says": changed(
        LOAD,
        split=Split(4),
        dedupe=Dedupe(5, "id"),
        look_back={TopicPartition("orders", 0): 0},
        hours=(3_600_000, 7_200_000),
        beside=Position(offsets={TopicPartition("orders", 1): 4}),
        layout=Layout(partition_by=("days(ts)",), sort_by=("id",), properties={"a": "b"}),
        contract=Contract(missing="quarantine"),
        quarantine=Quarantine(table="lake.a.aside"),
        shared_with=("q",),
        formerly=("o",),
        refused=SparkJobFailed("no").to_dict(),
    ),
    "maintenance": MaintenanceJob("p", "a.b.c", "compact", now_ms=1, maintenance=Maintenance("@daily")),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_an_order_is_done_whole_or_not_at_all(tmp_path: Path, order: LoadJob | MaintenanceJob) -> None:
    """A driver elsewhere may have an older version, which must not leave out what it does not know."""
    file, written = tmp_path / "job.json", json.loads(json.dumps(order.to_json()))
    file.write_text(json.dumps(written))
    assert submit.read_job(file) == order
    inside = {name: {**value, "new": 1} for name, value in written.items() if name in {"layout", "maintenance"}}
    for more in ({"new": 1}, inside):
        file.write_text(json.dumps({**written, **more}))
        with pytest.raises(StateNewer, match="does not know"):
            submit.read_job(file)


@pytest.mark.parametrize("application", [SPARK_JOBS / "load_range.py", INSTALLED], ids=["project", "installed"])
def test_transforms_come_from_the_folder_that_the_application_is_given_or_is_in(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's application takes its own folder, unless the command names another."""
    folders: list[Path] = []

    def run(job: object, *, spark_jobs: Path) -> None:
        folders.append(spark_jobs)
        raise SparkJobFailed("not in this test")

    monkeypatch.setattr(submit, "run", run)
    monkeypatch.setattr(submit, "read_job", lambda _: None)
    defaults: list[list[str]] = [] if application == INSTALLED else [[]]
    for options in [*defaults, ["--spark-jobs", str(tmp_path)]]:
        monkeypatch.setattr(sys, "argv", [str(application), "--job", "j", "--result", str(tmp_path / "answer"), *options])
        with pytest.raises(SystemExit):
            runpy.run_path(str(application), run_name="__main__")
    assert folders == [SPARK_JOBS, tmp_path][-len(folders) :]
    assert len(folders) == (1 if application == INSTALLED else 2)


def test_the_installed_application_hides_no_module() -> None:
    """Python puts the folder of the script first on `sys.path`."""
    assert {file.name for file in INSTALLED.parent.iterdir()} - {"__pycache__"} == {"__init__.py", "__main__.py"}
