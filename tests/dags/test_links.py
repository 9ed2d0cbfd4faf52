"""The links of tasks to the pages of their runs, through Airflow's own route, in Airflow's own app."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from airflow import plugins_manager
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.sdk import DAG, BaseOperator
from fastapi.testclient import TestClient

from tests.dags.test_ui_routes import ODD, add_dag, add_run, add_task, app, database
from tidegate.airflow import operators
from tidegate.airflow.links import PageLink
from tidegate.plugin import TidegatePlugin

__all__ = ["app", "database"]

pytestmark = pytest.mark.usefixtures("database", "linked")


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's links, also where the bundle is not built."""
    monkeypatch.setattr(plugins_manager, "get_operator_extra_links", lambda: [PageLink()])


@pytest.fixture
def links(app: TestClient) -> Callable[..., Any]:
    """What Airflow answers a Viewer for the links of a task."""

    def asked(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="v", role="VIEWER"))
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/links?map_index={map_index}"
        return app.get(path, headers={"Authorization": f"Bearer {token}"}).json()["extra_links"]

    return asked


def test_each_operator_with_the_link_exists() -> None:
    """Airflow finds them by name and module, and these alone stand in the link."""
    for operator in PageLink.operators:
        found = getattr(importlib.import_module(operator.__module__), operator.__name__)
        assert (found.__name__, found.__module__) == (operator.__name__, operator.__module__)
    without = {"MaintainOperator", "PlanMaintenanceOperator"}
    assert {operator.__name__ for operator in PageLink.operators} == {*operators.__all__} - without


def test_a_task_leads_to_the_page_of_its_run(links: Callable[..., Any]) -> None:
    """While the run is still going, whatever its id is; the address is relative, so a base path is kept."""
    add_run("orders", ODD, "running")
    add_task("orders", ODD, "plan", "running")
    assert links("orders", ODD, "plan") == {"Tidegate": f"dags/orders/runs/{quote(ODD, safe='')}/plugin/range"}


def test_a_mapped_task_of_a_replay_leads_to_the_page_of_the_replay(links: Callable[..., Any]) -> None:
    """Every chunk to the same one."""
    add_run("orders__replay", "chunks", "running")
    add_task("orders__replay", "chunks", "load", "running", map_index=3)
    assert links("orders__replay", "chunks", "load", 3) == {"Tidegate": "dags/orders__replay/runs/chunks/plugin/range"}


def test_the_task_of_a_stranger_has_no_link(links: Callable[..., Any]) -> None:
    """Airflow matches mapped tasks by the name of their class alone."""

    class LoadOperator(BaseOperator):
        def __init__(self, *, chunks: list[int], **more: Any) -> None:
            super().__init__(**more)
            self.chunks = chunks

    with DAG("strange", schedule=None) as dag:
        LoadOperator.partial(task_id="load").expand(chunks=[[0, 1], [2]])
    add_dag(dag)
    add_run("strange", "r", "running")
    add_task("strange", "r", "load", "running", map_index=0)
    assert links("strange", "r", "load", 0) == {"Tidegate": None}


def test_the_plugin_has_links_where_it_has_pages() -> None:
    """A checkout that has not built the pages has neither."""
    assert bool(TidegatePlugin.operator_extra_links) == bool(TidegatePlugin.react_apps)
