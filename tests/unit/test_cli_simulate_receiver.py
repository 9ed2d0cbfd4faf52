"""Laws of `tidegate simulate-receiver`: what it prints, draws and refuses."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app, simulate
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import TidegateError
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Cursor

PIPELINE: dict[str, object] = {
    "source": {"topics": ["orders"]},
    "schedule": "* * * * *",
    "transform": "m:f",
    "sink": {"table": "lake.a.b"},
}
RECEIVER: dict[str, object] = {"kind": "http", "topic": "orders", "listen": {"port": 8080}, "instances": 2}
GIVEN = ("--a", "6", "--b", "1e-3")
SHORT = ("--a", "0.6", "--b", "1e-3", "--interval", "6")
"""Of which four minutes are simulated."""
TARGET: dict[str, object] = {"backpressure": {"policy": "target"}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A receiver of two instances, and the pipeline that loads its topic."""
    write(tmp_path, "pipelines/orders", PIPELINE | TARGET)
    write(tmp_path, "receivers/posts", RECEIVER)
    return tmp_path


def write(project: Path, name: str, settings: dict[str, object]) -> None:
    file = project / "dags" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))  # which is YAML too


def run(project: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["simulate-receiver", *words, "--project", str(project)], env={"COLUMNS": "100"})


def refused(project: Path, *words: str) -> str:
    done = run(project, *words)
    assert done.exit_code == 1
    assert isinstance(done.exception, TidegateError)
    assert done.exception.fix
    return str(done.exception)


def test_a_burst_is_drawn_under_four_policies(project: Path) -> None:
    """What waits where, on one scale each, the burst under them, and the figures last."""
    shown = run(project, "posts", *GIVEN)
    assert shown.exit_code == 0, shown.exception
    lines = shown.stdout.splitlines()
    assert "posts, 40 min at an interval of 60 s; from 10 min to 15 min 4 times as much is sent" in lines
    assert "instances: 2; records sent: 400/s (half of a full load); max_backlog: 96,000" in lines
    for title in ("records at the senders", "records in the buffers", "records in the topic", "records/s taken in"):
        at = next(k for k, line in enumerate(lines) if line.startswith(f"{title}, █ = "))
        assert [line.split()[0] for line in lines[at + 1 : at + 5]] == ["static", "rate", "watermark", "credit"]
        assert any("█" in line for line in lines[at + 1 : at + 5])
    assert max(len(line) for line in lines if "█" in line) <= 100
    table = {line.partition("  ")[0]: line.split()[-4:] for line in lines[-10:]}
    assert table["policy"] == ["static", "rate", "watermark", "credit"]
    assert table["of max_backlog"][3] == "1.00"
    assert float(table["of max_backlog"][0]) > 3
    assert "├─" in shown.stdout


def test_as_json_a_burst_has_its_samples(project: Path) -> None:
    """Strict JSON with the settings of each policy; the same seed gives the same, another one does not."""
    words = ("posts", *SHORT, "--policy", "credit", "--instances", "3", "--lasting", "0.2", "--hours", "0.04", "--json")
    shown = run(project, *words)
    data = json.loads(shown.stdout)
    assert (data["receiver"], data["pipeline"], data["instances"]) == ("posts", "orders", 3)
    assert data["burst"] == {"factor": 4, "since_s": 60, "until_s": 72}
    assert data["seconds"] == 144
    assert data["batches"] == {"policy": "target"}
    assert list(data["policies"]) == ["credit"]
    credit = data["policies"]["credit"]
    assert credit["settings"]["max_backlog"] == 9_600
    assert len(credit["samples"]) == 601
    assert credit["figures"]["loaded"] == credit["samples"][-1]["loaded"]
    assert run(project, *words).stdout == shown.stdout
    assert run(project, *words, "--seed", "1").stdout != shown.stdout


def test_the_settings_of_the_receivers_file_hold_under_each_policy(project: Path) -> None:
    """Of its back-pressure, its rate and its instances; options go before them."""
    stated = {"policy": "watermark", "pipeline": "orders", "max_backlog": 5000, "low": 0.2, "silence": 20}
    write(project, "receivers/posts", RECEIVER | {"backpressure": stated, "rate": {"max": 900}})
    data = json.loads(run(project, "posts", *SHORT, "--json").stdout)
    assert data["max_rate"] == 900
    for name, each in data["policies"].items():
        settings = each["settings"]
        assert (settings["policy"], settings["max_backlog"], settings["low"], settings["silence_s"]) == (name, 5000, 0.2, 20)
    data = json.loads(run(project, "posts", *SHORT, "--json", "--max-backlog", "7000").stdout)
    assert data["policies"]["credit"]["settings"]["max_backlog"] == 7000


