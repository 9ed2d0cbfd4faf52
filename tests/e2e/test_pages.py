"""The pages in Airflow's own UI, in a browser: what they show, whether they are accessible, replays, what is gone or odd."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, Page, Route, expect
from pyiceberg.catalog import load_catalog

from tests.e2e.browser import browser, go, harmful, logged_in, page
from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.state.ledger import cursor_key
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.views.pages import PipelinesAnswer, encode
from tidegate.waiting import wait_until
from tidegate_local import sockets
from tidegate_local.airflow import API_SERVER
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform
from tidegate_local.topics import produce_lines

NAME, TABLE = "shown", "lake.shown.shown"
LIST, RANGES = "/plugin/tidegate", f"/dags/{NAME}/plugin/ranges"
BROKEN = b"<b>no JSON</b>"
SOON_MS = 30_000
"""A page asks again every 10 s."""
HACK = "<img src=x onerror='globalThis.hacked=1'><script>globalThis.hacked=1</script>"
__all__ = ["browser", "page"]

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture(scope="module")
def kafka(platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    platform.sync_pools({"tidegate_lake_shown_shown": 2})
    return settings


@pytest.fixture(scope="module")
def loaded(project: Project, platform: Platform, kafka: dict[str, str]) -> dict[str, Any]:
    """Two batches of a pipeline, of which the second has a broken record; the run of the second one."""
    project.write(NAME, source={"topics": [NAME]}, retries=0, sink={"table": TABLE}, quarantine={})
    with platform.api() as api:
        runs = Runs(api, NAME)
        for broken in ((), (BROKEN,)):
            produce(kafka, read_flights(200), topic=NAME)
            produce_lines(kafka, NAME, broken)
            run = runs.run()
            assert run["state"] == "success"
    return run


def run_page(run: dict[str, Any]) -> str:
    """Where a run says what it read."""
    return f"/dags/{NAME}/runs/{quote(run['dag_run_id'], safe='')}/plugin/range"


def shown(page: Page) -> Any:
    return page.locator(".tidegate")


def blocks(page: Page, partition: int) -> Any:
    """The row of a partition, once it shows its batches, and Airflow's own panels have come to rest."""
    row = page.get_by_role("slider", name=f"Offsets of {NAME}-{partition}")
    expect(row).to_have_attribute("data-blocks", "2")
    page.wait_for_load_state("networkidle")
    return row


def receipts() -> list[Any]:
    return IcebergReader().receipts(TABLE, NAME)


def test_pages_are_accessible_on_a_small_dark_screen(page: Page, loaded: dict[str, Any]) -> None:
    """No serious finding, and what matters is there. On a large light one: below a path."""
    page.set_viewport_size({"width": 390, "height": 900})
    page.evaluate("localStorage.setItem('theme', 'dark')")
    for path, text in {LIST: NAME, RANGES: "Batches 1 to 2", run_page(loaded): "Batch 2 is committed"}.items():
        page.goto(path)
        expect(shown(page)).to_contain_text(text)
        assert harmful(page) == []


def test_pages_follow_each_other_in_each_tab(browser: Browser, platform: Platform, loaded: dict[str, Any]) -> None:
    """The UI's loader keeps one function by each name, and runs a script once: each entry has an address of its own.

    Nothing is loaded anew between the pages of a tab.
    """
    pages = {LIST: TABLE, RANGES: "Batches 1 to 2", run_page(loaded): "Batch 2 is committed"}
    with logged_in(browser, platform.airflow_url, platform.airflow_login) as context:
        tabs = [context.pages[0], context.new_page()]
        for tab, path in zip(tabs, pages, strict=False):
            tab.goto(path)
            expect(shown(tab)).to_contain_text(pages[path])
            tab.evaluate("globalThis.stays = 1")
        for path in (*pages, *reversed(pages)):
            for tab in tabs:
                go(tab, path)
                expect(shown(tab)).to_contain_text(pages[path])
        assert [tab.evaluate("globalThis.stays") for tab in tabs] == [1, 1]


