"""Laws of who is told of a failed run, by Airflow's own scheduler, on its tables in SQLite, and its DAG processor."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import structlog
from airflow.callbacks.callback_requests import DagCallbackRequest
from airflow.dag_processing.dagbag import DagBag
from airflow.dag_processing.processor import _execute_callbacks
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG, BaseNotifier, Context
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.state import DagRunState
from sqlalchemy.orm import Session

from tidegate.airflow.dags import build_dags
from tidegate.core.model.errors import ConfigError

FILE = """
from pathlib import Path
from tests.dags.test_failed_runs import TEXT, TOLD, Mail
from tidegate.airflow.dags import build_dags

HERE = Path(__file__).parent
globals().update(build_dags(HERE / "pipelines", spark_jobs=HERE, on_failure=[Mail(TEXT), TOLD]))
"""
TEXT = "{{ dag.dag_id }} of {{ dag.owner }}: {{ (dag_run is defined and dag_run.note) or reason }}"
PIPELINE = "source: {topics: [t]}\ntransform: m:f\nsink: {table: lake.a.NAME}\nowner: team_NAME\nmaintenance: {}\n"
RECEIVER = "kind: http\ntopic: posts\nlisten: {port: 8080}\n"
TOLD, SENT = mock.Mock(), mock.Mock()


class Mail(BaseNotifier):
    """As a notifier of a provider: its text is a template."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Context) -> None:
        del context
        SENT(self.text)


@pytest.fixture
def bag(tmp_path: Path) -> DagBag:
    """Two pipelines and a receiver, as Airflow reads them."""
    for name, text in {"pipelines/a": PIPELINE, "pipelines/b": PIPELINE, "receivers/posts": RECEIVER}.items():
        (file := tmp_path / f"{name}.yaml").parent.mkdir(exist_ok=True)
        file.write_text(text.replace("NAME", name[-1]))
    (tmp_path / "tidegate_dags.py").write_text(FILE)
    for sink in (TOLD, SENT):
        sink.reset_mock()
    return DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags")


def ended(session: Session, dag: DAG, states: dict[str, str | None]) -> DagCallbackRequest | None:
    """What the scheduler asks of the DAG processor once the tasks of a run are in these states."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    version = DagVersion(dag_id=dag.dag_id, version_number=1, bundle_name="dags")
    session.merge(DagBundleModel(name="dags"))
    session.add_all([DagModel(dag_id=dag.dag_id, bundle_name="dags", relative_fileloc="tidegate_dags.py"), version])
    session.flush()
    run = DagRun(dag_id=dag.dag_id, run_id="r", run_type="manual", state=DagRunState.RUNNING, run_after=now, start_date=now)
    run.dag = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    session.add(run)
    session.flush()
    run.verify_integrity(session=session, dag_version_id=version.id)
    for ti in run.get_task_instances(session=session):
        ti.state, ti.end_date = states[ti.task_id], now
        ti.map_index = 0 if ti.task_id == "load" and dag.dag_id.endswith("replay") else -1
    session.flush()
    asked = run.update_state(session=session, execute_callbacks=False)[1]
    return asked and DagCallbackRequest.from_json(asked.to_json())


FAILED: dict[str, str | None] = {"plan": "success", "load": "failed", "commit": "upstream_failed", "verify": "upstream_failed"}


def test_each_dag_tells_of_its_failed_runs_and_no_task_of_its_tries(bag: DagBag) -> None:
    """A run may go on after a try. The DAG that examines the installation fails on purpose."""
    assert bag.import_errors == {}
    told = {dag_id for dag_id, dag in bag.dags.items() if DagSerialization.to_dict(dag)["dag"].get("has_on_failure_callback")}
    assert told == {"a", "b", "a__replay", "b__replay", "a__maintain", "b__maintain", "posts__receive"}
    for dag in bag.dags.values():
        assert not any(task.has_on_failure_callback or task.has_on_retry_callback for task in dag.tasks)


def test_failed_runs_are_told_once_each_by_their_own_names(bag: DagBag, session: Session) -> None:
    """Airflow calls them in one process: a notifier's template is of the run at hand. The run's note says what failed."""
    asked = [ended(session, bag.dags[dag_id], FAILED) for dag_id in ("a", "b", "b__replay")]
    _execute_callbacks(bag, [one for one in asked if one], structlog.get_logger())
    texts = [call.args[0].partition(": Failed in load")[::2] for call in SENT.call_args_list]
    assert [of for of, why in texts if why] == ["a of team_a", "b of team_b", "b__replay of team_b"]
    assert [call.args[0]["ti"].task_id for call in TOLD.call_args_list] == ["load"] * 3


def test_a_run_of_which_no_task_is_known_is_told_with_what_airflow_says(bag: DagBag) -> None:
    """As where none had begun when the run timed out."""
    asked = DagCallbackRequest(
        filepath="tidegate_dags.py", bundle_name="dags", bundle_version=None, dag_id="a", run_id="r", msg="timed_out"
    )
    _execute_callbacks(bag, [asked], structlog.get_logger())
    SENT.assert_called_once_with("a of team_a: timed_out")


@pytest.mark.parametrize(
    "states",
    [
        {"plan": "skipped", "load": "skipped", "commit": "skipped"},
        {"plan": "success", "load": "up_for_retry", "commit": None},
        {"plan": "success", "load": "success", "commit": "success"},
    ],
    ids=["skipped", "tried again", "succeeded"],
)
def test_nobody_is_told_of_a_run_that_has_not_failed(bag: DagBag, session: Session, states: dict[str, str | None]) -> None:
    assert ended(session, bag.dags["a"], states) is None


def test_the_example_of_the_docs_is_a_dag_file(tmp_path: Path) -> None:
    """With a notifier that comes with Airflow, and the texts of these tests."""
    page = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    assert TEXT.partition(": ")[2] in example
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.yaml").write_text(PIPELINE.replace("NAME", "a"))
    (tmp_path / "tidegate_dags.py").write_text(f"{FILE.partition('globals')[0].replace(', Mail', '')}{example}")
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="dags")
    assert (bag.import_errors, bag.dags["a"].has_on_failure_callback) == ({}, True)


@pytest.mark.parametrize("told", ["notify.mail", [None], Mail])
def test_what_cannot_be_called_is_refused(tmp_path: Path, told: Any) -> None:
    """Nor can a notifier's class, which would be made anew and tell nobody. None is nobody to tell."""
    assert build_dags(tmp_path, spark_jobs=tmp_path, on_failure=None) == {}
    with pytest.raises(ConfigError, match=r"on_failure .* cannot be called"):
        build_dags(tmp_path, spark_jobs=tmp_path, on_failure=told)
