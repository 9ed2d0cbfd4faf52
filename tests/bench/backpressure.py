"""A burst into a pipeline whose transform gets slower: bounded by the policy `target`, and without a bound.

    python -m tests.bench.backpressure [--interval 20]

Runs are due every interval. For ten intervals a normal load arrives. Then the transform gets three times slower, and ten times
the load arrives for one interval. Each pipeline runs until it has loaded all that waits. Before the burst, a simulation with
the cost of the ten batches, three times the cost of a record, and the same arrivals says how long the backlog will last.

The transform sleeps for each record, so what it costs is known and the machine is not loaded. Platform, topics and tables are
made here, in a temporary folder.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.bench.cli import run
from tests.projects import copy_project, whole_platform, write_files
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.rates.cost import fit_cost
from tidegate.core.rates.policies import make_rate_policy
from tidegate.core.state.ledger import Ledger
from tidegate.simulation.plant import Plant, Steps
from tidegate_local.flights import create_topic
from tidegate_local.platform import Platform

PARTITIONS = 4
SLOTS = 2
"""Tasks that the embedded Spark runs at once."""
NORMAL_S = (50, 350)
"""Records/s that arrive, in turn: equal batches would not tell the overhead of a run from the cost of a record."""
WARM_UP, BEFORE, SLOWER, BURST = 3, 10, 3, 10
"""Runs that warm Spark up and are not counted, normal ones after them, and how much slower and more it gets then."""
RECORD_S = 0.0004
"""Of the transform, at first."""
TOO_LONG = 1.25
TRANSFORM = '''
import time
from pathlib import Path


def rows(records):
    """Each record as it is, after a pause."""
    record_s = float(Path(__file__).with_name("record_s").read_text())

    def paused(batches):
        for batch in batches:
            time.sleep(batch.num_rows * record_s)
            yield batch

    columns = records.select("value", *(name for name in records.columns if name.startswith("_kafka_")))
    return columns.mapInArrow(paused, columns.schema)
'''


@dataclass(frozen=True)
class Run:
    """One run: seconds from its start, and records that it loaded and left behind."""

    seconds: float
    records: int
    remaining: int
    bound: int | None
    state: str


class Load:
    """Records that arrive in a topic at a rate, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic, self.rate = topic, 0.0
        self._producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
        self._stopped = threading.Event()

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """While it is entered."""
        thread = threading.Thread(target=self._produce)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
            self._producer.flush(60)

    def _produce(self) -> None:
        sent, due, before = 0, 0.0, time.monotonic()
        while not self._stopped.wait(0.05):
            now = time.monotonic()
            due, before = due + self.rate * (now - before), now
            for _ in range(int(due) - sent):
                self._producer.produce(self.topic, value=b"x" * 100, partition=sent % PARTITIONS)
                sent += 1
            self._producer.poll(0)


