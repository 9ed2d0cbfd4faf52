"""What `tidegate doctor` makes of Airflow's answers: every finding with its fix, and an exit code that tells the truth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from tidegate import __version__
from tidegate.cli import commands, doctor
from tidegate.core.audit.findings import CHECKS, DEPLOYED, FINDINGS, Finding, looked, sound
from tidegate.core.config.names import DOCTOR_DAG, name_faults
from tidegate.core.model.errors import PlatformError
from tidegate.core.model.times import utc
from tidegate.pipelines import digest

REPO = Path(__file__).parents[2]
READ: dict[str, Any] = {"check": "read", "of": "p", "state": "broken", "says": "no right", "fix": "Grant it"}


class Airflow:
    """The REST API of an installation in which nothing is the matter; its attributes are changed."""

    def __init__(self, project: Path) -> None:
        files = digest(project / "dags" / "pipelines")
        self.paused, self.state = False, "success"
        self.found: dict[str, Any] | None = {"sound": [["packages", "a"], ["load", "p"]], "findings": [], "left_out": 0}
        self.dead: dict[str, Any] = {}
        self.slots: dict[str, int] = {"tidegate_lake_a_b": 1}
        self.plugins: Any = {"name": "tidegate", "react_apps": [1]}
        self.errors: list[dict[str, str]] = []
        self.processed, self.version, self.deployed = files, __version__, {"version": __version__, "files": files}
        self.apart_s = 0
        self.trigger = mock.Mock(return_value="r1")
        self.wait_run = mock.Mock(return_value={"queued_at": utc(0), "end_date": utc(180_000)})

    def health(self) -> dict[str, Any]:
        return self.dead

    def plugin(self, _name: str) -> Any:
        if isinstance(self.plugins, Exception):
            raise self.plugins
        return self.plugins

    def has_plugin(self, name: str) -> bool:
        return self.plugin(name) is not None

    def pool_slots(self, name: str) -> int | None:
        return self.slots.get(name)

    def parallelism(self) -> int:
        return 32

    def import_errors(self) -> list[dict[str, str]]:
        return self.errors

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """It is named after the first pipeline of the folder when Airflow read it."""
        about = {"dag_id": dag_id, "is_paused": self.paused, "description": f"Tidegate {self.version} (files {self.processed})"}
        return {**about, "is_stale": dag_id != f"{DOCTOR_DAG}p"} if self.processed else None

    def task_instances(self, *_: str) -> list[dict[str, Any]]:
        began, ended = (utc(1000 * (at_s + self.apart_s)) for at_s in (60, 120))
        return [{"task_id": "look", "state": self.state, "start_date": began, "end_date": ended}]

    def xcom(self, _dag: str, _run: str, _task: str, key: str) -> Any:
        return {FINDINGS: self.found, DEPLOYED: self.deployed}[key]


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Airflow:
    folder = tmp_path / "dags" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "new.yaml").touch()
    (folder / "p.yaml").write_text("source: {topics: [t]}\ntransform: m:f\nsink: {table: lake.a.b}\n")
    made = Airflow(tmp_path)
    monkeypatch.setattr(doctor, "open_remote", lambda _: nullcontext(SimpleNamespace(api=made)))
    monkeypatch.setenv("TIDEGATE_PROJECT", str(tmp_path))
    return made


def examine() -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code, and what is not sound, by its check."""
    answer = CliRunner().invoke(commands(), ["doctor", "--json"])
    found = [each for each in json.loads(answer.stdout) if each["state"] != "sound"]
    return answer.exit_code, {check: [e for e in found if e["check"] == check] for check in {e["check"] for e in found}}


def test_a_sound_installation_has_nothing_to_print(airflow: Airflow) -> None:
    answer = CliRunner().invoke(commands(), ["doctor"])
    assert (answer.exit_code, answer.stdout) == (0, "6 sound\n")
    airflow.trigger.assert_called_once_with(f"{DOCTOR_DAG}p")


def test_what_tasks_find_is_printed_with_its_fix(airflow: Airflow) -> None:
    airflow.found = {"sound": [["packages", "a"], ["load", "p"]], "findings": [READ], "left_out": 0}
    answer = CliRunner().invoke(commands(), ["doctor"])
    assert answer.exit_code == 1
    assert re.search(r"broken +read of p: no right\n +Grant it\n6 sound, 1 broken\n$", answer.stdout)
    airflow.found["findings"] = [{**READ, "state": "doubtful"}]
    assert CliRunner().invoke(commands(), ["doctor"]).exit_code == 0
    airflow.found["left_out"] = 7
    assert examine()[1]["files"][0]["says"].startswith("7 more findings of task look")
    airflow.state = "failed"
    assert examine()[0] == 1


