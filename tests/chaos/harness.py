"""Strikes a running schedule, one fault after the other, and watches whether it goes on by itself and what is in the table.

The law: after every fault the schedule goes on by itself within two DAG runs, that is, one succeeds and the cursor moves again;
every committed record of the log is in the table exactly once; and readers that follow the table see each row once. The only
help that the schedule gets is `tidegate up`. A fault that takes committed rows out of a table is refused by the next plan, and
takes one `tidegate ledger reload`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import psutil

from tests.batches import BatchVerdict
from tests.chaos.command import Tell
from tests.chaos.faults import RANDOM
from tests.chaos.follower import Follower
from tests.chaos.schedule import Planned
from tests.chaos.stage import ASIDE, BATCHES, CONNECT, SUBMIT, TABLES, Held, Stage
from tests.chaos.verdict import BatchOracle, Oracle
from tidegate.core.audit.oracle import Verdict
from tidegate.core.model.errors import PlatformError, TidegateError
from tidegate.waiting import wait_until

FURTHER_RUNS = 2
RECOVERY_S = 240.0
DRAIN_S = 600.0
LONGEST_RUN_S = 4.0
REFUSAL = "TableLost"
KEPT_COMMITS = 3


@dataclass
class Struck:
    """What one fault did. `recovery_s` is from its end to the next commit, starting servers included.

    `help` counts what a user had to do beside one `tidegate up`, `needed` is what the fault cannot do without: a
    `tidegate ledger reload` where the table lost rows. `refused_s` is from the fault's end to the run that refused to go on.
    """

    number: int
    fault: str
    phase: str
    pipeline: str = CONNECT
    skipped: str = ""
    started_again: list[str] = field(default_factory=list)
    failed_runs: list[str] = field(default_factory=list)
    recovery_s: float = 0.0
    refused_s: float = 0.0
    needed: int = 0
    help: int = 0
    broken: str = ""

    @property
    def holds(self) -> bool:
        """Whether the schedule went on with no more help than it needs."""
        return not self.broken and (bool(self.skipped) or self.help == self.needed)


@dataclass
class Result:
    """What a whole schedule of faults did."""

    seed: int
    struck: list[Struck] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    followed: dict[str, dict[str, Any]] = field(default_factory=dict)
    changed_rows: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the law held to the end; False for a schedule that was ended before."""
        judged = [*self.verdicts, *self.followed.values()]
        return all(s.holds for s in self.struck) and self.changed_rows == 0 and all(v["holds"] for v in judged)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seed": self.seed,
            "holds": self.holds,
            "struck": [asdict(s) for s in self.struck],
            "verdicts": self.verdicts,
            "followed": self.followed,
            "changed_rows": self.changed_rows,
        }