class Bench:
    """One pipeline on the platform."""

    def __init__(self, platform: Platform, api: AirflowApi, folder: Path, name: str, interval_s: float) -> None:
        self.platform, self.api, self.folder, self.name, self.interval_s = platform, api, folder, name, interval_s
        self.load = Load(platform.bootstrap_servers, name)
        self.runs: list[Run] = []

    def cost(self, record_s: float) -> None:
        """What the transform takes of a record from now on, seconds, with all slots of Spark at work."""
        (self.folder / "spark_jobs" / "transforms" / "record_s").write_text(str(record_s * SLOTS))

    def at_slot(self, slot: int) -> Run:
        """A run that is due then, or that starts at once where the run before has taken longer."""
        time.sleep(max(0.0, self.began + slot * self.interval_s - time.monotonic()))
        run_id = self.api.trigger(self.name)
        ended = self.api.wait_run(self.name, run_id, timeout_s=600, poll_s=0.2)
        plan = self.api.xcom(self.name, run_id, "plan") or {}
        cursor = self.cursor()
        timing = cursor.pace.timing
        run = Run(
            0.0 if timing is None else timing.run_ms / 1000,
            plan.get("records", 0),
            plan.get("remaining", 0),
            None if timing is None else timing.bound,
            ended["state"],
        )
        self.runs.append(run)
        print(f"{self.name}: {run}", file=sys.stderr)  # noqa: T201
        return run

    def cursor(self) -> Any:
        """As Airflow holds it."""
        return Ledger(ApiStore(self.api), self.name).cursor()

    def measure(self) -> dict[str, Any]:
        """Normal load, then slower and burst, until nothing waits."""
        self.cost(RECORD_S)
        with self.load.arriving():
            self.began, slot = time.monotonic(), 0
            for slot in range(1, WARM_UP + BEFORE + 1):
                self.load.rate = NORMAL_S[slot % 2]
                self.at_slot(slot)
            self.runs = self.runs[WARM_UP:]
            fit = fit_cost(self.cursor().pace.timings[-BEFORE:])
            self.cost(RECORD_S * SLOWER)
            normal = sum(NORMAL_S) / 2
            forecast = self.forecast(fit.a, fit.b * SLOWER, normal)
            self.load.rate, burst_began = BURST * normal, time.monotonic()
            threading.Timer(self.interval_s, self._be_normal, [normal]).start()
            run = self.at_slot(slot + 1)
            while run.remaining or time.monotonic() - burst_began < self.interval_s:
                slot = max(slot + 1, int((time.monotonic() - self.began) / self.interval_s))
                run = self.at_slot(slot)
            drained_s = time.monotonic() - burst_began
        return {
            "runs": [asdict(r) for r in self.runs],
            "failed": sum(r.state != "success" for r in self.runs),
            "too_long": sum(r.seconds > TOO_LONG * self.interval_s for r in self.runs),
            "longest_s": max(r.seconds for r in self.runs),
            "fit": fit.to_json(),
            "drained_s": round(drained_s, 1),
            "forecast_s": None if forecast is None else round(forecast, 1),
        }

    def _be_normal(self, rate: float) -> None:
        self.load.rate = rate

    def forecast(self, a: float, b: float, normal: float) -> float | None:
        """Seconds from the beginning of a burst until a batch leaves nothing behind, in virtual time; None: never."""
        steps = Steps([(0.0, BURST * normal), (self.interval_s, normal)])
        settings = {"policy": "target"} if self.name == "bounded" else {"policy": "static"}
        plant = Plant(self.interval_s, a, record_s=b, arrivals=steps, partitions=PARTITIONS)
        for batch in plant.run(make_rate_policy(settings, interval_s=self.interval_s), 60 * self.interval_s).batches:
            if batch.started_s >= self.interval_s and batch.records >= batch.lag:
                return batch.ended_s
        return None


def measure(interval_s: float, folder: Path) -> dict[str, Any]:
    """Both pipelines, one after the other."""
    copy_project(folder)
    (folder / "spark_jobs" / "transforms" / "paused.py").write_text(TRANSFORM)
    policies: dict[str, dict[str, Any]] = {"bounded": {"backpressure": {"policy": "target"}}, "unbounded": {}}
    for name, policy in policies.items():
        settings = {
            "source": {"topics": [name]},
            "transform": "transforms.paused:rows",
            "sink": {"table": f"lake.bench.{name}"},
            "limits": {"interval_s": interval_s},
        }
        write_files(folder, "pipelines", {name: {**settings, **policy}})
    measured: dict[str, Any] = {"interval_s": interval_s}
    with whole_platform(folder) as platform, platform.api() as api:
        for name in policies:
            create_topic({"bootstrap.servers": platform.bootstrap_servers}, name, PARTITIONS)
            api.wait_dag(name)
            api.unpause(name)
            measured[name] = Bench(platform, api, folder, name, interval_s).measure()
    return measured


if __name__ == "__main__":
    run(__doc__, measure, interval=20.0)