def test_a_batch_is_found_in_the_map_by_time_and_by_its_run(page: Page, loaded: dict[str, Any]) -> None:
    """By mouse and by keyboard, with the reasons for its ranges; the address says how the map is shown."""
    page.goto(RANGES)
    row = blocks(page, 0)
    row.press("Home")
    row.press("Enter")
    first, second = (page.get_by_role("region", name=f"Batch {seq}", exact=True) for seq in (1, 2))
    expect(first).to_contain_text("Batch 1 is committed")
    expect(first.get_by_role("table")).to_contain_text("log end")
    row.click(position={"x": row.bounding_box()["width"] * 0.9, "y": 10})
    expect(second.get_by_role("link").first).to_have_text(loaded["dag_run_id"])

    page.get_by_label("Axis").select_option("time")
    row = page.get_by_role("slider", name=f"Batches of {NAME}-0")
    row.press("End")
    row.press("r")  # nothing of time can be replayed
    row.press("Enter")
    expect(second).to_contain_text("Batch 2 is committed")
    expect(page.get_by_role("region", name="Replay", exact=True)).to_have_count(0)
    page.get_by_label("Colour").select_option("rate")
    expect(page.get_by_role("list", name="Legend")).to_contain_text("rows/s")
    page.reload()
    expect(page.get_by_role("slider", name=f"Batches of {NAME}-0")).to_be_visible()
    expect(second).to_contain_text("Batch 2 is committed")
    expect(page.get_by_label("Colour")).to_have_value("rate")

    history = page.get_by_role("region", name="History")
    for chart in ("Records behind", "Records per batch", "Seconds of the run", "Records per second"):
        expect(history.get_by_role("img", name=chart)).to_be_visible()
    with page.expect_response(lambda response: "history?hours=168&" in response.url) as answer:
        history.get_by_role("combobox").select_option("7 days")
    assert sum(point["batches"] for point in answer.value.json()["points"]) == 2
    last = page.get_by_role("navigation", name="The last runs").get_by_role("link").last
    last.press("ArrowLeft")
    expect(page.locator(":focus")).to_have_attribute("aria-label", re.compile("loaded, batch 1, 200 records"))
    last.press("Enter")
    expect(shown(page)).to_contain_text("Batch 2 is committed")


def test_what_is_in_quarantine_is_shown_as_text_with_its_replay(page: Page, loaded: dict[str, Any]) -> None:
    page.goto(RANGES)
    page.get_by_role("button", name="Quarantine", exact=True).click()
    panel = page.get_by_role("region", name="Quarantine", exact=True)
    expect(panel).to_contain_text(f"1 records are in {TABLE}_quarantine")
    expect(panel).to_contain_text(BROKEN.decode())
    expect(panel).to_contain_text(f"tidegate replay {NAME} --from {NAME}:")
    expect(panel).to_contain_text(re.compile(r"Read [\d.]+ s ago"))
    assert harmful(page) == []


def test_what_is_to_be_typed_is_copied_as_it_stands(page: Page, loaded: dict[str, Any]) -> None:
    """Also of broken records of a batch whose load's figures are not known any more; and the button says that it did."""

    def without_figures(route: Route) -> None:
        answer = route.fetch().json()
        answer["batch"]["load"] = None
        route.fulfill(json=answer)

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.route("**/batches/2", without_figures)
    page.goto(f"{RANGES}?batch=2")
    batch = page.get_by_role("region", name="Batch 2", exact=True)
    batch.get_by_role("button", name="Show broken records").click()
    expect(batch).to_contain_text(re.compile(r"Read [\d.]+ s ago"))
    command = batch.locator(".command code").inner_text()
    assert command.startswith('tidegate sql "SELECT *')
    assert f" {TABLE}_quarantine " in command
    button = batch.get_by_role("button", name=f"Copy {command}")
    expect(button).to_have_text("Copy")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_a_pipeline_of_which_brokers_say_nothing_is_not_called_ok(page: Page, loaded: dict[str, Any]) -> None:
    def without_brokers(route: Route) -> None:
        answer = route.fetch().json()
        (row,) = (each for each in answer["pipelines"] if each["pipeline"] == NAME)
        route.fulfill(json={**answer, "pipelines": [{**row, "trouble": None, "lag_error": "no broker answers. Start one"}]})

    page.route("**/api/pipelines", without_brokers)
    page.goto(LIST)
    expect(shown(page).get_by_role("group", name="Show only")).to_have_text("1 lag unknown")
    expect(shown(page).get_by_role("table").locator(".state")).to_have_text(["lag unknown"])


