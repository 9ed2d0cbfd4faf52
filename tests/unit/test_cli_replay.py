"""Laws of how the command line's words become a replay's parameters. The command itself: `tests/e2e/test_replay.py`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner, Result

from tests.unit.loads import P0
from tests.unit.test_cli_schedule import FakeRemote
from tidegate.cli import replay
from tidegate.cli.replay import _bounds
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model import errors
from tidegate.core.planning.run_notes import UNVERIFIED
from tidegate.testing.fakes import FakeBrokers

ONE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"))
TWO = Pipeline("p", Source(("t", "u")), "m:f", sink=Sink("lake.a.b"))
END = "2013-03-02"


@pytest.mark.parametrize(
    ("first", "last", "since", "params"),
    [
        ([], [], None, {}),
        (["0:1000"], ["0:2000"], None, {"offsets": {"t": {"0": [[1000, 2000]]}}}),
        (["0:0", "1:5"], ["1:7", "0:9"], None, {"offsets": {"t": {"0": [[0, 9]], "1": [[5, 7]]}}}),
        (["0:0", "0:20"], ["0:10", "0:30"], None, {"offsets": {"t": {"0": [[0, 10], [20, 30]]}}}),
        (["u:0:5"], [], None, {"offsets": {"u": {"0": [[5, None]]}}}),
        ([], ["0:5"], None, {"offsets": {"t": {"0": [[None, 5]]}}}),
        (["1000"], ["2000"], None, {"offsets": [[1000, 2000]]}),
        ([], [], "2013-03-01", {"from_time": "2013-03-01T00:00:00Z", "until_time": None}),
        ([], [END], "2013-03-01T12:00+01:00", {"from_time": "2013-03-01T11:00:00Z", "until_time": "2013-03-02T00:00:00Z"}),
        ([], [f"{END}T00:00:00"], None, {"from_time": None, "until_time": "2013-03-02T00:00:00Z"}),
    ],
)
def test_words_become_offsets_or_times(first: list[str], last: list[str], since: str | None, params: dict[str, Any]) -> None:
    """`--until` takes either; a partition needs no topic where there is one."""
    assert _bounds(ONE, first, last, since) == params


@pytest.mark.parametrize(
    ("pipeline", "first", "last", "since", "words"),
    [
        (TWO, ["0:5"], [], None, "'0:5': the pipeline reads several topics"),
        (ONE, ["a:b:c"], [], None, "'a:b:c' is no offset"),
        (ONE, ["0:5"], [END], None, "use offsets or times, not both"),
        (ONE, ["5", "0:5"], [], None, "of all partitions or of some"),
        (ONE, [], [], "soon", "'soon' is not a valid time"),
        (ONE, [], ["0:5"], "2013-03-01", "'0:5' is not a valid time"),
    ],
)
def test_other_words_are_refused(pipeline: Pipeline, first: list[str], last: list[str], since: str | None, words: str) -> None:
    with pytest.raises(errors.RequestError, match=words):
        _bounds(pipeline, first, last, since)


DONE = {"chunks": 3, "offsets": 10, "rows": 10}
WHY = "load (chunk 1): SparkJobFailed: out of memory"


class FakeApi:
    """An Airflow whose one replay run, once planned, ends in the given state."""

    def __init__(self, state: str = "success", *, marked: bool = False) -> None:
        self.state, self.triggered, self.seen, self.marked = state, list[dict[str, Any]](), list[str](), marked
        self.count_mapped, self.why_failed = lambda *_: 1, lambda *_: WHY
        self.page = lambda path: f"http://airflow/{path}"

    def trigger(self, _dag_id: str, params: dict[str, Any]) -> str:
        self.triggered.append(params)
        return "manual__1"

    def wait_run(self, _dag_id: str, _run_id: str, *, progress: Any, **_: Any) -> dict[str, Any]:
        for state in ("queued", "running", "running", self.state):
            self.seen.append(state)
            progress({"state": state})
        return {"state": self.state}

    def xcom(self, _dag_id: str, _run_id: str, task_id: str) -> Any:
        if task_id == "verify":
            return DONE if self.state == "success" and not self.marked else None
        return [[0, 1], [2]] if len(self.seen) > 2 else None

    def task_instances(self, *_: Any) -> list[dict[str, Any]]:
        states = ["success" if self.state == "success" else "failed", "success"]
        return [{"task_id": "load", "map_index": place, "state": state} for place, state in enumerate(states)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, FakeApi]]:
    """The command on a pipeline that has read ten records of partition 0 in one batch."""

    def command(*words: str, fault: errors.TidegateError | None = None, **how: Any) -> tuple[Result, FakeApi]:
        api = FakeApi(**how)
        remote = FakeRemote(api=api, log=FakeBrokers(latest={P0: 10}))
        if fault is not None:
            remote.brokers = mock.Mock(side_effect=fault)
        monkeypatch.setattr(replay, "open_remote", lambda _: contextlib.nullcontext(remote))
        monkeypatch.setattr(replay, "the_pipeline", lambda *_: ONE)
        return CliRunner().invoke(replay.app, ["p", *words]), api

    return command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--from 0:0 --until 0:99", "goes past the cursor"),
        ("--run never", "no batch of p is known"),
        ("--batch 1 --table lake.a.c", "may not write into table lake.a.c"),
        ("--batch 1 --transform os:system", "may not use transform os:system"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_a_run_exists(run: Any, words: str, told: str) -> None:
    """In the words of the plan. What the file does not allow is not asked of a platform."""
    fault = errors.PlatformError("there is no platform") if "may not" in told else None
    result, api = run(*words.split(), fault=fault)
    assert isinstance(result.exception, errors.RequestError)
    assert told in str(result.exception)
    assert api.triggered == []


AWAY = [kind("no answer") for kind in (errors.BrokerUnavailable, errors.ConfigError, errors.SinkUnavailable)]


@pytest.mark.parametrize(
    ("words", "state", "fault", "code", "told", "shown"),
    [
        ("--batch 1 --parallel 2", "success", None, 0, {"state": "success", "verdict": DONE}, "planning"),
        ("--batch 1", "failed", None, 1, {"state": "failed", "landed": 1, "chunks": 3}, f"ended as failed: {WHY}"),
        *[("--batch 1", "success", fault, 0, {"state": "success"}, f"by the run: {fault}") for fault in AWAY],
    ],
)
def test_a_run_is_followed_to_its_end(
    run: Any, words: str, state: str, fault: errors.TidegateError | None, code: int, told: dict[str, Any], shown: str
) -> None:
    """What this machine does not reach is left to the run: Airflow may reach it. A failed run is told by its cause."""
    result, api = run(*words.split(), state=state, fault=fault)
    assert result.exit_code == code
    assert shown in result.stderr
    assert ("at least 1 of 3 chunks are loaded" in result.stderr) == (code == 1)
    assert "page: http://airflow/dags/p__replay/runs/manual__1/plugin/range" in result.stderr
    assert api.triggered == [{"batches": "1", **({"parallel": 2} if "parallel" in words else {})}]
    answer = json.loads(run(*words.split(), "--json", state=state, fault=fault)[0].stdout)
    assert {name: answer[name] for name in told} == told


def test_a_run_that_somebody_marked_is_no_success_without_its_verdict(run: Any) -> None:
    """Its last task was skipped, and Airflow looks at no other."""
    result, _ = run("--batch", "1", marked=True)
    assert (result.exit_code, f"ended as success: {UNVERIFIED}" in result.stderr) == (1, True)
