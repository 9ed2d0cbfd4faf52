"""What is made from the code, pages of the docs above all: `python -m docs.generate`, which `make docs` runs."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from docs.answers import answers
from docs.batches import MEANING, TRANSITIONS
from tidegate.core.config.declared import members
from tidegate.core.config.pipeline import Pipeline
from tidegate.views.entries import BatchState
from tidegate.views.metrics import METRICS, PREFIX, Metric
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules import lifecycle as receiver
from tidegate_receivers.rules.lifecycle import Transition

REPO = Path(__file__).parents[1]
S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)
WIDTH, HEIGHT, ACROSS = 12, 8, 24
SOURCE = {"type": "prometheus", "uid": "${source}"}
UNITS = {"s": "s", "epoch s": "s", "share": "percentunit"}
"""Grafana's names of units; all others are numbers."""
HOURS_LEFT = [{"color": "red", "value": None}, {"color": "orange", "value": 6 * 3600}, {"color": "green", "value": 24 * 3600}]


# ---- settings


def settings() -> str:
    """`docs/settings.md`: each setting with what it does, what it accepts, and its default."""
    lines = [
        "# Settings of a pipeline file",
        "",
        "Made from `src/tidegate/core/config` by `make docs`. `tidegate check` validates files, and warns of settings without",
        "effect; editors validate by what `tidegate check --schema` prints. A file has one of `source.topics`,",
        "`source.pattern` and `source.assign`. A duration is a number of seconds, or a text such as 30s, 15m, 2h or 5d. `{}`",
        "is a section with its defaults.",
        "",
        *_settings(Pipeline),
        "# Settings of a receiver file",
        "",
        "Editors validate by `dags/receivers/receiver.schema.json`. A receiver has the settings of its `kind`, and none of",
        "another's. What listens beyond the loopback has `tls`, and `token` or `tls.ca`.",
        "",
        *_settings(Receiver),
    ]
    return "\n".join(lines)


def _settings(kind: Any) -> list[str]:
    return [
        "| setting | what it does | accepts | default |",
        "|---|---|---|---|",
        *(
            f"| `{path}` | {_cell(setting.doc)} | {_cell(_shortened(setting.words))} | {_default(setting.field)} |"
            for path, setting in members(kind).items()
            if not setting.section or setting.field.default is None  # a section that may be left out has a row of its own
        ),
        "",
    ]


def _shortened(words: str) -> str:
    """What a setting accepts, without the details that `tidegate check` names and what the page says once."""
    details = r" of (1 to|at most) \d+ (letters.* only|characters)| \((1 to|minute)[^)]*\)| without a repetition.*| different"
    details += r"|, and no branch or metadata of a table|, or nothing"
    words = re.sub(f"{details}|a mapping of settings", "", re.sub(r"(a duration from [\w.]+ to \w+).*", r"\1", words))
    return re.sub(r"^(an?|the) |(whole )?number of [\w/]+ (from )?(?=\d|above)", "", words)


def _cell(text: str) -> str:
    """The text with what Markdown would read as markup escaped, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([|*<])", r"\\\1", part) for part in parts)


def _default(setting: Field[Any]) -> str:
    default = setting.default if setting.default_factory is MISSING else setting.default_factory()
    if default is MISSING:
        return "required"
    return "" if default in (None, (), "", {}) else f"`{json.dumps(default)}`"


# ---- layers


def layers() -> str:
    """`docs/layers.md`: the layers that `make check` holds."""
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    lines = [
        "# Layers",
        "",
        "Made from the contracts in `pyproject.toml` by `make docs`. A module imports what is below it, never what is above or",
        "in the same row. Each package says in its docstring what it holds; [Layout](layout.md) leads to modules.",
    ]
    for contract in (c for c in contracts if c["type"] == "layers" and c.get("exhaustive")):
        folder = contract["containers"][0].replace(".", "/")
        lines += ["", f"## {folder}", *(f"- `{row}`".replace(" | ", "`, `") for row in contract["layers"])]
    return "\n".join([*lines, ""])


# ---- states


def batches() -> str:
    """`docs/lifecycle.md`: the table as a diagram and in words."""
    lines = [
        "# The life of a batch",
        "",
        "Made from `docs/batches.py` by `make docs`.",
        "",
        *_states(MEANING, TRANSITIONS, first=BatchState.NEW, last=BatchState.COMMITTED),
        "| state | event | then | what happens |",
        "|---|---|---|---|",
        *(f"| {t.state} | {t.event} | {t.then} | {t.does} |" for t in TRANSITIONS),
        "",
        "A crash leaves the state as it is. A retry, a cleared task, a second run and a zombie are the same events again.",
        "",
    ]
    return "\n".join(lines)


def instances() -> str:
    """`docs/receiver-lifecycle.md`: the table as a diagram."""
    delays = receiver.Restarts()
    lines = [
        "# The life of a receiver's instance",
        "",
        "Made from `src/tidegate_receivers/rules/lifecycle.py` by `make docs`. [receivers.md](receivers.md) has the rest.",
        "",
        *_states(receiver.MEANING, receiver.TRANSITIONS, first=receiver.State.INITIALIZED, last=receiver.State.STOPPED),
        f"The delay before a restart is {delays.first_s:g} s, doubles with each failure in a row up to {delays.longest_s:g} s,",
        f"and loses a random part of up to half. After {delays.forget_s:g} s without a failure it begins anew. A process that",
        "is killed leaves no state behind: its lease runs out, and the next one begins at the top.",
        "",
    ]
    return "\n".join(lines)


def _states(meaning: Mapping[S, str], transitions: Sequence[Transition[S, E]], *, first: S, last: S) -> list[str]:
    """The lines of a page: a diagram from the first state to the last, and what the states mean."""
    return [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {first}",
        *(f"    {t.state} --> {t.then}: {t.event}" for t in transitions if t.then is not t.state),
        f"    {last} --> [*]",
        "```",
        "",
        "| state | what it means |",
        "|---|---|",
        *(f"| {state} | {means} |" for state, means in meaning.items()),
        "",
    ]


# ---- metrics

_SECTIONS = {
    "batch": (
        "Batches",
        """\
