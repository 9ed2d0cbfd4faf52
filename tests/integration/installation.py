"""An installation of which each part is real, and which a test breaks at one place: brokers, Spark, Airflow's API and database.

This process is Airflow's DAG processor, scheduler and worker, by Airflow's own functions: so a fault of one of them needs no
other platform, and takes no longer than the tasks do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow import settings
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.db import synchronize_log_template
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from fastapi.testclient import TestClient
from sqlalchemy import delete, select
from typer.testing import CliRunner

from tests.dags.ports import Run
from tests.projects import copy_project, write_files
from tidegate.airflow.remote.api import AirflowApi
from tidegate.cli import commands, doctor
from tidegate.cli.check import pool_slots
from tidegate.core.audit.findings import Finding
from tidegate.plugin import TidegatePlugin

SERVERS = {"scheduler": "SchedulerJob", "triggerer": "TriggererJob", "dag_processor": "DagProcessorJob"}
NAME, BUNDLE = "orders", "dags-folder"  # the bundle that Airflow has by default


class Api(AirflowApi):
    """Airflow's own API, in this process; who waits for a run is the one that works on it."""

    site: Installation

    def wait_run(self, dag_id: str, run_id: str, **how: Any) -> dict[str, Any]:
        self.site.work(dag_id, run_id)
        return super().wait_run(dag_id, run_id, **how)


@contextmanager
def airflow_api() -> Iterator[Api]:
    """The API over an empty database, for an administrator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "for the tests of this module alone, 64 bytes or more: 0123456789abcdef")
        patch.setattr(
            TidegatePlugin, "react_apps", [{"name": "t", "url_route": "t", "bundle_url": "t"}]
        )  # as after `make bundle`
        import_all_models()  # type: ignore[no-untyped-call]
        Base.metadata.create_all(settings.engine)
        synchronize_log_template()
        purge_cached_app()
        with TestClient(create_app(apps="core")) as client:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="ADMIN"))
            with Api("http://testserver", token=token, transport=client._transport) as api:
                yield api
        purge_cached_app()
        Base.metadata.drop_all(settings.engine)


class Installation:
    """One pipeline in a project folder, its connections and its pool. What `patch` and `undo` have is undone after the test."""

    def __init__(self, root: Path, api: Api, patch: pytest.MonkeyPatch, undo: ExitStack) -> None:
        self.root, self.api, self.patch, self.undo = root, api, patch, undo
        self.clock = timedelta()  # by how much the workers' clock is ahead
        self.stated: dict[str, Any] = {}
        self.printed: list[Finding] = []
        api.site = self
        copy_project(root)
        shutil.rmtree(root / "dags" / "pipelines")
        with create_session() as session:
            session.merge(DagBundleModel(name=BUNDLE))
        for name in SERVERS:
            self.beat(name)
        patch.setenv("TIDEGATE_PROJECT", str(root))
        patch.setattr(doctor, "open_remote", lambda _: nullcontext(SimpleNamespace(api=api)))
        patch.setattr(doctor, "print_json", self._print)  # Airflow logs to where it would be printed

    @property
    def file(self) -> Path:
        """That of the pipeline."""
        return self.root / "dags" / "pipelines" / f"{NAME}.yaml"

    def beat(self, server: str, ago: timedelta = timedelta()) -> None:
        """The last heartbeat of one of Airflow's servers."""
        with create_session() as session:
            session.execute(delete(Job).where(Job.job_type == SERVERS[server]))
            session.add(job := Job(job_type=SERVERS[server], state="running"))  # type: ignore[no-untyped-call]
            session.flush()
            job.latest_heartbeat = datetime.now(UTC) - ago

    def connect(self, connection: str, **of: Any) -> None:
        """Make a connection."""
        self.patch.setenv(f"AIRFLOW_CONN_{connection.upper()}", json.dumps(of))

    def write(self, **changes: Any) -> None:
        """Write the pipeline's file, changed, make the pool that it names, and let the DAG processor read it."""
        self.stated |= changes
        write_files(self.root, "pipelines", {NAME: self.stated})
        for pool, slots in pool_slots(self.root).items():
            self.api.delete_pool(pool)
            self.api.sync_pool(pool, slots)
        sync_bag_to_db(self.read(), BUNDLE, None)

    def read(self) -> DagBag:
        """What the DAG processor, and each task, makes of the DAG folder."""
        return DagBag(self.root / "dags", bundle_path=self.root / "dags", bundle_name=BUNDLE)

    def work(self, dag_id: str, run_id: str) -> None:
        """Run the tasks of a run, one after the other, as its worker and its scheduler do."""
        tasks, run = self.read().dags[dag_id].task_dict, Run(run_id)
        with create_session() as session:
            row = session.scalars(select(DagRun).filter_by(run_id=run_id)).one()
            row.state = DagRunState.SUCCESS
            for ti in row.get_task_instances(session=session):
                ti.state, ti.start_date = TaskInstanceState.SUCCESS, datetime.now(UTC) + self.clock
                try:
                    run.execute(tasks[ti.task_id])
                except AirflowFailException:
                    ti.state, row.state = TaskInstanceState.FAILED, DagRunState.FAILED
                ti.end_date = datetime.now(UTC) + self.clock
            for (name, key), value in run.xcoms.items():
                XComModel.set(key=key, value=json.loads(value), dag_id=dag_id, task_id=name, run_id=run_id, session=session)
            row.end_date = datetime.now(UTC)

    def _print(self, found: list[dict[str, Any]]) -> None:
        self.printed = [Finding(**each) for each in found]

    def examined(self) -> tuple[int, list[Finding]]:
        """The exit code of `tidegate doctor`, and all that it prints."""
        code = CliRunner().invoke(commands(), ["doctor", "--json"], catch_exceptions=False).exit_code
        return code, self.printed
