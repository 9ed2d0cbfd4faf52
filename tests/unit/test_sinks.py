"""What a sink declares that it can do, and what a pipeline file may therefore ask of it."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Identity, Sink
from tidegate.core.config.sinks import ICEBERG, Replaces
from tidegate.core.model.errors import ConfigError

PIPELINE = {"source": {"topics": ["orders"]}, "transform": "t:f", "sink": {"table": "lake.shop.orders"}}
FILES = {identity: {**PIPELINE, "identity": identity} for identity in get_args(Identity)}


def test_iceberg_takes_every_pipeline() -> None:
    """It replaces any range, and whole batches."""
    for identity, settings in FILES.items():
        assert ICEBERG.fault(identity) is None
        assert parse_pipeline("orders", settings, file="orders.yaml").identity == identity


def test_a_sink_of_whole_batches_refuses_rows_that_are_known_by_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the file is checked; the message has the setting that would fit."""
    monkeypatch.setattr(Sink, "kind", replace(ICEBERG, name="folders", replaces=Replaces.WHOLE_BATCHES))
    assert parse_pipeline("orders", FILES["batch"], file="orders.yaml").sink.kind.name == "folders"
    with pytest.raises(ConfigError, match=r"orders\.yaml: sink: a sink of kind folders .* expected `identity: batch`"):
        parse_pipeline("orders", FILES["origin"], file="orders.yaml")


def test_a_sink_that_only_appends_takes_no_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that is done again has to replace what it wrote before."""
    monkeypatch.setattr(Sink, "kind", replace(ICEBERG, name="log", replaces=Replaces.NOTHING))
    for settings in FILES.values():
        with pytest.raises(ConfigError, match=r"orders\.yaml: sink: a sink of kind log only appends"):
            parse_pipeline("orders", settings, file="orders.yaml")


def test_each_kind_says_how_its_tables_are_named() -> None:
    """Iceberg: a catalog, at least one namespace, and a table."""
    assert ICEBERG.names_table("lake.shop.orders")
    assert ICEBERG.names_table("lake.shop.eu.orders")
    for name in ("orders", "shop.orders", "lake.shop.", "lake.shop.or-ders", "lake.shop.orders ", "", None, 7):
        assert not ICEBERG.names_table(name)
