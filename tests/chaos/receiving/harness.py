"""Kills what is between a sender and the table, one fault after the other, and judges what the sender was told.

The law: whatever was answered 202 is in the topic and, once its pipeline has drained it, in the table, once; nothing is there
that was never sent. After every fault posts are acknowledged again, and an instance is under Airflow's supervision again. The
only help is `tidegate up`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from tests.chaos.command import Tell
from tests.chaos.receiving.faults import Planned
from tests.chaos.receiving.sender import Sender
from tests.chaos.receiving.stage import DAG, PIPELINE, ReceivingStage
from tests.chaos.receiving.verdict import ids_of, judge
from tidegate.core.model.errors import TidegateError
from tidegate.waiting import wait_until

RECOVERY_S = 240.0
DRAIN_S = 600.0


@dataclass
class Struck:
    """What one fault did. Seconds are from its end, with the start of what died.

    Args:
        number: of the fault.
        fault: its name.
        started_again: the servers that `tidegate up` started.
        acknowledged_s: until a post that began after the fault was answered 202.
        supervised_s: until an instance was under Airflow's supervision; an orphan may serve before.
        broken: what broke the law.
    """

    number: int
    fault: str
    started_again: list[str] = field(default_factory=list)
    acknowledged_s: float = 0.0
    supervised_s: float = 0.0
    broken: str = ""


@dataclass
class Result:
    """What all faults did, and each verdict; the last one is on topic and table."""

    seed: int
    struck: list[Struck] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    is_finished: bool = False

    @property
    def holds(self) -> bool:
        """Whether the law held to the end; False for faults that were ended before."""
        return self.is_finished and not any(s.broken for s in self.struck) and all(v["holds"] for v in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seed": self.seed,
            "holds": self.holds,
            "struck": [asdict(s) for s in self.struck],
            "verdicts": self.verdicts,
        }


class Harness:
    """Strikes one stage while the sender posts, and adds what came of it to `result`."""

    def __init__(self, stage: ReceivingStage, sender: Sender, result: Result, tell: Tell) -> None:
        self.stage, self.sender, self.result, self._tell = stage, sender, result, tell

    def begin(self) -> None:
        """Let receiver and pipeline run, and wait until posts are acknowledged."""
        for dag in (DAG, PIPELINE):
            self.stage.unpause(dag)
        self._await(lambda: self.sender.was_acknowledged_since(0), "no post is acknowledged")

    def strike(self, planned: Planned) -> Struck:
        """One fault, the way back, and the verdict on the topic. What broke the law is in the answer."""
        struck = Struck(planned.number, planned.fault.name)
        self.result.struck.append(struck)
        draw = planned.draw()
        try:
            time.sleep(draw.uniform(0, planned.within_s))
            planned.fault.strike(self.stage, draw)
            over_s = time.time()
            self.sender.answers()
            struck.started_again = self.stage.up()
            self._await(lambda: self.sender.was_acknowledged_since(over_s), "no post is acknowledged")
            struck.acknowledged_s = round(time.time() - over_s, 1)
            self._await(lambda: bool(self.stage.instances()), "no instance is under Airflow's supervision", poll_s=0.5)
            struck.supervised_s = round(time.time() - over_s, 1)
            if not self.judge():
                struck.broken = "the topic is not what the sender was told"
        except (TidegateError, psutil.Error) as error:
            struck.broken = str(error)
        self._tell(_line(struck))
        return struck

    def judge(self) -> bool:
        """The verdict on the topic, while posts go on."""
        acknowledged = self.sender.acknowledged()
        topic = ids_of(self.stage.log())
        return self._judged(acknowledged, self.sender.sent, topic)

    def finish(self) -> bool:
        """End the sender, let the pipeline load the rest of the topic, and judge topic and table."""
        self.sender.stop()
        # what the sender gave up may still be on its way: the receiver answers, or drops, it before its lease ends
        self.stage.pause(DAG)
        self._await(lambda: not self.stage.is_listening, "the paused receiver listens")
        log = self.stage.log()
        if not wait_until(lambda: self.stage.cursor(PIPELINE).at.offsets == log.ends(), DRAIN_S, poll_s=1.0):
            raise TidegateError(f"{PIPELINE} has not loaded the topic for {DRAIN_S:.0f} s: {self._state(PIPELINE)}")
        self.result.is_finished = True
        return self._judged(self.sender.acknowledged(), self.sender.sent, ids_of(log), self.stage.rows())

    # ----

    def _await(self, condition: Callable[[], bool], otherwise: str, poll_s: float = 0.1) -> None:
        """Wait for what has to come after a fault. Raises `TidegateError` with what is known when it does not."""
        if not wait_until(condition, RECOVERY_S, poll_s):
            answers, listening = self.sender.answers(), self.stage.is_listening
            known = f"answers {answers}, listening {listening}, {self._state(DAG)}"
            raise TidegateError(f"{otherwise} for {RECOVERY_S:.0f} s: {known}")

    def _state(self, dag: str) -> str:
        """The last runs of a DAG, their tasks, and why the last failed one failed."""
        told = []
        with self.stage.api() as api:
            for run in self.stage.runs(dag)[:3]:
                states = {each["task_id"]: each["state"] for each in api.task_instances(dag, run["dag_run_id"])}
                told.append(f"{run['dag_run_id']} {run['state']} {states}: {self.stage.why(dag, run['dag_run_id'])}")
        return "; ".join(told) or "no run"

    def _judged(self, acknowledged: set[int], sent: int, topic: list[int], table: list[int] | None = None) -> bool:
        verdict = judge(acknowledged, sent, topic, table)
        self.result.verdicts.append({"after": len(self.result.struck), **verdict.to_json()})
        self._tell(f"      {'topic' if table is None else 'topic and table'}: {verdict}")
        return verdict.holds


def _line(struck: Struck) -> str:
    told = f"{struck.number:4d}  {struck.fault:<15}"
    if struck.broken:
        return f"{told}BROKEN: {struck.broken}"
    again = f", started again: {', '.join(struck.started_again)}" if struck.started_again else ""
    return f"{told}acknowledged after {struck.acknowledged_s:5.1f} s, supervised after {struck.supervised_s:5.1f} s{again}"