def test_a_list_of_nothing_says_how_to_make_a_first_pipeline(page: Page) -> None:
    nothing = json.loads(encode(PipelinesAnswer(at_ms=0, pipelines=(), airflow=())))
    page.route("**/api/pipelines", lambda route: route.fulfill(json=nothing))
    page.goto(LIST)
    expect(shown(page)).to_contain_text("No pipeline yet, or none that you may see. tidegate init writes a first one")
    expect(shown(page).get_by_role("table")).to_have_count(0)


def test_what_an_older_version_has_loaded_is_replayed_by_a_click(page: Page, loaded: dict[str, Any]) -> None:
    """The form asks Airflow for all rows of that version, a dry run first. Where Airflow refuses it, the form stays."""
    asked: list[Any] = []

    def two_versions(route: Route) -> None:
        view = route.fetch().json()
        view["transforms"] = ["m:f@1.0", "m:f@1.1"]
        for row in view["rows"]:
            for block in row["blocks"]:
                block["transform"] = f"m:f@1.{block['seqs'][0] - 1}"
        route.fulfill(json=view)

    def queued(route: Route) -> None:
        if route.request.method == "POST":
            asked.append(route.request.post_data_json)
        route.fulfill(json={"dag_run_id": "r", "state": "queued", "note": None})

    page.route("**/map?*", two_versions)
    page.route("**/dagRuns**", queued)
    page.goto(RANGES)
    page.get_by_role("button", name="Replay what m:f@1.0 has loaded").click()
    form = page.get_by_role("region", name="Replay", exact=True)
    form.get_by_role("button", name="Dry run").click()
    expect(form.get_by_role("status")).to_contain_text("Dry run: queued")
    expect(form.get_by_role("button", name="Replay", exact=True)).to_be_disabled()
    assert [each["conf"] for each in asked] == [{"versions": "=1.0", "dry_run": True}]
    page.unroute("**/dagRuns**")
    page.route("**/dagRuns", lambda route: route.fulfill(status=403, json={"detail": "Forbidden"}))
    page.goto(RANGES)
    blocks(page, 0).press("r")
    form.get_by_role("button", name="Dry run").click()
    expect(form.get_by_role("status")).to_contain_text("You may not")
    expect(form.get_by_label("From")).to_be_visible()


def test_a_drag_replays_exactly_what_was_dragged_over(
    page: Page, loaded: dict[str, Any], api: AirflowApi, project: Project
) -> None:
    """A dry run first, which replaces nothing; then the rows of these offsets are loaded once more, and each is there once."""
    before = receipts()
    page.goto(RANGES)
    row = blocks(page, 1)
    box = row.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 10, steps=5)
    page.mouse.up()
    form = page.get_by_role("region", name="Replay", exact=True)
    start, end = (int(form.get_by_label(name).input_value()) for name in ("From", "Until (exclusive)"))
    last = max(r.until_offset for receipt in before for r in receipt.load.ranges if r.partition == 1)
    assert start == pytest.approx(last / 4, abs=2)
    assert end == pytest.approx(last * 3 / 4, abs=2)
    expect(form.get_by_role("button", name="Replay")).to_be_disabled()
    form.get_by_role("button", name="Dry run").click()
    expect(form.get_by_role("status").first).to_contain_text("Dry run: success", timeout=120_000)
    assert receipts() == before
    form.get_by_role("button", name="Replay").click()
    expect(form.get_by_role("status").last).to_contain_text("Replay: success", timeout=120_000)
    (replayed,) = [r for r in receipts() if r.load.replay is not None]
    assert [(r.partition, r.from_offset, r.until_offset) for r in replayed.load.ranges if r.count] == [(1, start, end)]
    form.get_by_role("status").last.get_by_role("link").click()
    page.goto(f"{page.url.rstrip('/')}/plugin/range")
    # the table's commits are read every 15 s, and the page asks every 10 s
    expect(shown(page)).to_contain_text("1 of 1 chunks are in the table")
    replaced = shown(page).get_by_role("region", name="What it replaces").get_by_role("row")
    parts = [int(row.get_by_role("cell").first.inner_text()) for row in replaced.all()[1:]]
    assert (len(parts), sum(parts)) == (2, end - start)
    page.goto(RANGES)
    expect(page.get_by_role("list", name="Legend")).to_contain_text("loaded last by a replay")
    verified = project.tidegate("ledger", "verify", NAME)
    assert (verified["holds"], verified["quarantined"]) == (True, 1)


