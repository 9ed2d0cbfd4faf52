"""One burst at receivers under each policy of back-pressure, on the real platform, beside its simulation.

    python -m tests.bench.receiver_backpressure [--plots FOLDER]

Four receivers of lines run at the same time, each with a topic, a pipeline that runs every minute and takes at most 24,000
records, and a sender that sends 200 lines/s, and five times as many for two minutes. Every two seconds the ends of topics and
cursors are read. Platform, topics and tables are made here, in a temporary folder. It takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.receivers import read_receiver
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.cli.charts import draw_receivers
from tidegate.cli.plots import open_receiver_plot
from tidegate.cli.shared import out
from tidegate.core.config.receiver import Receiver
from tidegate.core.errors import TidegateError
from tidegate.core.rates.control import RateControl
from tidegate.core.receivers.backpressure import Backpressure
from tidegate.core.schedule.plan import RangePolicy
from tidegate.core.simulation.bursts import POLICIES, Burst, Throttled, backpressures, compare_receivers, figures
from tidegate.core.simulation.plant import Plant
from tidegate.core.simulation.receivers import Flow, Inlet, Sample
from tidegate.core.simulation.steps import Steps
from tidegate.core.state.ledger import Ledger
from tidegate.kafka.brokers import AdminBrokers
from tidegate.local import Platform, sockets
from tidegate.local.flights import create_topic
from tidegate.waiting import wait_until

REPO = Path(__file__).parents[2]
INTERVAL_S = 60.0
RATE, FACTOR = 200.0, 5.0
BEFORE_S, LASTING_S, AFTER_S = 120.0, 120.0, 480.0
BATCH, MAX_BACKLOG = 24_000, 48_000
OVERHEAD_S, RECORD_S = 5.0, 1e-5
"""What the simulation takes for the cost of a run: small beside the interval, here and there."""
LINE = b"%0138d\n"
SAMPLE_S = 2.0
OPEN_S = 300.0


@dataclass
class Sender:
    """Lines at the rate of the burst over one connection; those that are due wait while the connection does not take them."""

    port: int
    sent: Steps
    began_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    lines: int = 0

    def run(self) -> None:
        """Until it is ended."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as connection:
            while not self.ended.wait(0.02):
                due = int(self.sent.total(0.0, time.monotonic() - self.began_s))
                if due > self.lines:
                    connection.sendall(b"".join(LINE % number for number in range(self.lines, due)))
                    self.lines = due


def asked() -> Burst:
    """The burst, with what the simulation knows of the pipeline."""
    sent = Steps([(0.0, RATE)]).during(BEFORE_S, BEFORE_S + LASTING_S, FACTOR)
    plant = Plant(INTERVAL_S, OVERHEAD_S, RECORD_S, sent, limits=RangePolicy(max_records=BATCH))
    control = RateControl({"policy": "static", "max_records": BATCH}, INTERVAL_S)
    return Burst(Inlet(plant, control), FACTOR, BEFORE_S, BEFORE_S + LASTING_S, BEFORE_S + LASTING_S + AFTER_S)


