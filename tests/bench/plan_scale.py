"""What planning costs for 10,000 partitions: CPU seconds beyond the brokers' answers, and bytes of Variables.

    python -m tests.bench.plan_scale

The bar is 1 s of CPU and 1 MB for saved range and cursor together.
"""

from __future__ import annotations

import json
import statistics
import time

from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

PARTITIONS = 10_000
ROUNDS = 7


def main() -> None:
    """Measure and print."""
    pipeline = Pipeline(
        "wide", Source(("wide",)), "m:f", Sink("lake.a.b"), limits=Limits(max_records=40_000_000, max_rate_per_partition=1000)
    )
    store, brokers, sink = MemoryStore(), FakeBrokers({}), FakeReader([])
    partitions = [TopicPartition("wide", p) for p in range(PARTITIONS)]
    plan_s, commit_s = [], []
    for turn in range(1, ROUNDS + 1):
        start = 1_000_000_000_000 * (turn > 1)
        brokers.earliest = dict.fromkeys(partitions, start)
        brokers.latest = {tp: start + turn * 5_000 * (1 + tp.partition % 7) for tp in partitions}
        if turn == 2:  # offsets of a long-lived topic: thirteen digits
            store.values.clear()
            sink.found.clear()
        began = time.process_time()
        planned = plan_batch(pipeline, f"run{turn}", Request(), store=store, brokers=brokers, sink=sink, now_ms=turn)
        plan_s.append(time.process_time() - began)
        if not isinstance(planned, Planned):
            raise SystemExit(planned.reason)
        load = LoadId("wide", planned.saved.seq, f"run{turn}", planned.saved.to_load, "v", f"a{turn}", {"wide": "id"})
        sink.found.append(Receipt(load, turn, turn, 1))
        began = time.process_time()
        commit_batch(pipeline, planned.key, sink.found[-1], store=store)
        commit_s.append(time.process_time() - began)
        saved_range = store.values[planned.key]
    found = {
        "partitions": PARTITIONS,
        "plan_cpu_s": round(statistics.median(plan_s), 3),
        "commit_cpu_s": round(statistics.median(commit_s), 3),
        "saved_range_bytes": len(saved_range.encode()),
        "cursor_bytes": len(store.values["tidegate.wide.cursor"].encode()),
    }
    print(json.dumps(found, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
