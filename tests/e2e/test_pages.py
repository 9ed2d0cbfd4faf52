"""The pages in Airflow's own UI, in a browser: what they show, whether they are accessible, and a replay."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.browser import browser, go, harmful, page
from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.oracle import judge
from tidegate.iceberg.history import IcebergReader
from tidegate.iceberg.origins import read_origins
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights

NAME = "shown"
TABLE = "lake.shown.shown"
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
    """Two batches of a pipeline; the run of the second one."""
    project.write(NAME, source={"topics": [NAME]}, retries=0, sink={"table": TABLE})
    with platform.api() as api:
        runs = Runs(api, NAME)
        for _ in range(2):
            produce(kafka, read_flights(200), topic=NAME)
            run = runs.run()
            assert run["state"] == "success"
    return run


def blocks(page: Page, partition: int) -> Any:
    """The row of a partition, once it shows its batches, and Airflow's own panels have come to rest."""
    row = page.get_by_role("slider", name=f"Offsets of {NAME}-{partition}")
    expect(row).to_have_attribute("data-blocks", "2")
    page.wait_for_load_state("networkidle")
    return row


def receipts() -> list[Any]:
    return IcebergReader().receipts(TABLE, NAME)


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_pages_are_accessible(page: Page, loaded: dict[str, Any], theme: str, width: int) -> None:
    """No serious finding, and what matters is there."""
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    shown = {
        "/plugin/tidegate": f"{NAME}",
        f"/dags/{NAME}/plugin/ranges": "Batches 1 to 2",
        f"/dags/{NAME}/runs/{loaded['dag_run_id']}/plugin/range": "Batch 2 is committed",
    }
    for path, text in shown.items():
        page.goto(path)
        expect(page.locator(".tidegate")).to_contain_text(text)
        assert harmful(page) == []


def test_pages_follow_each_other_in_one_tab(page: Page, loaded: dict[str, Any]) -> None:
    """The UI's loader runs a script once, so each entry has an address of its own. Nothing is loaded anew between them."""
    page.goto("/plugin/tidegate")
    page.evaluate("globalThis.stays = 1")
    for path, text in (
        (f"/dags/{NAME}/plugin/ranges", "Batches 1 to 2"),
        (f"/dags/{NAME}/runs/{loaded['dag_run_id']}/plugin/range", "Batch 2 is committed"),
        ("/plugin/tidegate", TABLE),
        (f"/dags/{NAME}/plugin/ranges", "Batches 1 to 2"),
    ):
        go(page, path)
        expect(page.locator(".tidegate")).to_contain_text(text)
    assert page.evaluate("globalThis.stays") == 1


def test_a_batch_is_opened_by_mouse_and_by_keyboard(page: Page, loaded: dict[str, Any]) -> None:
    """With its ranges, the reasons for them, and its run."""
    page.goto(f"/dags/{NAME}/plugin/ranges")
    row = blocks(page, 0)
    row.press("Home")
    row.press("Enter")
    first = page.get_by_role("region", name="Batch 1", exact=True)
    expect(first).to_contain_text("Batch 1 is committed")
    expect(first.get_by_role("table")).to_contain_text("log end")
    row.click(position={"x": row.bounding_box()["width"] * 0.9, "y": 10})
    second = page.get_by_role("region", name="Batch 2", exact=True)
    expect(second.get_by_role("link").first).to_have_text(loaded["dag_run_id"])


def test_the_map_is_shown_by_time_and_by_rate_and_its_address_says_so(page: Page, loaded: dict[str, Any]) -> None:
    """A block of time opens its batch, and nothing of time can be replayed; a link leads to the same place."""
    page.goto(f"/dags/{NAME}/plugin/ranges")
    blocks(page, 0)
    page.get_by_label("Axis").select_option("time")
    row = page.get_by_role("slider", name=f"Batches of {NAME}-0")
    row.press("End")
    row.press("r")
    row.press("Enter")
    expect(page.get_by_role("region", name="Batch 2", exact=True)).to_contain_text("Batch 2 is committed")
    expect(page.get_by_role("region", name="Replay", exact=True)).to_have_count(0)
    page.get_by_label("Colour").select_option("rate")
    expect(page.get_by_role("list", name="Legend")).to_contain_text("rows/s")
    page.reload()
    expect(page.get_by_role("slider", name=f"Batches of {NAME}-0")).to_be_visible()
    expect(page.get_by_role("region", name="Batch 2", exact=True)).to_contain_text("Batch 2 is committed")
    expect(page.get_by_label("Colour")).to_have_value("rate")


def test_the_last_runs_and_the_history_lead_to_what_a_run_read(page: Page, loaded: dict[str, Any]) -> None:
    """A run by the keys of its strip; batches over time for as long as is asked."""
    page.goto(f"/dags/{NAME}/plugin/ranges")
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
    expect(page.locator(".tidegate")).to_contain_text("Batch 2 is committed")


def test_a_drag_replays_exactly_what_was_dragged_over(
    page: Page, loaded: dict[str, Any], api: AirflowApi, kafka: dict[str, str]
) -> None:
    """A dry run first, which replaces nothing; then the rows of these offsets are loaded once more, and each is there once."""
    before = receipts()
    page.goto(f"/dags/{NAME}/plugin/ranges")
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
    shown = page.locator(".tidegate")
    # the table's commits are read every 15 s, and the page asks every 10 s
    expect(shown).to_contain_text("1 of 1 chunks are in the table")
    replaced = shown.get_by_role("region", name="What it replaces").get_by_role("row")
    parts = [int(row.get_by_role("cell").first.inner_text()) for row in replaced.all()[1:]]
    assert (len(parts), sum(parts)) == (2, end - start)
    page.goto(f"/dags/{NAME}/plugin/ranges")
    expect(page.get_by_role("list", name="Legend")).to_contain_text("loaded last by a replay")
    marks = AdminBrokers(kafka).watermarks([NAME])
    assert judge(read_offsets(kafka, marks), read_origins(TABLE)).holds


def test_what_an_older_version_has_loaded_is_replayed_by_a_click(page: Page, loaded: dict[str, Any]) -> None:
    """The form asks Airflow for all rows of that version, a dry run first."""
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
    page.goto(f"/dags/{NAME}/plugin/ranges")
    page.get_by_role("button", name="Replay what m:f@1.0 has loaded").click()
    form = page.get_by_role("region", name="Replay", exact=True)
    form.get_by_role("button", name="Dry run").click()
    expect(form.get_by_role("status")).to_contain_text("Dry run: queued")
    expect(form.get_by_role("button", name="Replay", exact=True)).to_be_disabled()
    assert [each["conf"] for each in asked] == [{"versions": "=1.0", "dry_run": True}]


def test_a_request_that_airflow_refuses_is_told(page: Page, loaded: dict[str, Any]) -> None:
    """The form stays."""
    page.goto(f"/dags/{NAME}/plugin/ranges")
    page.route("**/dagRuns", lambda route: route.fulfill(status=403, json={"detail": "Forbidden"}))
    row = blocks(page, 0)
    row.press("r")
    form = page.get_by_role("region", name="Replay", exact=True)
    form.get_by_role("button", name="Dry run").click()
    expect(form.get_by_role("status")).to_contain_text("You may not")
    expect(form.get_by_label("From")).to_be_visible()
