"""Strikes a running schedule, one fault after the other, and watches whether it goes on by itself and what is in the table.

The law: after every fault the schedule goes on by itself within two DAG runs, that is, one succeeds and the cursor moves again;
and every committed record of the log is in the table exactly once. The only help that the schedule gets is `tidegate up`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import psutil
from faults import RANDOM
from schedule import Planned
from stage import CONNECT, SUBMIT, Held, Stage

from tidegate.errors import PlatformError, TidegateError
from tidegate.local.process import wait_until
from tidegate.oracle import Verdict

FURTHER_RUNS = 2
RECOVERY_S = 240.0
DRAIN_S = 600.0
LONGEST_RUN_S = 4.0

Tell = Callable[[str], object]


@dataclass
class Struck:
    """What one fault did. `recovery_s` is from its end to the next commit, starting servers included.

    `help` counts what a user would have had to do beside one `tidegate up`.
    """

    number: int
    fault: str
    phase: str
    skipped: str = ""
    started_again: list[str] = field(default_factory=list)
    failed_runs: list[str] = field(default_factory=list)
    recovery_s: float = 0.0
    help: int = 0
    broken: str = ""


@dataclass
class Result:
    """What a whole schedule of faults did."""

    seed: int
    struck: list[Struck] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    changed_rows: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the law held to the end; False for a schedule that was ended before."""
        broken = any(s.broken or s.help for s in self.struck)
        return not broken and self.changed_rows == 0 and all(v["holds"] for v in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seed": self.seed,
            "holds": self.holds,
            "struck": [asdict(s) for s in self.struck],
            "verdicts": self.verdicts,
            "changed_rows": self.changed_rows,
        }


class Harness:
    """Strikes one stage, and adds what came of it to `result`."""

    def __init__(self, stage: Stage, result: Result, tell: Tell) -> None:
        self.stage, self.result, self._tell = stage, result, tell

    def begin(self) -> None:
        """Wait until the schedule has loaded something."""
        if not wait_until(lambda: self.stage.cursor().seq >= 1, RECOVERY_S, poll_s=0.5):
            raise TidegateError("the schedule does not begin", fix=str(self._reasons(self.stage.runs())))

    def strike(self, planned: Planned) -> Struck:
        """One fault, and the way back. What broke the law is in the answer."""
        struck = Struck(planned.number, planned.fault.name, planned.phase)
        self.result.struck.append(struck)
        if planned.fault.name == "disk" and self.stage.disk is None:
            struck.skipped = "no small disk can be mounted here"
            return struck
        try:
            with self._awake(planned.fault.pipeline):
                draw = planned.draw()
                held = self._hold(planned, draw.uniform(0, LONGEST_RUN_S))
                planned.fault.strike(self.stage, held, draw)
                ended = time.time()
                self._up(struck)
                self._recover(struck, planned.fault.pipeline)
                struck.recovery_s = round(time.time() - ended, 1)
        except (TidegateError, psutil.Error) as error:
            struck.broken = str(error)
        self._tell(_line(struck))
        return struck

    def judge(self) -> bool:
        """The verdict on what is below the cursor, while the schedule works."""
        cursor = self.stage.cursor()
        return self._judged(self.stage.oracle().judge_so_far(cursor.offsets))

    def finish(self) -> bool:
        """Let the schedule drain the log, whose writers have ended, and judge all of it, also what the rows hold."""
        for pipeline in (CONNECT, SUBMIT):
            oracle = self.stage.oracle(pipeline)
            if pipeline == SUBMIT and not self.stage.cursor(SUBMIT).seq:
                continue
            with self._awake(pipeline):
                if not wait_until(lambda o=oracle, p=pipeline: self.stage.cursor(p).offsets == o.ends(), DRAIN_S, poll_s=1.0):
                    raise TidegateError(f"{pipeline} does not drain the log: {self._reasons(self.stage.runs(pipeline))}")
            held = self._judged(oracle.judge_all())
            self.result.changed_rows = (self.result.changed_rows or 0) + oracle.changed_rows()
            if not held:
                return False
        return self.result.changed_rows == 0

    # ----

    def _hold(self, planned: Planned, delay_s: float) -> Held:
        if planned.phase != RANDOM:
            return self.stage.hold(planned.phase)
        time.sleep(delay_s)
        return self.stage.running_task()

    @contextmanager
    def _awake(self, pipeline: str) -> Iterator[None]:
        """Let the pipeline that sleeps otherwise run for a while, alone: fail points do not tell the two apart."""
        if pipeline != SUBMIT:
            yield
            return
        self._switch(CONNECT, SUBMIT)
        try:
            yield
        finally:
            self._switch(SUBMIT, CONNECT)

    def _switch(self, asleep: str, awake: str) -> None:
        self.stage.pause(asleep)

        # Airflow starts no task of a paused DAG, not even in a run that has begun
        if not wait_until(lambda: self.stage.is_idle(asleep), RECOVERY_S, poll_s=0.5):
            raise TidegateError(f"the tasks of {asleep} do not end")
        self.stage.unpause(awake)

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

    def _reasons(self, runs: Sequence[dict[str, Any]], pipeline: str = CONNECT) -> str:
        failed = [r["dag_run_id"] for r in runs if r["state"] == "failed"]
        return self.stage.why(pipeline, failed[0]) if failed else "no run failed"

    def _judged(self, verdict: Verdict) -> bool:
        told = {"after": len(self.result.struck), **verdict.to_json()}
        self.result.verdicts.append(told)
        self._tell(
            f"      verdict: {told['records']} records, {told['rows']} rows, {told['lost']} lost, "
            f"{told['duplicated']} duplicated, {told['unknown']} unknown"
        )
        return verdict.holds


def _line(struck: Struck) -> str:
    told = f"{struck.number:4d}  {struck.fault:<14}{struck.phase:<15}"
    if struck.broken:
        return f"{told}BROKEN: {struck.broken}"
    again = f", started again: {', '.join(struck.started_again)}" if struck.started_again else ""
    failed = f", {len(struck.failed_runs)} further runs failed" if struck.failed_runs else ""
    return f"{told}goes on after {struck.recovery_s:5.1f} s{again}{failed}"


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
