"""The pages where something is wrong or odd: servers that go away, paths, tabs, names, and state that somebody has broken."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, Page, expect
from pyiceberg.catalog import load_catalog

from tests.e2e.browser import browser, go, harmful, logged_in, page
from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.state.ledger import cursor_key
from tidegate.local import Platform, sockets
from tidegate.local.airflow import API_SERVER
from tidegate.local.flights import create_topic, produce, read_flights
from tidegate.waiting import wait_until

__all__ = ["browser", "page"]

NAME, TABLE = "hard", "lake.hard.hard"
RANGES = f"dags/{NAME}/plugin/ranges"
FILE = {"source": {"topics": [NAME]}, "retries": 0, "sink": {"table": TABLE}}
SOON_MS = 30_000
"""A page asks again every 10 s."""
READ_MS = 120_000
"""Airflow reads a changed file, and finds a DAG stale, in less."""
HACK = "<img src=x onerror='globalThis.hacked=1'><script>globalThis.hacked=1</script>"

pytestmark = pytest.mark.usefixtures("catalog", "loaded")


@pytest.fixture(scope="module")
def loaded(project: Project, platform: Platform) -> dict[str, Any]:
    """A pipeline with one batch; its run."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    platform.sync_pools({"tidegate_lake_hard_hard": 2})
    project.write(NAME, **FILE)
    produce(settings, read_flights(200), topic=NAME)
    with platform.api() as api:
        run = Runs(api, NAME).run()
    assert run["state"] == "success"
    return run


def shown(page: Page) -> Any:
    return page.locator(".tidegate")


def test_the_pages_work_below_a_path(browser: Browser, platform: Platform, loaded: dict[str, Any]) -> None:
    """As where a proxy serves Airflow: each page, without a serious finding of axe, and a dry run."""
    with below_a_path(platform) as address, logged_in(browser, address, platform.airflow_login) as context:
        opened = context.pages[0]
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        for path, text in (
            ("plugin/tidegate", NAME),
            (f"dags/{NAME}/runs/{quote(loaded['dag_run_id'], safe='')}/plugin/range", "Batch 1 is committed"),
            (RANGES, "Batches 1 to 1"),
        ):
            opened.goto(f"{address}/{path}")
            expect(shown(opened)).to_contain_text(text)
            assert harmful(opened) == []
        opened.get_by_role("button", name="Replay a range").click()
        form = opened.get_by_role("region", name="Replay", exact=True)
        form.get_by_role("button", name="Dry run").click()
        expect(form.get_by_role("status").first).to_contain_text("Dry run: success", timeout=120_000)
        ours = [url for url in asked if "tidegate/" in url or "/api/v2/" in url]
        assert ours
        assert [url for url in ours if not url.startswith(f"{address}/")] == []