def write(folder: Path, ports: dict[str, int]) -> None:
    """The files of receivers and pipelines."""
    for name in ("dags", "spark_jobs"):
        shutil.copytree(REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for policy, port in ports.items():
        pipeline = {
            "source": {"topics": [policy]},
            "transform": "transforms.flights:flights",
            "sink": {"table": f"lake.bench.{policy}"},
            "schedule": "* * * * *",
            "limits": {"max_records": BATCH},
        }
        stated = {"policy": policy, "pipeline": policy, "max_backlog": MAX_BACKLOG}
        taken = {"static": [], "rate": ["pipeline"]}.get(policy, ["pipeline", "max_backlog"])
        receiver = {
            "kind": "tcp_server",
            "topic": policy,
            "listen": {"port": port},
            "backpressure": {name: value for name, value in stated.items() if name in ("policy", *taken)},
        }
        (folder / "dags" / "pipelines" / f"{policy}.yaml").write_text(yaml.safe_dump(pipeline))
        (folder / "dags" / "receivers").mkdir(exist_ok=True)
        (folder / "dags" / "receivers" / f"{policy}.yaml").write_text(yaml.safe_dump(receiver))


def measure(folder: Path, burst: Burst) -> list[Throttled]:
    """All policies at the same time."""
    ports: dict[str, int] = {policy: sockets.choose_port() for policy in POLICIES}
    write(folder, ports)
    platform = Platform(folder / ".tidegate", folder)
    senders: list[Sender] = []
    try:
        platform.up()
        for policy in POLICIES:
            create_topic({"bootstrap.servers": platform.bootstrap_servers}, policy, 1)
        with platform.api() as api:
            for dag in (*(f"{policy}__receive" for policy in POLICIES), *POLICIES):
                api.wait_dag(dag)
                api.unpause(dag)
            if not wait_until(lambda: all(map(sockets.answers, ports.values())), OPEN_S, poll_s=1):
                raise SystemExit("the receivers do not listen")
            time.sleep(INTERVAL_S - time.time() % INTERVAL_S)  # runs begin with the minute
            began_s = time.monotonic()
            senders = [Sender(port, burst.inlet.sent, began_s) for port in ports.values()]
            for sender in senders:
                threading.Thread(target=sender.run, daemon=True).start()
            flows = _watch(platform, api, burst, began_s)
            for name, flow in flows.items():
                (said,) = [each.status for each in read_receiver(api, Receiver(name, "tcp_server", name)).instances]
                flow.held_s = said["throttled_s"]
    finally:
        for sender in senders:
            sender.ended.set()
        platform.down()
    settings = backpressures({}, POLICIES, MAX_BACKLOG)
    return [Throttled(name, settings[name], flow, figures(flow, burst, MAX_BACKLOG)) for name, flow in flows.items()]


def _watch(platform: Platform, api: AirflowApi, burst: Burst, began_s: float) -> dict[str, Flow]:
    """Where the records are, second by second."""
    brokers = AdminBrokers({"bootstrap.servers": platform.bootstrap_servers})
    store = ApiStore(api)
    flows: dict[str, Flow] = {policy: Flow() for policy in POLICIES}
    loaded: dict[str, int] = dict.fromkeys(POLICIES, 0)
    for number in range(int(burst.seconds / SAMPLE_S) + 1):
        time.sleep(max(0.0, began_s + number * SAMPLE_S - time.monotonic()))
        for policy in POLICIES:
            with suppress(TidegateError):  # before the first commit there is no cursor
                loaded[policy] = sum(Ledger(store, policy).cursor().offsets.values())
        ends = brokers.watermarks(POLICIES).latest
        now_s = time.monotonic() - began_s
        sent = int(burst.inlet.sent.total(0.0, now_s))
        for tp, end in ends.items():
            flow, lag = flows[tp.topic], end - loaded[tp.topic]
            flow.samples.append(Sample(number * SAMPLE_S, sent, max(0, sent - end), 0, lag, loaded[tp.topic]))
            flow.most_lag = max(flow.most_lag, lag)
    return flows


def main() -> None:
    """Measure, simulate, print and draw."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--plots", type=Path, help="a folder for measured.svg and simulated.svg")
    given = words.parse_args()
    burst = asked()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        measured = measure(Path(folder), burst)
    policies: dict[str, Backpressure] = backpressures({}, POLICIES, MAX_BACKLOG)
    for name, done in (("measured", measured), ("simulated", compare_receivers(burst, policies))):
        out.print(f"\n{name}")
        draw_receivers(burst, done)
        if given.plots is not None:
            open_receiver_plot(given.plots / f"{name}.svg")(name, burst, done)


if __name__ == "__main__":
    main()
