"""Laws of the list of metrics, and of page, dashboard and alerts that are made of it. Who sends them: `tests/dags`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from docs import generate
from docs.generate import prometheus_name
from tidegate.core.config.names import PIPELINE
from tidegate.views.metrics import ASK_MS, METRICS, PHASES, Metric, asks_again

REPO = Path(__file__).parents[2]
DOCS = REPO / "docs"
NAMES = {prometheus_name(metric) for metric in METRICS.values()}
ALERTS = yaml.safe_load((DOCS / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", (DOCS / "alerts.md").read_text(), re.DOTALL)]
LONGEST_PIPELINE = "p" * 60


def sent(metric: Metric) -> str:
    """The name by which Airflow sends a metric of the pipeline `a_b`, or of instance 3 of the receiver `a_b`."""
    return f"airflow.tidegate.{metric.name}.{'a_b.3' if metric.group == 'receiver' else 'a_b'}"


def named_in(query: str) -> set[str]:
    return set(re.findall(r"tidegate_[a-z_]+(?=\b|\()", query))


def test_the_page_is_made_from_the_list() -> None:
    for name in METRICS:
        assert generate.metrics().count(f"`tidegate.{name}.<") == 1


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_name_is_one_that_airflow_sends(metric: Metric) -> None:
    """Airflow drops longer ones than 250 characters, and StatsD separates by dots."""
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", metric.name)
    assert PIPELINE.fullmatch(LONGEST_PIPELINE)
    assert len(f"airflow.tidegate.{metric.name}.{LONGEST_PIPELINE}.1000") < 150
    assert metric.what
    assert not metric.name.endswith("_s") or metric.unit == "s"


def test_the_phases_of_loads_are_those_that_the_code_times() -> None:
    """A new one has to be listed, or no metric of its batch is sent."""
    code = [file for part in ("spark", "sinks", "airflow") for file in (REPO / "src/tidegate" / part).rglob("*.py")]
    timed = re.findall(r'phases\("(\w+)"|\{"(\w+)": round\(seconds', "\n".join(path.read_text() for path in code))
    assert {name for pair in timed for name in pair if name} == set(PHASES)


def test_the_dashboard_shows_each_metric_once_and_no_other() -> None:
    queries = [target["expr"] for panel in generate.dashboard()["panels"] for target in panel["targets"]]
    shown = [name for query in queries for name in named_in(query.replace("(_total)?", ""))]
    assert sorted(shown) == sorted(NAMES)


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """Panels do not lie on each other, have ids and a source that is chosen on import; queries have letters."""
    made = json.loads(generate.grafana())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= made.keys()
    assert [v["name"] for v in made["templating"]["list"]] == ["source", "pipeline", "receiver"]
    panels: list[dict[str, Any]] = made["panels"]
    assert [p["id"] for p in panels] == [*range(1, len(panels) + 1)]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in mine) < 24
        assert not cells & mine
        cells |= mine
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters))
        assert all(re.fullmatch("[A-Z]", letter) for letter in letters)
        assert {panel["datasource"]["uid"], *(t["datasource"]["uid"] for t in panel["targets"])} == {"${source}"}
        units = {METRICS[line.split(": ")[0]].unit.replace("epoch s", "s") for line in panel["description"].splitlines()}
        assert not {"s", "share"} & units or len(units) == 1  # seconds and numbers need two axes


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_are_sent(rule: dict[str, Any]) -> None:
    """By pipeline, which its text names; of gauges alone, since counters need a process that stays."""
    asked = named_in(rule["expr"])
    assert asked
    gauges = {prometheus_name(metric) for metric in METRICS.values() if metric.kind == "gauge"}
    assert asked <= gauges
    assert rule["expr"].count("by (pipeline)") == len(re.findall("tidegate_", rule["expr"]))
    assert "{{ $labels.pipeline }}" in rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))


def test_each_alert_is_explained() -> None:
    explained = re.findall(r"^\| `(Tidegate\w+)` \|", (DOCS / "alerts.md").read_text(), re.MULTILINE)
    assert explained == [rule["alert"] for rule in RULES]


ONCE, LONG_RUNS = "{} _x99", {"late": "70x99", "once": "50 70x98"}
ALERTING: dict[str, tuple[dict[str, dict[str, str]], dict[str, list[str]]]] = {
    # what each pipeline sends, a value a minute (`_` is none, as between runs), and whom the alert names when
    "TidegateRetention": (
        {
            "lag_retention_left_s": {"loses": ONCE.format(20_000), "read": ONCE.format(20_000), "early": ONCE.format(30_000)},
            "lag_records": {"loses": ONCE.format(5), "read": ONCE.format(0), "early": ONCE.format(5)},
        },
        {"30m": ["loses"], "70m": []},
    ),
    "TidegateStopped": (
        {"pipeline_stopped": {"failed": ONCE.format(1), "mended": "1x9 0x90"}},
        {"14m": [], "16m": ["failed"], "90m": ["failed"]},
    ),
    "TidegateLate": ({"batch_run_s": LONG_RUNS, "batch_interval_s": dict.fromkeys(LONG_RUNS, "60x99")}, {"30m": ["late"]}),
    "TidegateSilent": (
        {
            "pipeline_succeeded": {"silent": ONCE.format(0), "runs": "0+60x99"},
            "batch_interval_s": dict.fromkeys(("silent", "runs"), ONCE.format(600)),
        },
        {"30m": [], "31m": ["silent"]},
    ),
    "TidegateTriggerSilent": (
        {"trigger_polled": {"silent": ONCE.format(0), "polls": "0+60x99"}},
        {"10m": [], "11m": ["silent"]},
    ),
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool, of Prometheus")
def test_prometheus_takes_rules_and_queries_and_each_alert_names_whom_it_is_for(tmp_path: Path) -> None:
    def alert(rule: dict[str, Any], pipeline: str) -> dict[str, Any]:
        text = json.dumps(rule["annotations"]).replace("{{ $labels.pipeline }}", pipeline)
        said = json.loads(text.replace("{{ $value | humanizeDuration }}", "5h 33m 20s"))
        return {"exp_labels": {"pipeline": pipeline, **rule["labels"]}, "exp_annotations": said}

    tests = []
    for rule in RULES:
        sent, named = ALERTING[rule["alert"]]
        series = [
            {"series": f'tidegate_{name}{{pipeline="{pipeline}"}}', "values": values}
            for name, by_pipeline in sent.items()
            for pipeline, values in by_pipeline.items()
        ]
        expected = [
            {"eval_time": at, "alertname": rule["alert"], "exp_alerts": [alert(rule, pipeline) for pipeline in pipelines]}
            for at, pipelines in named.items()
        ]
        tests.append({"interval": "1m", "input_series": series, "alert_rule_test": expected})
    rules, panels, made = DOCS / "alerts.yaml", tmp_path / "panels.yaml", tmp_path / "test.yaml"
    made.write_text(json.dumps({"rule_files": [str(rules)], "tests": tests}))
    queries = [target["expr"] for panel in generate.dashboard()["panels"] for target in panel["targets"]]
    as_rules = [{"record": f"p:{n}", "expr": query.replace("$__rate_interval", "5m")} for n, query in enumerate(queries)]
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": as_rules}]}))
    for words in (["check", "rules", "--lint=all", "--lint-fatal", str(rules), str(panels)], ["test", "rules", str(made)]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_the_mapping_of_statsd_makes_the_names_of_the_dashboard(metric: Metric) -> None:
    made = []
    for mapping in BLOCKS[0]["mappings"]:
        pattern = mapping["match"].replace(".", r"\.").replace("*", r"([^.]*)")
        if found := re.fullmatch(pattern, sent(metric)):

            def filled(text: str, found: re.Match[str] = found) -> str:
                return re.sub(r"\$\{?(\d)\}?", lambda number: found[int(number[1])], text)

            made.append((filled(mapping["name"]), {label: filled(str(text)) for label, text in mapping["labels"].items()}))
    whose = {"receiver": "a_b", "instance": "3"} if metric.group == "receiver" else {"pipeline": "a_b"}
    assert made == [(prometheus_name(metric), whose)]


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_the_collector_makes_the_names_of_the_dashboard(metric: Metric) -> None:
    """With OpenTelemetry's dots, of which Prometheus makes underscores."""
    (statement,) = BLOCKS[1]["processors"]["transform/tidegate"]["metric_statements"]
    pattern, by = (json.loads(text) for text in re.findall(r'".*?"(?=[,)])', statement))
    shortened = re.sub(pattern, by.replace("$$", "\\"), sent(metric))
    assert shortened.replace(".", "_") == prometheus_name(metric)


@given(st.lists(st.integers(0, 20 * ASK_MS), min_size=2, unique=True).map(sorted))
def test_brokers_are_asked_once_in_each_minute_that_has_a_run(runs: list[int]) -> None:
    """By the first of them; the first of all asks."""
    asking = [runs[0], *(now for before, now in pairwise(runs) if asks_again(before, now))]
    assert asks_again(None, runs[0])
    assert [at // ASK_MS for at in asking] == sorted({at // ASK_MS for at in runs})