def test_files_that_airflow_does_not_read_are_broken(airflow: Airflow) -> None:
    """Errors of other people's files are none of ours."""
    trace = "Traceback\n  File dags.py\ntidegate.core.model.errors.ConfigError: pipelines/p.yaml: no source\n"
    airflow.errors = [
        {"filename": "pipelines/p.yaml", "stack_trace": trace},
        {"filename": "theirs.py", "stack_trace": "KeyError"},
    ]
    code, found = examine()
    assert (code, [(each["of"], each["state"]) for each in found["files"]]) == (1, [("pipelines/p.yaml", "broken")])
    assert found["files"][0]["says"].endswith("no source")


@pytest.mark.parametrize(("apart_s", "told"), [(0, ""), (59, ""), (600, "540 s ahead of"), (-600, "540 s behind")])
def test_workers_keep_the_time_of_airflows_servers(airflow: Airflow, apart_s: int, told: str) -> None:
    """Within a minute: what the run took beside its tasks may hide as much."""
    airflow.apart_s = apart_s
    code, found = examine()
    assert (code, [told in each["says"] for each in found.get("servers", [])]) == (0, [True] if told else [])


def test_a_triggerer_is_needed_where_a_pipeline_is_driven_by_lag(airflow: Airflow, tmp_path: Path) -> None:
    """One that is gone is doubtful otherwise, and one that never was is not missed."""
    dead = {"triggerer": {"status": "unhealthy"}}
    assert "servers" not in examine()[1]
    airflow.dead = dead
    assert [each["state"] for each in examine()[1]["servers"]] == ["doubtful"]
    file = tmp_path / "dags" / "pipelines" / "p.yaml"
    file.write_text(f"{file.read_text()}schedule: {{lag: 5}}\n")
    for airflow.dead in (dead, {"triggerer": {"status": None}}, {}):
        assert [each["state"] for each in examine()[1]["servers"]] == ["broken"]


def test_what_airflow_does_not_say_is_unknown(airflow: Airflow) -> None:
    """And what it does not read of another folder is doubtful."""
    airflow.plugins = PlatformError("403", status=403)
    airflow.errors = [{"filename": "pipelines/p.yaml", "stack_trace": "REDACTED - you do not have read permission on all Dags"}]
    code, found = examine()
    assert (code, found["plugin"][0]["state"], found["files"][0]["state"]) == (0, "unknown", "unknown")
    airflow.errors = [{"filename": "pipelines/theirs.yaml", "stack_trace": "tidegate.ConfigError: no source"}]
    assert examine()[1]["files"][0]["state"] == "doubtful"


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ({"processed": ""}, "Airflow has no DAG tidegate__doctor__"),
        ({"paused": True}, "is paused"),
        ({"wait_run": mock.Mock(side_effect=PlatformError("still running", run_id="r1"))}, "still running"),
        ({"trigger": mock.Mock(side_effect=PlatformError("forbidden", fix="Log in as another", status=403))}, "forbidden"),
        ({"found": None, "state": "failed"}, "task look is failed"),
    ],
)
def test_tasks_that_were_not_asked_are_broken(airflow: Airflow, lacking: dict[str, Any], told: str) -> None:
    for name, value in lacking.items():
        setattr(airflow, name, value)
    code, found = examine()
    assert (code, [told in each["says"] for each in found["files"]]) == (1, [True])
    assert found["files"][0]["fix"] or told == "still running"


def test_another_version_and_other_files_in_parts_of_airflow_or_here_are_doubtful(airflow: Airflow) -> None:
    """A change takes a while to come to all of them."""
    airflow.processed = "87654321"
    code, found = examine()
    assert (code, found["files"][0]["state"]) == (0, "doubtful")
    assert "than the DAG processor has read" in found["files"][0]["says"]
    airflow.deployed = {"version": "0.0.1", "files": airflow.processed}
    code, found = examine()
    assert (code, {check: of[0]["state"] for check, of in found.items()}) == (0, {"files": "doubtful", "packages": "doubtful"})
    assert "this command and the DAG processor another version" in found["packages"][0]["says"]


def test_a_look_that_fails_is_a_finding_and_what_it_found_before_stays(caplog: pytest.LogCaptureFixture) -> None:
    """An error of ours has its own words; of any other the log has the trace."""

    def looks(error: Exception) -> Iterator[Finding]:
        yield Finding(**READ)
        raise error

    first, second = looked("load", "p", lambda: looks(PlatformError("no server", fix="Start it")))
    assert str(first) == "broken: read of p: no right. Grant it"
    assert (second.check, second.of, second.says, second.fix) == ("load", "p", "no server", "Start it")
    with caplog.at_level("CRITICAL"):
        (_, third) = looked("load", "p", lambda: looks(ValueError("odd\nand more")))
    assert (third.state, third.says) == ("broken", "it cannot be looked at (ValueError: odd)")
    assert str(sound("read", "p")) == "sound: read of p: records of the topics may be read"


def test_every_check_has_its_section_in_the_docs_and_the_dag_its_name_alone() -> None:
    sections = re.findall(r"^### `([a-z-]+)`", (REPO / "docs" / "doctor.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [*CHECKS]
    assert len(name_faults(f"{DOCTOR_DAG}p")) == 1