class Harness:
    """Strikes one stage, and adds what came of it to `result`."""

    def __init__(self, stage: Stage, result: Result, tell: Tell) -> None:
        self.stage, self.result, self._tell = stage, result, tell
        self._followers = {name: Follower(TABLES[name]) for name in (SUBMIT, ASIDE, CONNECT)}

    def begin(self) -> None:
        """Let the schedule run, and wait until it has loaded something."""
        self.stage.unpause(CONNECT)
        self.stage.platform.use_catalog()
        for follower in self._followers.values():
            follower.start()
        if not wait_until(lambda: self.stage.cursor().seq >= 1, RECOVERY_S, poll_s=0.5):
            raise TidegateError("the schedule does not begin", fix=str(self._reasons(self.stage.runs())))

    def strike(self, planned: Planned) -> Struck:
        """One fault, and the way back. What broke the law is in the answer."""
        fault, pipeline = planned.fault, planned.pipeline
        struck = Struck(planned.number, fault.name, planned.phase, pipeline, needed=int(fault.loses))
        self.result.struck.append(struck)
        if fault.name == "disk" and self.stage.disk is None:
            struck.skipped = "no small disk can be mounted here"
            return struck
        try:
            self._wake(pipeline)
            if fault.of_table:
                self._await_commits(pipeline)
            draw = planned.draw()
            held = self._hold(planned, draw.uniform(0, LONGEST_RUN_S))
            fault.strike(self.stage, held, draw)
            ended = time.time()
            self._up(struck)
            if fault.loses:
                self._help(struck, pipeline, ended)
            self._recover(struck, pipeline)
            struck.recovery_s = round(time.time() - ended, 1)
            if fault.of_table and not struck.broken and not self.judge():
                struck.broken = f"the table of {pipeline} is not what the log says"
        except (TidegateError, psutil.Error) as error:
            struck.broken = str(error)
        self._tell(_line(struck))
        return struck

    def judge(self) -> bool:
        """The verdict on what is below the cursors, while the schedule works."""
        held = True
        for pipeline in (CONNECT, BATCHES, ASIDE):
            cursor = self.stage.cursor(pipeline)
            if cursor.seq:
                held &= self._judged(pipeline, self.stage.oracle(pipeline).judge_so_far(cursor))
        return held

    def finish(self) -> bool:
        """Let the schedule drain the log, whose writers have ended, and judge all of it, also what the rows hold."""
        for pipeline in (SUBMIT, BATCHES, ASIDE, CONNECT):
            oracle = self.stage.oracle(pipeline)
            if not self.stage.cursor(pipeline).seq:
                continue
            self._wake(pipeline)
            if not wait_until(partial(self._is_drained, pipeline, oracle), DRAIN_S, poll_s=1.0):
                raise TidegateError(f"{pipeline} does not drain the log: {self._reasons(self.stage.runs(pipeline), pipeline)}")
            held = self._judged(pipeline, oracle.judge_all(self.stage.cursor(pipeline)))
            self.result.changed_rows = (self.result.changed_rows or 0) + oracle.changed_rows()
            if not held:
                return False
            if pipeline in self._followers:
                self._judge_reader(pipeline)
        return self.result.changed_rows == 0 and all(told["holds"] for told in self.result.followed.values())

    # ----

    def _judge_reader(self, pipeline: str) -> None:
        follower = self._followers[pipeline]
        told = self.result.followed[pipeline] = follower.judge().to_json()
        self._tell(
            f"      a reader beside {pipeline} began again {follower.again} times, then saw {told['rows']} rows: "
            f"{told['lost']} missed, {told['duplicated']} twice, {told['unknown']} unknown"
        )

    def _hold(self, planned: Planned, delay_s: float) -> Held:
        if planned.phase != RANDOM:
            return self.stage.hold(planned.phase)
        time.sleep(delay_s)
        return self.stage.running_task()

    def _wake(self, pipeline: str) -> None:
        """Let this pipeline run, alone: fail points do not tell them apart."""
        asleep = self.stage.awake
        if asleep == pipeline:
            return
        self.stage.pause(asleep)

        # Airflow starts no task of a paused DAG, not even in a run that has begun
        if not wait_until(lambda: self.stage.is_idle(asleep), RECOVERY_S, poll_s=0.5):
            raise TidegateError(f"the tasks of {asleep} do not end")
        self.stage.unpause(pipeline)
        self.stage.awake = pipeline

    def _await_commits(self, pipeline: str) -> None:
        """A table that loses something has to have something."""
        if not wait_until(lambda: len(self.stage.receipts(pipeline)) >= KEPT_COMMITS, RECOVERY_S, poll_s=0.5):
            raise TidegateError(f"{pipeline} makes no commits: {self._reasons(self.stage.runs(pipeline), pipeline)}")

    def _help(self, struck: Struck, pipeline: str, over: float) -> None:
        """Make sure that the schedule refuses to go on, then bring back what the table lost, as its message says.

        Raises:
            TidegateError: it went on as if nothing had happened, or the command failed.
        """
        before = self.stage.cursor(pipeline).seq

        def went_on() -> bool:
            # a batch that was planned before may still be committed
            return self.stage.cursor(pipeline).seq > before + 1

        def refused() -> bool:
            ended = (r for r in self.stage.runs(pipeline) if r["state"] == "failed" and _seconds(r["end_date"]) > over)
            return any(REFUSAL in log for r in ended for log in self.stage.logs(pipeline, r["dag_run_id"]).values())

        if not wait_until(lambda: went_on() or refused(), RECOVERY_S, poll_s=0.5):
            raise TidegateError(f"no run refused to go on: {self._reasons(self.stage.runs(pipeline), pipeline)}")
        if went_on():
            raise TidegateError(f"{pipeline} committed further batches, and its table had lost rows")
        struck.refused_s = round(time.time() - over, 1)
        struck.help += 1
        self.stage.reload(pipeline)

    def _up(self, struck: Struck) -> None:
        while True:
            try:
                struck.started_again += self.stage.up()
            except PlatformError as error:
                self._tell(f"      `up` had to be repeated: {error}")
                struck.help += 1
                if struck.help > FURTHER_RUNS:
                    raise
            else:
                return

    def _recover(self, struck: Struck, pipeline: str) -> None:
        over = time.time()
        before = self.stage.cursor(pipeline).seq
        seen: dict[str, dict[str, Any]] = {}

        def failed() -> list[dict[str, Any]]:
            return [r for r in seen.values() if r["state"] == "failed" and _seconds(r["start_date"]) > over]

        def is_decided() -> bool:
            seen.update(
                {r["dag_run_id"]: r for r in self.stage.runs(pipeline) if r["end_date"] and _seconds(r["end_date"]) > over}
            )
            return len(failed()) >= FURTHER_RUNS or (
                any(r["state"] == "success" for r in seen.values()) and self.stage.cursor(pipeline).seq > before
            )

        decided = wait_until(is_decided, RECOVERY_S, poll_s=0.5)
        struck.failed_runs = [r["dag_run_id"] for r in failed()]
        if not decided:
            why = self._reasons(self.stage.runs(pipeline), pipeline)
            struck.broken = f"nothing was committed for {RECOVERY_S:.0f} s: {why}"
        elif len(struck.failed_runs) >= FURTHER_RUNS:
            struck.broken = f"{FURTHER_RUNS} further runs failed: {self._reasons(failed(), pipeline)}"

    def _is_drained(self, pipeline: str, oracle: Oracle | BatchOracle) -> bool:
        return self.stage.cursor(pipeline).at.offsets == oracle.ends()

    def _reasons(self, runs: Sequence[dict[str, Any]], pipeline: str = CONNECT) -> str:
        failed = [r["dag_run_id"] for r in runs if r["state"] == "failed"]
        return self.stage.why(pipeline, failed[0]) if failed else "no run failed"

    def _judged(self, pipeline: str, verdict: Verdict | BatchVerdict) -> bool:
        told = {"after": len(self.result.struck), "pipeline": pipeline, **verdict.to_json()}
        self.result.verdicts.append(told)
        self._tell(
            f"      verdict on {pipeline}: {told['records']} records, {told['rows']} rows, {told['lost']} lost, "
            f"{told['duplicated']} duplicated, {told['unknown']} unknown"
        )
        return verdict.holds


def _line(struck: Struck) -> str:
    told = f"{struck.number:4d}  {struck.fault:<14}{struck.phase:<15}{struck.pipeline:<15}"
    if struck.broken:
        return f"{told}BROKEN: {struck.broken}"
    again = f", started again: {', '.join(struck.started_again)}" if struck.started_again else ""
    failed = f", {len(struck.failed_runs)} further runs failed" if struck.failed_runs else ""
    refused = f", refused after {struck.refused_s:.1f} s and reloaded" if struck.needed else ""
    return f"{told}goes on after {struck.recovery_s:5.1f} s{again}{failed}{refused}"


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
