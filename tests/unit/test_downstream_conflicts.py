"""Laws of receiver files beside pipeline files: a receiver goes by a pipeline that loads what it lands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.core.config.pipeline import Backpressure, Limits, Pipeline, Sink, Source
from tidegate.core.model.errors import ConfigError
from tidegate_receivers.config.conflicts import downstream_faults
from tidegate_receivers.config.files import load_receivers
from tidegate_receivers.config.receiver import Backpressure as Stated
from tidegate_receivers.config.receiver import Receiver


def pipeline(source: Source, **more: Any) -> Pipeline:
    return Pipeline("loads", source=source, transform="m:f", sink=Sink("lake.demo.orders"), **more)


def faults(found: Pipeline | None, policy: Any = "credit") -> list[str]:
    receiver = Receiver("posts", "http", "orders", backpressure=Stated(policy, "loads"))
    return downstream_faults([receiver, Receiver("other", "http", "orders")], {"loads": found}).get("posts", [])


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        (Source(topics=("a", "orders")), True),
        (Source(topics=("a",)), False),
        (Source(assign={"orders": (0,)}), True),
        (Source(assign={"a": (0,)}), False),
        (Source(pattern="ord.*"), True),
        (Source(pattern="ord"), False),
        (Source(pattern="ord.*", exclude=("orders",)), False),
    ],
)
def test_the_pipeline_reads_the_receivers_topic(source: Source, *, reads: bool) -> None:
    """However it names its topics."""
    stated = f"pipeline loads reads {source}, and not topic orders; name the pipeline that loads it"
    assert faults(pipeline(source)) == ([] if reads else [f"backpressure.pipeline: {stated}"])


def test_a_rate_needs_a_pipeline_whose_batches_are_bounded() -> None:
    """By its rate policy or its limits; the other policies do not."""
    orders = Source(topics=("orders",))
    assert "nothing bounds the batches of pipeline loads" in faults(pipeline(orders), "rate")[0]
    assert faults(pipeline(orders), "watermark") == []
    assert faults(pipeline(orders, limits=Limits(max_records=5)), "rate") == []
    assert faults(pipeline(orders, backpressure=Backpressure("target")), "rate") == []


def test_a_pipeline_whose_file_is_not_valid_is_no_fault_of_the_receiver(tmp_path: Path) -> None:
    """It goes on. One that has no file is; with another fault of the file, both are named."""
    assert faults(None) == []
    text = "kind: http\ntopic: orders\nlisten: {port: 8080}\nbackpressure: {policy: credit, pipeline: loads, max_backlog: 9}\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(text)
    broken = {tmp_path / "loads.yaml": ConfigError("broken")}
    only_ports = load_receivers(tmp_path, broken)[tmp_path / "a.yaml"]
    assert isinstance(only_ports, ConfigError)
    assert only_ports.fields["faults"] == 1
    both = load_receivers(tmp_path, {})[tmp_path / "a.yaml"]
    assert "there is no pipeline loads; write pipelines/loads.yaml" in str(both)
    other = load_receivers(tmp_path, {tmp_path / "x.yaml": ConfigError("broken")})[tmp_path / "a.yaml"]
    assert "there is no pipeline loads; name one of x" in str(other)
    assert "listen.port: 8080 is also the port of receiver b" in str(both)
