"""One burst at receivers under each policy of back-pressure, on the platform; prints a table.

    python -m tests.bench.receiver_backpressure

Four receivers of lines run at the same time, each with a topic, a pipeline that runs every minute and takes at most 24,000
records, and a sender that sends 200 lines/s, and five times as many for two minutes. Every two seconds the ends of topics and
cursors are read. Platform, topics and tables are made here, in a temporary folder. It takes a quarter of an hour.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from tests.bench.cli import markdown, run
from tests.projects import copy_project, whole_platform, write_files
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.cli.simulate import count, duration
from tidegate.core.model.errors import TidegateError
from tidegate.core.state.ledger import Ledger
from tidegate.kafka.brokers import AdminBrokers
from tidegate.simulation.plant import Steps
from tidegate.waiting import wait_until
from tidegate_local import sockets
from tidegate_local.flights import create_topic
from tidegate_local.platform import Platform
from tidegate_receivers.airflow.remote import read_receiver
from tidegate_receivers.config.receiver import Policy, Receiver

POLICIES: tuple[Policy, ...] = get_args(Policy)
INTERVAL_S = 60.0
RATE, FACTOR = 200.0, 5.0
SINCE_S, UNTIL_S, END_S = 120.0, 240.0, 720.0
SENT = Steps([(0.0, RATE), (SINCE_S, FACTOR * RATE), (UNTIL_S, RATE)])
"""Records/s that each sender sends."""
BATCH, MAX_BACKLOG = 24_000, 48_000
LINE = b"%0138d\n"
SAMPLE_S = 2.0
OPEN_S = 300.0


@dataclass
class Sender:
    """Lines at the rate of the burst over one connection; those that are due wait while the connection does not take them."""

    port: int
    began_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    lines: int = 0

    def run(self) -> None:
        """Until it is ended."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as connection:
            while not self.ended.wait(0.02):
                due = int(SENT.total(0.0, time.monotonic() - self.began_s))
                if due > self.lines:
                    connection.sendall(b"".join(LINE % number for number in range(self.lines, due)))
                    self.lines = due


@dataclass(frozen=True)
class Sample:
    """Where the records are at a second: sent so far, of these in the topic's log, and loaded."""

    second: float
    sent: int
    landed: int
    loaded: int


@dataclass
class Flow:
    """What flowed under a policy, and how long the instance held its sender back."""

    samples: list[Sample] = field(default_factory=list)
    held_s: float = 0.0

    def worked_off_s(self) -> float | None:
        """From the begin of the burst until no more is open than at most before it, to a tenth; None: not by the end."""
        usual = 1.1 * max(sample.sent - sample.loaded for sample in self.samples if sample.second < SINCE_S)
        above = [sample.second for sample in self.samples if sample.sent - sample.loaded > usual]
        last = max(above, default=SINCE_S - SAMPLE_S)
        return None if last == self.samples[-1].second else last + SAMPLE_S - SINCE_S


FIGURES: Mapping[str, Callable[[Flow], str]] = {
    "most in the topic": lambda of: count(_most_lag(of)),
    "of max_backlog": lambda of: f"{_most_lag(of) / MAX_BACKLOG:.2f}",
    "most at the senders, and on their way": lambda of: count(max(each.sent - each.landed for each in of.samples)),
    "held back": lambda of: duration(of.held_s),
    "worked off after": lambda of: "past the end" if (took_s := of.worked_off_s()) is None else duration(took_s),
}


def _most_lag(flow: Flow) -> int:
    return max(each.landed - each.loaded for each in flow.samples)


def write(folder: Path, ports: dict[str, int]) -> None:
    """The files of receivers and pipelines."""
    copy_project(folder)
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
        backpressure = {name: value for name, value in stated.items() if name in ("policy", *taken)}
        receiver = {"kind": "tcp_server", "topic": policy, "listen": {"port": port}, "backpressure": backpressure}
        write_files(folder, "pipelines", {policy: pipeline})
        write_files(folder, "receivers", {policy: receiver})


def measure(folder: Path) -> dict[str, Flow]:
    """All policies at the same time."""
    ports: dict[str, int] = {policy: sockets.choose_port() for policy in POLICIES}
    write(folder, ports)
    with whole_platform(folder) as platform, platform.api() as api, ExitStack() as ends:
        for policy in POLICIES:
            create_topic({"bootstrap.servers": platform.bootstrap_servers}, policy, 1)
        for dag in (*(f"{policy}__receive" for policy in POLICIES), *POLICIES):
            api.wait_dag(dag)
            api.unpause(dag)
        if not wait_until(lambda: all(map(sockets.answers, ports.values())), OPEN_S, poll_s=1):
            raise SystemExit("the receivers do not listen")
        time.sleep(INTERVAL_S - time.time() % INTERVAL_S)  # runs begin with the minute
        began_s = time.monotonic()
        for port in ports.values():
            sender = Sender(port, began_s)
            ends.callback(sender.ended.set)
            threading.Thread(target=sender.run, daemon=True).start()
        flows = _watch(platform, api, began_s)
        for name, flow in flows.items():
            (said,) = [each.status for each in read_receiver(api, Receiver(name, "tcp_server", name)).instances]
            flow.held_s = said["throttled_s"]
    return flows


def _watch(platform: Platform, api: AirflowApi, began_s: float) -> dict[str, Flow]:
    """Where the records are, second by second."""
    brokers = AdminBrokers({"bootstrap.servers": platform.bootstrap_servers})
    store = ApiStore(api)
    flows: dict[str, Flow] = {policy: Flow() for policy in POLICIES}
    loaded: dict[str, int] = dict.fromkeys(POLICIES, 0)
    for number in range(int(END_S / SAMPLE_S) + 1):
        time.sleep(max(0.0, began_s + number * SAMPLE_S - time.monotonic()))
        for policy in POLICIES:
            with suppress(TidegateError):  # before the first commit there is no cursor
                loaded[policy] = sum(Ledger(store, policy).cursor().at.offsets.values())
        ends = brokers.watermarks(POLICIES).latest
        now_s = time.monotonic() - began_s
        sent = int(SENT.total(0.0, now_s))
        for tp, end in ends.items():
            flows[tp.topic].samples.append(Sample(number * SAMPLE_S, max(sent, end), end, loaded[tp.topic]))
    return flows


def table(flows: Mapping[str, Flow]) -> str:
    """The figures of each policy, for a page."""
    return markdown([["measured", *flows], *([name, *map(shown, flows.values())] for name, shown in FIGURES.items())])


if __name__ == "__main__":
    run(__doc__, measure, show=table)
