"""Laws of how the command line's words become a replay's parameters. The command itself: `tests/e2e/test_replay.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.records import cursor_of, write_of
from tidegate.cli import replay
from tidegate.cli.replay import _bounds, app
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.errors import BrokerUnavailable, ConfigError, RequestError, SinkUnavailable, TidegateError
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

ONE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))
TWO = Pipeline("p", Source(("t", "u")), "m:f", Sink("lake.a.b"))


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
        (
            [],
            ["2013-03-02"],
            "2013-03-01T12:00+01:00",
            {"from_time": "2013-03-01T11:00:00Z", "until_time": "2013-03-02T00:00:00Z"},
        ),
        ([], ["2013-03-02T00:00:00"], None, {"from_time": None, "until_time": "2013-03-02T00:00:00Z"}),
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
        (ONE, ["0:5"], ["2013-03-02"], None, "offsets and times cannot be asked for together"),
        (ONE, ["5", "0:5"], [], None, "of all partitions and of some"),
        (ONE, [], [], "soon", "'soon' is no time"),
        (ONE, [], ["0:5"], "2013-03-01", "'0:5' is no time"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    pipeline: Pipeline, first: list[str], last: list[str], since: str | None, words: str
) -> None:
    """With an example of what would."""
    with pytest.raises(RequestError, match=words):
        _bounds(pipeline, first, last, since)


class FakeApi:
    """An Airflow whose one replay run, once planned, ends in the given state."""

    def __init__(self, state: str = "success") -> None:
        self.state, self.triggered, self.seen = state, list[dict[str, Any]](), list[str]()

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
            return {"chunks": 3, "offsets": 10, "rows": 10} if self.state == "success" else None
        return [[0, 1], [2]] if len(self.seen) > 2 else None

    def count_mapped(self, *_: Any) -> int:
        return 1

    def task_instances(self, *_: Any) -> list[dict[str, Any]]:
        states = ["success" if self.state == "success" else "failed", "success"]
        return [{"task_id": "load", "map_index": place, "state": state} for place, state in enumerate(states)]

    def why_failed(self, *_: Any) -> str:
        return "load (chunk 1): SparkJobFailed: out of memory"

    def page(self, path: str) -> str:
        return f"http://airflow/{path}"


class FakeRemote:
    """A pipeline that has read ten records of partition 0 in one batch."""

    def __init__(self, api: FakeApi, fault: TidegateError | None = None) -> None:
        self.api, self.fault = api, fault
        self.store, self.sink = MemoryStore(), FakeReader()
        cursor = cursor_of("p", seq=1, offsets={TopicPartition("t", 0): 10}, topic_ids={"t": "id"})
        Ledger(self.store, "p").save_cursor(cursor)
        load = write_of("p", 1, "run1", (OffsetRange("t", 0, 0, 10),), "m:f@1", "a", {"t": "id"})
        self.sink.found.append(Receipt(load, 10, 1, 1))

    def brokers(self, _pipeline: Pipeline) -> FakeBrokers:
        if self.fault is not None:
            raise self.fault
        return FakeBrokers({TopicPartition("t", 0): 10})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, FakeApi]]:
    """The command on that pipeline."""

    def command(*words: str, state: str = "success", fault: TidegateError | None = None) -> tuple[Result, FakeApi]:
        api = FakeApi(state)
        monkeypatch.setattr(replay, "open_remote", lambda _: contextlib.nullcontext(FakeRemote(api, fault)))
        monkeypatch.setattr(replay, "the_pipeline", lambda *_: ONE)
        return CliRunner().invoke(replay.app, ["p", *words]), api

    return command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "0:9", "--until", "0:3"], "is reversed"),
        (["--from", "0:0", "--until", "0:99"], "goes past the cursor"),
        (["--batch", "7"], "is not committed"),
        (["--run", "never"], "no batch of p is known"),
        (["--from", "3:0"], "has read nothing of t-3"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_a_run_exists(run: Any, words: list[str], told: str) -> None:
    """In the words of the plan."""
    result, api = run(*words)
    assert isinstance(result.exception, RequestError)
    assert told in str(result.exception)
    assert api.triggered == []


@pytest.mark.parametrize(
    "fault", [BrokerUnavailable("no broker answers"), ConfigError("the API hides the secrets"), SinkUnavailable("no catalog")]
)
def test_what_this_machine_does_not_reach_is_left_to_the_run(run: Any, fault: TidegateError) -> None:
    """Airflow may reach it."""
    result, api = run("--batch", "1", fault=fault)
    assert result.exit_code == 0
    assert f"not checked from here, but by the run: {fault}" in result.stderr
    assert api.triggered == [{"batches": "1"}]


def test_a_run_is_followed_step_by_step(run: Any) -> None:
    """Also while it waits and plans, before there is a chunk to count."""
    result, api = run("--batch", "1", "--parallel", "2")
    assert (result.exit_code, api.triggered) == (0, [{"batches": "1", "parallel": 2}])
    steps = [
        "p__replay: run manual__1",
        "waiting for the run to start",
        "planning",
        "loading chunks",
        "page: http://airflow/dags/p__replay/runs/manual__1/plugin/range",
    ]
    assert [line.strip() for line in result.stderr.splitlines() if line.strip()] == steps
    assert "replayed: 3 chunks, 10 offsets, 10 rows" in result.stdout


def test_a_failed_run_is_told_by_its_cause_and_what_is_left(run: Any) -> None:
    """One error, and how to go on."""
    result, _ = run("--batch", "1", state="failed")
    assert result.exit_code == 1
    assert "the replay manual__1 ended as failed: load (chunk 1): SparkJobFailed: out of memory" in result.stderr
    assert "1 of 3 chunks are loaded; the same command again loads what is missing" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--table", "lake.a.c"], "may not write into table lake.a.c"),
        (["--transform", "os:system"], "may not use transform os:system"),
    ],
)
def test_what_the_file_does_not_allow_is_refused_before_a_run_is_triggered(tmp_path: Path, words: list[str], told: str) -> None:
    """Nothing is asked of a platform: there is none."""
    folder = tmp_path / "dags" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "p.yaml").write_text("source: {topics: [t]}\ntransform: m:f\nsink: {table: lake.a.b}\n")
    done = CliRunner().invoke(app, ["p", "--project", str(tmp_path), "--batch", "1", *words])
    assert isinstance(done.exception, RequestError)
    assert told in str(done.exception)