@contextmanager
def below_a_path(platform: Platform) -> Iterator[str]:
    """A second API server of the platform's Airflow, below a path; its address."""
    port = sockets.choose_port()
    address = f"http://{sockets.LOOPBACK}:{port}/some/path"
    command, env = platform.airflow_command(["api-server", "--port", str(port)])
    server = subprocess.Popen(
        command,
        env={**env, "AIRFLOW__API__BASE_URL": address, "AIRFLOW__API__PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert wait_until(lambda: answers(f"{address}/api/v2/monitor/health"), timeout_s=120, poll_s=0.5)
        yield address
    finally:
        server.terminate()
        server.wait(60)


def answers(address: str) -> bool:
    try:
        return httpx.get(address, trust_env=False).is_success
    except httpx.TransportError:
        return False


def test_each_tab_shows_each_page(browser: Browser, platform: Platform, loaded: dict[str, Any]) -> None:
    """Tabs that are opened one after the other: the UI's loader of scripts keeps one function by each name, and runs once."""
    with logged_in(browser, platform.airflow_url, platform.airflow_login) as context:
        tabs = [context.pages[0], context.new_page()]
        pages = {"/plugin/tidegate": TABLE, f"/{RANGES}": "Batches 1 to 1"}
        for tab, path in zip(tabs, pages, strict=True):
            tab.goto(path)
            expect(shown(tab)).to_contain_text(pages[path])
        for tab, path in zip(tabs, reversed(pages), strict=True):
            go(tab, path)
            expect(shown(tab)).to_contain_text(pages[path])


def test_a_page_goes_on_once_the_api_server_is_back(browser: Browser, platform: Platform) -> None:
    """It shows what it has, and how old that is. Nobody has to reload it."""
    (server,) = (each for each in platform.servers() if each.name == API_SERVER)
    with logged_in(browser, platform.airflow_url, platform.airflow_login) as context:
        opened = context.pages[0]
        opened.goto(f"/{RANGES}")
        expect(shown(opened)).to_contain_text("Batches 1 to 1")
        server.stop()
        try:
            expect(shown(opened)).to_contain_text("does not answer (shown as of", timeout=SOON_MS)
            expect(shown(opened)).to_contain_text("Batches 1 to 1")
        finally:
            server.start()
        expect(shown(opened)).not_to_contain_text("does not answer", timeout=SOON_MS)
        expect(shown(opened)).to_contain_text("Batches 1 to 1")


def test_a_broker_that_is_away_is_named_and_the_rest_is_shown(page: Page, project: Project, api: AirflowApi) -> None:
    """In the list, and above a map that has the batches."""
    extra = f'{{"bootstrap.servers": "{sockets.LOOPBACK}:{sockets.choose_port()}"}}'
    api.post("/connections", {"connection_id": "kafka_gone", "conn_type": "kafka", "extra": extra})
    project.write(NAME, **{**FILE, "source": {"topics": [NAME], "connection": "kafka_gone"}})
    try:
        page.goto(f"/{RANGES}")
        expect(shown(page).get_by_role("status").first).to_contain_text("broker", timeout=READ_MS)
        expect(shown(page)).to_contain_text("Batches 1 to 1")
        expect(page.get_by_role("slider", name=f"Offsets of {NAME}-0")).to_be_visible()
        page.goto("/plugin/tidegate")
        expect(page.get_by_role("row").filter(has_text=TABLE)).to_contain_text("lag: ", timeout=SOON_MS)
        assert harmful(page) == []
    finally:
        project.write(NAME, **FILE)


def test_runs_that_there_are_not_and_runs_with_odd_names_are_shown_as_text(page: Page, api: AirflowApi) -> None:
    """Nothing of a name or of a note is run as a script."""
    page.goto(f"/dags/{NAME}/runs/never/plugin/range")
    expect(page.locator("body")).to_contain_text("never")
    run_id = "odd+~1:2.3"
    api.post(f"/dags/{NAME}/dagRuns", {"dag_run_id": run_id, "logical_date": None, "conf": {}})
    assert Runs(api, NAME).ended(run_id)["tasks"]["plan"] == "skipped"
    api.patch(f"/dags/{NAME}/dagRuns/{quote(run_id, safe='')}", {"note": HACK})
    page.goto(f"/dags/{NAME}/runs/{quote(run_id, safe='')}/plugin/range")
    expect(shown(page)).to_contain_text(HACK)
    assert page.evaluate("globalThis.hacked") is None
    page.goto(f"/{RANGES}")
    expect(page.get_by_role("navigation", name="The last runs")).to_contain_text("found nothing to read")
    for path in ("nothing/map", f"{NAME}/batches/99", "~/map", "%3Cscript%3E/lag", f"{NAME}__replay/runs/x"):
        assert page.evaluate("path => fetch(`tidegate/api/dags/${path}`).then(r => r.status)", path) in (200, 404)


def test_a_file_that_cannot_be_read_is_named(page: Page, project: Project) -> None:
    """Above the other pipelines, with what is wrong in it; its map is still there."""
    file = project.pipelines / f"{NAME}.yaml"
    file.write_text(f"source: '{HACK}\n")
    project.let_airflow_read()
    try:
        page.goto("/plugin/tidegate")
        expect(page.get_by_role("row").filter(has_text=NAME)).to_contain_text("not valid YAML", timeout=READ_MS)
        expect(page.get_by_role("row").nth(1)).to_contain_text("file unreadable")
        page.goto(f"/{RANGES}")
        expect(shown(page)).to_contain_text("Batches 1 to 1")
        assert page.evaluate("globalThis.hacked") is None
    finally:
        project.write(NAME, **FILE)


def test_state_table_and_topic_that_are_gone_are_named(
    page: Page, platform: Platform, api: AirflowApi, loaded: dict[str, Any]
) -> None:
    """One after the other, and what is left is shown."""
    load_catalog("lake", **platform.catalog_properties).drop_table(TABLE.removeprefix("lake."))
    page.goto(f"/dags/{NAME}/runs/{quote(loaded['dag_run_id'], safe='')}/plugin/range")
    expect(shown(page)).to_contain_text("No snapshot of the table has a receipt of it", timeout=SOON_MS)
    admin: Any = AdminClient({"bootstrap.servers": platform.bootstrap_servers})
    admin.delete_topics([NAME])[NAME].result(30)
    page.goto(f"/{RANGES}")
    # Airflow may still be to read the file again that a test before has mended
    expect(shown(page).get_by_role("status").first).to_contain_text(NAME, timeout=READ_MS)
    expect(shown(page)).to_contain_text("Batches 1 to 1")
    api.set_variable(cursor_key(NAME), '{"broken', "")
    page.goto("/plugin/tidegate")
    row = page.get_by_role("row").filter(has_text=TABLE)
    expect(row).to_contain_text("state unreadable", timeout=SOON_MS)
    expect(row).to_contain_text(cursor_key(NAME))
    page.goto(f"/{RANGES}")
    expect(shown(page)).to_contain_text(cursor_key(NAME))
