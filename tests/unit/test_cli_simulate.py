"""Laws of `tidegate simulate`: what it prints, draws and refuses, on a cursor in memory; on the platform: test_tools."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner, Result

from tests.records import changed, cursor_of
from tests.unit.test_cli_schedule import PIPELINE, FakeRemote
from tidegate.cli import commands, shared, simulate
from tidegate.core.config.pipeline import Backpressure, Limits
from tidegate.core.model.errors import PlatformError, RequestError, TidegateError
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.policies import POLICIES

GIVEN = ("simulate", "p", "--a", "5", "--b", "1e-5")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    """The pipeline, whose last batch took 25 s for two million records."""
    made = FakeRemote()
    made.ledger.save_cursor(cursor_of("p", 9, timings=(BatchTiming(2_000_000, None, 25_000, 21_000, 0, 10**12),)))
    monkeypatch.setattr(simulate, "the_pipeline", lambda *_: PIPELINE)
    monkeypatch.setattr(simulate, "open_remote", lambda _: contextlib.nullcontext(made))
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(commands(), list(words), env={"COLUMNS": "100"})


def refused(*words: str) -> str:
    done = run(*words)
    assert done.exit_code == 1
    assert isinstance(done.exception, TidegateError)
    assert done.exception.fix
    return str(done.exception)


@pytest.mark.usefixtures("remote")
def test_a_simulation_compares_four_policies_in_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their figures, below what was simulated; also those of a backlog that is never drained."""
    monkeypatch.setattr(shared.out, "_width", 80)
    shown = run(*GIVEN, "--step", "--rate", "1e6")
    assert shown.exit_code == 0, shown.exception
    lines = shown.stdout.splitlines()
    table = lines[next(k for k, line in enumerate(lines) if line.startswith("policy ")) :]
    assert table[0].split() == ["policy", "static", "pid", "fixed_point", "target"]
    assert max(map(len, table)) <= 80
    assert table[-1].count("past the end") == len(POLICIES)
    assert "from 50 min to 100 min each record costs 3 times as much" in shown.stdout


@pytest.mark.usefixtures("remote")
def test_as_json_a_simulation_has_every_batch() -> None:
    """Strict JSON, with the model and the advice; the same seed gives the same."""
    words = (*GIVEN, "--outage", "--json", "--noise", "0.1", "--seed", "3", "--policy", "target,utilization=0.8", "--catch-up")
    shown = run(*words)
    data = json.loads(shown.stdout)
    assert [data["pipeline"], data["a"], data["b"], data["fit"]] == ["p", 5, 1e-5, None]
    assert data["advice"]["holds"] is True
    assert data["event"]["until_s"] - data["event"]["since_s"] == 3600
    (target,) = data["policies"].values()
    assert list(data["policies"]) == ["target,utilization=0.8"]
    assert target["summary"]["batches"] == len(target["batches"])
    assert {skip["reason"] for skip in target["skipped"]} >= {"the run before"}
    assert run(*words).stdout == shown.stdout
    assert run(*words, "--seed", "4").stdout != shown.stdout


def test_a_load_is_read_from_a_file(remote: FakeRemote, tmp_path: Path) -> None:
    """The pipeline's cost then comes from its history, which tells too little of one batch; the output says so."""
    file = tmp_path / "burst.csv"
    file.write_text("second,records_per_s\n0,10000\n1800,200000\n2100,10000\n")
    shown = run("simulate", "p", "--load", str(file), "--hours", "2", "--policy", "unlimited")
    assert shown.exit_code == 0, shown.exception
    assert "do not tell the overhead" in shown.stdout.replace("\n", " ")
    given = run("simulate", "p", "--load", str(file), "--a", "3", "--interval", "30", "--json", "--policy", "static")
    data = json.loads(given.stdout)
    assert (data["a"], data["b"], data["fit"]["batches"]) == (3, pytest.approx(11e-6), 1)
    assert data["seconds"] == 30 * 150


def test_a_fit_is_the_cost_of_the_last_batches(remote: FakeRemote) -> None:
    """Nothing is simulated; numbers that are given are not part of it."""
    shown = run("simulate", "p", "--fit", "--a", "1", "--b", "1")
    assert shown.exit_code == 0, shown.exception
    assert shown.stdout.startswith("a run takes 4 s and 10.5 s for each million records, by the last 1 batches")
    assert json.loads(run("simulate", "p", "--fit", "--json").stdout)["separate"] is False
    remote.ledger.save_cursor(cursor_of("p", 1))
    assert "no batch with records whose time was measured" in refused("simulate", "p", "--fit")
    assert "give the cost of a batch (a and b)" in refused("simulate", "p")


