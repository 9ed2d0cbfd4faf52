"""What planning costs for 10,000 partitions: CPU seconds beyond the brokers' answers, and bytes of Variables.

    python -m tests.bench.plan_scale [--json]

The bar is 1 s of CPU and 1 MB for saved range and cursor together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field

from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch

PARTITIONS = 10_000
ROUNDS = 7


@dataclass
class Memory:
    """A store, brokers and a sink that answer at once: what is measured is planning alone."""

    values: dict[str, str] = field(default_factory=dict)
    marks: Watermarks = field(default_factory=lambda: Watermarks({}, {}))

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self.values if key.startswith(prefix)]

    def get(self, key: str) -> str:
        return self.values[key]

    def put(self, key: str, value: str, description: str) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        del self.values[key]

    def watermarks(self, topics: object, *, isolation_level: str = "") -> Watermarks:
        return self.marks

    def reached(self, table: str, pipeline: str) -> None:
        return None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    pipeline = Pipeline(
        "wide", Source(("wide",)), "m:f", Sink("lake.a.b"), limits=Limits(max_records=40_000_000, max_rate_per_partition=1000)
    )
    world = Memory()
    partitions = [TopicPartition("wide", p) for p in range(PARTITIONS)]
    plan_s, commit_s = [], []
    for turn in range(1, ROUNDS + 1):
        start = 1_000_000_000_000 * (turn > 1)
        world.marks = Watermarks(
            dict.fromkeys(partitions, start),
            {tp: start + turn * 5_000 * (1 + tp.partition % 7) for tp in partitions},
            {"wide": "id"},
        )
        if turn == 2:  # offsets of a long-lived topic: thirteen digits
            world.values.clear()
        began = time.process_time()
        planned = plan_batch(pipeline, f"run{turn}", Request(), store=world, brokers=world, sink=world, now_ms=turn)  # type: ignore[arg-type]
        plan_s.append(time.process_time() - began)
        if not isinstance(planned, Planned):
            raise SystemExit(planned.reason)
        receipt = Receipt(LoadId("wide", planned.saved.seq, f"run{turn}", planned.saved.to_load, "v", "a"), 1, 1, 1)
        began = time.process_time()
        commit_batch(pipeline, planned.key, receipt, store=world)
        commit_s.append(time.process_time() - began)
        saved_range = world.values[planned.key]
    found = {
        "partitions": PARTITIONS,
        "plan_cpu_s": round(statistics.median(plan_s), 3),
        "commit_cpu_s": round(statistics.median(commit_s), 3),
        "saved_range_bytes": len(saved_range.encode()),
        "cursor_bytes": len(world.values["tidegate.wide.cursor"].encode()),
    }
    print(json.dumps(found) if asked.json else found)  # noqa: T201


if __name__ == "__main__":
    main()