def test_max_backlog_follows_from_what_bounds_a_batch(project: Path) -> None:
    """Two of the smallest of a full batch, the pipeline's limit, and the bound of static."""
    words = ("posts", *GIVEN, "--policy", "credit", "--json")

    def backlog(*more: str) -> int:
        found: int = json.loads(run(project, *words, *more).stdout)["policies"]["credit"]["settings"]["max_backlog"]
        return found

    assert backlog("--batches", "static,max_records=1000") == 2000
    write(project, "pipelines/orders", PIPELINE | {"limits": {"max_records": 3000}})
    assert backlog() == 6000
    shown = json.loads(run(project, *words).stdout)
    assert (shown["rate"], shown["rate_is"]) == (25, "half of a full load")
    assert backlog("--interval", "7") == 2 * 300


def test_without_a_bound_of_batches_rate_is_left_out(project: Path) -> None:
    """Nothing follows from them; the output says so, and asked for by name it is refused."""
    write(project, "pipelines/orders", PIPELINE)
    shown = run(project, "posts", *SHORT)
    assert "rate is left out: nothing bounds the batches of orders" in shown.stdout
    assert list(json.loads(run(project, "posts", *SHORT, "--json").stdout)["policies"]) == ["static", "watermark", "credit"]
    assert "so no rate follows from them" in refused(project, "posts", *SHORT, "--policy", "rate")
    assert "rate" in json.loads(run(project, "posts", *SHORT, "--batches", "target", "--json").stdout)["policies"]


def test_cost_and_load_come_from_the_pipelines_history(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are not given."""

    class FakeRemote:
        def cursor(self, pipeline: Pipeline) -> Cursor:
            return Cursor(pipeline.name, 9, timings=(BatchTiming(20_000, None, 25_000, 21_000, 0, 10**12),))

    monkeypatch.setattr(simulate, "open_remote", lambda _: contextlib.nullcontext(FakeRemote()))
    shown = run(project, "posts")
    assert shown.exit_code == 0, shown.exception
    assert "by the last 1 batches" in shown.stdout


@pytest.mark.parametrize(("name", "begin"), [("s.png", b"\x89PNG"), ("s.svg", b"<?xml")])
def test_a_burst_is_drawn_into_a_file(project: Path, name: str, begin: bytes) -> None:
    """An SVG is the same each time."""
    file = project / name
    shown = run(project, "posts", *SHORT, "--plot", str(file))
    assert shown.exit_code == 0, shown.exception
    assert shown.stdout.endswith(f"drawn in {file}\n")
    first = file.read_bytes()
    assert first.startswith(begin)
    run(project, "posts", *SHORT, "--plot", str(file), "--json")
    assert file.read_bytes() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nobody", *GIVEN), "there is no receiver nobody in"),
        (("posts", *GIVEN, "--pipeline", "nobody"), "there is no pipeline nobody in"),
        (("posts", *GIVEN, "--pipeline", "other"), "pipeline other reads others, and not topic orders"),
        (("posts", *GIVEN, "--policy", "storm"), "policy: expected one of static, rate, watermark, credit, got 'storm'"),
        (("posts", *GIVEN, "--max-backlog", "0"), "max_backlog: expected a whole number from 1"),
        (("posts", *GIVEN, "--instances", "0"), "instances: expected a whole number from 1"),
        (("posts", *GIVEN, "--burst", "0"), "burst: expected a number above 0"),
        (("posts", *GIVEN, "--lasting", "nan"), "lasting: expected a number above 0"),
        (("posts", *GIVEN, "--hours", "0.1"), "longer than the simulated 360 s"),
        (("posts", *GIVEN, "--hours", "1e6"), "blocks of 0.2 s, of all instances"),
        (("posts", *GIVEN, "--rate", "-1"), "rate: expected a number of at least 0"),
        (("posts", *GIVEN, "--batches", "vegas"), "policy: expected one of static, pid"),
        (("posts", *GIVEN, "--plot", "x.pdf"), "--plot: expected a file named .png or .svg, got x.pdf"),
        (("posts", "--a", "0", "--b", "0"), "b: expected the seconds of each record"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(project: Path, words: tuple[str, ...], message: str) -> None:
    """With the fix; before anything is simulated."""
    write(project, "pipelines/other", PIPELINE | {"source": {"topics": ["others"]}, "sink": {"table": "lake.a.c"}})
    assert message in refused(project, *words)


def test_the_pipeline_is_named_where_the_files_do_not_tell(project: Path) -> None:
    """None reads the topic, or two do."""
    write(project, "pipelines/second", PIPELINE | {"sink": {"table": "lake.a.c"}})
    assert "the pipelines orders, second read topic orders. Name the one" in refused(project, "posts", *SHORT)
    assert run(project, "posts", *SHORT, "--pipeline", "second").exit_code == 0
    write(project, "receivers/posts", RECEIVER | {"topic": "alone"})
    assert "no pipeline reads topic alone" in refused(project, "posts", *SHORT)
