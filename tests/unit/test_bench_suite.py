"""Laws of what `tidegate bench` saves, computes and tells. Pure; that each comparison runs: `tests/e2e/test_bench.py`."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.bench import suite
from tidegate.bench.catalog import COMPARISONS
from tidegate.bench.page import bars_table, medians_table, number, page, sentence
from tidegate.bench.stage import Stage
from tidegate.bench.suite import Bar, Comparison, Result, Samples, Term
from tidegate.cli import app
from tidegate.core.errors import RequestError

MACHINE = {"cores": "2"}
SAMPLES: Samples = {
    "ours": {"rate": [100.0, 300.0, 200.0], "time": [3.0, 1.0, 2.0]},
    "theirs": {"rate": [100.0, 100.0, 400.0]},
}
FASTER = Bar("ours to theirs", Term("ours", "rate"), 1.5, 2.5, against=Term("theirs", "rate"), at_least=True)
LONGER = Bar("ours beyond 0.5 s", Term("ours", "time"), 1.0, against=Term("ours", "time"), kind="difference", unit="s")
SHORT = Bar("ours in all", Term("ours", "time"), 1.0, kind="value", unit="s")


def nothing(_stage: object) -> Samples:
    return {}


RACE = Comparison(
    name="race",
    title="A race",
    about="Who is first.",
    measures={"rate": "records/s", "time": "s", "memory": "MB"},
    bars=(FASTER, LONGER, SHORT),
    shows=lambda m: f"Ours is {m['ours']['rate'] / m['theirs']['rate']:.1f} times as fast.",
    measure=nothing,
)
RESULT = Result("race", "2026-01-01T10:00+00:00", MACHINE, 3, 4_000_000, SAMPLES)


def test_figures_follow_from_medians() -> None:
    """As ratio, difference and value."""
    medians = RESULT.medians
    assert medians == {"ours": {"rate": 200.0, "time": 2.0}, "theirs": {"rate": 100.0}}
    assert [bar.value(medians) for bar in RACE.bars] == [2.0, 0.0, 2.0]


@pytest.mark.parametrize(
    "medians",
    [{}, {"ours": {"rate": 1.0}}, {"theirs": {"rate": 1.0}}, {"ours": {"rate": 1.0}, "theirs": {"rate": 0.0}}],
)
def test_a_figure_that_lacks_a_part_is_not_measured(medians: dict[str, dict[str, float]]) -> None:
    """Also one that would divide by zero; it neither meets nor misses its bar."""
    assert FASTER.value(medians) is None
    assert FASTER.verdict(None) == "not measured"


def test_a_bar_is_met_where_it_is_reached_exactly() -> None:
    """Upwards and downwards, with and without a stretch goal."""
    assert [FASTER.verdict(value) for value in (1.4, 1.5, 2.5)] == ["missed", "met", "stretch met"]
    assert [SHORT.verdict(value) for value in (1.1, 1.0, 0.0)] == ["missed", "met", "met"]


def test_results_come_back_as_they_were_saved() -> None:
    """Every value, not medians alone."""
    assert suite.from_json(suite.to_json([RESULT]), "f.json") == [RESULT]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "results": []}',
        '{"format": 1, "results": [{}]}',
        suite.to_json([RESULT]).replace("300.0", '"300"'),
        suite.to_json([RESULT]).replace("300.0", "NaN"),
        suite.to_json([RESULT]).replace("300.0", "true"),
        suite.to_json([RESULT]).replace("300.0", f"1{'0' * 400}"),
        suite.to_json([replace(RESULT, rounds=math.inf)]),  # type: ignore[arg-type]
        "[" * 100_000,
        suite.to_json([RESULT])[:-20],
    ],
)
def test_a_file_of_something_else_is_refused_by_name(text: str) -> None:
    """With what to do."""
    with pytest.raises(RequestError, match=r"^f\.json ") as told:
        suite.from_json(text, "f.json")
    assert told.value.fix


def test_later_results_replace_earlier_ones_of_the_same_comparison() -> None:
    """So a comparison can be measured again alone."""
    other, again = Result("other", "", {}, 1, 1, {}), Result("race", "", {}, 1, 1, {})
    assert suite.overlay([[RESULT, other], [again]]) == {"race": again, "other": other}


def test_rounds_are_gathered_by_contender_and_measure() -> None:
    """In order."""
    samples: Samples = {}
    suite.add(samples, "a", {"time": 1.0})
    suite.add(samples, "a", {"time": 2.0, "rate": 3.0})
    assert samples == {"a": {"time": [1.0, 2.0], "rate": [3.0]}}


def test_numbers_have_three_digits_that_count() -> None:
    """And thousands apart."""
    assert [number(value) for value in (0.00421, 1.336, 13.26, 99.94, 208_123.4)] == [
        "0.00421",
        "1.34",
        "13.3",
        "99.9",
        "208,123",
    ]


def test_the_page_tells_figures_bars_and_machine() -> None:
    """Columns that nobody measured are left out; what a contender lacks is blank."""
    text = page([RACE], {"race": RESULT}, {"race": "benchmarks/race.svg"})
    assert medians_table(RACE, RESULT) == [["", "rate, records/s", "time, s"], ["ours", "200", "2"], ["theirs", "100", ""]]
    for told in (
        "| ours to theirs | 2 times | ≥ 1.5 times | ≥ 2.5 times | **met** |",
        "| ours in all | 2 s | ≤ 1 s |  | missed |",
        "Ours is 2.0 times as fast.",
        "![A race](benchmarks/race.svg)",
        "3 rounds, 4,000,000 records",
        "cores 2",
    ):
        assert told in text
    assert "rehearsal" not in text


def test_the_page_says_what_is_not_measured() -> None:
    """No result, no plot, no contender that a sentence names; and that few records mean nothing."""
    assert "Not measured yet." in page([RACE], {}, {})
    assert bars_table(RACE, None)[1] == ["ours to theirs", "", "≥ 1.5 times", "≥ 2.5 times", "not measured"]
    rehearsed = Result("race", "", MACHINE, 1, 2000, {"ours": {"rate": [1.0], "time": []}})
    assert "Not every contender" in sentence(RACE, rehearsed)
    assert "1 round, 2,000 records (a rehearsal" in page([RACE], {"race": rehearsed}, {})


def test_comparisons_without_bars_make_no_table_of_bars() -> None:
    """Only of what there is."""
    assert "## Bars" not in page([], {}, {})


def test_names_are_unique_and_bars_name_measures_of_their_comparison() -> None:
    """A typing error in a bar would read `not measured` for ever."""
    assert len({each.name for each in COMPARISONS}) == len(COMPARISONS)
    for each in COMPARISONS:
        terms = [term for bar in each.bars for term in (bar.of, bar.against) if term is not None]
        assert {term.measure for term in terms} <= set(each.measures)


def test_the_command_lists_comparisons_and_refuses_other_names() -> None:
    """The error lists the right ones."""
    listed = CliRunner().invoke(app, ["bench", "--list"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == [each.name for each in COMPARISONS]
    refused = CliRunner().invoke(app, ["bench", "skew", "speed"])
    assert refused.exit_code == 1
    assert isinstance(refused.exception, RequestError)
    assert "no comparison speed" in str(refused.exception)
    assert all(each.name in refused.exception.fix for each in COMPARISONS)


def test_saved_files_are_laid_over_each_other_into_one_page(tmp_path: Path) -> None:
    """Without a server; the page has the comparisons that no file holds too, and a plot of each that one holds."""
    old = Result("skew", "", MACHINE, 5, 4_000_000, {"whole": {"rate": [1.0]}, "split": {"rate": [1.0]}})
    new = Result("skew", "", MACHINE, 5, 4_000_000, {"whole": {"rate": [1.0]}, "split": {"rate": [1.7]}})
    for name, result in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(suite.to_json([result]))
    files = ["--from", str(tmp_path / "old.json"), "--from", str(tmp_path / "new.json")]
    done = CliRunner().invoke(app, ["bench", *files, "--page", str(tmp_path / "p.md"), "--json", str(tmp_path / "all.json")])
    assert done.exit_code == 0, done.output
    assert "1.7 times" in done.output
    assert "![One partition with 90 % of the records](p/skew.svg)" in (tmp_path / "p.md").read_text()
    assert (tmp_path / "p" / "skew.svg").read_text().startswith("<?xml")
    assert suite.from_json((tmp_path / "all.json").read_text(), "") == [new]


@pytest.mark.parametrize("content", [None, b"\xff", b"{}", b"{"])
def test_a_broken_file_is_refused_before_a_page_is_written(tmp_path: Path, content: bytes | None) -> None:
    """A missing one too."""
    file, written = tmp_path / "broken.json", tmp_path / "p.md"
    if content is not None:
        file.write_bytes(content)
    done = CliRunner().invoke(app, ["bench", "--from", str(file), "--page", str(written)])
    assert done.exit_code == 1
    assert isinstance(done.exception, RequestError)
    assert str(file) in str(done.exception)
    assert not written.exists()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--json", "none/f.json"], "there is no folder"),
        (["--json", "folder"], "is a folder"),
        (["--page", "folder"], "is a folder"),
        (["--page", "page"], "no suffix"),
        (["--page", "plots.md"], "plots is no folder"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], why: str
) -> None:
    """Hours of figures are not lost for a name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "plots").touch()
    done = CliRunner().invoke(app, ["bench", *given])
    assert isinstance(done.exception, RequestError)
    assert why in str(done.exception)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_terminated_stops_its_servers(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """They are processes of their own, and would go on without it; also where its terminal was closed."""
    ended: list[str] = []
    monkeypatch.setattr("tidegate.bench.machine.describe", dict)

    def down(stage: Stage) -> None:
        signal.raise_signal(number)  # once more, as a terminal does that is closed
        ended.append(stage.folder.name)

    monkeypatch.setattr("tidegate.bench.stage.Stage.down", down)

    def terminated(_stage: object) -> Samples:
        signal.raise_signal(number)
        return {}

    monkeypatch.setattr("tidegate.bench.catalog.COMPARISONS", [replace(RACE, measure=terminated)])
    before = signal.signal(number, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        assert CliRunner().invoke(app, ["bench", "race", "--records", "1000"]).exit_code == 128 + number
        assert ended
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_command_under_nohup_outlives_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ignored when it starts stays ignored."""
    monkeypatch.setattr("tidegate.bench.machine.describe", dict)
    monkeypatch.setattr("tidegate.bench.stage.Stage.down", lambda _: None)

    def measured(_stage: object) -> Samples:
        signal.raise_signal(signal.SIGHUP)
        return {}

    monkeypatch.setattr("tidegate.bench.catalog.COMPARISONS", [replace(RACE, measure=measured)])
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert CliRunner().invoke(app, ["bench", "race", "--records", "1000"]).exit_code == 0
    finally:
        signal.signal(signal.SIGHUP, before)
