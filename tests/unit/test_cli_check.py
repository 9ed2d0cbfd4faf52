"""Laws of `tidegate check` on files alone. What Airflow has beside them: `test_cli_schedule.py`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tidegate.cli import check, commands
from tidegate.cli.shared import the_pipeline
from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.pipelines import pipelines_of, spark_jobs_of
from tidegate.testing.fakes import FakeReader, MemoryStore

REPO = Path(__file__).parents[2]
FILES = {
    "good": "transform: rows:f",
    "no_function": "transform: rows:g",
    "no_next": "transform: rows:f\nreplay: {transforms: ['rows:f', 'next:f']}",
    "bad_cron": "transform: rows:f\nschedule: '61 * * * *'",
    "endless": "transform: rows:f\nretry_delay_s: .inf\ntags: ['%s']" % ("x" * 200),
    "twice": "transform: rows:f\ntransform: rows:f",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one module of transforms, and no Airflow."""
    monkeypatch.delenv("TIDEGATE_AIRFLOW_URL", raising=False)
    for folder in ("dags/pipelines", "dags/receivers", "spark_jobs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "spark_jobs" / "rows.py").write_text("def f(records): return records\n")
    return tmp_path


def add(project: Path, name: str, text: str) -> None:
    lines = f"{text}\nsource: {{topics: [a]}}\nsink: {{table: lake.a.{name}}}\n"
    (project / "dags" / "pipelines" / f"{name}.yaml").write_text(lines)


def checked(project: Path, code: int, *words: str) -> str:
    """What a check prints that ends so."""
    told = CliRunner().invoke(commands(), ["check", "--project", str(project), *words])
    assert told.exit_code == code, told.output
    return told.output


def test_check_tells_all_faults_of_all_files_at_once(project: Path) -> None:
    """In text and as JSON, with exit code 1."""
    for name, text in FILES.items():
        add(project, name, text)
    faults = {entry["pipeline"]: entry["faults"] for entry in json.loads(checked(project, 1, "--json"))}
    assert {name: len(found) for name, found in faults.items()} == {
        "bad_cron": 1, "endless": 2, "good": 0, "no_function": 1, "no_next": 1, "twice": 1,
    }  # fmt: skip
    assert faults["no_function"][0].startswith("pipelines/no_function.yaml: transform: module rows has no function g")
    assert faults["no_next"][0].startswith("pipelines/no_next.yaml: replay.transforms: next:f: there is no module next")
    printed = checked(project, 1)
    assert all(fault in printed for found in faults.values() for fault in found)


def test_check_warns_of_what_has_no_effect_and_accepts_it(project: Path) -> None:
    """With exit code 0; the setting, why, and the fix."""
    add(project, "idle", "transform: rows:f\ncatch_up: true")
    told = checked(project, 0)
    assert "valid  idle: a -> lake.a.idle" in told
    assert "pipelines/idle.yaml: catch_up: has no effect without a bound" in told.replace("\n", " ")


def test_check_looks_at_the_tables_where_airflow_answers(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is another pipeline's is named, with exit code 1; one whose catalog does not answer is not checked."""
    monkeypatch.setenv("TIDEGATE_AIRFLOW_URL", "http://airflow")
    add(project, "new", "transform: rows:f")
    sink = FakeReader(owners=frozenset({"old"}))
    api = SimpleNamespace(pool_slots=lambda _: 1, parallelism=lambda: 32)
    remote = SimpleNamespace(store=MemoryStore(), sink=sink, api=api)
    monkeypatch.setattr(check, "open_remote", lambda _: nullcontext(remote))
    assert "table lake.a.new belongs to pipeline old, not to new" in checked(project, 1)
    sink.away = True
    assert "table lake.a.new was not checked" in checked(project, 0)


def test_check_covers_receivers_beside_the_pipelines(project: Path) -> None:
    """A fault of one file hides no other, and a project may have receivers alone; their schema is printed by its own option."""
    folder = project / "dags" / "receivers"
    (folder / "posts.yaml").write_text("kind: http\ntopic: orders\nlisten: {port: 8080}\n")
    assert checked(project, 0) == "valid  posts: http://127.0.0.1:8080 -> topic orders\n"
    (folder / "lines.yaml").write_text("kind: tcp_server\ntopic: orders\nlisten: {port: 0}\n")
    (folder / "log.yml").touch()
    checks = {check["receiver"]: check for check in json.loads(checked(project, 1, "--json"))}
    assert {name: check["valid"] for name, check in checks.items()} == {"lines": False, "posts": True, "log": False}
    assert checks["lines"]["faults"] == ["receivers/lines.yaml: listen.port: expected a port from 1 to 65535, got 0"]
    told = CliRunner().invoke(commands(), ["check", "--receiver-schema"])
    assert told.stdout == (REPO / "dags" / "receivers" / "receiver.schema.json").read_text()


@pytest.mark.parametrize("name", ["a" * 300, "../secrets", "."])
def test_what_is_no_file_of_a_pipeline_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """No name leads out of the folder, and none is too long to be looked up."""
    (tmp_path / "dags" / "pipelines").mkdir(parents=True)
    (tmp_path / "dags" / "secrets.yaml").touch()
    with pytest.raises(RequestError, match="there is no pipeline"):
        the_pipeline(tmp_path, name)


def test_a_project_with_two_folders_of_transforms_is_refused(tmp_path: Path) -> None:
    """Its DAG file uses one of them, and a check of the other one would prove nothing."""
    for folder in ("dags/pipelines", "dags/spark_jobs", "spark_jobs"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"two folders of transforms.*--project .*dags"):
        spark_jobs_of(tmp_path)
    assert spark_jobs_of(tmp_path / "dags") == tmp_path / "dags" / "spark_jobs"


@pytest.mark.parametrize(
    ("folders", "pipelines", "spark_jobs"),
    [
        ([], "dags/pipelines", "spark_jobs"),
        (["dags/pipelines", "spark_jobs"], "dags/pipelines", "spark_jobs"),
        (["pipelines", "spark_jobs"], "pipelines", "spark_jobs"),
        (["dags/pipelines", "dags/spark_jobs"], "dags/pipelines", "dags/spark_jobs"),
        (["dags/pipelines", "pipelines", "spark_jobs"], "dags/pipelines", "spark_jobs"),
    ],
)
def test_a_project_is_a_checkout_or_a_dag_folder_or_holds_one(
    tmp_path: Path, folders: list[str], pipelines: str, spark_jobs: str
) -> None:
    """A checkout's folders come first, and are those that are missed where there is nothing."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert pipelines_of(tmp_path) == tmp_path / pipelines
    assert spark_jobs_of(tmp_path) == tmp_path / spark_jobs
