"""Comparison `planning`: what a plan and a commit cost for 10 to 10,000 partitions, beyond the brokers' answers.

Each number of partitions is measured by a process of its own, `python -m tidegate.bench.planning PARTITIONS`, with the ports in
memory: so its peak memory is that of planning, and the time is not that of a network.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.bench.suite import Bar, Comparison, Samples, Term
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.errors import PlatformError
from tidegate.core.load.answer import brief
from tidegate.core.load.job import LoadResult
from tidegate.core.load.receipt import LoadId, Observed, Receipt
from tidegate.core.offsets.ranges import TopicPartition, total_count
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

if TYPE_CHECKING:
    from tidegate.bench.stage import Stage

PARTITIONS = (10, 100, 1000, 10_000)
START = 1_000_000_000_000
"""Offsets of a long-lived topic have thirteen digits."""


def name_of(partitions: int) -> str:
    """Of a contender."""
    return f"{partitions:,} partitions"


def measure(stage: Stage) -> Samples:
    """A process for each number, by turns."""
    environment = {**os.environ, "AIRFLOW_HOME": str(stage.folder / "planning")}
    return stage.alternate(
        {name_of(count): partial(in_process, count, environment) for count in stage.sizes(*PARTITIONS)}, warm_up=1
    )


def in_process(partitions: int, environment: dict[str, str]) -> dict[str, float]:
    """What a fresh process prints.

    Raises:
        PlatformError: it failed.
    """
    command = [sys.executable, "-m", __name__, str(partitions)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise PlatformError(f"planning {partitions} partitions failed: {done.stderr[-300:]}", fix="Run the comparison again")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def plan(partitions: int) -> dict[str, float]:
    """CPU seconds of the third batch of a pipeline, the process's peak memory, and the bytes left in Airflow's database.

    Raises:
        PlatformError: there was nothing to plan.
    """
    limits = Limits(max_records=4000 * partitions, max_rate_per_partition=1000)
    pipeline = Pipeline("wide", Source(("wide",)), "m:f", Sink("lake.a.b"), limits=limits)
    store, sink = MemoryStore(), FakeReader([])
    parts = [TopicPartition("wide", p) for p in range(partitions)]
    brokers = FakeBrokers({}, dict.fromkeys(parts, START))

    def batch(turn: int) -> tuple[Planned, Receipt, dict[str, float]]:
        brokers.latest = {tp: START + turn * 5_000 * (1 + tp.partition % 7) for tp in parts}
        began = time.process_time()
        planned = plan_batch(pipeline, f"run{turn}", Request(), store=store, brokers=brokers, sink=sink, now_ms=turn)
        plan_s = time.process_time() - began
        if not isinstance(planned, Planned):
            raise PlatformError(planned.reason, fix="Report it: there was something to plan")
        load = LoadId("wide", planned.saved.seq, f"run{turn}", planned.saved.to_load, "v", f"a{turn}", {"wide": "id"})
        receipt = Receipt(load, turn, turn, 1)
        sink.found.append(receipt)
        began = time.process_time()
        commit_batch(pipeline, planned.key, receipt, store=store)
        return planned, receipt, {"plan": plan_s, "commit": time.process_time() - began}

    planned, receipt, seconds = [batch(turn) for turn in (1, 2, 3)][-1]
    peak, variables = peak_memory(), sum(len(store.values[key]) for key in (planned.key, "tidegate.wide.cursor"))
    answer = brief(LoadResult(receipt, Observed(total_count(planned.saved.ranges), 1), {"write": 1.0}))
    handed = xcoms(pipeline, planned) + len(json.dumps(answer))
    return {**seconds, "memory": peak / 1e6, "Variables": variables / 1e3, "XComs": handed / 1e3}


def peak_memory() -> int:
    """The most bytes that this process has held."""
    try:
        # getrusage counts what the parent held before it became this program
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except FileNotFoundError:  # macOS
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def xcoms(pipeline: Pipeline, planned: Planned) -> int:
    """Bytes of what the task `plan` hands on, its part of the run's note included."""
    from tidegate.airflow.operators.plan import PlanOperator  # noqa: PLC0415 - Airflow's own memory is not that of a plan

    class Replanned(PlanOperator):
        def _plan(self, context: Any) -> Planned:  # noqa: ARG002 - what it was asked for is planned
            return planned

    class Task:
        start_date = None
        max_tries, try_number = 0, 1
        pushed: list[str] = []  # noqa: RUF012 - one task

        def xcom_push(self, key: str, value: Any) -> None:
            self.pushed.append(key + json.dumps(value))

    task = Task()
    handed = Replanned(pipeline=pipeline, task_id="plan").execute({"ti": task, "params": {}})  # type: ignore[typeddict-item]
    return len("".join(task.pushed).encode()) + len(json.dumps(handed).encode())


COMPARISON = Comparison(
    name="planning",
    title="Planning thousands of partitions",
    about="The third batch of a pipeline whose topic has 10 to 10,000 partitions, planned and committed by a process of its "
    "own, with the ports in memory: seconds of CPU, beyond the brokers' answers. `memory` is the process's peak, "
    "`Variables` are the saved range and the cursor, `XComs` what `plan` and `load` hand on.",
    measures={"plan": "s", "commit": "s", "memory": "MB", "Variables": "kB", "XComs": "kB"},
    bars=(
        Bar("planning: 10,000 partitions", Term(name_of(10_000), "plan"), 0.2, 0.1, kind="value", unit="s"),
        Bar("planning: peak memory of 10,000", Term(name_of(10_000), "memory"), 200, kind="value", unit="MB"),
        Bar("planning: XComs of 10,000", Term(name_of(10_000), "XComs"), 4, kind="value", unit="kB"),
    ),
    shows=lambda m: (
        f"A plan of 10,000 partitions takes {m[name_of(10_000)]['plan']:.2f} s and {m[name_of(10_000)]['memory']:.0f} MB."
    ),
    measure=measure,
)

if __name__ == "__main__":
    print(json.dumps(plan(int(sys.argv[1]))))  # noqa: T201 - its answer
