"""Laws of `tidegate announce`. That Airflow starts the DAGs: `tests/e2e/test_partition_events.py`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tidegate.airflow.remote.api import AirflowApi
from tidegate.cli import announce
from tidegate.core.config.pipeline import Announce, Pipeline, Sink, Source
from tidegate.core.model.errors import PlatformError, RequestError

HOURLY = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), announce=Announce())
ASSETS = [{"id": 3, "name": "tidegate/p/hours_of_others"}, {"id": 7, "name": "tidegate/p/hours"}]

Command = Callable[..., tuple[Result, list[dict[str, Any]]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, and what it posts to an Airflow that has these assets."""

    def command(
        *words: str, pipeline: Pipeline = HOURLY, assets: list[dict[str, Any]] = ASSETS
    ) -> tuple[Result, list[dict[str, Any]]]:
        posted = []

        def answer(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                assert request.url.path == "/api/v2/assets/events"
                posted.append(json.loads(request.content))
                return httpx.Response(200, json={})
            return httpx.Response(200, json={"assets": assets, "total_entries": len(assets)})

        with AirflowApi("http://airflow", token="t", transport=httpx.MockTransport(answer)) as api:  # noqa: S106
            monkeypatch.setattr(announce, "open_remote", lambda _: contextlib.nullcontext(SimpleNamespace(api=api)))
            monkeypatch.setattr(announce, "the_pipeline", lambda *_: pipeline)
            return CliRunner().invoke(announce.app, ["p", *words]), posted

    return command


def test_each_hour_is_one_event_of_the_pipelines_asset(run: Command) -> None:
    """From the hour in which `--since` is; a dry run writes none."""
    words = ("--since", "2026-01-01T10:30", "--until", "2026-01-01T12:00Z")
    result, posted = run(*words)
    assert posted == [
        {"asset_id": 7, "partition_key": f"2026-01-01T{hour}:00:00", "extra": {"pipeline": "p"}} for hour in (10, 11)
    ]
    assert result.stdout == "announced 2 hours: 2026-01-01T10:00:00 to 2026-01-01T11:00:00\n"
    result, posted = run(*words, "--dry-run", "--json")
    assert posted == []
    assert json.loads(result.stdout)["keys"] == ["2026-01-01T10:00:00", "2026-01-01T11:00:00"]
    daily = replace(HOURLY, announce=Announce("day"))
    result, _ = run("--since", "2026-01-01", "--until", "2026-01-02", pipeline=daily)
    assert result.stdout == "announced 1 day: 2026-01-01T00:00:00 to 2026-01-01T00:00:00\n"


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("2026-01-02", "2026-01-01", "no whole hour lies between"),
        ("2026-01-01T10:10", "2026-01-01T10:50", "no whole hour lies between"),
        ("2026-01-01", "9999-01-01", "has not ended"),
        ("soon", "2026-01-01", "'soon' is not a valid time"),
        ("1970-01-01", "2026-01-01", "490,896 hours are too many"),
    ],
)
def test_hours_that_cannot_be_announced_are_refused(run: Command, since: str, until: str, words: str) -> None:
    """Before anything is."""
    result, posted = run("--since", since, "--until", until)
    assert isinstance(result.exception, RequestError)
    assert words in str(result.exception)
    assert posted == []


def test_a_pipeline_without_hours_is_refused(run: Command) -> None:
    """Also one whose asset Airflow does not know yet."""
    words = ("--since", "2026-01-01", "--until", "2026-01-02")
    result, _ = run(*words, pipeline=replace(HOURLY, announce=None))
    assert isinstance(result.exception, RequestError)
    assert "announces no hours" in str(result.exception)
    result, posted = run(*words, assets=ASSETS[:1])
    assert isinstance(result.exception, PlatformError)
    assert "has no asset tidegate/p/hours" in str(result.exception)
    assert posted == []