Sent by the task `commit` when it moves the cursor, so a batch counts once; `skipped` by the task `plan`, `failed` by
any task of the run. What is not known is not sent.""",
    ),
    "lag": (
        "Lag",
        """\
Sent by the task `plan`, also after failed runs, but not while the DAG is paused; all but `lag.records` at most once a
minute.""",
    ),
    "pipeline": ("Runs", "Sent by the scheduler when a run of the schedule ends."),
    "replay": ("Replays", "Sent when a replay is verified; `failed` by the scheduler."),
    "trigger": ("Pipelines that are scheduled by lag", "Sent by the trigger with each poll."),
    "receiver": ("Receivers", "Sent by each instance of a [receiver](receivers.md), every ten seconds."),
}

_HEAD = """\
<!-- Made from tidegate.views.metrics by `make docs`; do not edit. -->
# Metrics

Tidegate sends metrics through Airflow: by StatsD (`[metrics] statsd_on`, with Airflow's extra `statsd`) or
OpenTelemetry (`[metrics] otel_on`, extra `otel`). Names begin with Airflow's prefix, and end with the name of the
pipeline or receiver, which is also a tag. [Alerts](alerts.md) has rules for Prometheus and a Grafana dashboard.
"""


def metrics() -> str:
    """`docs/metrics.md`."""
    sections = []
    for group, (title, text) in _SECTIONS.items():
        sections.append(f"## {title}\n{text}\n\n{_metrics(m for m in METRICS.values() if m.group == group)}")
    return f"{_HEAD}\n" + "\n".join(sections)


def _metrics(shown: Iterable[Metric]) -> str:
    rows = ["| name | kind, unit | what |", "|---|---|---|"]
    for m in shown:
        whose = "<receiver>.<instance>" if m.group == "receiver" else "<pipeline>"
        rows.append(f"| `{PREFIX}.{m.name}.{whose}` | {', '.join(filter(None, (m.kind, m.unit)))} | {m.what} |")
    return "\n".join(rows) + "\n"


def prometheus_name(metric: Metric) -> str:
    """What a metric is called in Prometheus."""
    return f"{PREFIX}_{metric.name.replace('.', '_')}"


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it: a panel for each kind of figure, for the chosen pipelines."""
    panels: dict[str, list[Metric]] = {}
    for metric in METRICS.values():
        panels.setdefault(metric.panel, []).append(metric)
    return {
        "title": "Tidegate",
        "uid": "tidegate",
        "tags": ["airflow", "kafka", "tidegate"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source(), *map(_chosen, ("pipeline", "receiver"))]},
        "panels": [_panel(number, title, shown) for number, (title, shown) in enumerate(panels.items())],
    }


def grafana() -> str:
    """`docs/grafana.json`: a dashboard of all metrics, on a Prometheus that has them by the names of docs/alerts.md."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _chosen(who: str) -> dict[str, Any]:
    every = prometheus_name(METRICS["receiver.records" if who == "receiver" else "batch.seq"])
    query = f"label_values({every}, {who})"
    return {
        "name": who,
        "label": who.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": who},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, title: str, shown: list[Metric]) -> dict[str, Any]:
    down, across = divmod(number * WIDTH, ACROSS)
    defaults: dict[str, Any] = {"unit": UNITS.get(shown[0].unit, "short"), "min": 0}
    if shown[0].name == "lag.retention_left_s":
        defaults |= {"thresholds": {"mode": "absolute", "steps": HOURS_LEFT}, "color": {"mode": "thresholds"}}
    return {
        "id": number + 1,
        "title": title,
        "description": "\n".join(f"{m.name}: {m.what}" for m in shown),
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": {"x": across, "y": down * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": list(_targets(shown)),
    }


def _targets(shown: list[Metric]) -> Iterator[dict[str, Any]]:
    for number, metric in enumerate(shown):
        whose, legend = 'pipeline=~"$pipeline"', "{{pipeline}}"
        if metric.group == "receiver":
            whose, legend = 'receiver=~"$receiver"', "{{receiver}} {{instance}}"
        what = metric.name.partition(".")[2]
        yield {
            "refId": chr(ord("A") + number),
            "datasource": SOURCE,
            "expr": _query(metric, whose),
            "legendFormat": legend if len(shown) == 1 else f"{legend} {what}",
        }


def _query(metric: Metric, whose: str) -> str:
    name = prometheus_name(metric)
    if metric.kind == "counter":  # OpenTelemetry's have the suffix
        return f'increase({{__name__=~"{name}(_total)?", {whose}}}[$__rate_interval])'
    series = f"{name}{{{whose}}}"
    return f"time() - {series}" if metric.unit == "epoch s" else series


PAGES = {
    "settings.md": settings,
    "layers.md": layers,
    "lifecycle.md": batches,
    "receiver-lifecycle.md": instances,
    "metrics.md": metrics,
    "grafana.json": grafana,
    "../src/tidegate/ui/web/src/answers.ts": answers,
}
"""What makes each file, by its path from this folder."""

if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