def test_the_pages_work_below_a_path(browser: Browser, platform: Platform, loaded: dict[str, Any]) -> None:
    """As where a proxy serves Airflow: each page, without a serious finding of axe, and a dry run."""
    with below_a_path(platform) as address, logged_in(browser, address, platform.airflow_login) as context:
        opened = context.pages[0]
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        for path, text in (
            (LIST, NAME),
            (run_page(loaded), "Batch 2 is committed"),
            (RANGES, "Batches 1 to 2"),
        ):
            opened.goto(f"{address}{path}")
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


def test_a_page_goes_on_once_the_api_server_is_back(browser: Browser, platform: Platform, loaded: dict[str, Any]) -> None:
    """It shows what it has, and how old that is. Nobody has to reload it."""
    (server,) = (each for each in platform.servers() if each.name == API_SERVER)
    with logged_in(browser, platform.airflow_url, platform.airflow_login) as context:
        opened = context.pages[0]
        opened.goto(RANGES)
        expect(shown(opened)).to_contain_text("Batches 1 to 2")
        server.stop()
        try:
            expect(shown(opened)).to_contain_text("does not answer (shown as of", timeout=SOON_MS)
            expect(shown(opened)).to_contain_text("Batches 1 to 2")
        finally:
            server.start()
        expect(shown(opened)).not_to_contain_text("does not answer", timeout=SOON_MS)
        expect(shown(opened)).to_contain_text("Batches 1 to 2")


def test_what_is_gone_or_odd_is_named_as_text_and_the_rest_is_shown(
    page: Page, platform: Platform, api: AirflowApi, loaded: dict[str, Any]
) -> None:
    """Nothing of a name or of a note is run as a script. Then the table, the topic and the cursor go, one after the other."""
    page.goto(f"/dags/{NAME}/runs/never/plugin/range")
    expect(page.locator("body")).to_contain_text("never")
    odd: dict[str, Any] = {"dag_run_id": "odd+~1:2.3", "logical_date": None, "conf": {}}
    api.post(f"/dags/{NAME}/dagRuns", odd)
    assert Runs(api, NAME).ended(odd["dag_run_id"])["tasks"]["plan"] == "skipped"
    api.patch(f"/dags/{NAME}/dagRuns/{quote(odd['dag_run_id'], safe='')}", {"note": HACK})
    page.goto(run_page(odd))
    expect(shown(page)).to_contain_text(HACK)
    assert page.evaluate("globalThis.hacked") is None
    page.goto(RANGES)
    last = page.get_by_role("navigation", name="The last runs")
    expect(last.get_by_role("link", name="nothing to read")).to_be_visible()
    for path in ("nothing/map", f"{NAME}/batches/99", "~/map", "%3Cscript%3E/lag", f"{NAME}__replay/runs/x"):
        assert page.evaluate("path => fetch(`tidegate/api/dags/${path}`).then(r => r.status)", path) in (200, 404)

    load_catalog("lake", **platform.catalog_properties).drop_table(TABLE.removeprefix("lake."))
    page.goto(run_page(loaded))
    expect(shown(page)).to_contain_text("No snapshot of the table has a receipt of it", timeout=SOON_MS)
    admin: Any = AdminClient({"bootstrap.servers": platform.bootstrap_servers})
    admin.delete_topics([NAME])[NAME].result(30)
    page.goto(RANGES)
    gone = shown(page).get_by_role("status").filter(has_text=f"topic {NAME} does not exist")
    expect(gone).to_have_count(1, timeout=SOON_MS)
    expect(shown(page)).to_contain_text("Batches 1 to 2")
    assert harmful(page) == []
    api.set_variable(cursor_key(NAME), '{"broken', "")
    page.goto(LIST)
    row = page.get_by_role("row").filter(has_text=TABLE)
    expect(row).to_contain_text("state unreadable", timeout=SOON_MS)
    expect(row).to_contain_text(cursor_key(NAME))
    page.goto(RANGES)
    expect(shown(page)).to_contain_text(cursor_key(NAME))
