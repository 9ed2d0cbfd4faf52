"""A Grafana dashboard of all metrics, on a Prometheus that has them by the names of docs/alerts.md: `tidegate_batch_rows`.

Pure: the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tidegate.core.metrics import METRICS, PREFIX, Metric

WIDTH, HEIGHT, ACROSS = 12, 8, 24
SOURCE = {"type": "prometheus", "uid": "${source}"}
UNITS = {"s": "s", "epoch s": "s", "share": "percentunit"}
"""Grafana's names of units; all others are numbers."""
HOURS_LEFT = [{"color": "red", "value": None}, {"color": "orange", "value": 6 * 3600}, {"color": "green", "value": 24 * 3600}]


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


def page() -> str:
    """docs/grafana.json."""
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