def test_a_history_that_cannot_be_read_names_the_options_that_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    away = mock.Mock(side_effect=PlatformError("no platform was started", fix="Run `tidegate up`"))
    monkeypatch.setattr(simulate, "the_pipeline", lambda *_: PIPELINE)
    monkeypatch.setattr(simulate, "open_remote", away)
    assert refused("simulate", "p", "--step").endswith("a simulation also runs without, given --a and --b")
    assert refused("simulate", "p", "--fit") == "no platform was started. Run `tidegate up`"


def test_the_pipelines_limits_hold(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes count where the size of a record is known."""
    limits = Limits(max_records=1000, max_bytes=10**9, interval_s=30)
    monkeypatch.setattr(simulate, "the_pipeline", lambda *_: replace(PIPELINE, limits=limits))
    remote.ledger.save_cursor(changed(remote.ledger.cursor(), record_bytes=100.0))
    assert "max_bytes 1,000,000,000, max_records 1,000" in run("simulate", "p", "--policy", "target").stdout
    given = json.loads(run(*GIVEN, "--json", "--policy", "target").stdout)
    assert (given["interval_s"], max(b["records"] for b in given["policies"]["target"]["batches"])) == (30, 1000)


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--utilization 1.5", "utilization: expected a number above 0, at most 1"),
        ("--hours 1e9", "more than 200,000 runs"),
        ("--lasting 3", "lasting: requires --step or --outage"),
        ("--step --outage", "--step and --outage exclude each other"),
        ("--load nowhere.csv", "nowhere.csv cannot be read: No such file or directory"),
        ("--load bytes.csv", "bytes.csv cannot be read: it is no UTF-8 text"),
        ("--load nowhere.csv --rate 5", "--load and --rate exclude each other"),
        ("--plot x.pdf", "--plot: expected a file named .png or .svg, got x.pdf"),
        ("--plot nowhere/x.png", "--plot: there is no folder nowhere"),
        ("--plot folder.png", "folder.png cannot be written: Is a directory"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.png").mkdir()
    Path("bytes.csv").write_bytes(b"\xff\xfe\x00")
    assert message in refused(*GIVEN, *words.split())


@pytest.mark.usefixtures("remote")
def test_a_simulation_is_drawn_into_a_file(tmp_path: Path) -> None:
    """Whose ending says how; an SVG is the same each time."""
    files = [tmp_path / name for name in ("s.png", "s.SVG", "again.svg")]
    for file in files:
        run(*GIVEN, "--step", "--plot", str(file))
    png, svg, again = (file.read_bytes() for file in files)
    assert png.startswith(b"\x89PNG")
    assert svg.startswith(b"<?xml")
    assert svg == again


def test_without_matplotlib_a_plot_is_refused_and_all_else_works(monkeypatch: pytest.MonkeyPatch, remote: FakeRemote) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RequestError, match=r"needs matplotlib.*pip install matplotlib"):
        simulate.open_plot(Path("x.png"))
    assert run(*GIVEN).exit_code == 0


@pytest.mark.usefixtures("remote")
def test_the_pipelines_own_policy_comes_first_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the other ones with theirs by default; and whether it catches up, and its interval, are as in its file."""
    own = replace(
        PIPELINE, backpressure=Backpressure("target", initial_records=2**63 - 1), catch_up=True, schedule="*/2 * * * *"
    )
    monkeypatch.setattr(simulate, "the_pipeline", lambda *_: own)
    simulated = json.loads(run("simulate", "p", "--json", "--rate", "1000").stdout)
    assert list(simulated["policies"]) == [f"target,initial_records={2**63 - 1}", "static", "pid", "fixed_point"]
    assert simulated["interval_s"] == 120


@pytest.mark.usefixtures("remote")
def test_where_overhead_takes_all_of_a_run_static_is_left_out_unless_it_is_asked_for() -> None:
    """No bound of it follows from the cost then."""
    simulated = json.loads(run("simulate", "p", "--json", "--a", "70", "--b", "1e-5", "--rate", "10").stdout)
    assert list(simulated["policies"]) == ["pid", "fixed_point", "target"]
    assert "static: an empty run takes 70 s" in refused("simulate", "p", "--a", "70", "--b", "1e-5", "--policy", "static")
